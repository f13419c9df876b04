"""Training: environments, agent and loop put together. Read this file first.

    interact -> remember -> sample -> dispatch (XLA, on its own thread) -> sync -> act -> interact

While an update is computed, the environments take their next step and the next batch is drawn; the
policy acts on weights that are one round of steps old. Everything happens in a fixed order, so a
seed repeats exactly, however often it is evaluated, saved or shown on the way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.disk.code import code_version
from midstride.disk.runs import Run, claimed, empty, event_writer, is_of, read_result
from midstride.envs.faults import Fault, closed_after
from midstride.envs.vector import Step, interact
from midstride.learn.agents import Training
from midstride.learn.signals import Interrupted, held_interrupts
from midstride.learn.trainer import Trainer, finish, opened

_LOG_EVERY_S = 1.0


@dataclass
class Progress:
    """What a progress bar shows."""

    steps: int = 0
    total: int = 1
    steps_per_second: float = 0.0
    mean_return: float | None = None  # of the latest episodes; None before the first has ended
    epsilon: float = 1.0


OnProgress = Callable[[Progress], None]


def train(
    training: Training,
    folder: Path,
    resume: bool = False,
    on_progress: OnProgress = lambda progress: None,
    tensorboard: bool = False,
    keep_checkpoint: bool = False,
    restart: bool = False,
) -> dict[str, Any]:
    """Train in a run folder and return its result; a finished run is not run again.

    resume: go on with what the folder holds; settings must agree, but `steps` may be more. The
        environments begin new episodes; all else goes on as if nothing had happened
    keep_checkpoint: of a finished run, so that it can be made longer
    restart: delete what an unfinished run left in the folder, and begin again
    """
    with claimed(folder):
        events = event_writer() if tensorboard else None  # an error now if the extra is missing
        if restart and read_result(folder) is None:
            empty(folder)
        run = opened(training, folder, resume)
        finished = read_result(folder)
        if finished is not None and is_of(finished, training.hash):
            return finished
        trainer = Trainer.create(training, folder)  # rejects what does not fit
        restored = trainer.restore(run)
        if not restored:
            run.start()
        elif run.code != code_version():
            run.note("the run was begun by other code, and goes on with this")
        if events is not None:
            run.events = events(str(folder), purge_step=trainer.steps)
        if not restored:
            with trainer.clock.of("first updates"):
                trainer.agent.prepare()
                trainer.agent.sync()  # saving must not be what hands over the weights
            if trainer.clock.seconds["first updates"] > 30:  # too long to be lost
                trainer.save(run)
        with closed_after(trainer.envs):
            with held_interrupts() as signalled:
                steps_until_fault(trainer, run, on_progress, signalled)
                trainer.save(run)
                if number := signalled():
                    raise Interrupted.after(folder, trainer.steps, number)
            return finish(trainer, run, keep_checkpoint)


def steps_until_fault(
    trainer: Trainer, run: Run, on_progress: OnProgress, signalled: Callable[[], int | None]
) -> None:
    """`steps_until_done`; if an environment fails, what was learned until then is saved."""
    before = trainer.steps
    try:
        steps_until_done(trainer, run, on_progress, signalled)
    except Fault as fault:
        if trainer.steps == before:
            raise
        trainer.save(run)
        raise Fault(f"{fault}; saved {run.folder} after {trainer.steps:,} steps") from fault


def steps_until_done(
    trainer: Trainer,
    run: Run,
    on_progress: OnProgress,
    signalled: Callable[[], int | None] = lambda: None,
) -> None:
    """Interact and learn until all steps are taken, or a signal asks to end."""
    settings, agent, clock = trainer.training.run, trainer.agent, trainer.clock
    if trainer.steps >= settings.steps:
        return
    n, returns = settings.num_envs, np.zeros(settings.num_envs)
    since, since_steps, logged = time.perf_counter(), trainer.steps, 0.0  # without evaluations
    agent.policy.reset(np.ones(n, bool))
    # After a resume the environments start new episodes, from seeds of their own.
    seed = int(np.random.default_rng([settings.seed, trainer.steps]).integers(2**31))
    for step in steps_of(trainer, seed):
        clock.lap("physics", aside=("camera", trainer.envs.camera_s))
        trainer.steps += n
        if step is not None:
            agent.remember(step)
            add_returns(trainer, returns, step)
        if agent.ready(trainer.steps):
            trainer.owed += agent.calls_for(n)
            if trainer.owed >= 1:
                batches = agent.sample(int(trainer.owed))
                clock.lap("replay")
                if agent.waits:
                    with clock.of("fitting"):
                        agent.dispatch(batches)
                        agent.wait()
                else:
                    agent.dispatch(batches, clock.lap if clock.measures else None)
                trainer.owed -= int(trainer.owed)
        measured = agent.sync(leave=0 if agent.waits else 1)
        if measured is not None:
            trainer.add_losses(measured)
        now = time.perf_counter()
        rate = (trainer.steps - since_steps) / (now - since)
        if now - logged > _LOG_EVERY_S or trainer.steps >= settings.steps:
            epsilon = agent.epsilon(trainer.steps)
            progress = Progress(trainer.steps, settings.steps, rate, trainer.mean_return, epsilon)
            on_progress(progress)
            logged = now
        if _crosses(trainer.steps, n, settings.evaluate_every):
            trainer.log(run, rate)
        if trainer.steps >= settings.steps or signalled():
            return
        if _crosses(trainer.steps, n, settings.checkpoint_every):
            trainer.save(run)
        since += time.perf_counter() - now


def steps_of(trainer: Trainer, seed: int) -> Iterator[Step | None]:
    """Steps of the environments; None for each that is not taken, where all is recorded."""
    if trainer.training.agent.recorded_in is not None:
        while True:
            if trainer.clock.next_round():
                trainer.agent.wait()
                trainer.clock.start(aside=trainer.envs.camera_s)
            yield None
    yield from interact(trainer.envs, timed_act(trainer), seed, trainer.agent.policy.reset)


def timed_act(trainer: Trainer) -> Callable[[Any], tuple[NDArray[Any], dict[str, NDArray[Any]]]]:
    """The agent's actions, with the time they take."""
    agent, clock = trainer.agent, trainer.clock

    def act(observation: Any) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        if clock.next_round():
            agent.wait()
            clock.start(aside=trainer.envs.camera_s)
        chosen = agent.act(observation, trainer.steps)
        clock.lap("acting")
        return chosen

    return act


def add_returns(trainer: Trainer, returns: NDArray[np.floating], step: Step) -> None:
    """Rewards so far of the episodes under way; those that ended are noted."""
    returns += step.reward
    for i in np.flatnonzero(step.done):
        trainer.returns.append(float(returns[i]))
        returns[i] = 0


def _crosses(steps: int, n: int, every: int) -> bool:
    return steps // every != (steps - n) // every

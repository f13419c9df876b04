"""Training: environments, agent and loop put together. Read this file first.

    interact -> remember -> sample -> dispatch (XLA, on its own thread) -> sync -> act -> interact

While an update is computed, the environments take their next step and the next batch is drawn; the
policy acts on weights that are one round of steps old. Everything happens in a fixed order, so a
seed repeats exactly.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.disk.runs import Run, claimed, event_writer, read_result
from midstride.envs.vector import Step, interact
from midstride.learn.agents import Training
from midstride.learn.signals import Interrupted, held_interrupts
from midstride.learn.trainer import Trainer, finish, opened

_LOG_EVERY_S = 1.0
_LOGGED = {"loss", "q", "label", "auxiliary"}  # of what updates measure


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
) -> dict[str, Any]:
    """Train in a run folder and return its result; a finished run is not run again.

    resume: go on with what the folder holds; settings must agree, but `steps` may be more
    keep_checkpoint: of a finished run, so that it can be made longer
    """
    with claimed(folder):
        events = event_writer() if tensorboard else None  # an error now if the extra is missing
        run = opened(training, folder, resume)
        finished = read_result(folder)
        if finished is not None and finished.get("hash") == training.hash:
            return finished
        trainer = Trainer.create(training, folder)  # rejects what does not fit
        restored = trainer.restore(run)
        if not restored:
            run.start()
        if events is not None:
            run.events = events(str(folder), purge_step=trainer.steps)
        if not restored:
            with trainer.clock.of("first updates"):
                trainer.agent.prepare()
                trainer.agent.sync()  # saving must not be what hands over the weights
            if trainer.clock.seconds["first updates"] > 30:  # too long to be lost
                trainer.save(run)
        with held_interrupts() as interrupted:
            steps_until_done(trainer, run, on_progress, interrupted)
            trainer.save(run)
            if interrupted():
                raise Interrupted(folder, trainer.steps)
        return finish(trainer, run, keep_checkpoint)


def steps_until_done(
    trainer: Trainer,
    run: Run,
    on_progress: OnProgress,
    interrupted: Callable[[], bool] = lambda: False,
) -> None:
    """Interact and learn until all steps are taken, or interrupted."""
    settings, agent, clock = trainer.training.run, trainer.agent, trainer.clock
    if trainer.steps >= settings.steps:
        return
    n, returns, owed = settings.num_envs, np.zeros(settings.num_envs), 0.0
    since, since_steps, logged = time.perf_counter(), trainer.steps, 0.0  # without evaluations
    agent.policy.reset()
    # After a resume the environments start new episodes, from seeds of their own.
    seed = int(np.random.default_rng([settings.seed, trainer.steps]).integers(2**31))
    for step in interact(trainer.envs, timed_act(trainer), seed, agent.policy.reset):
        clock.lap("physics", aside=("camera", trainer.envs.camera_s))
        trainer.steps += n
        agent.remember(step)
        add_returns(trainer, returns, step)
        if agent.ready(trainer.steps):
            owed += n / trainer.training.agent.update_every
            if owed >= 1:
                batches = agent.sample(int(owed))
                clock.lap("replay")
                agent.dispatch(batches, clock.lap if clock.measures else None)
                owed -= int(owed)
        measured = agent.sync(leave=1)
        if measured is not None:
            for name in _LOGGED & measured.keys():
                trainer.losses[name].append(float(measured[name].mean()))
        now = time.perf_counter()
        rate = (trainer.steps - since_steps) / (now - since)
        if now - logged > _LOG_EVERY_S or trainer.steps >= settings.steps:
            epsilon = agent.epsilon(trainer.steps)
            progress = Progress(trainer.steps, settings.steps, rate, trainer.mean_return, epsilon)
            on_progress(progress)
            logged = now
        if _crosses(trainer.steps, n, settings.evaluate_every):
            trainer.log(run, rate)
        if trainer.steps >= settings.steps or interrupted():
            return
        if _crosses(trainer.steps, n, settings.checkpoint_every):
            trainer.save(run)
        since += time.perf_counter() - now


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

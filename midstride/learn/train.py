"""Training: environments, agent, replay and loop put together. Read this file first.

    interact -> replay -> sample -> dispatch (XLA, on its own thread) -> sync -> policy -> interact

While an update is computed, the environments take their next step and the next batch is drawn; the
policy acts on weights that are one round of steps old. Everything happens in a fixed order, so a
seed repeats exactly.
"""

from __future__ import annotations

import shutil
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.disk.runs import Run, claimed, event_writer, read_result
from midstride.envs.loop import interact
from midstride.learn.agents import Agent, configure_jax
from midstride.learn.config import AnyConfig, GraspConfig
from midstride.learn.learner import Learner, make_learner
from midstride.learn.stopwatch import Stopwatch
from midstride.measure.evaluate import EVALUATION_SCENES, EVALUATION_SEED, evaluate, interval
from midstride.policies import AnyPolicy, save_policy
from midstride.tasks.make import Envs, make_envs

FINAL_EPISODES = 4  # times as many in the last evaluation
FINAL_SCENES = 1000  # its scenes, of grasping: their seed, counting up with the training's
_LOG_EVERY_S = 1.0
_LOGGED = {"loss", "q", "label", "auxiliary"}  # of what updates measure


@dataclass
class Progress:
    """What a progress bar shows."""

    steps: int = 0
    total: int = 1
    steps_per_second: float = 0.0
    mean_return: float = float("nan")
    epsilon: float = 1.0


OnProgress = Callable[[Progress], None]


@dataclass
class Trainer:
    """The state of a training: what a checkpoint must hold."""

    config: AnyConfig
    envs: Envs
    learner: Learner
    rng: np.random.Generator
    steps: int = 0
    returns: list[float] = field(default_factory=list)  # of finished episodes
    seconds: float = 0.0  # spent before, in a run that was resumed
    clock: Stopwatch = field(default_factory=Stopwatch)
    started: float = field(default_factory=time.perf_counter)

    @classmethod
    def create(cls, config: AnyConfig, scripted: Path | None = None) -> Trainer:
        """scripted: folder where scripted data is kept, if the agent needs any."""
        started = time.perf_counter()
        configure_jax()
        envs = make_envs(config, config.num_envs)
        _check_target(config, envs)
        rng, clock = np.random.default_rng(config.seed), Stopwatch()
        with clock.of("scripted data"):
            learner = make_learner(config, envs, rng, scripted)
        return cls(config, envs, learner, rng, clock=clock, started=started)

    @property
    def agent(self) -> Agent:
        return self.learner.agent

    @property
    def replay(self) -> Any:
        return self.learner.replay

    @property
    def epsilon(self) -> float:
        return self.learner.epsilon(self.steps)

    @property
    def mean_return(self) -> float:
        """Of the latest episodes, one per environment."""
        recent = self.returns[-self.config.num_envs :]
        return float(np.mean(recent)) if recent else float("nan")

    def save(self, run: Run) -> None:
        with self.clock.of("checkpoints"):
            self._save(run)

    def _save(self, run: Run) -> None:
        arrays = {f"agent.{name}": array for name, array in self.agent.arrays().items()}
        arrays |= {f"replay.{name}": array for name, array in self.replay.arrays().items()}
        about = {
            "random": self.rng.bit_generator.state,
            "added": self.replay.added,
            "returns": self.returns[-self.config.num_envs :],
            "seconds": self.elapsed_s,
            "clock": [self.clock.seconds, self.clock.rounds],
        }
        run.save_checkpoint(self.steps, arrays, about)

    def restore(self, run: Run) -> bool:
        """Go on from the newest checkpoint; whether there was one."""
        found = run.load_checkpoint()
        if found is None:
            run.metrics = []  # of a start that left nothing
            return False
        arrays, about = found
        of = lambda kind: {  # noqa: E731
            name.removeprefix(kind): a for name, a in arrays.items() if name.startswith(kind)
        }
        self.agent.restore(of("agent."))
        self.replay.restore(of("replay."), about["added"])
        self.rng.bit_generator.state = about["random"]
        self.steps, self.returns = about["steps"], list(about["returns"])
        self.seconds = about.get("seconds", 0.0)
        for now, before in zip(
            (self.clock.seconds, self.clock.rounds), about.get("clock", []), strict=False
        ):
            for piece, seconds in before.items():
                now[piece] += seconds
        return True

    @property
    def elapsed_s(self) -> float:
        """Of the training so far, with what came before a resume."""
        return self.seconds + time.perf_counter() - self.started


def train(
    config: AnyConfig,
    folder: Path,
    resume: bool = False,
    on_progress: OnProgress = lambda progress: None,
    tensorboard: bool = False,
    scripted: Path | None = None,
) -> dict[str, Any]:
    """Train in a run folder and return its result; a finished run is not run again.

    scripted: folder of scripted data that is shared with other runs (default: the run's own)
    """
    with claimed(folder):
        return _train(config, folder, resume, on_progress, tensorboard, scripted)


def _train(
    config: AnyConfig,
    folder: Path,
    resume: bool,
    on_progress: OnProgress,
    tensorboard: bool,
    scripted: Path | None,
) -> dict[str, Any]:
    own = folder / "scripted"
    events = event_writer() if tensorboard else None  # an error now if the extra is missing
    run = Run.open(folder) if resume and (folder / "config.json").exists() else None
    if run is None:
        Run.check_new(folder)
        trainer = Trainer.create(config, scripted or own)  # rejects what does not fit
        run, restored = Run.start(folder, config), False
    else:
        if run.config != config:
            raise ValueError(f"{folder} holds a run of another configuration: give another folder")
        finished = read_result(folder)
        if finished is not None:
            return finished
        trainer = Trainer.create(config, scripted or own)
        restored = trainer.restore(run)
    if events is not None:
        run.events = events(str(folder), purge_step=trainer.steps)
    if not restored:
        with trainer.clock.of("first updates"):
            trainer.learner.prepare()
        if isinstance(config, GraspConfig):
            trainer.save(run)  # minutes of work
    with held_interrupts() as interrupted:
        _steps(trainer, run, on_progress, interrupted)
        trainer.save(run)
        if interrupted():
            raise KeyboardInterrupt
    policy = trainer.agent.averaged_policy()
    with trainer.clock.of("evaluation"):
        result = _final_evaluation(policy, config, trainer.steps)
    result["seconds"] = round(trainer.elapsed_s, 1)
    result["split_s"] = trainer.clock.split(result["seconds"] - sum(trainer.clock.seconds.values()))
    policy.description |= {"config": config.to_dict(), "columns": _columns(trainer.envs)}
    save_policy(policy, folder)
    run.finish(result)
    shutil.rmtree(own, ignore_errors=True)
    return result


@contextmanager
def held_interrupts() -> Iterator[Callable[[], bool]]:
    """Hold Ctrl-C back; yields a function that tells whether there was one.

    An interrupt raised wherever it falls, inside an update say, would leave nothing to save. A
    second one is not held.
    """
    came: list[int] = []
    held = {}

    def hold(number: int, frame: Any) -> None:
        came.append(number)
        signal.signal(number, signal.default_int_handler)

    if threading.current_thread() is threading.main_thread():  # no other gets signals
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is signal.default_int_handler:
                held[number] = signal.signal(number, hold)
    try:
        yield lambda: bool(came)
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)


def _steps(
    trainer: Trainer,
    run: Run,
    on_progress: OnProgress,
    interrupted: Callable[[], bool] = lambda: False,
) -> None:
    """Interact and learn until all steps are taken, or interrupted."""
    config, learner, agent = trainer.config, trainer.learner, trainer.agent
    if trainer.steps >= config.steps:
        return
    n = config.num_envs

    clock = trainer.clock

    camera_s = 0.0

    def act(observation: Any) -> NDArray[Any]:
        nonlocal camera_s
        if clock.next_round():
            agent.wait()
            clock.start()
        action = learner.act(observation, trainer.epsilon)
        clock.lap("acting")
        camera_s = getattr(trainer.envs, "camera_s", 0.0)
        return action

    agent.policy.reset()
    returns, owed = np.zeros(n), 0.0
    since, since_steps, logged = time.perf_counter(), trainer.steps, 0.0  # without evaluations
    losses: dict[str, list[float]] = defaultdict(list)
    # After a resume the environments start new episodes, from seeds of their own.
    seed = int(np.random.default_rng([config.seed, trainer.steps]).integers(2**31))
    for step in interact(trainer.envs, act, seed, agent.policy.reset):
        clock.lap("physics")
        clock.move("physics", "camera", getattr(trainer.envs, "camera_s", 0.0) - camera_s)
        trainer.steps += n
        learner.remember(step)
        returns += step["reward"]
        for i in np.flatnonzero(step["done"]):
            trainer.returns.append(float(returns[i]))
            returns[i] = 0

        if learner.ready(trainer.steps):
            owed += n / config.update_every
            if owed >= 1:
                batches = learner.batches(int(owed))
                clock.lap("replay")
                agent.dispatch(batches, clock.lap if clock.measures else None)
                owed -= int(owed)
        measured = agent.sync(leave=1)
        if measured is not None:
            for name in _LOGGED & measured.keys():
                losses[name].append(float(measured[name].mean()))

        now = time.perf_counter()
        if now - logged > _LOG_EVERY_S or trainer.steps >= config.steps:
            rate = (trainer.steps - since_steps) / (now - since)
            on_progress(
                Progress(trainer.steps, config.steps, rate, trainer.mean_return, trainer.epsilon)
            )
            logged = now
        if _crosses(trainer.steps, n, config.evaluate_every):
            _log(trainer, run, losses, (trainer.steps - since_steps) / (now - since))
            losses = defaultdict(list)
        if trainer.steps >= config.steps or interrupted():
            return
        if _crosses(trainer.steps, n, config.checkpoint_every):
            trainer.save(run)
        since += time.perf_counter() - now


def _log(trainer: Trainer, run: Run, losses: dict[str, list[float]], rate: float) -> None:
    """Evaluate the greedy policy as it is now, and write a line of metrics."""
    policy = trainer.agent.averaged_policy()
    with trainer.clock.of("evaluation"):
        episodes = evaluate(policy, trainer.config, trainer.config.evaluation_episodes)
    measures = episodes[0].measures
    means = {name: float(np.mean([e.measures[name] for e in episodes])) for name in measures}
    run.log(
        steps=trainer.steps,
        evaluation=float(np.mean([episode.total for episode in episodes])),
        **means,
        training=None if not trainer.returns else trainer.mean_return,
        epsilon=round(trainer.epsilon, 4),
        **{"loss": None, **{name: float(np.mean(v)) for name, v in sorted(losses.items())}},
        steps_per_second=round(rate, 1),
    )


def _final_evaluation(policy: AnyPolicy, config: AnyConfig, steps: int) -> dict[str, Any]:
    count = FINAL_EPISODES * config.evaluation_episodes
    seed, scenes = EVALUATION_SEED, EVALUATION_SCENES
    if isinstance(config, GraspConfig):
        # Runs of several seeds are pooled in Table 1: their episodes must not be the same ones,
        # nor of scenes that anything was chosen by.
        seed, scenes = seed + 100_000 * config.seed, FINAL_SCENES + config.seed
    episodes = evaluate(policy, config, count, seed=seed, scenes=scenes)
    totals = [episode.total for episode in episodes]
    low, high = interval(totals)
    result = {
        "steps": steps,
        "mean_return": float(np.mean(totals)),
        "interval": [low, high],
        "returns": totals,
    }
    if episodes[0].measures:
        names = episodes[0].measures
        result["measures"] = {name: [e.measures[name] for e in episodes] for name in names}
    return result


def check(config: AnyConfig) -> None:
    """An error if the configuration cannot be trained: for before anything starts."""
    if isinstance(config, GraspConfig):  # scenes take long to prepare, and do not matter here
        config = replace(config, scenes=min(config.scenes, 8))
    _check_target(config, make_envs(config, 1))


def _check_target(config: AnyConfig, envs: Envs) -> None:
    """The concurrent target bootstraps at the switch: with no latency it would learn nothing."""
    if config.target != "concurrent":
        return
    timing = envs.timing if hasattr(envs, "timing") else envs.envs[0].get_wrapper_attr("timing")
    if timing.latency_bounds_ticks[0] == 0:
        raise ValueError(
            "the concurrent target needs a latency above 0 at every step: with none, the switch is "
            "the capture and nothing is learned; use target full_period"
        )


def _crosses(steps: int, n: int, every: int) -> bool:
    return steps // every != (steps - n) // every


def _columns(envs: Envs) -> list[str]:
    layout = envs.layout if hasattr(envs, "layout") else envs.envs[0].get_wrapper_attr("layout")
    return list(layout.columns)

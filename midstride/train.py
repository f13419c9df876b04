"""Training: environments, agent, replay and loop put together. Read this file first.

    interact -> replay -> sample -> dispatch (XLA, on its own thread) -> sync -> policy -> interact

While an update is computed, the environments take their next step and the next batch is drawn; the
policy acts on weights that are one round of steps old. Everything happens in a fixed order, so a
seed repeats exactly.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.agents import AGENTS, Agent, configure_jax
from midstride.config import Config
from midstride.evaluate import evaluate, interval
from midstride.loop import interact
from midstride.make import Envs, make_envs, reward_scale
from midstride.policies import Policy, save_policy
from midstride.replay import Replay
from midstride.runs import Run, event_writer, read_result

FINAL_EPISODES = 4  # times as many in the last evaluation
_LOG_EVERY_S = 1.0


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

    config: Config
    envs: Envs
    agent: Agent
    replay: Replay
    rng: np.random.Generator
    steps: int = 0
    returns: list[float] = field(default_factory=list)  # of finished episodes

    @classmethod
    def create(cls, config: Config) -> Trainer:
        configure_jax()
        envs = make_envs(config, config.num_envs)
        check_target(config, envs)
        (columns,) = envs.single_observation_space.shape
        actions = int(envs.single_action_space.n)
        agent = AGENTS[config.agent](config, columns, actions)
        lstm_size = agent.policy.lstm_size
        replay = Replay(config.replay_size, config.num_envs, columns, lstm_size)
        return cls(config, envs, agent, replay, np.random.default_rng(config.seed))

    @property
    def epsilon(self) -> float:
        c = self.config
        over = max(1.0, c.epsilon_fraction * c.steps)
        return max(
            c.epsilon_end, c.epsilon_start - (c.epsilon_start - c.epsilon_end) * self.steps / over
        )

    @property
    def mean_return(self) -> float:
        """Of the latest episodes, one per environment."""
        recent = self.returns[-self.config.num_envs :]
        return float(np.mean(recent)) if recent else float("nan")

    def save(self, run: Run) -> None:
        held = min(self.replay.added, self.replay.length)
        arrays = {f"agent.{name}": array for name, array in self.agent.arrays().items()}
        arrays |= {f"replay.{name}": a[:held] for name, a in self.replay.data.items()}
        about = {
            "random": self.rng.bit_generator.state,
            "added": self.replay.added,
            "returns": self.returns[-self.config.num_envs :],
        }
        run.save_checkpoint(self.steps, arrays, about)

    def restore(self, run: Run) -> None:
        found = run.load_checkpoint()
        if found is None:
            return
        arrays, about = found
        of = lambda kind: {  # noqa: E731
            name.removeprefix(kind): a for name, a in arrays.items() if name.startswith(kind)
        }
        self.agent.restore(of("agent."))
        for name, array in of("replay.").items():
            self.replay.data[name][: len(array)] = array
        self.replay.added = about["added"]
        self.rng.bit_generator.state = about["random"]
        self.steps, self.returns = about["steps"], list(about["returns"])


def train(
    config: Config,
    folder: Path,
    resume: bool = False,
    on_progress: OnProgress = lambda progress: None,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Train in a run folder and return its result; a finished run is not run again."""
    events = event_writer() if tensorboard else None  # an error now if the extra is missing
    run = Run.open(folder) if resume and (folder / "config.json").exists() else None
    if run is None:
        trainer = Trainer.create(config)  # rejects what does not fit before a folder is made
        run = Run.start(folder, config)
    else:
        if run.config != config:
            raise ValueError(f"{folder} holds a run of another configuration: give another --name")
        finished = read_result(folder)
        if finished is not None:
            return finished
        trainer = Trainer.create(config)
        trainer.restore(run)
    if events is not None:
        run.events = events(str(folder), purge_step=trainer.steps)
    started = time.perf_counter()
    with held_interrupts() as interrupted:
        _steps(trainer, run, on_progress, interrupted)
        if interrupted():
            trainer.save(run)
            raise KeyboardInterrupt
    policy = trainer.agent.averaged_policy()
    result = _final_evaluation(policy, config, trainer.steps)
    result["seconds"] = round(time.perf_counter() - started, 1)
    policy.description = {"config": config.to_dict(), "columns": _columns(trainer.envs)}
    save_policy(policy, folder)
    run.finish(result)
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
    config, agent, replay, rng = trainer.config, trainer.agent, trainer.replay, trainer.rng
    if trainer.steps >= config.steps:
        return
    scale = reward_scale(config, trainer.envs)
    n, actions = config.num_envs, int(trainer.envs.single_action_space.n)
    recurrent_state: tuple[NDArray[Any], ...] = ()

    def act(observation: NDArray[np.float32]) -> NDArray[Any]:
        nonlocal recurrent_state
        if agent.policy.is_recurrent:
            recurrent_state = tuple(part.copy() for part in agent.policy.state(n))
        greedy = agent.policy(observation)
        explore = rng.random(n) < trainer.epsilon
        return np.where(explore, rng.integers(actions, size=n), greedy)

    agent.policy.reset()
    returns, owed = np.zeros(n), 0.0
    since, since_steps, logged = time.perf_counter(), trainer.steps, 0.0  # without evaluations
    losses: list[float] = []
    # After a resume the environments start new episodes, from seeds of their own.
    seed = int(np.random.default_rng([config.seed, trainer.steps]).integers(2**31))
    for step in interact(trainer.envs, act, seed, agent.policy.reset):
        trainer.steps += n
        step["reward_before"] = step["reward_before"] * scale
        step["reward_after"] = step["reward_after"] * scale
        if recurrent_state:
            step["h"], step["c"] = recurrent_state
        replay.add(step)
        returns += step["reward"]
        for i in np.flatnonzero(step["done"]):
            trainer.returns.append(float(returns[i]))
            returns[i] = 0

        if trainer.steps >= config.learning_starts and _enough(config, replay):
            owed += n / config.update_every
            if owed >= 1:
                agent.dispatch(agent.sample(replay, rng, int(owed)))
                owed -= int(owed)
        measured = agent.sync(leave=1)
        if measured is not None:
            losses.append(float(measured["loss"].mean()))

        now = time.perf_counter()
        if now - logged > _LOG_EVERY_S or trainer.steps >= config.steps:
            rate = (trainer.steps - since_steps) / (now - since)
            on_progress(
                Progress(trainer.steps, config.steps, rate, trainer.mean_return, trainer.epsilon)
            )
            logged = now
        if _crosses(trainer.steps, n, config.evaluate_every):
            _log(trainer, run, losses, (trainer.steps - since_steps) / (now - since))
            losses = []
        if trainer.steps >= config.steps or interrupted():
            return
        if _crosses(trainer.steps, n, config.checkpoint_every):
            trainer.save(run)
        since += time.perf_counter() - now


def _log(trainer: Trainer, run: Run, losses: list[float], rate: float) -> None:
    """Evaluate the greedy policy as it is now, and write a line of metrics."""
    policy = trainer.agent.averaged_policy()
    episodes = evaluate(policy, trainer.config, trainer.config.evaluation_episodes)
    run.log(
        steps=trainer.steps,
        evaluation=float(np.mean([episode.total for episode in episodes])),
        training=None if not trainer.returns else trainer.mean_return,
        epsilon=round(trainer.epsilon, 4),
        loss=float(np.mean(losses)) if losses else None,
        steps_per_second=round(rate, 1),
    )


def _final_evaluation(policy: Policy, config: Config, steps: int) -> dict[str, Any]:
    count = FINAL_EPISODES * config.evaluation_episodes
    totals = [episode.total for episode in evaluate(policy, config, count)]
    low, high = interval(totals)
    return {
        "steps": steps,
        "mean_return": float(np.mean(totals)),
        "interval": [low, high],
        "returns": totals,
    }


def check_target(config: Config, envs: Envs) -> None:
    """The concurrent target bootstraps at the switch: with no latency it would learn nothing."""
    if config.target != "concurrent":
        return
    timing = envs.timing if hasattr(envs, "timing") else envs.envs[0].get_wrapper_attr("timing")
    if timing.latency_bounds_ticks[0] == 0:
        raise ValueError(
            "the concurrent target needs a latency above 0 at every step: with none, the switch is "
            "the capture and nothing is learned; use target full_period"
        )


def _enough(config: Config, replay: Replay) -> bool:
    span = config.burn_in + config.segment if config.agent == "drqn" else config.n_step
    return min(replay.added, replay.length) >= span


def _crosses(steps: int, n: int, every: int) -> bool:
    return steps // every != (steps - n) // every


def _columns(envs: Envs) -> list[str]:
    layout = envs.layout if hasattr(envs, "layout") else envs.envs[0].get_wrapper_attr("layout")
    return list(layout.columns)

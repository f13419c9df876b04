"""A training under way: how it is made, saved, restored, watched and finished."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.disk.runs import RESULT, Run
from midstride.envs.faults import Fault
from midstride.envs.learnable import Environment, LearnableEnvs
from midstride.learn.agent import Agent, configure_jax
from midstride.learn.agent_settings import RunSettings
from midstride.learn.agents import Training, agent_called
from midstride.learn.lived import restore_recorded
from midstride.learn.memory import check_environments, make_agent
from midstride.learn.stopwatch import Stopwatch
from midstride.measure.evaluate import EVALUATION_SCENE_SEED, EVALUATION_SEED, Episode, evaluate_in
from midstride.measure.statistics import interval
from midstride.policies import Policy, save_policy
from midstride.settings import one_line, shown

LOGGED = {
    "loss", "q", "label", "auxiliary", "temperature", "entropy", "value_loss", "divergence",
    "clipped",
}  # of what updates measure  # fmt: skip
SCALE = "scale"  # what a checkpoint of many machines has beside that of one (`scale/`)
FINAL_EPISODES = 4  # times as many in the last evaluation
FINAL_SCENES = 1000  # its scenes: their seed, counting up with the training's


@dataclass
class Trainer:
    """A training under way: what a checkpoint must hold."""

    training: Training
    envs: LearnableEnvs
    agent: Agent
    rng: np.random.Generator
    clock: Stopwatch
    started: float
    steps: int = 0
    returns: list[float] = field(default_factory=list)  # of finished episodes
    seconds: float = 0.0  # spent before, in a run that was resumed
    owed: float = 0.0  # updates, and parts of one, that steps have called for
    losses: dict[str, tuple[float, int]] = field(default_factory=dict)  # sum and count, to be told

    @classmethod
    def create(cls, training: Training, folder: Path | None = None) -> Trainer:
        """folder: where the agent may keep what takes long to make."""
        started = time.perf_counter()
        configure_jax()
        kind, run = agent_called(training.agent.agent), training.run
        check_environments(training.environment, run)
        envs = lived_envs(training)
        kind.check(training.agent, envs)
        rng, clock = np.random.default_rng(run.seed), Stopwatch()
        agent = make_agent(kind, training.agent, run, envs, rng)
        with clock.of("demonstrations"):
            agent.gather(lambda: lived_envs(training), folder)
            if training.agent.recorded_in is not None:
                restore_recorded(agent.replay, Path(training.agent.recorded_in), training)
        return cls(training, envs, agent, rng, clock, started)

    @property
    def mean_return(self) -> float | None:
        """Of the latest episodes, one per environment."""
        recent = self.returns[-self.training.run.num_envs :]
        return float(np.mean(recent)) if recent else None

    @property
    def elapsed_s(self) -> float:
        """Of the training so far, with what came before a resume."""
        return self.seconds + time.perf_counter() - self.started

    def add_losses(self, measured: Mapping[str, NDArray[Any]]) -> None:
        """Of what updates measured, keep what will be told."""
        for name in LOGGED & measured.keys():
            total, count = self.losses.get(name, (0.0, 0))
            self.losses[name] = total + float(measured[name].mean()), count + 1

    def save(self, run: Run) -> None:
        """Write a checkpoint: all of the training but the episodes under way.

        Nothing here changes the training. One that goes on from it is the same to the last bit as
        one that was not disturbed, but that its environments begin new episodes, from seeds of
        their own: two that go on from the same checkpoint are equal.
        """
        with self.clock.of("checkpoints"):
            about = {
                "random": self.rng.bit_generator.state,
                "returns": self.returns[-self.training.run.num_envs :],
                "seconds": self.elapsed_s,
                "clock": [self.clock.seconds, self.clock.rounds],
                "owed": self.owed,
                "losses": self.losses,
                "agent": self.agent.about(),
            }
            run.save_checkpoint(self.steps, self.agent.arrays(), about)

    def restore(self, run: Run) -> bool:
        """Go on from the newest checkpoint; whether there was one. Episodes begin anew."""
        found = run.load_checkpoint()
        if found is None:
            run.metrics = []  # of a start that left nothing
            return False
        arrays, about = found
        if SCALE in about["agent"]:
            raise ValueError(
                f"the checkpoint in {run.folder} is of a training on Ray: go on with --engine ray"
            )
        try:
            self.agent.restore(arrays)
            self.rng.bit_generator.state = about["random"]
            self.agent.restore_about(about["agent"])
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(
                f"the checkpoint in {run.folder} does not fit the training: {one_line(error)}"
            ) from None
        self.steps, self.returns = about["steps"], list(about["returns"])
        self.seconds = about["seconds"]
        self.clock.add(*about["clock"])
        self.owed = about["owed"]
        self.losses = about["losses"]
        return True

    def log(self, run: Run, rate: float) -> None:
        """Evaluate the greedy policy as it is now, and write a line of metrics."""
        policy, settings = self.agent.averaged_policy(), self.training.run
        with self.clock.of("evaluation"), in_evaluation(self.steps):
            episodes = evaluate_in(policy, self.training.environment, settings.evaluation_episodes)
        run.log(
            **told(self.steps, episodes, self.losses, self.mean_return),
            epsilon=round(self.agent.epsilon(self.steps), 4),
            steps_per_second=round(rate, 1),
            seconds=round(self.elapsed_s, 1),
        )
        self.losses.clear()


def lived_envs(training: Training) -> LearnableEnvs:
    """The environments that a training takes its steps in."""
    lived = training.lived
    moves_target = lived != training.environment and "vector_to_go" in lived.knowledge
    observes_switch = training.agent.observes_switch or moves_target
    return lived.make(training.run.num_envs, observe_switch=observes_switch)


def opened(training: Training, folder: Path, resume: bool) -> Run:
    """The run of a folder, new or gone on with; an error if it is another."""
    new = Run(folder, training.to_dict(), training.hash)
    if not resume or not (folder / "config.json").exists():
        Run.check_new(folder)
        return new
    run = Run.open(folder)
    if run.hash == new.hash:
        return run
    # As the files have them: nothing that a stranger's names is read.
    before, now = (
        {name: value for part in one.values() for name, value in part.items()}
        for one in (run.settings, json.loads(json.dumps(new.settings)))
    )
    different = [name for name in now if name in before and before[name] != now[name]]
    same_names = before.keys() == now.keys()
    if same_names and different == ["steps"] and now["steps"] > before["steps"]:
        new.metrics = run.metrics
        run.rename_checkpoints(new.hash)
        (folder / RESULT).unlink(missing_ok=True)
        new.start()
        return new
    said = ", ".join(
        f"{name} {shown(repr(before.get(name)))} and not {shown(repr(now[name]))}"
        for name in different
    )
    raise ValueError(
        f"{folder} holds a run of other settings ({said or 'made by another version'}): only steps "
        "can be more; give another --name"
    )


def final_episodes(policy: Policy, environment: Environment, run: RunSettings) -> list[Episode]:
    """Those that a training's policy is judged by, in its own environment or in another.

    Where an environment has scenes, every seed has episodes of its own, in scenes that nothing was
    chosen by. Elsewhere all seeds are judged by the same episodes, whose choice an interval over
    trainings does not tell of.
    """
    has_scenes = environment.for_evaluation(EVALUATION_SCENE_SEED) != environment
    return evaluate_in(
        policy,
        environment,
        FINAL_EPISODES * run.evaluation_episodes,
        EVALUATION_SEED + (100_000 * run.seed if has_scenes else 0),
        FINAL_SCENES + run.seed,
    )


def told(
    steps: int,
    episodes: Sequence[Episode],
    losses: Mapping[str, tuple[float, int]],
    training: float | None,
) -> dict[str, float | None]:
    """A line of metrics: an evaluation, and what updates measured since the one before it.

    losses: sum and count by name
    training: mean return of the latest episodes of training
    """
    names = episodes[0].measures
    return {
        "steps": steps,
        "evaluation": float(np.mean([episode.total for episode in episodes])),
        **{name: float(np.mean([e.measures[name] for e in episodes])) for name in names},
        "training": training,
        "loss": None,
        **{name: total / count for name, (total, count) in sorted(losses.items())},
    }


@contextmanager
def in_evaluation(steps: int) -> Iterator[None]:
    """Faults of environments there are not of those that are trained in: nothing is saved."""
    try:
        yield
    except Fault as fault:
        raise ValueError(f"in the evaluation after {steps:,} steps: {fault}") from fault


def finish(trainer: Trainer, run: Run, keep_checkpoint: bool) -> dict[str, Any]:
    """Evaluate, save the policy, write the result."""
    training, policy = trainer.training, trainer.agent.averaged_policy()
    with trainer.clock.of("evaluation"), in_evaluation(trainer.steps):
        episodes = final_episodes(policy, training.environment, training.run)
    seconds = round(trainer.elapsed_s, 1)
    split = trainer.clock.split(seconds - sum(trainer.clock.seconds.values()))
    result = outcome(episodes, trainer.steps, seconds, split)
    result["parameters"] = int(trainer.agent.state["online"].size)
    describe_policy(policy, training, trainer.envs)
    save_policy(policy, run.folder)  # type: ignore[arg-type]
    run.finish(result, keep_checkpoint)
    trainer.agent.tidy(run.folder)
    return result


def outcome(
    episodes: Sequence[Episode], steps: int, seconds: float, split_s: Mapping[str, float]
) -> dict[str, Any]:
    """The result of a training, from its last evaluation."""
    totals, names = [episode.total for episode in episodes], episodes[0].measures
    result = {
        "steps": steps,
        "mean_return": float(np.mean(totals)),
        "interval": list(interval(totals)),
        "returns": totals,
        "seconds": seconds,
        "split_s": dict(split_s),
    }
    if names:
        result["measures"] = {name: [e.measures[name] for e in episodes] for name in names}
    return result


def describe_policy(policy: Any, training: Training, envs: LearnableEnvs) -> None:
    """Have a policy say what it was trained in."""
    layout = envs.layout
    policy.description |= {
        "environment": training.environment.to_dict(),
        "agent": training.agent.agent,
        "columns": list(layout.columns),
        "units": {"selection_time_s": envs.timing.selection_scale_s, **layout.units},
    }

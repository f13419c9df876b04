"""One training on many machines: its run on disk, around the coordinator (`coordinator.py`).

The driver writes everything that is written: metrics, checkpoints, the result. Workers need
midstride installed, in the same versions, and no shared disk.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.disk.files import versions
from midstride.disk.runs import (
    Run,
    checkpoints_in,
    claimed,
    event_writer,
    is_of,
    read_checkpoint,
    read_result,
)
from midstride.envs.checks import available_cores
from midstride.envs.faults import Fault
from midstride.learn.agent import Agent
from midstride.learn.agents import Training
from midstride.learn.signals import Interrupted, held_interrupts
from midstride.learn.train import Progress
from midstride.learn.trainer import SCALE, describe_policy, opened, outcome, told
from midstride.policies import save_policy
from midstride.scale.cluster import Cluster
from midstride.scale.coordinator import Coordinator
from midstride.scale.parcels import Evaluation
from midstride.scale.plan import ScaleSettings, Work, check_spread
from midstride.scale.roles import Held, shares, small_agent
from midstride.settings import one_line

_TELL_EVERY_S = 1.0


@dataclass
class ScaleProgress(Progress):
    """What a progress table shows of a training on many machines."""

    figures: dict[str, float] = field(default_factory=dict)
    roles: dict[str, tuple[int, int]] = field(default_factory=dict)  # that are there, of how many
    phase: str = "starting"


OnScaleProgress = Callable[[ScaleProgress], None]


def train_on_ray(
    training: Training,
    folder: Path,
    scale: ScaleSettings,
    address: str | None = None,
    resume: bool = False,
    on_progress: OnScaleProgress = lambda progress: None,
    tensorboard: bool = False,
    keep_checkpoint: bool = False,
) -> dict[str, Any]:
    """`learn.train.train` on a Ray cluster: that at `address`, or one that is started here.

    However it ends, no actor stays, nor a cluster that was started here.
    """
    from midstride.scale.actors import RayCluster
    from midstride.scale.ray import connected, is_connected

    check_spread(training, scale)
    training.check()
    if address is None and not is_connected():  # sooner than a cluster starts
        scale.check_cores(available_cores(), training)
    with claimed(folder):
        run, finished = opened(training, folder, resume), read_result(folder)
        if finished is not None and is_of(finished, training.hash):
            return finished
        events = event_writer() if tensorboard else None
        with connected(address):
            cluster = RayCluster(scale.cores)
            scale.check_cores(cluster.all_cores, training)
            with held_interrupts() as signalled:
                driver = Driver(training, scale, run, cluster, on_progress)
                if events is not None:
                    run.events = events(str(folder), purge_step=driver.books.steps)
                return driver.train(signalled, keep_checkpoint)


class Driver:
    """A training that is spread over a cluster: how its actors are made, and what is written."""

    def __init__(
        self,
        training: Training,
        scale: ScaleSettings,
        run: Run,
        cluster: Cluster,
        on_progress: OnScaleProgress = lambda progress: None,
    ) -> None:
        self.training, self.scale, self.run, self.on_progress = training, scale, run, on_progress
        self.agent, self.envs = small_agent(training)
        self.coordinator = Coordinator(work_of(training, self.agent), scale, cluster, self)
        self.books = self.coordinator.books
        self.values: Any = None  # of the first memory
        self.seconds = 0.0  # spent before, in a run that was resumed
        self.started, self._told = time.perf_counter(), 0.0
        self._places: set[tuple[str, int]] = set()  # that had an actor
        self._versions = versions()
        if not self._restore():
            run.start()
            if scale.lock_step:
                rng = np.random.default_rng(training.run.seed)
                self.books.random = rng.bit_generator.state

    def train(self, signalled: Callable[[], int | None], keep_checkpoint: bool) -> dict[str, Any]:
        """Until it has ended, or a signal asks to end."""
        coordinator, run = self.coordinator, self.run
        try:
            coordinator.start()
            coordinator.run(signalled)
            if coordinator.fault is not None:
                self._raise_fault(coordinator.fault)
            if number := signalled():
                if not checkpoints_in(run.folder):
                    raise Interrupted(number=number)
                raise Interrupted.after(run.folder, self.books.steps, number)
            return self._finish(coordinator.judge(), keep_checkpoint)
        finally:
            coordinator.stop()
            self.envs.close()

    def _raise_fault(self, fault: Fault) -> None:
        steps = self.books.steps
        if not steps:
            raise fault
        raise Fault(f"{fault}; saved {self.run.folder} after {steps:,} steps") from fault

    def _finish(self, last: Evaluation, keep_checkpoint: bool) -> dict[str, Any]:
        result = outcome(last.episodes, self.books.steps, round(self.elapsed_s, 1), {})
        result["parameters"] = int(self.agent.state["online"].size)
        self.agent.see_with(last.seen)
        policy = self.agent.policy_of(last.weights)
        describe_policy(policy, self.training, self.envs)
        save_policy(policy, self.run.folder)
        self.run.finish(result, keep_checkpoint)
        return result

    @property
    def elapsed_s(self) -> float:
        return self.seconds + time.perf_counter() - self.started

    # --- What the coordinator asks

    def arguments(self, role: str, place: int, name: int) -> tuple[Any, ...]:
        training, scale = self.training, self.scale
        seed, steps = training.run.seed, self.books.steps
        is_first = (role, place) == ("collector", 0) and (role, place) not in self._places
        self._places.add((role, place))
        if role == "collector":
            return training, ((seed, steps) if is_first else (seed, steps, name))
        if role == "memory":
            streams = tuple(shares(scale.replays, range(scale.collectors)))[place]
            theirs = training.with_(seed=seed + 7919 * place)
            theirs = replace(theirs, agent=training.agent.shared_by(scale.replays))
            capacity = training["replay_size"] // scale.collectors
            return theirs, streams, capacity, (seed, steps, name), self._held(streams, place)
        if role == "updater":
            return training, self.values
        if role == "fitter":
            return training, self.values, place, scale.fitters
        return (training,)

    def _held(self, streams: tuple[int, ...], place: int) -> Held:
        """What a memory held at the last checkpoint."""
        found = checkpoints_in(self.run.folder)
        if not found:
            return Held({}, {})
        arrays, _ = read_checkpoint(found[-1])
        noticed = numbered(arrays, "memory").get(place, {})
        return Held({name: streams_in(arrays)[name] for name in streams}, noticed)

    def met(self, role: str, place: int, record: dict[str, Any]) -> None:
        there = record["versions"]
        for package, here in self._versions.items():
            if there.get(package) != here:
                raise ValueError(
                    f"a {role} has {package} {there.get(package, 'not at all')}, and here it is "
                    f"{here}: install the same versions on every machine"
                )
        if (role, place) == ("memory", 0) and self.values is None:
            self.values = record["values"]

    def evaluated(self, evaluation: Evaluation, episodes: Any, figures: dict[str, float]) -> None:
        line = told(evaluation.steps, episodes, evaluation.losses, evaluation.training)
        self.run.log(
            **line,
            epsilon=round(self.agent.epsilon(evaluation.steps), 4),
            steps_per_second=round(figures["transitions_per_s"], 1),
            seconds=round(self.elapsed_s, 1),
            **{name: round(value, 4) for name, value in figures.items()},
        )

    def save(self, state: Any, memories: list[Any], about: dict[str, Any]) -> None:
        arrays = {f"agent.{i:04d}": array for i, array in enumerate(state[1])}
        for place, memory in enumerate(memories):
            arrays |= {f"memory.{place:06d}.{n}": array for n, array in memory.noticed.items()}
            for name, held in memory.streams.items():
                arrays |= {f"stream.{name:06d}.{part}": array for part, array in held.items()}
        usual = {name: about.pop(name) for name in ("random", "returns", "owed", "losses")}
        ours = {**about, "collectors": self.scale.collectors, "updates": state[0]}
        record = {**usual, "seconds": self.elapsed_s, "clock": [{}, {}], "agent": {SCALE: ours}}
        self.run.save_checkpoint(about["steps"], arrays, record)

    def _restore(self) -> bool:
        """Go on from the newest checkpoint; whether there was one."""
        found = self.run.load_checkpoint()
        if found is None:
            self.run.metrics = []  # of a start that left nothing
            return False
        arrays, about = found
        folder, ours = self.run.folder, about["agent"].get(SCALE)
        if ours is None:
            raise ValueError(
                f"the checkpoint in {folder} is of a local training: go on without --engine ray"
            )
        if ours["collectors"] != self.scale.collectors:
            raise ValueError(
                f"the checkpoint in {folder} is of {ours['collectors']} collectors: "
                f"use --collectors {ours['collectors']}"
            )
        state = [arrays[name] for name in sorted(arrays) if name.startswith("agent.")]
        try:
            self.agent.restore_state(state)
            self.coordinator.go_on({**about, **ours}, (ours["updates"], state))
        except (ValueError, LookupError, TypeError) as error:
            raise ValueError(
                f"the checkpoint in {folder} does not fit the training: {one_line(error)}"
            ) from None
        self.seconds = about["seconds"]
        return True

    def tell(self) -> None:
        now = time.perf_counter()
        if now - self._told < _TELL_EVERY_S:
            return
        self._told = now
        c, books = self.coordinator, self.books
        figures = c.figures()
        there = {
            role: (sum(one.is_ready for one in members), max(1, len(members)))
            for role, members in c.members.items()
        }
        self.on_progress(
            ScaleProgress(
                books.steps,
                self.training.run.steps,
                figures["transitions_per_s"],
                books.mean_return,
                self.agent.epsilon(books.steps),
                figures,
                there,
                books.phase,
            )
        )


def work_of(training: Training, agent: Agent) -> Work:
    """What the coordinator must know of a training."""
    run, (auxiliary, offline) = training.run, agent.blocks_before
    return Work(
        steps=run.steps,
        num_envs=run.num_envs,
        at_once=agent.at_once,
        calls_for=agent.calls_for,
        labels_each=agent.labels_each,
        next_key=agent.next_key,
        begins_after=training.agent.begins_after,
        auxiliary_blocks=auxiliary,
        offline_blocks=offline,
        evaluate_every=run.evaluate_every,
        checkpoint_every=run.checkpoint_every,
    )


def streams_in(arrays: dict[str, NDArray[Any]]) -> dict[int, dict[str, NDArray[Any]]]:
    """The replays of a checkpoint, by collector."""
    return numbered(arrays, "stream")


def numbered(arrays: dict[str, NDArray[Any]], what: str) -> dict[int, dict[str, NDArray[Any]]]:
    """Arrays called WHAT.NUMBER.PART, by number and part."""
    found: dict[int, dict[str, NDArray[Any]]] = {}
    for name, array in arrays.items():
        if name.startswith(f"{what}."):
            _, number, part = name.split(".", 2)
            found.setdefault(int(number), {})[part] = array
    return found

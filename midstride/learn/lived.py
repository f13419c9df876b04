"""Which latencies are lived and which are learned from it, in hindsight (`relabel.py`).

Said once, and checked before anything starts: an agent that learns in hindsight must know what a
transition at another latency follows from, and the environment must tell what is needed for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from midstride.disk.runs import checkpoints_in, read_checkpoint, read_record
from midstride.envs.learnable import LearnableEnvs
from midstride.knowledge import Layout
from midstride.latency import Fixed, LatencyModel, OnScaleOf, PerEpisode
from midstride.latency_text import read_latency
from midstride.learn.agent import part_of
from midstride.learn.replay import Replay, Row
from midstride.seconds import format_on_grid
from midstride.settings import shown
from midstride.timing import Timing


@dataclass(frozen=True)
class Plan:
    """Which latencies are lived and which are learned, in ticks, and what a record must hold."""

    layout: Layout
    lived: tuple[int, ...]
    learned: tuple[int, ...]
    period: int
    tick_s: float
    scale: int  # the latency that selection time shows as 1

    @classmethod
    def of(cls, envs: LearnableEnvs, acts: bool = True) -> Plan:
        """Of environments that are lived in at another latency than they are meant for.

        acts: whether what is learned acts there, and must be learned at the latency lived at too
        """
        timing = envs.timing
        assert isinstance(timing.latency, OnScaleOf)
        _check_model(timing.latency.latency, "lived at")
        _check_model(timing.latency.trained, "learned")
        lived = _ticks(timing.latency.latency, timing)
        asked = _ticks(timing.latency.trained, timing)
        learned = tuple(sorted({*lived, *asked})) if acts else asked
        plan = cls(
            envs.layout,
            lived,
            learned,
            timing.shortest_period_ticks,
            timing.tick_s,
            timing.selection_scale_ticks,
        )
        plan.check(envs)
        return plan

    @property
    def knows_to_go(self) -> bool:
        return "vector_to_go" in self.layout.features

    @cached_property
    def instants(self) -> tuple[int, ...]:
        """Ticks after a capture, inside of the period, at which moved captures are."""
        moved = {(at - to) % self.period for at in self.lived for to in self.learned}
        return tuple(sorted(moved - {0}))

    @property
    def back(self) -> int:
        """Steps before that of the moved capture that a transition needs."""
        return 1 + max(self.lived) // self.period

    @property
    def ahead(self) -> int:
        """Steps after it."""
        return max(1, -(-max(self.learned) // self.period))

    def row(self, plain: Row) -> Row:
        """What replay must keep of a step."""
        width = len(self.layout.base)
        if self.knows_to_go:
            width += len(self.layout.controlled or ())
        return Row(plain.columns, self.knows_to_go, plain.actions, len(self.instants), width)

    def check(self, envs: LearnableEnvs) -> None:
        """An error in one sentence if this cannot be had."""
        period = format_on_grid(self.period, self.tick_s)
        if max(self.lived) > self.period:
            raise ValueError(
                f"hindsight needs a world that is lived at latencies of at most the period "
                f"({period}), not {format_on_grid(max(self.lived), self.tick_s)}"
            )
        if max(self.lived) > self.scale:
            raise ValueError(
                "hindsight_from must not be longer than the environment's longest latency, "
                f"{format_on_grid(self.scale, self.tick_s)}: add the longer one to --latency"
            )
        if envs.timing.thinker == "serial" and max(self.learned) > self.period:
            raise ValueError(
                "a serial thinker's period depends on a latency that is longer, and hindsight "
                "cannot change the period: use thinker pipelined"
            )
        self._check_knowledge()
        if self.instants and envs.hints.observe_within is None:
            raise ValueError(self._off_grid(period))

    def _check_knowledge(self) -> None:
        features = self.layout.features
        needed = ["previous_action"] if not self.knows_to_go else []
        needed += ["selection_time"] if len(self.learned) > 1 else []
        if self.layout.pending_slots:
            needed = ["previous_action", "pending_actions", *needed[-1:]]
        missing = [name for name in needed if name not in features]
        if missing:
            raise ValueError(
                f"in hindsight a transition follows from what is in flight and how long it stays: "
                f"add {' and '.join(dict.fromkeys(missing))} to --knowledge"
            )
        if self.layout.stack_observations or self.layout.stack_actions:
            raise ValueError(
                "stacked observations and actions cannot be known in hindsight: use knowledge "
                "instead of stack_observations and stack_actions"
            )
        if self.knows_to_go and self.lived != (0,):
            raise ValueError(
                "vector_to_go can be known in hindsight of the frozen world only: use "
                "hindsight_from 0, or previous_action instead"
            )

    def _off_grid(self, period: str) -> str:
        wrong = next(t for t in self.learned for at in self.lived if (t - at) % self.period)
        steps = wrong // self.period
        valid = sorted(at + n * self.period for at in self.lived for n in (steps, steps + 1))
        near = sorted({t for t in valid if t >= 0}, key=lambda t: abs(t - wrong))[:2]
        said = " and ".join(format_on_grid(t, self.tick_s) for t in sorted(near))
        return (
            f"what this environment would observe inside of its periods of {period} is not known, "
            f"so that hindsight moves observations by whole periods: of a latency of "
            f"{format_on_grid(wrong, self.tick_s)}, valid near it are {said}"
        )


def check_hindsight(settings: Any, envs: LearnableEnvs) -> None:
    """An error in one sentence if an agent cannot learn in hindsight what it is asked to."""
    if settings.lived_at is None:
        if settings.recorded_in is not None:
            raise ValueError("hindsight_run needs hindsight_from, the latency that it was lived at")
        return
    if settings.target == "concurrent":
        raise ValueError(
            "the concurrent target needs the observation at each switch, which hindsight moves: "
            "use target full_period"
        )
    Plan.of(envs, settings.recorded_in is None)


def restore_recorded(replay: Replay, folder: Path, training: Any) -> None:
    """Put the replay that another run kept in place of steps of one's own.

    An error in one sentence if it is of other environments than those that training would live in.
    """
    record, found = read_record(folder), checkpoints_in(folder)
    if not found:
        raise ValueError(
            f"{folder} kept no replay: that is in a checkpoint, which midstride train leaves"
        )
    theirs = {**record["environment"], **record["agent"]}
    ours = {**training.environment.to_dict(), **training.agent.to_dict()}
    lived = training.agent.lived_at
    for name in ("task", "agent", "reward_scale", *training.environment.to_dict()):
        mine = lived if name == "latency" else ours.get(name)
        if _plain(name, theirs.get(name)) != _plain(name, mine):
            raise ValueError(
                f"{folder} was trained with {name} {shown(repr(theirs.get(name)))}, and what is to "
                f"be learned from it needs {shown(repr(mine))}"
            )
    arrays = part_of(read_checkpoint(found[-1])[0], "replay")
    held, room = arrays["transitions"], replay.data["transitions"]
    if held.shape[1:] != room.shape[1:]:
        raise ValueError(
            f"{folder} has {held.shape[1]} environments and rows of {held.shape[2]} numbers, not "
            f"{room.shape[1]} and {room.shape[2]}: give the same num_envs, and latencies that are "
            "whole periods apart"
        )
    if len(held) > len(room):
        steps = held.shape[0] * held.shape[1]
        raise ValueError(f"{folder} kept {steps:,} steps: give a replay_size of as many")
    replay.restore(arrays)


def _plain(name: str, value: Any) -> Any:
    """A setting such that equal ones are equal, however they were written."""
    if name == "latency":
        return tuple(read_latency(value).values_s), type(read_latency(value))
    return tuple(value) if isinstance(value, list) else value


def _check_model(model: LatencyModel, what: str) -> None:
    if not isinstance(model, (Fixed, PerEpisode)) or model.rounding != "exact":
        raise ValueError(
            f"hindsight needs latencies that stay the same in an episode and are not lost: those "
            f"{what} must be fixed, such as 25ms, or drawn per episode, such as episode:0,25ms"
        )


def _ticks(model: LatencyModel, timing: Timing) -> tuple[int, ...]:
    """The latencies of a model in ticks, each once."""
    return tuple(sorted({round(float(value) / timing.tick_s) for value in model.values_s}))

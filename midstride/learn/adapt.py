"""Adapt: a policy that was made for a world that freezes, made fit for one with latency.

A student observes what the environment does at capture, and the actions in flight. It learns to do
what the policy would do at the switch, which is known in hindsight (`hindsight.py`). No reward is
needed, nor any step with latency. Where the student then errs in states that the record has not, it
acts in the world with latency, and is told what would have been right (rounds).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from midstride.disk.files import commit, machine, versions, write_whole
from midstride.disk.runs import CONFIG
from midstride.envs.actions import ActionCode
from midstride.envs.learnable import Environment
from midstride.envs.wrapped import WrappedSettings
from midstride.latency import Fixed, LatencyModel, PerEpisode, loses
from midstride.latency_text import latency_text, read_latency
from midstride.learn.adaptable import check_coverage, check_fits, check_function
from midstride.learn.adapted import Adapted, AdaptSettings, Stage
from midstride.learn.collect import layout_of, record_frozen, timing_of, visit
from midstride.learn.distil import check_actions, distil, errors, labels_of
from midstride.learn.hindsight import mixed, ticks_within
from midstride.learn.record import Record
from midstride.learn.sources import as_record
from midstride.measure.curve import Returns, curve, grid
from midstride.measure.evaluate import EVALUATION_SEED
from midstride.measure.margin import MarginSettings, place_of
from midstride.measure.play import Single, nothing
from midstride.policies import save_policy
from midstride.policies.fit import fit
from midstride.timing import Timing

Array = NDArray[Any]
_ERRS = 2_000  # steps of the student's own in which its errors are measured
_HELD_OUT = 0.1
TRIAL_SEED = EVALUATION_SEED + 10**6  # of the first episode by which a student is chosen
_LEAST = 4  # episodes at each of several latencies


class OnProgress(Protocol):
    def __call__(self, what: str, done: int, of: int) -> None: ...


def _quiet(what: str, done: int, of: int) -> None:
    pass


def adapt(
    policy: Any,
    make_env: Any,
    latency: float | str | LatencyModel,
    data: Any = None,
    settings: AdaptSettings | None = None,
    on_progress: OnProgress = _quiet,
) -> Adapted:
    """Make a policy fit for a latency.

    policy: whatever `midstride.load` or `as_policy` gives, a model of Stable-Baselines3 or sbx,
        or a function of an observation
    make_env: makes the bare environment, with no latency; or settings of an environment
    latency: seconds, a text such as 50ms or trace:latencies.csv,up, or a latency model
    data: steps of the frozen world, in order: a `Record`, a replay buffer of Stable-Baselines3 or
        sbx, a dict of arrays, a dataset of Minari, the path of a safetensors file or of one of our
        runs (default: they are made here, by the policy with noise)
    """
    settings = settings or AdaptSettings()
    began = time.perf_counter()
    work = _Work(policy, make_env, read_latency(latency), settings, on_progress)
    try:
        return work.adapt(data, began)
    finally:
        work.close()


@dataclass
class _Pairs:
    """What a student is taught: captures, and what the policy would do at their switches."""

    inputs: Array
    wanted: Array
    held_out_inputs: Array
    held_out_wanted: Array
    more: list[tuple[Array, Array]] = field(default_factory=list)

    def all(self) -> tuple[Array, Array]:
        parts = [(self.inputs, self.wanted), *self.more]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


class _Work:
    """What is at hand while a policy is adapted."""

    def __init__(
        self,
        policy: Any,
        make_env: Any,
        latency: LatencyModel,
        settings: AdaptSettings,
        tell: OnProgress,
    ) -> None:
        self.settings, self.tell = settings, tell
        self.latency: LatencyModel = latency
        if isinstance(make_env, Environment) and not isinstance(make_env, WrappedSettings):
            raise ValueError(
                f"adapt is for environments of Gymnasium and DeepMind Control, and {make_env.task} "
                "is ours: train with --latency and --knowledge"
            )
        place = place_of(make_env, MarginSettings(period=settings.period, step=settings.step))
        assert isinstance(place, Single)
        self.bare = place
        frozen = place.at(Fixed(0.0))
        self.real = latency  # what the policy as it is meets
        if settings.pad:
            latency = self.latency = padded(latency, timing_of(frozen))
        check_actions(frozen.action_space)
        if not layout_of(frozen).is_plain:
            raise ValueError(
                "this policy observes more than the environment does itself (knowledge or "
                "stacking): adapt is for one that was made for a world without latency"
            )
        self.policy = fit(policy, frozen.observation_space, frozen.action_space)
        check_function(self.policy, frozen)
        self.space = frozen.action_space
        self.knowledge = _knowledge(place, latency)
        self.place = place.knowing(self.knowledge, latency)
        self.env = self.place.make(latency, looks=True)
        self.timing, self.layout = timing_of(self.env), layout_of(self.env)
        longest = self.timing.latency_bounds_ticks[1]
        if self.timing.thinker == "serial" and longest > timing_of(frozen).shortest_period_ticks:
            raise ValueError(
                "with a serial thinker an action lasts longer than in the world that the policy "
                "was made for: take thinker pipelined"
            )
        self.rng = np.random.default_rng(settings.seed)
        self.seeds = [EVALUATION_SEED + k for k in range(settings.episodes)]
        self.trials = [TRIAL_SEED + k for k in range(settings.episodes)]  # to choose by

    def close(self) -> None:
        self.bare.close()
        self.place.close()
        self.env.close()

    # --- Measuring

    def returns(
        self, policy: Any, place: Single, latency: LatencyModel, what: str, seeds: Sequence[int]
    ) -> Returns:
        """What it gets with a latency; where each episode has one of several, with the worst."""
        each = list(map(Fixed, np.unique(latency.values_s).tolist()))
        models: list[Any] = each if isinstance(latency, PerEpisode) else [latency]
        few = seeds[: max(_LEAST, -(-len(seeds) // len(models)))]
        found: list[list[float]] = []
        for model in models:
            found.append([])
            for seed in few:
                found[-1] += [one.total for one in place.play(policy, model, [seed])]
                self.tell(what, sum(map(len, found)), len(few) * len(models))
        worst = int(np.argmin([np.mean(values) for values in found]))
        return Returns(tuple(found[worst]), models[worst])

    def floor(self, frozen: Returns) -> float:
        """What doing nothing gets; an error if the policy has no more."""
        what = "what doing nothing gets"
        idle = self.returns(nothing(self.space), self.bare, Fixed(0.0), what, self.seeds)
        if frozen.mean <= idle.mean:
            raise ValueError(
                f"without latency the policy gets {frozen.mean:.4g}, and doing nothing "
                f"{idle.mean:.4g}: there is nothing to keep; train it first"
            )
        return idle.mean

    # --- Data

    def record(self, data: Any) -> Record:
        if data is None:
            env = self.bare.make(Fixed(0.0))
            within = ticks_within(self.timing)
            if within:
                env.get_wrapper_attr("look_within")(within)
            held = -(-self.timing.latency_bounds_ticks[1] // self.timing.shortest_period_ticks)
            s = self.settings
            try:
                return record_frozen(
                    env, self.policy, s.steps, s.noise, held, self.rng,
                    lambda n: self.tell("recording the frozen world", n, s.steps),
                )  # fmt: skip
            finally:
                env.close()
        record = as_record(data, self.space, self.timing.period_s)
        check_fits(record, self.bare.at(Fixed(0.0)))
        return record

    def pairs(self, record: Record) -> _Pairs:
        """Those of the last episodes are held out."""
        cut = _cut(record)
        parts = [
            mixed(part, ActionCode(self.space), self.layout, self.timing, self.rng)
            for part in (record[:cut], record[cut:])
        ]
        taught, held_out = ((p.inputs, labels_of(self.policy, p.observation_switch)) for p in parts)
        check_coverage(taught[0], self.layout.columns)
        return _Pairs(*taught, *held_out)

    def visited(
        self, student: Any, steps: int, noise: Sequence[float], what: str
    ) -> tuple[Array, Array]:
        """Captures of its own, and what would have been right at their switches."""
        found = visit(
            self.env, student, steps, noise, self.rng, lambda n: self.tell(what, n, steps)
        )
        return found.instants.inputs, labels_of(self.policy, found.instants.observation_switch)

    # --- The student

    def stage(self, pairs: _Pairs, number: int) -> tuple[Any, Stage]:
        name = "teaching" if number == 0 else f"round {number}: teaching"
        inputs, wanted = pairs.all()
        total = self.settings.updates
        student = distil(
            inputs, wanted, self.space, self.settings, lambda n: self.tell(name, n, total)
        )
        seen, right = self.visited(student, _ERRS, (0.0,), "looking where it errs")
        stage = Stage(
            len(inputs),
            _rms(errors(student, pairs.held_out_inputs, pairs.held_out_wanted, self.space)),
            _rms(errors(student, seen, right, self.space)),
            self.returns(student, self.place, self.latency, "trying the student", self.trials),
        )
        return student, stage

    def adapt(self, data: Any, began: float) -> Adapted:
        s = self.settings
        given = None if data is None else self.record(data)  # what is wrong with it is said now
        still = Fixed(0.0)
        frozen = self.returns(self.policy, self.bare, still, "without latency", self.seeds)
        floor = self.floor(frozen)
        as_it_is = self.returns(self.policy, self.bare, self.real, "as it is", self.seeds)
        record = self.record(None) if given is None else given
        pairs = self.pairs(record)
        students: list[Any] = []
        stages: list[Stage] = []
        for number in range(s.rounds + 1):
            if number:
                name = f"round {number}: acting with latency"
                noise = (0.0, 0.1)  # half of the episodes as it acts, half around it
                pairs.more.append(self.visited(students[-1], s.round_steps, noise, name))
            student, stage = self.stage(pairs, number)
            students.append(student)
            stages.append(stage)
            if stage.returns.mean - floor >= s.share * (frozen.mean - floor):
                break
        best = int(np.argmax([stage.returns.mean for stage in stages]))
        student = students[best]
        student.description |= self._about()
        # Not by the episodes that it was chosen by.
        adapted = self.returns(student, self.place, self.latency, "adapted", self.seeds)
        return Adapted(
            policy=student,
            knowledge=self.knowledge,
            latency=self.latency,
            frozen=frozen,
            as_it_is=as_it_is,
            adapted=adapted,
            stages=tuple(stages),
            best=best,
            floor=floor,
            share=s.share,
            steps_frozen=len(record),
            steps_latency=(len(stages) - 1) * s.round_steps,
            seconds=time.perf_counter() - began,
        )

    def _about(self) -> dict[str, Any]:
        """What the student says of itself: what it observes."""
        about: dict[str, Any] = {
            "columns": list(self.layout.columns),
            "units": dict(self.layout.units),
            "agent": "adapt",
        }
        with suppress(ValueError):  # a latency that only Python can say
            about["latency"] = latency_text(self.latency)
            about["knowledge"] = list(self.knowledge)
        if isinstance(self.place.make_env, WrappedSettings):
            about["environment"] = self.place.make_env.to_dict()
        return about


def padded(latency: LatencyModel, timing: Timing) -> Fixed:
    """The latency of decisions that wait for the longest one, up to the next whole step."""
    if loses(latency):
        raise ValueError("a lost decision cannot be waited for: leave out pad, or the losses")
    period_s = timing.longest_period_s
    periods = np.ceil(float(max(latency.values_s)) / period_s - 1e-9)
    return Fixed(float(periods) * period_s)


def _rms(errors: Array) -> float:
    return float(np.sqrt((errors**2).mean())) if len(errors) else float("nan")


def _knowledge(place: Single, latency: LatencyModel) -> tuple[str, ...]:
    """What a student must know of what is in flight."""
    there = place.knowing((), latency)
    timing: Timing = timing_of(there.at(latency))
    there.close()
    low, high = timing.latency_bounds_ticks
    known = ["previous_action"]
    if timing.pending_slots:
        known.append("pending_actions")
    if low != high or loses(latency):
        known.append("selection_time")
    return tuple(known)


def _cut(record: Record) -> int:
    """The row from which on steps are held out: about a tenth, whole episodes where they fit."""
    wanted = int(len(record) * (1 - _HELD_OUT))
    ends = np.flatnonzero(record.ended) + 1
    near = ends[np.abs(ends - wanted) <= len(record) * _HELD_OUT / 2]
    return max(1, wanted if not len(near) else int(near[np.argmin(np.abs(near - wanted))]))


def save_adapted(folder: Path, found: Adapted) -> None:
    """Write the student, as a run that evaluate, margin and watch take."""
    save_policy(found.policy, folder)
    environment = found.policy.description.get("environment")
    if environment is not None:
        record = {
            "environment": environment, "agent": {"agent": "adapt"}, "run": {}, "hash": "adapted",
            "versions": versions(), "commit": commit(), "machine": machine(),
        }  # fmt: skip
        write_whole(folder / CONFIG, json.dumps(record, indent=2, allow_nan=False) + "\n")


def before_and_after(
    found: Adapted,
    policy: Any,
    make_env: Any,
    settings: AdaptSettings,
    on_progress: OnProgress = _quiet,
) -> tuple[tuple[Returns, ...], tuple[Returns, ...]]:
    """Returns over latencies up to twice the one that it was adapted to: of the policy as it was,
    and of the student."""
    work = _Work(policy, make_env, found.latency, replace(settings, pad=False), on_progress)
    try:
        latencies_s = grid(work.timing, 2 * found.longest_s)
        of = len(latencies_s) * len(work.seeds)

        def tell(what: str) -> Callable[[int], None]:
            return lambda played: on_progress(what, played, of)

        before = curve(work.policy, work.bare, latencies_s, work.seeds, tell("before"))
        after = curve(found.policy, work.place, latencies_s, work.seeds, tell("after"))
        return before, after
    finally:
        work.close()

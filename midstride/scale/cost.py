"""What a training would do on more machines than there are: a model of its rates and its bounds.

Pure functions of rates that were measured on few (`python -m benchmarks ray`). Every role, every
wire and the coordinator bound the steps per second of the whole; the smallest bound is the speed,
and whose it is says what to have more of. `tests/scale/test_cost.py` holds it against the
coordinator itself on a virtual clock.

With n environments of each collector, u steps per update, L labelled transitions per update and b
= n / u updates of a block: a step calls for 1/u updates, L/u labels, 1/n blocks. With F fitters in
step an update takes 1/F of its time, and everybody's gradients go to everybody (`update_s`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple


@dataclass(frozen=True)
class Rates:
    """Of one process of each role, measured alone; bytes of what is sent."""

    collector_steps_per_s: float
    updater_labels_per_s: float
    fitter_updates_per_s: float
    memory_add_s: float  # to keep one call's rounds
    memory_sample_s: float  # to draw a block
    coordinator_calls_per_s: float
    bytes_per_transition: float  # from a collector to a memory
    bytes_fitted: float  # of a sampled transition, to the fitter
    bytes_judged: float  # of a sampled transition, to an updater
    bytes_acting: float  # of a version of weights, to a collector
    bytes_judging: float  # of a version of weights, to an updater
    wire_bytes_per_s: float  # of a machine's network, each way
    bytes_gradient: float = 0.0  # of an update, from each fitter to each other one
    answer_s: float = 0.0  # from the last fitter's answer to the next call of all


@dataclass(frozen=True)
class Layout:
    """How many of each role, and how a training is cut into rounds and blocks."""

    collectors: int
    updaters: int
    replays: int = 1
    num_envs: int = 64
    update_every: float = 4.0
    labels_per_update: float = 32.0
    send_every: int = 1
    fitters: int = 1  # in step, each with its part of every batch
    window: int | None = None  # blocks at once; default as in `ScaleSettings`
    cores: float | None = None  # that all roles share; None: each has one of its own

    @property
    def block_updates(self) -> float:
        return self.num_envs / self.update_every

    @property
    def blocks_at_once(self) -> int:
        return self.updaters + 2 if self.window is None else self.window


class Forecast(NamedTuple):
    """What a training would do."""

    steps_per_s: float
    bound_by: str
    bounds: dict[str, float]  # steps per second that each would allow
    label_staleness: float  # updates, on average
    label_staleness_max: float  # updates, by the window
    used: dict[str, float]  # share of its time that each role works

    @property
    def updates_per_s(self) -> float:
        return self.steps_per_s * self.used["updates per step"]


def forecast(rates: Rates, layout: Layout) -> Forecast:
    """Steps per second of the whole, and what bounds them."""
    bounds = step_bounds(rates, layout)
    bound_by = min(bounds, key=lambda name: bounds[name])
    steps = bounds[bound_by]
    label_s = block_times(rates, layout)["label"]
    updates_per_s = steps / layout.update_every
    most = (layout.blocks_at_once - 1) * layout.block_updates
    # While a block is labelled, others are fitted; one that waits for the fitter is older by that.
    waits_s = 0.0
    if bound_by == "fitting":
        waits_s = max(0.0, most / updates_per_s - label_s)
    used = {name: steps / bounds[name] for name in ("collecting", "labelling", "fitting", "memory")}
    return Forecast(
        steps,
        bound_by,
        bounds,
        min(most, updates_per_s * (label_s + waits_s)),
        most,
        {**used, "updates per step": 1 / layout.update_every},
    )


def block_times(rates: Rates, layout: Layout) -> dict[str, float]:
    """Seconds of a block with each role."""
    return {
        "sample": rates.memory_sample_s,
        "label": layout.block_updates * layout.labels_per_update / rates.updater_labels_per_s,
        "fit": layout.block_updates * update_s(rates, layout.fitters),
    }


def update_s(rates: Rates, fitters: int) -> float:
    """Seconds of an update: the gradient of a part, then everybody's gradients to everybody.

    The work of one fitter is taken to be that of its part of the batch: it is a little more, for
    applying an update is not divided.
    """
    alone = 1 / rates.fitter_updates_per_s
    if fitters == 1:
        return alone
    exchange = (fitters - 1) * rates.bytes_gradient / rates.wire_bytes_per_s
    return alone / fitters + exchange + rates.answer_s


def fitter_calls(layout: Layout) -> float:
    """Calls of the coordinator to fitters for a block (`team.py`)."""
    if layout.fitters == 1:
        return 1.0
    return layout.fitters * (layout.block_updates + 1)


def part_of_block(layout: Layout) -> float:
    """Share of a block's transitions that a fitter is sent, if each is used twice.

    A transition is in the batches of two updates, and in some part of each: a fitter needs those
    that it has in either.
    """
    return 1 - (1 - 1 / layout.fitters) ** 2


def step_bounds(rates: Rates, layout: Layout) -> dict[str, float]:
    """Steps per second that each role, each wire and the coordinator would allow."""
    n, u = layout.num_envs, layout.update_every
    labels_per_step = layout.labels_per_update / u
    calls_per_step = 1 / (n * layout.send_every)  # of collectors
    times = block_times(rates, layout)
    wire = rates.wire_bytes_per_s
    parts = layout.fitters * part_of_block(layout)  # what is sent to fitters, in blocks
    sampled = labels_per_step * (rates.bytes_fitted * parts + rates.bytes_judged)
    # Every call fetches its weights from the fitter's machine: the worst case.
    sent = calls_per_step * rates.bytes_acting + rates.bytes_judging / n
    gradients = (layout.fitters - 1) * rates.bytes_gradient / u  # into each fitter, and out of it
    memory_s = rates.memory_add_s * calls_per_step + rates.memory_sample_s / n
    # Processor time of a step, wherever it is spent.
    step_s = (
        1 / rates.collector_steps_per_s
        + labels_per_step / rates.updater_labels_per_s
        + 1 / (u * rates.fitter_updates_per_s)
        + memory_s
    )
    return {
        "collecting": layout.collectors * rates.collector_steps_per_s,
        "labelling": layout.updaters * rates.updater_labels_per_s / labels_per_step,
        "fitting": u / update_s(rates, layout.fitters),
        "memory": layout.replays / memory_s,
        "window": layout.blocks_at_once * n / sum(times.values()),
        "wire of the memories": layout.replays * wire / max(rates.bytes_per_transition, sampled),
        "wire of the fitter, in": wire
        / (labels_per_step * rates.bytes_fitted * part_of_block(layout) + gradients),
        "wire of the fitter, weights": wire / (sent + gradients),
        "coordinator": rates.coordinator_calls_per_s
        / (2 * calls_per_step + (2 + fitter_calls(layout)) / n),
        "cores": math.inf if layout.cores is None else layout.cores / step_s,
    }


def best_layout(rates: Rates, processes: int, like: Layout) -> Layout:
    """Collectors and updaters that make the most of so many processes.

    More of them than the other bounds allow for would wait; they are left out.
    """
    others = ("fitting", "wire of the fitter, in", "wire of the fitter, weights", "coordinator")
    bounds = step_bounds(rates, like)
    most = min(bounds[name] for name in others)
    per_collector = rates.collector_steps_per_s
    per_updater = rates.updater_labels_per_s * like.update_every / like.labels_per_update
    share = per_updater / (per_collector + per_updater)  # of collectors, so that neither waits
    collectors = min(max(1, round(processes * share)), processes - 1)
    updaters = processes - collectors
    layout = replace(
        like,
        collectors=min(collectors, _ceil(most / per_collector)),
        updaters=min(updaters, _ceil(most / per_updater)),
    )
    steps = min(most, step_bounds(rates, layout)["collecting"])
    one = step_bounds(rates, replace(layout, replays=1))
    shards = max(steps / one["memory"], steps / one["wire of the memories"])
    return replace(layout, replays=min(_ceil(shards), layout.collectors))


def _ceil(value: float) -> int:
    return max(1, int(-(-value // 1)))


def hours(updates: float, rates: Rates, layout: Layout) -> float:
    """Hours of so many updates."""
    return updates * layout.update_every / forecast(rates, layout).steps_per_s / 3600

"""What a training would do on more machines than there are: a model of its rates and its bounds.

Pure functions of rates that were measured on few (`python -m benchmarks ray`). Every role, every
wire and the coordinator bound the steps per second of the whole; the smallest bound is the speed,
and whose it is says what to have more of. `tests/scale/test_cost.py` holds it against the
coordinator itself on a virtual clock.

With n environments of each collector, u steps per update, L labelled transitions per update and b
= n / u updates of a block: a step calls for 1/u updates, L/u labels, 1/n blocks.
"""

from __future__ import annotations

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

    def with_fitters(self, count: int, efficiency: float = 1.0) -> Rates:
        """As if fitting were so many times as fast: a larger machine, or several in step."""
        rate = self.fitter_updates_per_s * (1 + (count - 1) * efficiency)
        return replace(self, fitter_updates_per_s=rate)


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
    window: int | None = None  # blocks at once; default as in `ScaleSettings`

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
        "fit": layout.block_updates / rates.fitter_updates_per_s,
    }


def step_bounds(rates: Rates, layout: Layout) -> dict[str, float]:
    """Steps per second that each role, each wire and the coordinator would allow."""
    n, u = layout.num_envs, layout.update_every
    labels_per_step = layout.labels_per_update / u
    calls_per_step = 1 / (n * layout.send_every)  # of collectors
    times = block_times(rates, layout)
    wire = rates.wire_bytes_per_s
    sampled = labels_per_step * (rates.bytes_fitted + rates.bytes_judged)
    # Every call fetches its weights from the fitter's machine: the worst case.
    sent = calls_per_step * rates.bytes_acting + rates.bytes_judging / n
    memory_s = rates.memory_add_s * calls_per_step + rates.memory_sample_s / n
    return {
        "collecting": layout.collectors * rates.collector_steps_per_s,
        "labelling": layout.updaters * rates.updater_labels_per_s / labels_per_step,
        "fitting": rates.fitter_updates_per_s * u,
        "memory": layout.replays / memory_s,
        "window": layout.blocks_at_once * n / sum(times.values()),
        "wire of the memories": layout.replays * wire / max(rates.bytes_per_transition, sampled),
        "wire of the fitter, in": wire / (labels_per_step * rates.bytes_fitted),
        "wire of the fitter, weights": wire / sent,
        "coordinator": rates.coordinator_calls_per_s / (2 * calls_per_step + 3 / n),
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

"""The cost model against the coordinator itself, on a virtual clock: whatever bounds it."""

from dataclasses import replace

import pytest

from midstride.scale.coordinator import Coordinator
from midstride.scale.cost import (
    Layout,
    Rates,
    best_layout,
    fitter_calls,
    forecast,
    hours,
    step_bounds,
    update_s,
)
from midstride.scale.plan import ScaleSettings, Work
from tests.scale.virtual import COUNTING, CountingDesk, VirtualCluster

RATES = Rates(
    collector_steps_per_s=100.0,
    updater_labels_per_s=400.0,
    fitter_updates_per_s=100.0,
    memory_add_s=0.001,
    memory_sample_s=0.002,
    coordinator_calls_per_s=1e9,  # takes no time on a virtual clock
    bytes_per_transition=14_000,
    bytes_fitted=7_000,
    bytes_judged=7_000,
    bytes_acting=1e6,
    bytes_judging=2e6,
    wire_bytes_per_s=1e12,
)
LAYOUT = Layout(collectors=2, updaters=2, num_envs=8, update_every=4, labels_per_update=4)


def simulated(rates, layout, steps=4000):
    """Steps per virtual second, and the coordinator that took them."""
    exchange = (layout.fitters - 1) * rates.bytes_gradient / rates.wire_bytes_per_s
    times = {
        "collect": layout.num_envs * layout.send_every / rates.collector_steps_per_s,
        "label": layout.block_updates * layout.labels_per_update / rates.updater_labels_per_s,
        "fit": layout.block_updates / rates.fitter_updates_per_s,
        # In step: a part's gradient; everybody's gradients arrive before the next one is begun.
        "begin": 1 / rates.fitter_updates_per_s / layout.fitters,
        "step": exchange + 1 / rates.fitter_updates_per_s / layout.fitters,
        "end": exchange,
        "add": rates.memory_add_s,
        "sample": rates.memory_sample_s,
    }
    scale = ScaleSettings(
        collectors=layout.collectors, updaters=layout.updaters, replays=layout.replays,
        fitters=layout.fitters,
        send_every=layout.send_every, window=layout.window, keep_every=10**6,
        max_staleness=10**6,
    )  # fmt: skip
    cluster = VirtualCluster(COUNTING, lambda role, method: times.get(method, 0.0))
    work = Work(
        steps, layout.num_envs, int(layout.block_updates), lambda n: n / layout.update_every,
        layout.labels_per_update, lambda key: key,
    )  # fmt: skip
    found = Coordinator(work, scale, cluster, CountingDesk(scale), cluster.clock)
    found.start()
    found.run()
    return found.books.steps / cluster.now, found


CASES = {
    "collecting": (replace(RATES, collector_steps_per_s=20), LAYOUT),
    "labelling": (replace(RATES, updater_labels_per_s=20), LAYOUT),
    "fitting": (replace(RATES, fitter_updates_per_s=10), replace(LAYOUT, collectors=4)),
    "fitting, three in step": (
        replace(RATES, fitter_updates_per_s=5, bytes_gradient=1e6, wire_bytes_per_s=1e8),
        replace(LAYOUT, collectors=4, fitters=3),
    ),
    "memory": (replace(RATES, memory_add_s=0.1), replace(LAYOUT, collectors=4)),
    "window": (
        replace(RATES, updater_labels_per_s=20, collector_steps_per_s=1000),
        replace(LAYOUT, updaters=8, window=2),
    ),
}


@pytest.mark.parametrize("bound_by", CASES)
@pytest.mark.parametrize("send_every", [1, 4])
def test_the_model_says_what_the_coordinator_does(bound_by, send_every):
    rates, layout = CASES[bound_by]
    layout = replace(layout, send_every=send_every)
    if bound_by == "memory" and send_every == 4:
        rates = replace(rates, memory_add_s=0.4)
    said = forecast(rates, layout)
    assert said.bound_by == bound_by.partition(",")[0]
    measured, found = simulated(rates, layout)
    assert measured == pytest.approx(said.steps_per_s, rel=0.06)
    total, count, largest = found.books.staleness["label"]
    assert largest <= said.label_staleness_max
    assert total / count <= said.label_staleness_max
    busy = found.crew.cluster.busy_s
    used = busy["fitter"] / layout.fitters / found.crew.cluster.now
    assert used == pytest.approx(said.used["fitting"], abs=0.06)


def test_twice_as_many_of_what_bounds_is_twice_as_fast_until_something_else_does():
    rates = replace(RATES, updater_labels_per_s=50)
    speeds = [simulated(rates, replace(LAYOUT, collectors=16, updaters=m))[0] for m in (1, 2, 4)]
    assert speeds[1] / speeds[0] == pytest.approx(2, rel=0.05)
    assert speeds[2] / speeds[1] == pytest.approx(2, rel=0.05)
    said = [forecast(rates, replace(LAYOUT, collectors=99, updaters=m)).bound_by for m in (8, 9)]
    assert said == ["labelling", "fitting"]


def test_staleness_of_labels_is_what_is_fitted_while_they_are_made():
    rates = replace(RATES, updater_labels_per_s=20, collector_steps_per_s=1000)
    layout = replace(LAYOUT, updaters=6)
    said = forecast(rates, layout)
    _, found = simulated(rates, layout)
    total, count, _ = found.books.staleness["label"]
    assert said.bound_by == "labelling"
    assert total / count == pytest.approx(said.label_staleness, abs=layout.block_updates)


def test_the_best_layout_leaves_nobody_waiting_and_stops_where_more_is_of_no_use():
    few = best_layout(RATES, 4, LAYOUT)
    assert few.collectors + few.updaters == 4
    bounds = step_bounds(RATES, few)
    assert 0.5 < bounds["collecting"] / bounds["labelling"] < 2
    many, more = (best_layout(RATES, count, LAYOUT) for count in (1_000, 10_000))
    assert many == more
    found = forecast(RATES, many)
    assert (
        found.steps_per_s
        == found.bounds["fitting"]
        == RATES.fitter_updates_per_s * LAYOUT.update_every
    )
    faster = best_layout(RATES, 1_000, replace(LAYOUT, fitters=10))  # gradients of no bytes
    assert forecast(RATES, faster).steps_per_s == pytest.approx(10 * found.steps_per_s)
    assert hours(3.6e6, RATES, many) == pytest.approx(10)


def test_each_bound_by_hand():
    rates = replace(RATES, coordinator_calls_per_s=1000, wire_bytes_per_s=1e6)
    bounds = step_bounds(rates, replace(LAYOUT, send_every=2, replays=2))
    assert bounds["collecting"] == 2 * 100
    assert bounds["labelling"] == 2 * 400  # a label a step
    assert bounds["fitting"] == 400
    assert bounds["memory"] == pytest.approx(2 / (0.001 / 16 + 0.002 / 8))
    assert bounds["window"] == pytest.approx(4 * 8 / (0.002 + 2 * 4 / 400 + 2 / 100))
    assert bounds["wire of the memories"] == pytest.approx(2 * 1e6 / 14_000)
    assert bounds["wire of the fitter, in"] == pytest.approx(1e6 / 7_000)
    assert bounds["wire of the fitter, weights"] == pytest.approx(1e6 / (1e6 / 16 + 2e6 / 8))
    assert bounds["coordinator"] == pytest.approx(1000 / (2 / 16 + 3 / 8))


def test_cores_that_all_share_are_a_bound_by_hand():
    """A step: 10 ms of a collector, a label of 2.5 ms, a quarter of an update of 10 ms, keeping."""
    step_s = 1 / 100 + 1 / 400 + 1 / (4 * 100) + (0.001 + 0.002) / 8
    shared = step_bounds(RATES, replace(LAYOUT, cores=2))
    assert shared["cores"] == pytest.approx(2 / step_s)
    assert forecast(RATES, replace(LAYOUT, cores=1)).bound_by == "cores"
    # Never more than one core for each role would allow
    assert step_bounds(RATES, LAYOUT)["cores"] == float("inf")


def test_the_example_of_the_documentation():
    """docs/scale.md works QT-Opt's own scale through: its assumptions, and what follows."""
    image, transitions = 472 * 472 * 3, 580_000 * 10
    assert image == pytest.approx(667e3, rel=0.005)
    assert transitions * image == pytest.approx(3.9e12, rel=0.01)
    assert transitions * image / 64e9 == pytest.approx(60, rel=0.02)
    assert transitions * 48 * 48 * 3 == pytest.approx(40e9, rel=0.01)
    fitting = Rates(
        collector_steps_per_s=1.0, updater_labels_per_s=4.0, fitter_updates_per_s=10.0,
        memory_add_s=1e-6, memory_sample_s=1e-3, coordinator_calls_per_s=1e4,
        bytes_per_transition=2 * image, bytes_fitted=image, bytes_judged=image, bytes_acting=5e6,
        bytes_judging=1e7, wire_bytes_per_s=1.25e9, bytes_gradient=5e6,
    )  # fmt: skip
    # Blocks of one update: a round of one environment, an update a step.
    layout = Layout(100, 800, 60, num_envs=1, update_every=1, labels_per_update=32, fitters=10)
    bounds = step_bounds(fitting, layout)
    free = step_bounds(replace(fitting, bytes_gradient=0.0), layout)
    assert bounds["labelling"] == pytest.approx(free["fitting"]) == 100  # 800 cores feed ten
    assert bounds["fitting"] == pytest.approx(22, rel=0.02)  # if everybody sends 5 MB to everybody
    assert 100 * 32 * image == pytest.approx(2.1e9, rel=0.02)
    assert step_bounds(fitting, replace(layout, fitters=1))["wire of the fitter, in"] < 100
    assert free["wire of the fitter, in"] > 100
    assert bounds["wire of the memories"] > 100
    label_s = 32 / fitting.updater_labels_per_s
    assert (label_s, label_s * 100) == (8, 800)  # seconds, and updates meanwhile
    usual = Layout(1, 1, num_envs=64)
    assert step_bounds(replace(fitting, coordinator_calls_per_s=1000), usual)["coordinator"] == (
        pytest.approx(13_000, rel=0.02)
    )
    seven_kb = 48 * 48 * 3 + 100
    assert 1.25e9 / (32 * seven_kb) == pytest.approx(5_500, rel=0.05)


def test_fitters_in_step_by_hand():
    rates = replace(RATES, bytes_gradient=1e6, wire_bytes_per_s=1e9, answer_s=0.001)
    layout = replace(LAYOUT, fitters=4)
    assert update_s(rates, 1) == 0.01
    assert update_s(rates, 4) == pytest.approx(0.0025 + 3 * 0.001 + 0.001)
    assert fitter_calls(layout) == 4 * (2 + 1)
    bounds = step_bounds(replace(rates, coordinator_calls_per_s=1000), layout)
    assert bounds["fitting"] == pytest.approx(4 / 0.0065)
    assert bounds["coordinator"] == pytest.approx(1000 / (2 / 8 + 14 / 8))
    # 7/16 of a block are in its part of either batch; three gradients come for every four steps.
    into = 7_000 * 7 / 16 + 3e6 / 4
    assert bounds["wire of the fitter, in"] == pytest.approx(1e9 / into)
    more = [step_bounds(rates, replace(LAYOUT, fitters=n))["fitting"] for n in (1, 2, 4, 16)]
    assert more[0] < more[1] < more[2] > more[3]  # the wire takes what the parts save

"""One training over processes: two collectors and two updaters against one, all against local.

Then what one of each does, what is sent, and what that says of 10, 100 and 1,000 machines.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import pickle
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, rates, seconds
from midstride.envs.checks import available_cores
from midstride.learn.agents import Training
from midstride.learn.train import Progress, train
from midstride.scale.cost import Layout, Rates, best_layout, forecast
from midstride.scale.distributed import train_on_ray
from midstride.scale.plan import ScaleSettings
from midstride.scale.roles import Collector, Fitter, Memory, Updater, small_agent

TRAINING = Training.of(
    "grasp", "qtopt", knowledge=("vector_to_go",), scenes=16, num_envs=32, steps=4_096,
    demonstrations=512, auxiliary_updates=0, offline_updates=64, replay_size=4_096,
    evaluate_every=10**9, evaluation_episodes=2, checkpoint_every=10**9,
)  # fmt: skip
ROUNDS, BLOCKS, REPEATS = 4, 2, 5
WIRE = 1.25e9  # bytes per second: 10 Gbit/s, which cannot be measured here
PROCESSES = 8  # of a machine that is forecast


def run() -> list[Figure]:
    if importlib.util.find_spec("ray") is None:
        print("Ray is missing, and with it the benchmark: pip install 'midstride[ray]'")
        return []
    from midstride.scale.ray import connected

    with connected(None):
        measured, figures, busy = _roles()
    figures += _overhead(measured, busy)
    _forecasts(measured)
    return figures


def _roles() -> tuple[Rates, list[Figure], float]:
    """Roles side by side, each call with what it gets in a training.

    Also what a core does of its work while the other one works, too: of collecting and labelling.
    """
    import ray

    weights, block, values, parts = _block()
    collectors = [ray.remote(Collector).remote(TRAINING, (0, 0, i)) for i in range(2)]
    updaters = [ray.remote(Updater).remote(TRAINING, values) for _ in range(2)]
    ray.get([actor.setup.remote() for actor in (*collectors, *updaters)])
    acting, judging = (ray.put(one) for one in weights)
    key = np.zeros(2, np.uint32)
    judged = ray.put(block[1])

    def collect(count: int) -> Callable[[], Any]:
        given = (acting, None, ROUNDS, 0, None)
        return lambda: ray.get(
            [actor.collect.options(num_returns=2).remote(*given)[0] for actor in collectors[:count]]
        )

    def label(count: int) -> Callable[[], Any]:
        return lambda: ray.get(
            [
                actor.label.options(num_returns=2).remote(judged, judging, key)[0]
                for actor in updaters[:count]
                for _ in range(BLOCKS)
            ]
        )

    steps, labels = ROUNDS * TRAINING.run.num_envs, BLOCKS * len(block[1]["terminated"])
    idle = ray.remote(_Idle).remote()
    found = rates(
        {
            "1 collector": (collect(1), steps),
            "2 collectors": (collect(2), 2 * steps),
            "1 updater": (label(1), labels),
            "2 updaters": (label(2), 2 * labels),
            # One after another: the coordinator, which does not wait, stands at least as many.
            "calls": (lambda: [ray.get(idle.nothing.remote()) for _ in range(100)], 100),
            **parts,
        },
        REPEATS,
    )
    limits = {
        "collect": _side_by_side("collect", values, (weights[0], None, ROUNDS, 0, None)),
        "label": _side_by_side("label", values, (block[1], weights[1], key)),
    }
    taken = ray.get(
        collectors[0].collect.options(num_returns=2).remote(acting, None, 1, 0, None)[1]
    )
    per_step = _size(taken) / TRAINING.run.num_envs
    sizes = [_size(one) / len(block[1]["terminated"]) for one in block]
    measured = Rates(
        found["1 collector"], found["1 updater"], found["updates"], 1 / found["adds"],
        1 / found["samples"], found["calls"], per_step, sizes[0], sizes[1],
        _size(weights[0]), _size(weights[1]), WIRE, _size(weights[0]), 2 / found["calls"],
    )  # fmt: skip
    raw = sum(part.nbytes for part in _one_observation(taken[0])) / TRAINING.run.num_envs
    packed, unpacked_s = _compressed(taken)
    ours = sum(array.nbytes for array in weights[1].values())
    figures = [
        _linear("collectors", found, "1 collector", "2 collectors", "steps", limits["collect"]),
        _linear("updaters", found, "1 updater", "2 updaters", "labels", limits["label"]),
        Figure(
            "ray/bytes-per-transition",
            per_step / raw,
            "x",
            f"one observation, {raw:,.0f} bytes: a transition is sent as {per_step:,.0f}, its next "
            "observation with it",
            2.0,
        ),
        Figure(
            "ray/bytes-per-weights",
            (measured.bytes_acting + measured.bytes_judging) / ours,
            "x",
            f"the two target networks as they are, {ours:,.0f} bytes; collectors get "
            f"{measured.bytes_acting:,.0f}, updaters {measured.bytes_judging:,.0f} a version",
            1.5,
        ),
        Figure(
            "ray/compressed-bytes",
            packed,
            "x",
            f"what a collector sends, by zlib's fastest: {1e6 * unpacked_s:,.0f} us of a processor "
            "for each transition, packed and unpacked, against "
            f"{1e6 * (1 - packed) * per_step / WIRE:,.1f} us of a 10 Gbit/s wire that it saves; "
            f"worth it below {8e-6 * (1 - packed) * per_step / unpacked_s:,.0f} Mbit/s",
        ),
    ]
    return measured, figures, (limits["collect"] + limits["label"]) / 2


def _compressed(taken: Any) -> tuple[float, float]:
    """Of what a collector sends: the share of its bytes that is left, seconds of a transition."""
    raw = pickle.dumps(taken, protocol=5)
    packed = zlib.compress(raw, 1)
    once_s = seconds(lambda: [zlib.decompress(zlib.compress(raw, 1)) for _ in range(10)]) / 10
    return len(packed) / len(raw), once_s / TRAINING.run.num_envs


class _Idle:
    def nothing(self) -> None:
        return None


def _block() -> tuple[Any, Any, Any, dict[str, Any]]:
    """Weights, a block in its two halves, what values are worth; and the work of the others."""
    memory = Memory(TRAINING, (0,), TRAINING["replay_size"], (0, 0, 0))
    values = memory.setup()["values"]
    agent, envs = small_agent(TRAINING)
    envs.close()
    updates = agent.at_once
    _, judged, fitted = memory.sample(updates, None)
    block = fitted, judged
    fitter = Fitter(TRAINING, values)
    fitter.setup()
    _, acting, judging = fitter.publish()
    labels, key = np.full(len(block[1]["terminated"]), 0.5, np.float32), np.zeros(2, np.uint32)
    collector = Collector(TRAINING, (0, 0))
    collector.setup()
    _, taken = collector.collect(acting, None, 1, 0, None)
    numbers = iter(range(10**9))
    parts = {
        "updates": (lambda: fitter.fit(block[0], labels, key, key), updates),
        "adds": (lambda: memory.add(0, 0, next(numbers), taken), 1),
        "samples": (lambda: memory.sample(updates, None), 1),
    }
    return (acting, judging), block, values, parts


def _one_observation(step: Any) -> list[Any]:
    seen = step.observation_capture
    return list(seen.values()) if isinstance(seen, dict) else [seen]


def _size(value: Any) -> float:
    return float(len(pickle.dumps(value, protocol=5)))


def _side_by_side(method: str, values: Any, given: tuple[Any, ...]) -> float:
    """What two processes do of what one does twice, without Ray: what the cores here allow."""
    context = multiprocessing.get_context("spawn")

    def calls_per_s(count: int) -> float:
        start, done = context.Barrier(count), context.SimpleQueue()
        workers = [
            context.Process(target=_work_alone, args=(method, values, given, i, start, done))
            for i in range(count)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return float(sum(done.get() for _ in workers))

    one, two = calls_per_s(1), calls_per_s(2)
    return two / (2 * one)


def _work_alone(
    method: str, values: Any, given: tuple[Any, ...], i: int, start: Any, done: Any
) -> None:
    is_collector = method == "collect"
    role: Any = Collector(TRAINING, (0, 0, i)) if is_collector else Updater(TRAINING, values)
    role.setup()
    work = getattr(role, method)
    work(*given)  # compiles
    start.wait()
    took = [seconds(lambda: work(*given)) for _ in range(3 * REPEATS)]
    done.put(1 / float(np.median(took)))


def _linear(
    name: str, found: dict[str, float], one: str, two: str, what: str, limit: float
) -> Figure:
    return Figure(
        f"ray/{name}-1-to-2",
        found[two] / found[one] / 2,
        "x",
        f"linear: {one} {found[one]:,.0f}, {two} {found[two]:,.0f} {what} per second; the limit is "
        "two processes of this machine without Ray",
        limit,
    )


def _overhead(measured: Rates, busy: float) -> list[Figure]:
    """A whole training over processes of this machine: against one process, and the forecast.

    busy: what a core does of its work while the others work, too
    """
    scale = ScaleSettings(cores=0.1)
    with tempfile.TemporaryDirectory() as folder:
        here = _speed(lambda tell: train(TRAINING, Path(folder) / "local", on_progress=tell))
        there = _speed(
            lambda tell: train_on_ray(TRAINING, Path(folder) / "ray", scale, on_progress=tell)
        )
    cores = available_cores()
    said = forecast(measured, replace(_like(), cores=busy * cores))
    return [
        Figure(
            "ray/overhead-vs-local",
            there / here,
            "x",
            f"local: {here:,.0f} steps per second; one collector, updater and fitter: {there:,.0f}",
        ),
        Figure(
            "ray/measured-vs-forecast",
            there / said.steps_per_s,
            "x",
            f"the cost model, of rates measured alone: {said.steps_per_s:,.0f} steps per second on "
            f"{cores} cores that all share, each {busy:.2f} as fast as alone, bound by "
            f"{said.bound_by}",
            1.0,
        ),
    ]


def _speed(training: Callable[[Callable[[Progress], None]], Any]) -> float:
    """Steps per second of the second half of a training."""
    told: list[tuple[float, int]] = []
    training(lambda progress: told.append((time.perf_counter(), progress.steps)))
    late = [one for one in told if one[1] >= TRAINING.run.steps / 2]
    (first, before), (last, after) = late[0], late[-1]
    return (after - before) / (last - first) if last > first else float("nan")


def _like() -> Layout:
    """One collector, updater and fitter, with what the training says of blocks."""
    return Layout(
        1, 1, num_envs=TRAINING.run.num_envs, update_every=TRAINING["update_every"],
        labels_per_update=TRAINING["batch_size"] / TRAINING["label_reuse"],
    )  # fmt: skip


def _forecasts(measured: Rates) -> None:
    """What more machines would do, if they were like this one."""
    like = _like()
    titles = ("machines", "fitters", "collectors", "updaters", "steps/s", "bound by", "staleness")
    table = Table(*titles, title=f"Forecast, {PROCESSES} processes a machine")
    for fitters in (1, 4):
        theirs = replace(like, fitters=fitters)
        for machines in (1, 10, 100, 1_000):
            layout = best_layout(measured, machines * PROCESSES, theirs)
            said = forecast(measured, layout)
            table.add_row(
                f"{machines:,}", f"{fitters}", f"{layout.collectors:,}", f"{layout.updaters:,}",
                f"{said.steps_per_s:,.0f}", said.bound_by, f"{said.label_staleness:,.0f} updates",
            )  # fmt: skip
    Console(width=120).print(table)

"""The wall clock: how late captures are, beside rtgym and a plain `time.sleep` loop; what it costs.

Our captures are late against their deadlines, start + k * period. Other loops tell none: theirs are
late against a grid of whole periods through their earliest capture, so that who sleeps a bit too
long every time is later and later, and who skips a cycle is on time again: ours is never later than
a period, and its misses are counted. The error of intervals (from a capture to the next, against
the period) needs no deadlines, and is the same measure for all. All take turns in every
round, with a robot and a policy that do nothing, so that what is late is the loop; under load
another process computes on every core. What a decision costs is processor time.
"""

from __future__ import annotations

import itertools
import multiprocessing
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from gymnasium import spaces
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure
from midstride.policies import as_policy
from midstride.realtime.clock import VirtualClock, WallClock, steady
from midstride.realtime.robot import Declared, Observation, Sent, Stamp
from midstride.realtime.runtime import Pace, Runtime
from midstride.realtime.senses import Senses
from midstride.realtime.thinker import DrawnThinker, ThreadThinker

RATES_HZ = (100, 500)
SECONDS, ROUNDS = 1.0, 5
_BOX = spaces.Box(-1, 1, (4,), np.float32)
_ZEROS = np.zeros(4, np.float32)


class Nothing:
    """A robot that takes no time."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self.declared = Declared("nothing", _BOX, _BOX, ())

    def connect(self) -> None: ...
    def arm(self) -> None: ...
    def stop(self) -> None: ...
    def disconnect(self) -> None: ...

    def get_observation(self) -> Observation:
        now_s = self._clock.now_s()
        return Observation(_ZEROS, now_s)

    def send_action(self, action: Any, stamp: Stamp) -> Sent:
        return Sent(action, self._clock.now_s())


def run() -> list[Figure]:
    figures = []
    table = Table("loop", "late: p50", "p99", "most", "interval: p50", "p99", "most")
    table.title = "lateness of captures, error of intervals, microseconds"
    for load in (False, True):
        for rate in RATES_HZ:
            loops = {"midstride": of_runtime, "rtgym": of_rtgym, "time.sleep": of_sleep}
            with busy(load):
                late = _late(loops, rate)
            where = f"{rate} Hz{', under load' if load else ''}"
            for name, values in late.items():
                row = 1e6 * np.quantile(values, (0.5, 0.99, 1.0), axis=1).T.ravel()
                table.add_row(f"{name}, {where}", *(f"{value:.0f}" for value in row))
            suffix = f"{rate}Hz{'-load' if load else ''}"
            p99 = {name: np.quantile(values, 0.99, axis=1) for name, values in late.items()}
            for peer in [name for name in p99 if name != "midstride"]:
                for what, ratio in zip(
                    ("lateness", "interval"), p99[peer] / p99["midstride"], strict=True
                ):
                    name = f"realtime/{what}-p99-vs-{peer.removeprefix('time.')}/{suffix}"
                    figures.append(Figure(name, float(ratio), "x", f"{peer}, {where}"))
    Console(width=120).print(table)
    return [*figures, *overhead()]


def _late(loops: Mapping[str, Callable[[float], Any]], rate: int) -> dict[str, Any]:
    """Lateness and error of interval (2, captures) of each loop, rounds taken by turns."""
    found: dict[str, list[Any]] = {}
    for _ in range(ROUNDS):
        for name, loop in loops.items():
            try:
                late_s = loop(1 / rate)
            except ImportError:
                Console().print(f"{name} is missing: pip install {name}")
                continue
            found.setdefault(name, []).append(late_s)
    return {name: np.concatenate(values, axis=1) for name, values in found.items()}


def _against_grid(looked_s: list[float], period_s: float) -> Any:
    """Of a loop whose deadlines nobody knows."""
    cycles = np.maximum(1, np.rint(np.diff(looked_s) / period_s)).cumsum()
    phase = np.array(looked_s) - np.concatenate([[0], cycles]) * period_s
    return _with_intervals(phase - phase.min(), looked_s, period_s)


def _with_intervals(late_s: Any, looked_s: Any, period_s: float) -> Any:
    return np.stack([late_s[1:], np.abs(np.diff(looked_s) - period_s)])


def of_runtime(period_s: float) -> Any:
    """Our runtime, with its thinker's thread."""
    clock = WallClock()
    robot = Nothing(clock)
    thinker = ThreadThinker(as_policy(lambda row: _ZEROS), clock)
    runtime = Runtime(robot, thinker, Senses(robot.declared), Pace(period_s=period_s), clock)
    with steady():
        for _ in itertools.islice(runtime.cycles(), int(SECONDS / period_s)):
            pass
    thinker.close()
    runtime.journal.close()
    every = sorted(runtime.journal.settled(), key=lambda one: one.number)
    late_s = np.array([one.lateness_s for one in every])
    return _with_intervals(late_s, [one.captured_s for one in every], period_s)


def of_sleep(period_s: float) -> Any:
    """What everybody writes first: sleep for what is left of the period."""
    looked_s = []
    for _ in range(int(SECONDS / period_s)):
        began_s = time.monotonic()
        looked_s.append(began_s)
        time.sleep(max(0.0, period_s - (time.monotonic() - began_s)))
    return _against_grid(looked_s, period_s)


def of_rtgym(period_s: float) -> Any:
    import gymnasium
    import rtgym

    looked_s: list[float] = []

    class Interface(rtgym.RealTimeGymInterface):  # type: ignore[misc]
        def send_control(self, control: Any) -> None: ...
        def get_observation_space(self) -> Any:
            return spaces.Tuple((_BOX,))

        def get_action_space(self) -> Any:
            return _BOX

        def get_default_action(self) -> Any:
            return _ZEROS

        def reset(self, seed: Any = None, options: Any = None) -> Any:
            return [_ZEROS], {}

        def get_obs_rew_terminated_info(self) -> Any:
            looked_s.append(time.monotonic())
            return [_ZEROS], 0.0, False, {}

    config = {
        **rtgym.DEFAULT_CONFIG_DICT, "interface": Interface, "time_step_duration": period_s,
        "start_obs_capture": period_s, "act_buf_len": 1,
    }  # fmt: skip
    env = gymnasium.make("real-time-gym-v1", config=config, disable_env_checker=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of every step that times out
        env.reset()
        for _ in range(int(SECONDS / period_s)):
            env.step(_ZEROS)
    env.close()
    return _against_grid(looked_s, period_s)


def overhead() -> list[Figure]:
    """What a decision costs beside policy and robot: computing, and from thread to thread."""
    knowledge = ("previous_action", "selection_time")
    count = 5000

    def virtual() -> None:
        clock = VirtualClock()
        robot = Nothing(clock)
        steps = itertools.repeat((0.005, False))
        thinker = DrawnThinker(as_policy(lambda row: _ZEROS), clock, steps, is_serial=True)
        senses = Senses(robot.declared, knowledge, selection_scale_s=0.01)
        runtime = Runtime(robot, thinker, senses, Pace(period_s=0.01), clock)
        for _ in itertools.islice(runtime.cycles(), count):
            pass

    def bare() -> None:
        robot = Nothing(VirtualClock())
        policy = as_policy(lambda row: _ZEROS)
        for _ in range(count):
            robot.send_action(policy(robot.get_observation().values), Stamp())

    took = [_computing_s(virtual) - _computing_s(bare) for _ in range(ROUNDS)]
    handed = _handed_over()
    peer = "a bare loop over policy and robot"
    return [
        Figure("realtime/overhead-us", 1e6 * float(np.median(took)) / count, "us", peer),
        Figure("realtime/latency-us", 1e6 * handed, "us", "a policy that takes no time: t_AS"),
    ]


def _computing_s(work: Callable[[], None]) -> float:
    """Of the processor: others may want it too."""
    began_s = time.process_time()
    work()
    return time.process_time() - began_s


def _handed_over() -> float:
    """From capture to command on the wall clock where nothing takes time: the median."""
    clock = WallClock()
    robot = Nothing(clock)
    thinker = ThreadThinker(as_policy(lambda row: _ZEROS), clock)
    runtime = Runtime(robot, thinker, Senses(robot.declared), Pace(period_s=0.01), clock)
    with steady():
        for _ in itertools.islice(runtime.cycles(), 300):
            pass
    thinker.close()
    latencies = [one.latency_s for one in runtime.journal.settled()]
    return float(np.median([value for value in latencies if value is not None]))


@contextmanager
def busy(load: bool) -> Iterator[None]:
    """A process that computes, on every core."""
    context = multiprocessing.get_context("spawn")
    count = multiprocessing.cpu_count() if load else 0
    others = [context.Process(target=_compute, daemon=True) for _ in range(count)]
    for other in others:
        other.start()
    if load:
        time.sleep(1.0)  # they import
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.join()


def _compute() -> None:
    numbers = np.random.default_rng(0).random((200, 200))
    while True:
        numbers = np.tanh(numbers @ numbers.T / 100)

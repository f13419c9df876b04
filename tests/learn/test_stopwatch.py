"""Where the time goes, with a clock that the test moves."""

import pytest

from midstride.learn import stopwatch
from midstride.learn.stopwatch import Stopwatch


@pytest.fixture
def now(monkeypatch):
    time = [0.0]
    monkeypatch.setattr(stopwatch.time, "perf_counter", lambda: time[0])
    return time


def test_measured_rounds_stand_for_the_others(now):
    clock = Stopwatch()
    with clock.of("evaluation"):
        now[0] += 7
    measured, camera_s = 0, 0.0
    for _ in range(256):
        if clock.next_round():
            measured += 1
            now[0] += 0.5  # waiting for what was under way: counts for nothing
            clock.start(aside=camera_s)
        now[0] += 1
        clock.lap("acting")
        now[0] += 3
        camera_s += 1  # by a clock of its own
        clock.lap("physics", aside=("camera", camera_s))
    assert measured == 4
    assert clock.split(400.0) == {
        "evaluation": 7.0, "acting": 100.0, "physics": 200.0, "camera": 100.0,
    }  # fmt: skip


def test_nothing_measured_is_nothing_said(now):
    clock = Stopwatch()
    assert clock.split(10.0) == {}
    assert not clock.next_round()  # the first round compiles
    now[0] += 1
    clock.lap("acting")
    assert clock.split(10.0) == {}


def test_what_was_counted_before_is_added():
    clock = Stopwatch()
    clock.add({"evaluation": 2.0}, {"acting": 1.0, "physics": 3.0})
    assert clock.split(8.0) == {"evaluation": 2.0, "acting": 2.0, "physics": 6.0}

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
    measured = 0
    for _ in range(256):
        if clock.next_round():
            measured += 1
            now[0] += 0.5  # waiting for what was under way: counts for nothing
            clock.start()
        now[0] += 1
        clock.lap("acting")
        now[0] += 3
        clock.lap("physics")
        clock.move("physics", "camera", 1.0)
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

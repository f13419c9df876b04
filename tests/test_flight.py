"""The one clock against a tick-by-tick reference with a plain list of decisions."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstride.flight import NEVER, Flight
from midstride.flight_of_one import FlightOfOne
from midstride.latency import Fixed, Lossy, PerStep
from midstride.timing import Timing, capture_interval


class Tape:
    """A plant that writes down which action each environment follows at every tick."""

    def __init__(self, n, most=None):
        self.following = [None] * n
        self.ticks = [[] for _ in range(n)]
        self.most = most  # goes on by no more at once

    def advance(self, running, ticks, ahead):
        assert ticks > 0
        assert (ahead[running] >= ticks).all()
        ticks = min(ticks, self.most or ticks)
        for i in np.flatnonzero(running):
            self.ticks[i] += [self.following[i]] * ticks
        return ticks

    def switch(self, which, actions):
        for i in np.flatnonzero(which):
            self.following[i] = float(actions[i, 0])

    def at_rest(self):
        raise AssertionError("asked of a period that has an end")


class TapeOfOne:
    """The same for a plant that is a single environment."""

    def __init__(self, most=None):
        self.following = None
        self.ticks = []
        self.switches = 0
        self.most = most

    def advance(self, ticks):
        assert ticks > 0
        ticks = min(ticks, self.most or ticks)
        self.ticks += [self.following] * ticks
        return ticks

    def switch(self, action):
        self.following = action
        self.switches += 1


def reference(captures, end):
    """What is followed at every tick before `end`, by the words of the rule.

    captures: (tick, latency or None if lost, [(start, action), ...]) in order
    """
    flight, in_force, number, tape = [], None, -1, []
    for tick in range(end + 1):
        flight += [
            (k, at + latency, at, chunk)
            for k, (at, latency, chunk) in enumerate(captures)
            if at == tick and latency is not None
        ]
        for k, arrival, at, chunk in sorted(flight):
            if arrival == tick and k > number:
                number, in_force = k, (at, chunk)
        if tick < end:
            action = None
            if in_force is not None:
                at, chunk = in_force
                action = [a for start, a in chunk if at + start <= tick][-1]
            tape.append(action)
    return tape, number


def came_into_force(captures, end):
    """Numbers of the decisions that did, by the words of the rule; at a capture, before it too."""
    ends = [at for at, _, _ in captures[1:]] + [end]
    return {
        reference(captures[: k + 1], tick)[1]
        for k, (at, _, _) in enumerate(captures)
        for tick in range(at, ends[k] + 1)
    }


steps_of_one = st.lists(
    st.tuples(
        st.integers(0, 17),  # latency
        st.integers(1, 7),  # period
        st.booleans(),  # lost
        st.lists(st.integers(1, 6), max_size=2),  # how long the first elements of the chunk are
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(
    episodes=st.lists(steps_of_one, min_size=1, max_size=4),
    serial=st.booleans(),
    most=st.sampled_from([None, 1, 3]),
)
def test_every_tick_follows_what_the_rule_says(episodes, serial, most):
    n, length = len(episodes), min(map(len, episodes))
    flight = Flight(n, (1,), most_pending=30, chunk=3)
    tape = Tape(n, most)
    told = [[] for _ in range(n)]
    clock = np.zeros(n, int)
    for k in range(length):
        latency = np.array([e[k][0] for e in episodes])
        period = np.array([e[k][1] for e in episodes])
        lost = np.array([e[k][2] for e in episodes])
        ticks = capture_interval(latency, period, "serial" if serial else "pipelined")
        starts, actions = np.full((n, 3), NEVER), np.zeros((n, 3, 1))
        for i, episode in enumerate(episodes):
            begin = np.cumsum([0, *episode[k][3]])
            starts[i, : len(begin)] = begin
            actions[i, : len(begin), 0] = 100 * k + np.arange(len(begin)) + 1
            chunk = list(zip(begin.tolist(), actions[i, :, 0].tolist(), strict=False))
            told[i].append((int(clock[i]), None if lost[i] else int(latency[i]), chunk))
        flight.capture(actions, latency, lost=lost, starts=starts)
        assert (flight.period(tape, ticks) == ticks).all()
        clock += ticks
    for i in range(n):
        followed, number = reference(told[i], int(clock[i]))
        assert tape.ticks[i] == followed
        assert flight.in_force[i] == number
        waiting = number + 1, length  # a lost one too is taken for pending until it is overtaken
        there, _ = flight.pending(length)
        assert there[i].tolist() == [k in range(*waiting) for k in range(length)]
        assert flight.latency[i] == (told[i][number][1] if number >= 0 else 0)
        dropped = {k for k, (_, t, _) in enumerate(told[i]) if k < number and t is not None}
        assert flight.stale[i] == len(dropped - came_into_force(told[i], int(clock[i])))


@settings(max_examples=300, deadline=None)
@given(
    episode=steps_of_one,
    most=st.sampled_from([None, 1, 3]),
    most_pending=st.sampled_from([1, 2, 30]),
    parts=st.integers(1, 3),
)
def test_one_environment_follows_the_same_rule(episode, most, most_pending, parts):
    """Against the reference; and with little room, where decisions give way, against Flight."""
    one, tape = FlightOfOne(most_pending), TapeOfOne(most)
    many, tape_of_many = Flight(1, (1,), most_pending, chunk=3), Tape(1)
    told = []
    for k, (latency, period, lost, lengths) in enumerate(episode):
        begin = np.cumsum([0, *lengths]).tolist()
        values = [100.0 * k + j + 1 for j in range(len(begin))]
        told.append((one.now, None if lost else latency, list(zip(begin, values, strict=True))))
        starts, actions = np.full((1, 3), NEVER), np.zeros((1, 3, 1))
        starts[0, : len(begin)], actions[0, : len(begin), 0] = begin, values
        many.capture(actions, np.array([latency]), lost=np.array([lost]), starts=starts)
        many.period(tape_of_many, np.array([period]))
        if len(begin) == 1:
            one.capture(values[0], latency, lost)
        else:
            one.capture_chunk(values, begin, latency, lost)
        for part in np.diff(np.linspace(0, period, parts + 1).astype(int)):
            one.period(tape, int(part))  # a period may be walked in parts
        for slots in (0, 1, 3):
            there, waiting = many.pending(slots)
            named = [
                a if is_there else None
                for a, is_there in zip(waiting[0, :, 0], there[0], strict=True)
            ]
            assert one.pending(slots) == named
            assert (waiting[~there] == 0).all()
    assert (one.now, one.stale, one.in_force) == (many.now[0], many.stale[0], many.in_force[0])
    assert one.latency == many.latency[0]
    assert one.newest_in_force == many.newest_in_force[0]
    assert tape.ticks == tape_of_many.ticks[0]
    if most_pending == 30:
        assert (tape.ticks, one.in_force) == reference(told, one.now)


@pytest.mark.parametrize(
    ("latency", "expected"),
    [
        (0, [11.0, 11.0, 12.0, 12.0, 13.0, 13.0]),
        (1, [None, 11.0, 12.0, 12.0, 13.0, 13.0]),
        (2, [None, None, 12.0, 12.0, 13.0, 13.0]),
        (3, [None, None, None, 12.0, 13.0, 13.0]),
        (6, [None] * 6),
    ],
)
def test_a_decision_that_is_amended_arrives_when_it_would_have(latency, expected):
    """The tape of one period in three parts, the decision another in each."""
    flight, tape = FlightOfOne(), TapeOfOne()
    flight.capture(11.0, latency)
    flight.period(tape, 2)
    for amended in (12.0, 13.0):
        flight.amend(amended)
        flight.period(tape, 2)
    assert tape.ticks == expected
    assert flight.action == 13.0
    assert (flight.captures, flight.in_force, flight.stale) == (1, 0, 0)
    flight.capture(14.0, 1)
    flight.period(tape, 2)
    assert tape.ticks[-2:] == [13.0, 14.0]


@settings(max_examples=200, deadline=None)
@given(episode=steps_of_one, ahead=st.integers(0, 5), data=st.data())
def test_what_is_told_later_arrives_as_if_it_had_been_known(episode, ahead, data):
    """A thought is told before it is due, at the latest when it is; of lost ones at any time."""
    known, tape = FlightOfOne(30), TapeOfOne()
    told, later = FlightOfOne(30), TapeOfOne()
    untold = []
    for k, (latency, period, lost, lengths) in enumerate(episode):
        starts = np.cumsum([0, *lengths]).tolist()
        values = [100.0 * k + j + 1 for j in range(len(starts))]
        arrival = NEVER if lost else told.now + latency
        known.capture_chunk(values, starts, latency, lost)
        at = told.now + max(0, latency - ahead)
        untold.append((at, told.begin(told.now), arrival, values, starts))
        assert told.pending(1) == [None]
        known.period(tape, period)
        for _ in range(period):
            for one in [one for one in untold if one[0] <= told.now]:
                untold.remove(one)
                assert told.tell(*one[1:]) == (one[1] > told.in_force)
            told.period(later, 1)
        for one in [one for one in untold if one[0] <= told.now]:
            untold.remove(one)
            told.tell(*one[1:])
        told.period(later, 0)
        assert (told.in_force, told.latency, told.action) == (
            known.in_force, known.latency, known.action,
        )  # fmt: skip
    assert later.ticks == tape.ticks
    known.period(tape, 40)
    for one in untold:
        told.tell(*one[1:])
    told.period(later, 40)
    assert told.stale == known.stale


def test_of_one_nothing_leaks_into_the_next_episode():
    flight, tape = FlightOfOne(), TapeOfOne()
    flight.capture(1.0, 0)
    flight.period(tape, 2)
    flight.capture(2.0, 9)
    flight.reset()
    assert flight.pending(2) == [None, None]
    flight.period(tape, 12)
    assert (tape.switches, flight.in_force, flight.action, flight.now) == (1, -1, None, 12)


@settings(max_examples=100, deadline=None)
@given(latency=st.integers(0, 9), period=st.integers(1, 4), steps=st.integers(1, 8))
def test_what_is_pending_is_what_has_not_arrived(latency, period, steps):
    timing = Timing(Fixed(float(latency)), float(period), tick_s=1.0)
    flight, slots = Flight(1, (1,), timing.most_pending), timing.pending_slots
    tape = Tape(1)
    for k in range(steps):
        flight.capture(np.array([[k + 1.0]]), np.array([latency]))
        flight.period(tape, np.array([period]))
        there, actions = flight.pending(slots)
        waiting = [j + 1.0 for j in range(k + 1) if j * period + latency > (k + 1) * period]
        assert actions[0, there[0], 0].tolist() == waiting
        assert (actions[0, ~there[0]] == 0).all()
        newest_last = [k - age for age in range(slots - 1, -1, -1)]
        assert there[0].tolist() == [j + 1.0 in waiting for j in newest_last]


@settings(max_examples=200, deadline=None)
@given(
    latencies=st.lists(st.integers(0, 17), min_size=1, max_size=3),
    period=st.integers(1, 5),
    share=st.sampled_from([0.0, 0.3, 0.9]),
    thinker=st.sampled_from(["pipelined", "serial"]),
    seed=st.integers(0, 99),
)
def test_the_room_that_timing_names_is_enough(latencies, period, share, thinker, seed):
    """What is dropped for want of room is lost: every tick is as with all the room there is."""
    model = Lossy(PerStep(tuple(map(float, latencies))), share)
    timing = Timing(model, float(period), tick_s=1.0, thinker=thinker)
    latency, interval, lost = timing.episode(np.random.default_rng(seed))(12)
    slots = timing.pending_slots
    assert slots == (0 if thinker == "serial" else max(0, -(-max(latencies) // period) - 1))
    small, tape = Flight(1, (1,), timing.most_pending), Tape(1)
    one, tape_of_one = FlightOfOne(timing.most_pending), TapeOfOne()
    told = []
    for k in range(12):
        told.append((one.now, None if lost[k] else int(latency[k]), [(0, k + 1.0)]))
        small.capture(np.array([[k + 1.0]]), latency[k : k + 1], lost=lost[k : k + 1])
        one.capture(k + 1.0, int(latency[k]), bool(lost[k]))
        small.period(tape, interval[k : k + 1])
        one.period(tape_of_one, int(interval[k]))
        newest = reference(told, one.now)[1]
        expected = [j + 1.0 if newest < j <= k else None for j in range(k + 1 - slots, k + 1)]
        assert one.pending(slots) == [
            a if j >= 0 else None
            for j, a in zip(range(k + 1 - slots, k + 1), expected, strict=True)
        ]
        assert small.pending(slots)[0][0].tolist() == [a is not None for a in one.pending(slots)]
    assert tape.ticks[0] == tape_of_one.ticks == reference(told, one.now)[0]
    assert small.stale[0] == one.stale


def test_a_plain_decision_leaves_nothing_of_the_chunk_before_it():
    flight, tape = Flight(1, (1,), chunk=2), Tape(1)
    chunk = np.array([[[1.0], [2.0]]])
    flight.capture(chunk, np.array([0]), starts=np.array([[0, 4]]))
    flight.period(tape, np.array([1]))
    flight.capture(np.array([[3.0]]), np.array([0]))
    flight.period(tape, np.array([6]))
    assert tape.ticks[0] == [1.0] + [3.0] * 6


def test_of_one_two_that_arrive_at_once_are_one_switch_to_the_newer():
    flight, tape = FlightOfOne(most_pending=3), TapeOfOne()
    flight.capture(1.0, 4)
    flight.period(tape, 2)
    flight.capture(2.0, 2)
    flight.period(tape, 4)
    assert tape.ticks == [None] * 4 + [2.0] * 2
    assert (tape.switches, flight.stale) == (1, 1)


def test_two_that_arrive_at_once_are_one_switch_to_the_newer():
    flight, tape = Flight(1, (1,), most_pending=3), Tape(1)
    flight.capture(np.array([[1.0]]), np.array([4]))
    flight.period(tape, np.array([2]))
    flight.capture(np.array([[2.0]]), np.array([2]))
    flight.period(tape, np.array([4]))
    assert tape.ticks[0] == [None] * 4 + [2.0] * 2
    assert flight.stale[0] == 1


def test_a_decision_overtaken_by_a_newer_one_is_stale():
    flight, tape = Flight(1, (1,), most_pending=3), Tape(1)
    flight.capture(np.array([[1.0]]), np.array([5]))
    flight.period(tape, np.array([2]))
    flight.capture(np.array([[2.0]]), np.array([1]))
    flight.period(tape, np.array([6]))
    assert tape.ticks[0] == [None] * 3 + [2.0] * 5
    assert flight.stale[0] == 1


def test_only_the_active_decide_and_only_the_running_move():
    flight, tape = Flight(2, (1,)), Tape(2)
    active = np.array([True, False])
    flight.capture(np.array([[1.0], [2.0]]), np.array([1, 1]), active)
    assert flight.period(tape, np.array([3, 3]), active).tolist() == [3, 0]
    assert tape.ticks == [[None, 1.0, 1.0], []]
    assert flight.captures.tolist() == [1, 0]


def test_nothing_leaks_into_the_next_episode():
    flight, tape = Flight(1, (1,), most_pending=2), Tape(1)
    flight.capture(np.array([[1.0]]), np.array([9]))
    flight.period(tape, np.array([3]))
    flight.reset(np.array([0]))
    assert not flight.pending(2)[0].any()
    assert not flight.pending(2)[1].any()
    flight.period(tape, np.array([12]))
    assert set(tape.ticks[0]) == {None}
    assert flight.in_force[0] == -1


def test_no_chunk_goes_on_in_the_next_episode():
    many, tape = Flight(1, (1,), most_pending=2, chunk=2), Tape(1)
    one, tape_of_one = FlightOfOne(most_pending=2), TapeOfOne()
    for latency in (5, 0):  # the first is stale
        chunk = np.array([[[1.0], [2.0]]])
        many.capture(chunk, np.array([latency]), starts=np.array([[0, 4]]))
        one.capture_chunk([1.0, 2.0], [0, 4], latency)
        many.period(tape, np.array([1]))
        one.period(tape_of_one, 1)
    assert (many.stale[0], one.stale, tape.following) == (1, 1, [1.0])
    many.reset(np.array([0]))
    one.reset()
    many.period(tape, np.array([9]))
    one.period(tape_of_one, 9)
    assert (many.stale[0], one.stale) == (0, 0)
    assert tape.following == [1.0]
    assert tape_of_one.switches == 1


def test_a_period_without_end_lasts_until_the_plant_rests_after_its_switch():
    class Resting(Tape):
        def at_rest(self):
            return np.array([len(ticks) in (1, 5, 6) for ticks in self.ticks])

    flight, tape = Flight(2, (1,)), Resting(2, most=1)
    flight.capture(np.array([[1.0], [2.0]]), np.array([2, 0]))
    assert flight.period(tape, np.full(2, NEVER)).tolist() == [5, 1]
    assert tape.ticks == [[None, None, 1.0, 1.0, 1.0], [2.0]]


@pytest.mark.parametrize(
    ("latency", "period", "thinker", "expected"),
    [(5, 4, "pipelined", 4), (5, 4, "serial", 8), (4, 4, "serial", 4), (0, 4, "serial", 4)],
)
def test_when_the_next_observation_is_taken(latency, period, thinker, expected):
    assert capture_interval(np.array([latency]), period, thinker).tolist() == [expected]


def test_an_unknown_thinker_is_named():
    with pytest.raises(ValueError, match="pipelined or serial, got 'parallel'"):
        capture_interval(np.array([1]), 2, "parallel")


def test_a_flight_that_holds_rests_from_capture_to_switch():
    """Two environments of different latency; the null action is 0, decisions are 1, 2, 3."""
    flight, tape = Flight(2, (1,), chunk=2, holds=True), Tape(2)
    latency, execution = np.array([2, 0]), 3
    starts = np.tile([0, 4], (2, 1))  # of a chunk: its second action is due after 4 ticks
    for k in (1.0, 2.0):
        chunk = np.array([[[k], [-k]], [[k], [-k]]])
        flight.capture(chunk, latency, starts=starts)
        assert (flight.in_force == -1).all()
        flight.period(tape, latency + execution)
        assert flight.newest_in_force.all()
    flight.capture(np.full((2, 2, 1), 3.0), latency, np.array([True, False]), starts=starts)
    flight.period(tape, latency + execution, np.array([True, False]))
    assert tape.ticks[0] == [0, 0, 1, 1, -1, 0, 0, 2, 2, -2, 0, 0, 3, 3, 3]
    assert tape.ticks[1] == [1, 1, 1, 2, 2, 2]
    flight.capture(np.full((2, 2, 1), 4.0), latency, starts=starts)
    flight.reset(np.arange(2))  # nothing leaks: no rest of the last episode, nor a decision
    assert flight.period(tape, np.ones(2, int)).tolist() == [1, 1]
    assert [ticks[-1] for ticks in tape.ticks] == [3, 2]

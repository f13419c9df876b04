"""What memories promise: a round is kept once, episodes of different collectors are not joined, and
every stream is drawn from in proportion to what it holds."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from midstride.learn.frames import FrameReplay
from midstride.scale.roles import Streams, shares
from tests.helpers import step_of
from tests.scale.virtual import Stream

N = 2


def replay(length=20):
    kinds = {"state": ((1,), np.float32)}
    return FrameReplay(length * N, N, kinds, {"action": ((1,), np.float32)}, longest=5)


def step(owner, number):
    """Of two environments; an observation is (the collector, the round) as one number."""

    def seen(k):
        return np.full((N, 1), 100 * owner + k, np.float32)

    return step_of(
        observation_capture=seen(number),
        observation_next=seen(number + 1),
        action=np.zeros((N, 1), np.float32),
    )


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=30), st.data())
def test_rounds_that_are_sent_again_are_kept_once(sends, data):
    streams, taken, again = Streams({0: Stream()}), [0, 0, 0], []
    for owner, count in sends:
        rounds = [(owner, taken[owner] + i) for i in range(count)]
        assert streams.add(0, owner, taken[owner], rounds) == count
        again.append((owner, taken[owner], rounds))
        taken[owner] += count
        if data.draw(st.booleans()):
            assert streams.add(0, *data.draw(st.sampled_from(again))) == 0
    kept = streams.by_name[0].rounds
    assert len(kept) == len(set(kept)) == sum(taken)


def test_what_follows_a_step_is_of_the_same_collector():
    streams = Streams({0: replay()})
    for owner, first in ((0, 0), (0, 1), (1, 0), (1, 1), (0, 2)):  # a late one of the lost
        streams.add(0, owner, first, [step(owner, first)])
    found = streams.sample(np.random.default_rng(0), 500)
    assert (found["state_next"] == found["state_capture"] + 1).all()
    assert {0, 1, 100, 101} == set(found["state_capture"][:, 0])


def test_streams_are_drawn_from_in_proportion_to_what_they_hold():
    streams = Streams({0: replay(), 1: replay(), 2: replay()})
    for name, rounds in ((0, 16), (1, 6)):  # the newest of each has no successor yet
        streams.add(name, name, 0, [step(name, k) for k in range(rounds)])
    assert len(streams) == (15 + 5) * N
    found = streams.sample(np.random.default_rng(0), 4_000)
    assert abs((found["state_capture"] < 100).mean() - 0.75) < 0.03


def test_collectors_are_dealt_out_to_memories_in_turn():
    assert list(shares(2, range(5))) == [(0, 2, 4), (1, 3)]

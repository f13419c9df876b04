import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstride.knowledge import (
    FEATURES,
    Layout,
    Past,
    one_hot,
    selection_time,
    vector_to_go,
    wrap_angle,
)


def test_one_hot():
    assert one_hot(np.array([2, 0]), 3).tolist() == [[0, 0, 1], [1, 0, 0]]


def test_selection_time_is_scaled_by_the_longest_latency():
    assert selection_time(np.array([0.0, 0.01, 0.05]), 0.05).tolist() == pytest.approx([0, 0.2, 1])
    assert selection_time(np.array([0.0]), 0.0).tolist() == [0]


def test_vector_to_go_by_hand():
    remaining = vector_to_go(
        target=np.array([[1.0, 3.0]]),
        position=np.array([[0.9, -3.0]]),
        scale=np.array([0.2, 0.5]),
        wraps=np.array([False, True]),
    )
    # 0.1 m of 0.2 m; from -3 rad on to 3 rad the short way is back by 2 pi - 6
    assert remaining[0] == pytest.approx([0.5, (6 - 2 * math.pi) / 0.5])


@given(st.floats(-100, 100), st.integers(-10, 10))
def test_angles_wrap(angle, turns):
    wrapped = float(wrap_angle(np.array(angle + turns * 2 * math.pi)))
    assert -math.pi <= wrapped <= math.pi
    assert math.cos(wrapped) == pytest.approx(math.cos(angle), abs=1e-9)
    assert math.sin(wrapped) == pytest.approx(math.sin(angle), abs=1e-9)


# Observation i is (10 i, 10 i + 1), action i is (i, -i): an off-by-one is visible.
LAYOUT = Layout(
    ("p", "q"), ("a", "b"), ("p",), FEATURES, stack_observations=2, stack_actions=2, pending_slots=2
)
WAITING = np.array([[[8.0, -8.0], [9.0, -9.0]]])


def traceable(i: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array([[10.0 * i, 10.0 * i + 1]]), np.array([[float(i), -float(i)]])


def assemble(past: Past, i: int, layout: Layout = LAYOUT) -> list[float]:
    base, _ = traceable(i)
    row = layout.assemble(base, np.array([0.5]), np.array([[0.25]]), past, pending_actions=WAITING)
    assert row.shape == (1, len(layout.columns))
    return row[0].tolist()


def test_every_column_is_named():
    assert LAYOUT.columns == (
        "p", "q",
        "previous_action:a", "previous_action:b",
        "pending_action:2:a", "pending_action:2:b", "pending_action:1:a", "pending_action:1:b",
        "selection_time",
        "vector_to_go:p",
        "p@-1", "q@-1", "p@-2", "q@-2",
        "action:a@-1", "action:b@-1", "action:a@-2", "action:b@-2",
    )  # fmt: skip
    assert LAYOUT.slices["vector_to_go"] == slice(9, 10)


def test_the_past_is_newest_first():
    past = Past(LAYOUT, 1)
    past.reset(np.array([0]), traceable(1)[0])
    assert assemble(past, 1) == [10, 11, 0, 0, 8, -8, 9, -9, 0.5, 0.25, 10, 11, 10, 11, 0, 0, 0, 0]
    past.push(*traceable(1))
    assert assemble(past, 2) == [
        20,
        21,
        1,
        -1,
        8,
        -8,
        9,
        -9,
        0.5,
        0.25,
        10,
        11,
        10,
        11,
        1,
        -1,
        0,
        0,
    ]
    past.push(*traceable(2))
    assert assemble(past, 3) == [
        30,
        31,
        2,
        -2,
        8,
        -8,
        9,
        -9,
        0.5,
        0.25,
        20,
        21,
        10,
        11,
        2,
        -2,
        1,
        -1,
    ]


def test_reset_forgets_one_environment_only():
    past = Past(LAYOUT, 2)
    base, action = (np.repeat(x, 2, axis=0) for x in traceable(3))
    past.push(base, action)
    past.reset(np.array([1]), traceable(7)[0])
    assert past.actions[0, 0].tolist() == [3, -3]
    assert past.actions[1].tolist() == [[0, 0], [0, 0]]
    assert past.observations[1].tolist() == [[70, 71], [70, 71]]


@given(
    features=st.sets(st.sampled_from(FEATURES)),
    observations=st.integers(0, 4),
    actions=st.integers(0, 4),
    slots=st.integers(0, 3),
)
def test_features_and_stacks_are_independent(features, observations, actions, slots):
    layout = Layout(("p", "q"), ("a", "b"), ("p",), tuple(features), observations, actions, slots)
    sizes = {
        "previous_action": 2, "pending_actions": 2 * slots, "selection_time": 1, "vector_to_go": 1
    }  # fmt: skip
    expected = 2 + sum(sizes[f] for f in features) + 2 * observations + 2 * actions
    assert len(layout.columns) == len(set(layout.columns)) == expected
    low, high = layout.bounds(np.full(2, -np.inf), np.full(2, np.inf), np.full(2, -1.0), np.ones(2))
    assert low.shape == high.shape == (expected,)
    assert (low < high).all()
    assert layout.is_plain == (expected == 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"features": ("clairvoyance",)}, "unknown knowledge 'clairvoyance': choose from prev"),
        ({"features": "selection_time vector_to_go"}, "unknown knowledge"),
        ({"features": ("selection_time",) * 2}, "more than once"),
        ({"features": ("vector_to_go",), "controlled": None}, "position-controlled actuators"),
        ({"stack_observations": 5}, "from 0 to 4, got 5"),
        ({"stack_actions": -1}, "from 0 to 4, got -1"),
        ({"stack_actions": 1.5}, "whole number"),
    ],
)
def test_bad_layout(arguments, message):
    with pytest.raises(ValueError, match=message):
        Layout(**{"base": ("p",), "action": ("a",), "controlled": ("p",), **arguments})

"""The cross-entropy maximiser on functions whose maxima are known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from midstride.learn.cem import ActionSpace, Search
from midstride.learn.cem import maximise as compiled_by_its_user

GRIPPER = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
SPACE = ActionSpace(np.full(4, -1.0), np.ones(4), GRIPPER)
QT_OPT = Search()
PLAIN = ActionSpace(np.array([-3.0, 0.0]), np.array([5.0, 0.1]), np.zeros((1, 0)))


def maximise(score, key, batch, space, search=QT_OPT):
    return jax.jit(lambda key: compiled_by_its_user(score, key, batch, space, search))(key)


def test_the_peak_of_a_bowl_is_found():
    peaks = jax.random.uniform(jax.random.key(0), (32, 4), minval=-0.9, maxval=0.9)

    def score(actions):
        return -((actions[..., :4] - peaks[:, None]) ** 2).sum(-1)

    errors = [
        float(jnp.abs(maximise(score, jax.random.key(1), 32, SPACE, Search(rounds=r))[0][:, :4]
                      - peaks).max(axis=1).mean())
        for r in (1, 3, 6)
    ]  # fmt: skip
    assert errors[0] > 2 * errors[1] > 2 * errors[2]
    assert errors[2] < 0.06


def test_the_best_setting_is_found_with_its_displacement():
    """Each setting has a peak of its own; one is the highest."""
    peaks = jnp.array([[0.5, 0, 0, 0], [-0.5, 0, 0, 0], [0, 0.5, 0, 0], [0, 0, 0.5, 0]])
    heights = jnp.array([[1.0, 2.0, 1.5, 0.5], [0.2, 0.1, 0.9, 3.0]])

    def score(actions):
        setting = jnp.where(actions[..., 4:].sum(-1) > 0, actions[..., 4:].argmax(-1) + 1, 0)
        bowl = ((actions[..., :4] - peaks[setting]) ** 2).sum(-1)
        return jnp.take_along_axis(heights, setting, axis=1) - bowl

    action, value = maximise(score, jax.random.key(0), 2, SPACE, Search(rounds=5, samples=128))
    assert action[:, 4:].tolist() == [[1, 0, 0], [0, 0, 1]]
    assert action[0, :4] == pytest.approx(np.array(peaks[1]), abs=0.15)
    assert value == pytest.approx(np.array([2.0, 3.0]), abs=0.1)


def test_actions_stay_within_their_bounds_and_edges_are_reached():
    action, value = maximise(
        lambda a: a.sum(-1), jax.random.key(0), 3, PLAIN, Search(rounds=6, samples=128)
    )
    assert action.shape == (3, 2)
    assert action == pytest.approx(np.tile([5.0, 0.1], (3, 1)), rel=0.01)
    assert (action <= np.array([5.0, 0.1]) + 1e-6).all()
    assert value == pytest.approx(np.array(action.sum(-1)))


def test_scores_belong_to_the_actions_returned_and_keys_repeat():
    def score(actions):
        return jnp.sin(9 * actions[..., :4]).sum(-1) + actions[..., 4]

    action, value = maximise(score, jax.random.key(4), 8, SPACE)
    assert value == pytest.approx(np.array(score(action[:, None])[:, 0]), abs=1e-6)
    again, _ = maximise(score, jax.random.key(4), 8, SPACE)
    other, _ = maximise(score, jax.random.key(5), 8, SPACE)
    assert (action == again).all()
    assert (action != other).any()


def test_a_batch_is_searched_row_by_row():
    """What one row scores has no effect on another."""
    peaks = jnp.array([[0.5], [-0.5]])

    def score_with(second):
        return lambda a: -jnp.abs(a[..., 0] - peaks) * jnp.array([[1.0], [second]])

    a, _ = maximise(score_with(1.0), jax.random.key(0), 2, SPACE)
    b, _ = maximise(score_with(-1.0), jax.random.key(0), 2, SPACE)
    assert (a[0] == b[0]).all()
    assert (a[1] != b[1]).any()


def test_more_rounds_never_make_it_worse():
    def score(actions):
        return -jnp.abs(actions[..., 0] - 0.3) + actions[..., 6]

    values = [
        float(maximise(score, jax.random.key(0), 1, SPACE, Search(rounds=r))[1][0]) for r in (2, 8)
    ]
    assert values[1] >= values[0]
    assert values[1] == pytest.approx(1.0, abs=0.01)

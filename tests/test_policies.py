"""NumPy policies against the JAX networks they come from, and their files."""

import jax
import numpy as np
import pytest

import midstride
from midstride.learn.networks import FeedForward, Recurrent, named_arrays
from midstride.policies import Policy, save_policy

OBSERVATIONS = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)


def as_policy(network) -> Policy:
    return Policy({name: np.asarray(a) for name, a in named_arrays(network).items()})


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("hidden", [(), (16,), (16, 12)])
def test_feed_forward_equals_jax(hidden, dueling):
    network = FeedForward(6, hidden, 4, dueling, jax.random.key(1))
    policy = as_policy(network)
    expected = jax.vmap(network)(OBSERVATIONS)
    assert policy.values(OBSERVATIONS) == pytest.approx(np.asarray(expected), abs=1e-5)
    assert (policy(OBSERVATIONS) == np.asarray(expected).argmax(axis=1)).all()
    assert policy(OBSERVATIONS[0]) == int(np.asarray(expected)[0].argmax())


@pytest.mark.parametrize("dueling", [False, True])
def test_recurrent_equals_jax_over_time(dueling):
    network = Recurrent(6, (16,), 4, dueling, 5, jax.random.key(1))
    policy = as_policy(network)
    state = (np.zeros((7, 5)), np.zeros((7, 5)))
    for t in range(5):
        observation = OBSERVATIONS * (1 + t)
        state, expected = jax.vmap(network)(state, observation)
        assert policy.values(observation) == pytest.approx(np.asarray(expected), abs=1e-5)


def test_reset_forgets():
    policy = as_policy(Recurrent(6, (16,), 4, False, 5, jax.random.key(1)))
    first = policy.values(OBSERVATIONS)
    second = policy.values(OBSERVATIONS)
    assert np.abs(first - second).max() > 1e-4
    policy.reset(np.array([True] + [False] * 6))
    third = policy.values(OBSERVATIONS)
    assert third[0] == pytest.approx(first[0], abs=1e-6)
    assert np.abs(third[1:] - first[1:]).max() > 1e-4
    policy.reset()
    assert policy.values(OBSERVATIONS) == pytest.approx(first, abs=1e-6)


def test_dueling_advantages_are_centred():
    network = FeedForward(6, (16,), 4, True, jax.random.key(1))
    value = network.head.value
    x = jax.nn.relu(network.head.layers[0](OBSERVATIONS[0]))
    assert float(network(OBSERVATIONS[0]).mean()) == pytest.approx(float(value(x)[0]), abs=1e-5)


def test_save_and_load(tmp_path):
    policy = as_policy(FeedForward(6, (16,), 4, True, jax.random.key(1)))
    policy.description = {"columns": ["a"] * 6}
    save_policy(policy, tmp_path)
    again = midstride.load(tmp_path)
    assert again.description == policy.description
    assert (again.values(OBSERVATIONS) == policy.values(OBSERVATIONS)).all()


def test_damaged_and_missing_policies(tmp_path):
    with pytest.raises(ValueError, match="holds no trained policy"):
        midstride.load(tmp_path)
    save_policy(as_policy(FeedForward(6, (16,), 4, False, jax.random.key(1))), tmp_path)
    path = tmp_path / "policy.safetensors"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="cannot be read"):
        midstride.load(tmp_path)


def test_wrong_observation():
    policy = as_policy(FeedForward(6, (16,), 4, False, jax.random.key(1)))
    with pytest.raises(ValueError, match="observes 6 columns"):
        policy(np.zeros(5))

"""NumPy policies against the JAX networks they come from, and their files."""

import jax
import numpy as np
import pytest

import midstride
from midstride.learn.agent import named_arrays
from midstride.learn.dqn import FeedForward, Head
from midstride.learn.drqn import DRQNSettings, Recurrent
from midstride.policies import QPolicy, save_policy

OBSERVATIONS = np.random.default_rng(0).normal(size=(7, 6)).astype(np.float32)


def feed_forward(hidden=(16,), dueling=False):
    return FeedForward(Head(6, hidden, 4, dueling, jax.random.key(1)))


def recurrent(dueling=False):
    settings = DRQNSettings(hidden=(16,), dueling=dueling, lstm_size=5)
    return Recurrent(6, settings, 4, jax.random.key(1))


def as_policy(network, **description) -> QPolicy:
    weights = {name: np.asarray(a) for name, a in named_arrays(network).items()}
    return QPolicy(weights, {"kind": "q", **description})


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("hidden", [(), (16,), (16, 12)])
def test_feed_forward_equals_jax(hidden, dueling):
    network = feed_forward(hidden, dueling)
    policy = as_policy(network)
    expected = jax.vmap(network)(OBSERVATIONS)
    assert policy.values(OBSERVATIONS) == pytest.approx(np.asarray(expected), abs=1e-5)
    assert (policy(OBSERVATIONS) == np.asarray(expected).argmax(axis=1)).all()
    assert policy(OBSERVATIONS[0]) == int(np.asarray(expected)[0].argmax())


@pytest.mark.parametrize("dueling", [False, True])
def test_recurrent_equals_jax_over_time(dueling):
    network = recurrent(dueling)
    policy = as_policy(network)
    state = (np.zeros((7, 5)), np.zeros((7, 5)))
    for t in range(5):
        observation = OBSERVATIONS * (1 + t)
        state, expected = jax.vmap(network)(state, observation)
        assert policy.values(observation) == pytest.approx(np.asarray(expected), abs=1e-5)


def test_reset_forgets():
    policy = as_policy(recurrent())
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
    network = feed_forward(dueling=True)
    value = network.head.value
    x = jax.nn.relu(network.head.layers[0](OBSERVATIONS[0]))
    assert float(network(OBSERVATIONS[0]).mean()) == pytest.approx(float(value(x)[0]), abs=1e-5)


def test_save_and_load(tmp_path):
    actions = [[-1.0, 0.5], [0.0, 0.5], [1.0, 0.5], [2.0, 0.5]]
    policy = as_policy(feed_forward(dueling=True), columns=["a"] * 6, actions=actions)
    save_policy(policy, tmp_path)
    again = midstride.load(tmp_path)
    assert again.description == policy.description
    assert (again.values(OBSERVATIONS) == policy.values(OBSERVATIONS)).all()
    best = policy.values(OBSERVATIONS).argmax(axis=1)
    assert again(OBSERVATIONS).tolist() == [actions[i] for i in best]
    assert again(OBSERVATIONS[0]).tolist() == actions[best[0]]


def test_damaged_and_missing_policies(tmp_path):
    with pytest.raises(ValueError, match="holds no trained policy"):
        midstride.load(tmp_path)
    save_policy(as_policy(feed_forward()), tmp_path)
    path = tmp_path / "policy.safetensors"
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="cannot be read"):
        midstride.load(tmp_path)


def test_wrong_observation():
    policy = as_policy(feed_forward())
    with pytest.raises(ValueError, match="observes 6 columns"):
        policy(np.zeros(5))

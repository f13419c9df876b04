"""SAC against densities, targets and problems whose answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy.stats import norm

import midstride
from midstride.learn.agent import configure_jax
from midstride.learn.agent_settings import RunSettings
from midstride.learn.agents import Training
from midstride.learn.normal import Normaliser
from midstride.learn.sac import SAC, Network, SACSettings
from midstride.learn.train import train
from midstride.learn.trainer import Trainer
from tests.helpers import FakeEnvs, step_of

LOW, HIGH = np.array([-2.0, 0.5], np.float32), np.array([1.0, 0.75], np.float32)


@pytest.fixture(autouse=True)
def _jax():
    configure_jax()


def an_agent(columns=3, low=LOW, high=HIGH, num_envs=1, **options):
    envs = FakeEnvs(
        spaces.Box(-np.inf, np.inf, (columns,), np.float32),
        spaces.Box(np.asarray(low, np.float32), np.asarray(high, np.float32)),
        num_envs,
    )
    settings = SACSettings(**{"hidden": (16, 16), "replay_size": 2_000, **options})
    return SAC(settings, RunSettings(num_envs=num_envs), envs, np.random.default_rng(0))


def live(agent, reward, count=64, **fields):
    """Single steps from the one state there is; reward(action) of actions in [-1, 1]."""
    rng = np.random.default_rng(1)
    for _ in range(count):
        action = rng.uniform(-1, 1, (1, agent.size)).astype(np.float32)
        agent.remember(
            step_of(
                observation_capture=np.zeros((1, 1), np.float32),
                action=agent.policy.to_environment(action),
                reward_before_switch=np.array([reward(action[0])]),
                notes={"action": action},
                **fields,
            )
        )


def learn(agent, dispatches, updates=100):
    for _ in range(dispatches):
        agent.dispatch(agent.sample(updates))
        agent.sync()


def test_the_policy_in_numpy_is_the_actor_in_jax():
    agent = an_agent()
    seen = np.random.default_rng(2).normal(3.0, 2.0, (50, 3)).astype(np.float32)
    agent.normal.add(seen)
    policy = agent.policy_of(agent.state["online"])
    x = (seen - seen.mean(axis=0)) / seen.std(axis=0)
    mean, log_deviation = jax.vmap(agent.network(agent.state["online"]).actor)(jnp.asarray(x))
    found = policy.distribution(seen)
    np.testing.assert_allclose(found[0], mean, atol=1e-4)
    np.testing.assert_allclose(found[1], log_deviation, atol=1e-4)
    action = LOW + (np.tanh(mean) + 1) / 2 * (HIGH - LOW)
    np.testing.assert_allclose(policy(seen), action, atol=1e-4)
    np.testing.assert_allclose(policy(seen[0]), action[0], atol=1e-4)


def test_the_density_of_an_action_is_that_of_a_gaussian_through_a_tanh():
    network = Network(SACSettings(hidden=(8,)), 3, 2, jax.random.key(0))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(200, 3)), jnp.float32)
    action, density = network.sample(x, jax.random.key(1))
    mean, log_deviation = (np.asarray(part, float) for part in jax.vmap(network.actor)(x))
    action = np.asarray(action, float)
    before = np.arctanh(action)
    exact = norm.logpdf(before, mean, np.exp(log_deviation)) - np.log(1 - action**2)
    inside = np.abs(action).max(axis=1) < 0.99  # beyond, float32 cannot be undone
    assert inside.sum() > 100
    np.testing.assert_allclose(density[inside], exact.sum(axis=1)[inside], atol=2e-3)


def test_each_loss_teaches_only_its_own_part():
    agent = an_agent(columns=1)
    live(agent, lambda action: action.sum(), count=32)
    steps = agent.row.unpack(jnp.asarray(agent.sample(1)["transitions"][0]))
    state, keys = agent.state, jax.random.split(jax.random.key(3))

    def part(which):
        def loss(vector):
            online = agent.network(vector)
            total, _ = agent.loss(online, agent.network(state["target"]), steps, keys)
            return total

        gradient = agent.named(jax.grad(loss)(state["online"]))
        return np.concatenate([g.ravel() for name, g in gradient.items() if which in name])

    def critics_alone(vector):
        online = agent.network(vector)
        action, density = online.sample(steps["observation_next"], keys[0])
        value = agent.network(state["target"]).values(steps["observation_next"], action).min(0)
        value -= jnp.exp(online.log_temperature) * density
        going_on = agent.settings.gamma_per_s ** steps["period_s"] * ~steps["terminated"]
        y = steps["reward_before_switch"] + steps["reward_after_switch"] + going_on * value
        q = online.values(steps["observation_capture"], steps["action"])
        return 0.5 * ((q - jax.lax.stop_gradient(y)) ** 2).mean(axis=1).sum()

    def actor_alone(vector):
        online = agent.network(vector)
        action, density = online.sample(steps["observation_capture"], keys[1])
        q = online.values(steps["observation_capture"], action).min(axis=0)
        return (jnp.exp(online.log_temperature) * density - q).mean()

    for which, alone in (("critics", critics_alone), ("actor", actor_alone)):
        gradient = agent.named(jax.grad(alone)(state["online"]))
        exact = np.concatenate([g.ravel() for name, g in gradient.items() if which in name])
        assert np.abs(exact).max() > 1e-3
        np.testing.assert_allclose(part(which), exact, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("terminated", "expected"), [(False, 10.0), (True, 1.0)])
def test_terminations_end_and_time_limits_do_not(terminated, expected):
    """One state, reward 1, gamma 0.9, entropy worth nothing: ten if it goes on, one if it ends."""
    agent = an_agent(
        columns=1, gamma_per_s=0.9, learning_rate=3e-3, target_tau=0.05, temperature=1e-9,
        entropy=0.0,
    )  # fmt: skip
    live(agent, lambda action: 1.0, terminated=np.array([terminated]), truncated=np.array([True]))
    learn(agent, 20)
    network = agent.network(agent.state["online"])
    q = network.values(jnp.zeros((8, 1)), jnp.asarray(np.linspace(-1, 1, 16).reshape(8, 2)))
    np.testing.assert_allclose(q, expected, rtol=0.05)


def test_the_actor_goes_where_reward_is_and_keeps_the_entropy_that_is_wanted():
    best = np.array([0.4, -0.6])
    agent = an_agent(columns=1, learning_rate=2e-3, reward_scale=5.0, entropy=-3.0)
    live(agent, lambda a: -((a - best) ** 2).sum(), count=500, terminated=np.array([True]))
    learn(agent, 25)
    policy = agent.averaged_policy()
    found = 2 * (policy(np.zeros(1)) - LOW) / (HIGH - LOW) - 1
    np.testing.assert_allclose(found, best, atol=0.1)
    _, density = agent.network(agent.state["online"]).sample(
        jnp.zeros((4096, 1)), jax.random.key(0)
    )
    assert -float(density.mean()) == pytest.approx(-3.0, abs=0.4)


def test_the_normaliser_is_the_mean_and_deviation_of_all_rows():
    rows = np.random.default_rng(0).normal([5, -1, 0], [3, 0.1, 0], (60, 3))
    normal = Normaliser(3)
    for part in np.split(rows, [1, 9, 30]):
        normal.add(part)
    mean, scale = normal.mean_and_scale()
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scale[:2], 1 / rows.std(axis=0)[:2], rtol=1e-3)
    assert np.isfinite(scale).all()
    again = Normaliser(3)
    again.restore(normal.arrays())
    again.add(rows), normal.add(rows)
    np.testing.assert_array_equal(again.mean_and_scale(), normal.mean_and_scale())


def test_a_checkpoint_restores_everything_that_acts_and_learns():
    training = Training.of("pointmass", "sac", actions="continuous", steps=200, num_envs=2)
    first, second = Trainer.create(training).agent, Trainer.create(training).agent
    rng = np.random.default_rng(0)
    for _ in range(40):
        columns = first.policy.observation_size
        seen = rng.normal(size=(2, columns)).astype(np.float32)
        first.remember(
            step_of(observation_capture=seen, notes={"action": first.act(seen, 0)[1]["action"]})
        )
    learn(first, 2, updates=4)
    second.restore(first.arrays())
    seen = rng.normal(size=(5, first.policy.observation_size))
    np.testing.assert_array_equal(first.averaged_policy()(seen), second.averaged_policy()(seen))
    first.rng = second.rng = np.random.default_rng(7)
    batch = first.sample(3)
    first.dispatch(batch), second.dispatch(batch)
    first.sync(), second.sync()
    np.testing.assert_array_equal(first.policy(seen), second.policy(seen))


@pytest.mark.parametrize(
    ("task", "said"),
    [("cartpole", "needs continuous actions with bounds"), ("grasp", "images are for qtopt")],
)
def test_environments_that_do_not_fit_are_refused_in_a_sentence(task, said):
    with pytest.raises(ValueError, match=said):
        Training.of(task, "sac").check()


def test_a_trained_policy_is_saved_and_loads(tmp_path):
    training = Training.of(
        "pointmass", "sac", actions="continuous", steps=64, num_envs=4, learning_starts=16,
        hidden=(8,), replay_size=100, evaluate_every=64, evaluation_episodes=1,
    )  # fmt: skip
    train(training, tmp_path / "run")
    policy = midstride.load(tmp_path / "run")
    assert policy(np.zeros(policy.observation_size)).shape == (2,)
    with pytest.raises(ValueError, match="must be of finite numbers"):
        policy(np.full(policy.observation_size, np.nan))

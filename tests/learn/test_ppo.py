"""PPO against advantages summed by hand, densities of SciPy, and problems whose answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

import midstride
from midstride.learn.agent import configure_jax
from midstride.learn.agent_settings import RunSettings
from midstride.learn.agents import Training
from midstride.learn.ppo import PPO, PPOSettings
from midstride.learn.targets import generalised_advantage
from midstride.learn.train import train
from midstride.learn.trainer import Trainer
from tests.helpers import FakeEnvs, step_of

LOW, HIGH = np.array([-2.0, 0.5], np.float32), np.array([1.0, 0.75], np.float32)
SMALL = {
    "hidden": (8,), "rollout": 64, "batch_size": 16, "epochs": 2, "num_envs": 4,
    "evaluate_every": 10**9, "evaluation_episodes": 1,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _jax():
    configure_jax()


def an_agent(columns=3, num_envs=2, **options):
    envs = FakeEnvs(
        spaces.Box(-np.inf, np.inf, (columns,), np.float32), spaces.Box(LOW, HIGH), num_envs
    )
    settings = PPOSettings(
        **{"hidden": (16, 16), "rollout": 64, "batch_size": 16, "epochs": 4, **options}
    )
    return PPO(settings, RunSettings(num_envs=num_envs), envs, np.random.default_rng(0))


def rollouts(agent, count, lived):
    """Rollouts of an agent's own steps, each learned from; lived(observation, action) -> fields."""
    rng, n = np.random.default_rng(1), agent.replay.num_envs
    columns = agent.policy.observation_size
    for _ in range(count * agent.replay.length):
        seen = rng.normal(size=(n, columns)).astype(np.float32)
        _, notes = agent.act(seen, 0)
        fields = lived(seen, notes["action"])
        agent.remember(step_of(observation_capture=seen, notes=notes, **fields))
        if agent.ready(0):
            agent.dispatch(agent.sample(1))
            agent.sync()


@given(st.integers(0, 2**31), st.floats(0, 1), st.floats(0.5, 1))
def test_the_advantage_is_the_sum_of_errors_to_the_end_of_the_episode(seed, trace, gamma):
    rng, shape = np.random.default_rng(seed), (7, 2)
    reward, value, value_next = rng.normal(size=(3, *shape))
    terminated, truncated = rng.random((2, *shape)) < 0.2
    discount = gamma ** rng.uniform(0.01, 0.1, shape)
    found = generalised_advantage(
        *map(jnp.asarray, (reward, terminated, truncated, value, value_next, discount)), trace
    )
    for t in range(7):
        for i in range(2):
            expected, weight = 0.0, 1.0
            for k in range(t, 7):
                after = 0.0 if terminated[k, i] else value_next[k, i]
                expected += weight * (reward[k, i] + discount[k, i] * after - value[k, i])
                weight *= discount[k, i] * trace
                if terminated[k, i] or truncated[k, i]:
                    break
            assert found[t, i] == pytest.approx(expected, abs=1e-4)


def test_the_policy_in_numpy_is_the_actor_in_jax():
    agent = an_agent(log_deviation=-0.7)
    seen = np.random.default_rng(2).normal(3.0, 2.0, (50, 3)).astype(np.float32)
    agent.normal.add(seen)
    policy = agent.policy_of(agent.state["online"] * 300)  # actions beyond the bounds too
    x = (seen - seen.mean(axis=0)) / seen.std(axis=0)
    mean, _ = agent.network(agent.state["online"] * 300).actor(jnp.asarray(x))
    found, log_deviation = policy.distribution(seen)
    np.testing.assert_allclose(found, mean, atol=1e-3)
    assert log_deviation.shape == mean.shape
    assert (np.abs(np.asarray(mean)) > 1).any()
    assert (np.abs(np.asarray(mean)) < 1).any()
    action = LOW + (np.clip(mean, -1, 1) + 1) / 2 * (HIGH - LOW)
    np.testing.assert_allclose(policy(seen), action, atol=1e-3)
    np.testing.assert_allclose(policy(seen[0]), action[0], atol=1e-3)


def test_the_density_of_an_action_is_a_gaussians():
    agent = an_agent(log_deviation=-0.5)
    rng = np.random.default_rng(0)
    x, action = rng.normal(size=(20, 3)), rng.normal(size=(20, 2))
    network = agent.network(agent.state["online"])
    density, entropy = network.density(jnp.asarray(x), jnp.asarray(action))
    mean, _ = network.actor(jnp.asarray(x))
    exact = norm(np.asarray(mean, float), np.exp(-0.5))
    np.testing.assert_allclose(density, exact.logpdf(action).sum(axis=1), atol=1e-4)
    assert float(entropy) == pytest.approx(exact.entropy()[0].sum(), abs=1e-4)


def test_nothing_changes_while_a_rollout_is_taken_and_its_old_policy_is_the_one_that_acted():
    """By the weights and by the normalisation: the first update's ratio is exactly 1."""
    agent, seen = an_agent(), []
    before = agent.policy.weights

    def lived(observation, action):
        seen.append((observation, action, agent.policy.distribution(observation)))
        return {}

    rollouts(agent, 1, lived)
    assert any((before[name] != agent.policy.weights[name]).any() for name in before)
    assert agent.normal.count == 64
    rng = np.random.default_rng(5)
    for _ in range(agent.replay.length):
        observation = rng.normal(2.0, 3.0, (2, 3)).astype(np.float32)
        _, notes = agent.act(observation, 0)
        lived(observation, notes["action"])
        agent.remember(step_of(observation_capture=observation, notes=notes))
    steps = agent.judged(agent.network(agent.state["online"]), agent.sample(1))
    acted = np.array([
        norm.logpdf(action, mean, np.exp(log_deviation)).sum(axis=1)
        for _, action, (mean, log_deviation) in seen[agent.replay.length :]
    ])  # fmt: skip
    np.testing.assert_allclose(steps["density"], acted.ravel(), atol=1e-3)


@pytest.mark.parametrize(("terminated", "expected"), [(False, 10.0), (True, 1.0)])
def test_terminations_end_and_time_limits_do_not(terminated, expected):
    """Reward 1, gamma 0.9 per step: worth ten where it goes on after the limit, one if it ends."""
    agent = an_agent(
        columns=1, gamma_per_s=0.9, learning_rate=3e-3, normalise_reward=False, epochs=10
    )
    ends = {"terminated": np.full(2, terminated), "truncated": np.full(2, not terminated)}
    rollouts(agent, 60, lambda seen, action: {"reward_after_switch": np.ones(2), **ends})
    x = jnp.linspace(-1, 1, 9)[:, None]
    value = agent.network(agent.state["online"]).critic(x)
    np.testing.assert_allclose(value, expected, rtol=0.15)


def test_the_clipped_objective_has_no_gradient_where_the_probability_has_moved_enough():
    agent = an_agent(clip=0.2, value_weight=0.0)
    online = agent.state["online"]
    rng = np.random.default_rng(0)
    x, action = (jnp.asarray(rng.normal(size=(16, size)), jnp.float32) for size in (3, 2))
    density, _ = agent.network(online).density(x, action)
    advantage = jnp.where(jnp.arange(16) < 8, 1.0, -1.0)

    @jax.jit
    def gradient(moved):
        batch = {
            "x": x, "action": action, "density": density - moved, "advantage": advantage,
            "value": jnp.zeros(16),
        }  # fmt: skip
        return jnp.abs(jax.grad(lambda w: agent.loss(w, batch)[0])(online)).max()

    further = 0.3 * jnp.sign(advantage)  # each where its advantage wants it
    assert gradient(further) < 1e-7
    assert gradient(-further) > 1e-2
    assert gradient(jnp.zeros(16)) > 1e-2


def test_it_goes_where_reward_is():
    best = np.array([0.4, -0.6])
    agent = an_agent(columns=1, learning_rate=3e-3, rollout=256, batch_size=64)
    rollouts(
        agent,
        60,
        lambda seen, action: {
            "reward_after_switch": -((np.clip(action, -1, 1) - best) ** 2).sum(axis=1),
            "terminated": np.ones(2, bool),
        },
    )
    found = 2 * (agent.averaged_policy()(np.zeros(1)) - LOW) / (HIGH - LOW) - 1
    np.testing.assert_allclose(found, best, atol=0.1)


def test_rewards_are_in_units_of_the_deviation_of_their_discounted_sums():
    agent = an_agent(gamma_per_s=0.9)
    rng, sums, found = np.random.default_rng(0), np.zeros(2), []
    for t in range(agent.replay.length):
        reward, over = rng.normal(5, 20, 2), np.array([t % 7 == 6, t % 5 == 4])
        sums = reward + 0.9**0.5 * sums
        found.append(sums)
        sums = sums * ~over
        seen = np.zeros((2, 3), np.float32)
        agent.remember(
            step_of(
                observation_capture=seen,
                reward_before_switch=reward,
                period_s=np.full(2, 0.5),
                truncated=over,
                notes=agent.act(seen, 0)[1],
            )
        )
    assert agent.sample(1)["reward_scale"] == pytest.approx(1 / np.std(found), rel=1e-3)


def test_a_checkpoint_inside_of_a_rollout_restores_everything_that_acts_and_learns():
    training = Training.of("pointmass", "ppo", actions="continuous", steps=200, **SMALL)
    first, second = Trainer.create(training).agent, Trainer.create(training).agent
    columns = first.policy.observation_size
    rng = np.random.default_rng(0)

    def live(agents, steps):
        for _ in range(steps):
            seen = rng.normal(size=(4, columns)).astype(np.float32)
            notes = first.act(seen, 0)[1]
            for agent in agents:
                agent.remember(step_of(observation_capture=seen, notes=notes, truncated=ended))
                if agent.ready(0):
                    agent.rng = np.random.default_rng(7)
                    agent.dispatch(agent.sample(1))
                    agent.sync()

    ended = np.ones(4, bool)  # so that where a checkpoint cuts is no other than what was there
    live([first], 20)
    second.restore(first.arrays())
    live([first, second], 20)
    seen = rng.normal(size=(5, columns))
    np.testing.assert_array_equal(first.policy(seen), second.policy(seen))
    assert int(first.state["updates"]) == int(second.state["updates"]) == 16


@pytest.mark.parametrize(
    ("task", "values", "said"),
    [
        ("cartpole", {}, "dqn chooses between discrete ones"),
        ("grasp", {}, "images are for qtopt"),
        ("pointmass", {"actions": "continuous", "rollout": 32}, "at least batch_size"),
        ("pointmass", {"actions": "continuous", "hidden": (0,)}, "at least 1 unit"),
        ("pointmass", {"actions": "continuous", "replay_size": 9}, "unknown setting"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(task, values, said):
    with pytest.raises(ValueError, match=said):
        Training.of(task, "ppo", **values).check()


def test_a_rollout_has_a_step_of_each_environment():
    training = Training.of(
        "pointmass", "ppo", actions="continuous", **{**SMALL, "num_envs": 65, "rollout": 64}
    )
    with pytest.raises(ValueError, match="less than a step of each of 65"):
        Trainer.create(training)


def test_a_trained_policy_is_saved_and_loads(tmp_path):
    training = Training.of(
        "pointmass", "ppo", actions="continuous", knowledge=("previous_action",), latency="50ms",
        **{**SMALL, "steps": 192},
    )  # fmt: skip
    result = train(training, tmp_path / "run")
    assert result["split_s"].keys() >= {"fitting"}
    policy = midstride.load(tmp_path / "run")
    action = policy(np.full((3, policy.observation_size), 1e3))
    assert action.shape == (3, 2)
    assert policy.description["squash"] == "clip"
    text = (tmp_path / "run" / "policy.json").read_text()
    (tmp_path / "run" / "policy.json").write_text(text.replace('"clip"', '"wrap"'))
    with pytest.raises(ValueError, match="cannot be read"):
        midstride.load(tmp_path / "run")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [("squash", "wrap", "squash must be one of tanh, clip"), ("activation", 3, "activation must")],
)
def test_descriptions_of_actors_are_checked(field, value, said):
    from midstride.policies.check import check_description

    about = {"kind": "actor", "low": [-1.0], "high": [1.0]}
    check_description({**about, "squash": "clip", "activation": "tanh"})
    with pytest.raises(ValueError, match=said):
        check_description({**about, field: value})


def test_it_learns_to_stay_at_a_point(tmp_path):
    training = Training.of(
        "pointmass", "ppo", actions="continuous", steps=24_576, num_envs=16, learning_rate=1e-3,
        evaluate_every=10**9, evaluation_episodes=4,
    )  # fmt: skip
    untrained = train(training.with_(steps=16), tmp_path / "before")["mean_return"]
    assert train(training, tmp_path / "after")["mean_return"] > untrained + 40


@pytest.mark.slow
def test_it_balances_a_pole(tmp_path):
    training = Training.of("gym:InvertedPendulum-v5", "ppo", steps=65_536, evaluate_every=10**9)
    assert train(training, tmp_path / "run")["mean_return"] > 950  # 1000 is to the end

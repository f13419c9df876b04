"""The learning code on problems whose answer is known exactly."""

import itertools

import numpy as np
import pytest
from gymnasium import spaces

from midstride.learn.agent import configure_jax
from midstride.learn.agent_settings import RunSettings
from midstride.learn.agents import Training
from midstride.learn.dqn import DQN, DQNSettings
from midstride.learn.drqn import DRQN, DRQNSettings
from midstride.learn.spaces import action_table
from midstride.theory.knowledge import turntable
from midstride.theory.tabular import ConcurrentMDP, solve_concurrent
from tests.helpers import FakeEnvs, flat_envs, step_of

PERIOD, LATENCY, GAMMA, CELLS = 3, 2, 0.9, 4


@pytest.fixture(autouse=True)
def _jax():
    configure_jax()


def ticks(s: int, action: int, count: int) -> tuple[float, int]:
    """Reward and end of holding an action on the deterministic turntable."""
    reward = 0.0
    for _ in range(count):
        reward += float(s == 0)
        s = (s + action) % CELLS
    return reward, s


def code(s: int, b: int) -> np.ndarray:
    return np.eye(CELLS * 2, dtype=np.float32)[2 * s + b]


def an_agent(kind=DQN, columns=CELLS * 2, actions=2, num_envs=1, **options):
    run, rng = RunSettings(num_envs=num_envs), np.random.default_rng(0)
    return kind(kind.Settings(**options), run, flat_envs(columns, actions, num_envs), rng)


def live_on_the_turntable(agent) -> None:
    """Every transition of the augmented turntable (state, action in flight), once."""
    for s, b, a in itertools.product(range(CELLS), range(2), range(2)):
        before, at_switch = ticks(s, b, LATENCY)
        after, end = ticks(at_switch, a, PERIOD - LATENCY)
        agent.remember(
            step_of(
                observation_capture=code(s, b)[None],
                action=np.array([a]),
                reward_before_switch=np.array([before]),
                reward_after_switch=np.array([after]),
                observation_switch=code(at_switch, a)[None],
                observation_next=code(end, a)[None],
                latency_s=np.array([LATENCY / PERIOD]),
                period_s=np.ones(1),
            )
        )


def learned(**options) -> np.ndarray:
    """Q by (state, action in flight, action) after learning; the network is a table."""
    agent = an_agent(
        hidden=(), gamma_per_s=GAMMA, learning_rate=0.02, batch_size=64, target_tau=0.05,
        max_grad_norm=0.0, learning_starts=1, replay_size=CELLS * 4, **options,
    )  # fmt: skip
    live_on_the_turntable(agent)
    for _ in range(60):
        agent.dispatch(agent.sample(200))
        agent.sync()
    return agent.policy.values(np.eye(CELLS * 2, dtype=np.float32)).reshape(CELLS, 2, 2)


def exact_full_period() -> np.ndarray:
    """Algorithm 1's fixed point with plain sums of rewards, by an ordinary value iteration."""
    q = np.zeros((CELLS, 2, 2))
    for _ in range(500):
        new = np.empty_like(q)
        for s, b, a in itertools.product(range(CELLS), range(2), range(2)):
            before, at_switch = ticks(s, b, LATENCY)
            after, end = ticks(at_switch, a, PERIOD - LATENCY)
            new[s, b, a] = before + after + GAMMA * q[end, a].max()
        q = new
    return q


@pytest.mark.parametrize(
    "options",
    [{}, {"double": False}, {"dueling": True}, {"prioritised": True}, {"target_every": 50}],
    ids=lambda o: next(iter(o), "plain"),
)
def test_dqn_learns_the_exact_q_of_the_full_period(options):
    assert learned(**options) == pytest.approx(exact_full_period(), rel=0.02)


def test_dqn_learns_the_exact_q_of_the_concurrent_target():
    """Its fixed point: the process that observes again at every switch (docs/agents/dqn.md)."""
    share = LATENCY / PERIOD
    mdp = ConcurrentMDP(
        turntable(), LATENCY, GAMMA**share, latencies_ticks=(LATENCY,), discount_within=False
    )
    exact = solve_concurrent(mdp)[0]
    q = learned(target="concurrent")
    assert q == pytest.approx(exact, rel=0.02)
    assert np.abs(exact - exact_full_period()).max() > 0.5  # the two targets do differ here


def test_terminations_end_and_time_limits_do_not():
    """One state, reward 1, gamma 0.9: ten if it goes on, one if it ends."""
    for terminated, expected in ((False, 10.0), (True, 1.0)):
        agent = an_agent(
            columns=1, hidden=(), learning_rate=0.02, gamma_per_s=GAMMA, batch_size=8,
            target_tau=0.1, learning_starts=1, replay_size=8,
        )  # fmt: skip
        for _ in range(8):
            either = np.array([terminated])  # either way the episode is over
            agent.remember(
                step_of(
                    observation_capture=np.ones((1, 1)), reward_after_switch=np.ones(1),
                    terminated=either, truncated=~either,
                )
            )  # fmt: skip
        for _ in range(20):
            agent.dispatch(agent.sample(200))
            agent.sync()
        assert agent.policy.values(np.ones((1, 1)))[0, 0] == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("period_s", "expected"), [(1.0, 10.0), (0.5, 19.487), (2.0, 5.263)])
def test_the_discount_is_per_second(period_s, expected):
    """Reward 1 a step for ever: 1 / (1 - 0.9^period)."""
    agent = an_agent(
        columns=1, hidden=(), learning_rate=0.02, gamma_per_s=GAMMA, batch_size=8, target_tau=0.1,
        learning_starts=1, replay_size=8,
    )  # fmt: skip
    for _ in range(8):
        agent.remember(
            step_of(
                observation_capture=np.ones((1, 1)), reward_after_switch=np.ones(1),
                period_s=np.full(1, period_s),
            )
        )  # fmt: skip
    for _ in range(30):
        agent.dispatch(agent.sample(200))
        agent.sync()
    assert agent.policy.values(np.ones((1, 1)))[0, 0] == pytest.approx(expected, rel=0.03)


def live_and_recall(agent) -> None:
    """Episodes of three steps: a cue (+1 or -1), nothing, then a choice that must match the cue.

    Only memory can choose: without it the expected reward is 0.
    """
    rng = np.random.default_rng(0)
    cue = rng.choice([-1.0, 1.0], 20)
    for t in range(300):
        phase = t % 3
        if phase == 0:
            cue = rng.choice([-1.0, 1.0], 20)
        shown = cue if phase == 0 else np.zeros(20)
        action = rng.integers(2, size=20)
        right = np.where(action == 1, 1.0, -1.0) == cue
        reward = np.where(right, 1.0, -1.0) if phase == 2 else np.zeros(20)
        following = np.stack([np.zeros(20), np.full(20, float(phase == 1))], axis=1)
        agent.remember(
            step_of(
                observation_capture=np.stack([shown, np.full(20, float(phase == 2))], axis=1),
                observation_next=following, action=action, reward_after_switch=reward,
                terminated=np.full(20, phase == 2),
                notes={"h": np.zeros((20, 8)), "c": np.zeros((20, 8))},
            )
        )  # fmt: skip


def test_recurrent_dqn_remembers():
    agent = an_agent(
        DRQN, columns=2, num_envs=20, hidden=(16,), lstm_size=8, segment=9, burn_in=0,
        learning_rate=0.01, gamma_per_s=0.9, batch_size=512, target_tau=0.05, replay_size=6000,
    )  # fmt: skip
    live_and_recall(agent)
    # Segments must start where episodes do, because the stored states are not real here.
    starts = np.arange(0, 290, 3)
    agent.replay.rows = lambda rng, count, span: (
        rng.choice(starts, count), rng.integers(20, size=count),
    )  # fmt: skip
    for _ in range(30):
        agent.dispatch(agent.sample(20))
        agent.sync()
    for cue, best in ((1.0, 1), (-1.0, 0)):
        agent.policy.reset()
        agent.policy(np.array([cue, 0]))
        agent.policy(np.array([0, 0]))
        values = agent.policy.values(np.array([[0, 1]], np.float32))[0]
        assert values.argmax() == best
        assert values[best] == pytest.approx(1, abs=0.2)
        assert values[1 - best] == pytest.approx(-1, abs=0.2)


def test_the_state_that_is_kept_is_that_before_the_step():
    agent = an_agent(DRQN, columns=2, num_envs=3, hidden=(4,), lstm_size=4)
    first = agent.act(np.ones((3, 2)), 0)[1]
    between = [part.copy() for part in agent.policy.state(3)]
    second = agent.act(np.ones((3, 2)), 1)[1]
    assert not first["h"].any()
    assert not first["c"].any()
    assert between[0].any()
    assert np.array_equal(second["h"], between[0])
    assert np.array_equal(second["c"], between[1])


def test_rewards_are_learned_from_on_their_scale():
    agent = an_agent(columns=2, reward_scale=0.25)
    agent.remember(
        step_of(
            observation_capture=np.zeros((1, 2)),
            reward_before_switch=np.array([1.0]),
            reward_after_switch=np.array([2.0]),
        )
    )
    kept = agent.row.unpack(agent.replay.data["transitions"][0])
    assert kept["reward_before_switch"].tolist() == [0.25]
    assert kept["reward_after_switch"].tolist() == [0.5]


def test_restore_refuses_another_network():
    small, large = (an_agent(columns=3, hidden=(n,)) for n in (4, 5))
    with pytest.raises(ValueError, match="of another network"):
        small.restore(large.arrays())


# --- Any agent that fits an environment's action space


def test_continuous_actions_become_a_list():
    box = spaces.Box(np.array([-1, 0]), np.array([1, 4]), dtype=np.float32)
    table = action_table(box, 3)
    assert table.tolist() == [
        [-1, 0], [-1, 2], [-1, 4], [0, 0], [0, 2], [0, 4], [1, 0], [1, 2], [1, 4],
    ]  # fmt: skip
    assert action_table(spaces.Discrete(4), 3) is None
    with pytest.raises(ValueError, match="make 729 discrete actions, more than 64"):
        action_table(spaces.Box(-1, 1, (6,)), 3)
    with pytest.raises(ValueError, match="must be a bounded Box"):
        action_table(spaces.Box(-np.inf, np.inf, (1,)), 3)


def test_a_policy_acts_in_the_environments_own_space():
    box = spaces.Box(np.array([-2.0]), np.array([2.0]), dtype=np.float32)
    envs = FakeEnvs(spaces.Box(-1, 1, (3,)), box)
    agent = DQN(DQNSettings(levels=5), RunSettings(num_envs=4), envs, np.random.default_rng(0))
    action, notes = agent.act(np.zeros((4, 3), np.float32), steps=0)
    assert action.shape == (4, 1)
    assert all(np.isin(action, [-2, -1, 0, 1, 2]))
    assert (agent.table[notes["action"]] == action).all()
    assert agent.policy(np.zeros(3)).shape == (1,)
    assert agent.policy(np.zeros(3)) in box


@pytest.mark.parametrize("settings", [DQNSettings(), DRQNSettings()])
def test_images_are_not_for_dqn(settings):
    image = spaces.Dict({"image": spaces.Box(0, 1, (4, 4, 3)), "state": spaces.Box(0, 1, (2,))})
    envs = flat_envs(2, 2)
    envs.single_observation_space = image
    with pytest.raises(ValueError, match=f"{settings.agent} observes a flat Box"):
        DQN.check(settings, envs)


@pytest.mark.parametrize(
    ("task", "agent", "options", "message"),
    [
        ("cartpole", "qtopt", {}, "qtopt needs continuous actions"),
        ("grasp", "dqn", {"observation": "state"}, "more than 64"),
        ("grasp", "drqn", {"image_size": 16}, "drqn observes a flat Box"),
        ("cartpole", "sarsa", {}, "unknown agent 'sarsa': choose from dqn, drqn, qtopt, sac, ppo"),
    ],
)
def test_an_agent_that_does_not_fit_says_why(task, agent, options, message):
    with pytest.raises(ValueError, match=message):
        Training.of(task, agent, **options).check()

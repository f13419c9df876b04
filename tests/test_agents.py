"""The learning code on problems whose answer is known exactly."""

import itertools

import numpy as np
import pytest

from midstride.learn.agents import DQN, DRQN, configure_jax
from midstride.learn.config import Config
from midstride.learn.replay import Replay
from midstride.theory.knowledge import turntable
from midstride.theory.tabular import ConcurrentMDP, solve_concurrent

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


def turntable_replay() -> Replay:
    """Every transition of the augmented turntable (state, action in flight), once."""
    replay = Replay(CELLS * 4, 1, columns=CELLS * 2)
    for s, b, a in itertools.product(range(CELLS), range(2), range(2)):
        before, at_switch = ticks(s, b, LATENCY)
        after, end = ticks(at_switch, a, PERIOD - LATENCY)
        replay.add(
            {
                "observation": code(s, b)[None],
                "action": np.array([a]),
                "reward_before": np.array([before]),
                "reward_after": np.array([after]),
                "observation_at_switch": code(at_switch, a)[None],
                "next_observation": code(end, a)[None],
                "latency_share": np.array([LATENCY / PERIOD]),
                "terminated": np.array([False]),
                "done": np.array([False]),
            }
        )
    return replay


def learned(replay: Replay, **options) -> np.ndarray:
    """Q by (state, action in flight, action) after learning; the network is a table."""
    config = Config(
        hidden=(), gamma=GAMMA, learning_rate=0.02, batch_size=64, target_tau=0.05,
        max_grad_norm=0.0, **options,
    )  # fmt: skip
    agent = DQN(config, CELLS * 2, 2)
    rng = np.random.default_rng(0)
    for _ in range(60):
        agent.dispatch(agent.sample(replay, rng, 200))
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
    assert learned(turntable_replay(), **options) == pytest.approx(exact_full_period(), rel=0.02)


def test_dqn_learns_the_exact_q_of_the_concurrent_target():
    """Its fixed point: the process that observes again at every switch (docs/agents/dqn.md)."""
    share = LATENCY / PERIOD
    mdp = ConcurrentMDP(
        turntable(), LATENCY, GAMMA**share, latencies_ticks=(LATENCY,), discount_within=False
    )
    exact = solve_concurrent(mdp)[0]
    q = learned(turntable_replay(), target="concurrent")
    assert q == pytest.approx(exact, rel=0.02)
    assert np.abs(exact - exact_full_period()).max() > 0.5  # the two targets do differ here


def test_terminations_end_and_time_limits_do_not():
    """One state, reward 1, gamma 0.9: ten if it goes on, one if it ends."""
    for terminated, expected in ((False, 10.0), (True, 1.0)):
        replay = Replay(8, 1, columns=1)
        for _ in range(8):
            replay.add(
                {
                    "observation": np.ones((1, 1)), "next_observation": np.ones((1, 1)),
                    "observation_at_switch": np.ones((1, 1)), "action": np.array([0]),
                    "reward_before": np.array([0.0]), "reward_after": np.array([1.0]),
                    "latency_share": np.array([1.0]), "terminated": np.array([terminated]),
                    "done": np.array([True]),  # either way the episode is over
                }
            )  # fmt: skip
        config = Config(hidden=(), learning_rate=0.02, gamma=GAMMA, batch_size=8, target_tau=0.1)
        agent = DQN(config, 1, 2)
        for _ in range(20):
            agent.dispatch(agent.sample(replay, np.random.default_rng(0), 200))
            agent.sync()
        assert agent.policy.values(np.ones((1, 1)))[0, 0] == pytest.approx(expected, rel=0.03)


def recall_replay() -> Replay:
    """Episodes of three steps: a cue (+1 or -1), nothing, then a choice that must match the cue.

    Only memory can choose: without it the expected reward is 0.
    """
    rng = np.random.default_rng(0)
    replay = Replay(6000, 20, columns=2, lstm_size=8)
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
        replay.add(
            {
                "observation": np.stack([shown, np.full(20, float(phase == 2))], axis=1),
                "next_observation": following, "observation_at_switch": following,
                "action": action, "reward_before": np.zeros(20), "reward_after": reward,
                "latency_share": np.ones(20), "terminated": np.full(20, phase == 2),
                "done": np.full(20, phase == 2), "h": np.zeros((20, 8)), "c": np.zeros((20, 8)),
            }
        )  # fmt: skip
    return replay


def test_recurrent_dqn_remembers():
    config = Config(
        agent="drqn", hidden=(16,), lstm_size=8, segment=9, burn_in=0, learning_rate=0.01,
        gamma=0.9, batch_size=512, target_tau=0.05,
    )  # fmt: skip
    agent = DRQN(config, 2, 2)
    replay, rng = recall_replay(), np.random.default_rng(0)
    # Segments must start where episodes do, because the stored states are not real here.
    starts = np.arange(0, 290, 3)
    replay.rows = lambda rng, count, span: (
        rng.choice(starts, count), rng.integers(20, size=count),
    )  # fmt: skip
    for _ in range(30):
        agent.dispatch(agent.sample(replay, rng, 20))
        agent.sync()
    for cue, best in ((1.0, 1), (-1.0, 0)):
        agent.policy.reset()
        agent.policy(np.array([cue, 0]))
        agent.policy(np.array([0, 0]))
        values = agent.policy.values(np.array([[0, 1]], np.float32))[0]
        assert values.argmax() == best
        assert values[best] == pytest.approx(1, abs=0.2)
        assert values[1 - best] == pytest.approx(-1, abs=0.2)


def test_restore_refuses_another_network():
    small, large = (DQN(Config(hidden=(n,)), 3, 2) for n in (4, 5))
    with pytest.raises(ValueError, match="of another network"):
        small.restore(large.arrays())

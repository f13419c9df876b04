"""What others do about latency: updates by hand, exact values, and what they collapse to."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import midstride
from midstride.knowledge import Layout
from midstride.latency import Fixed, PerStep
from midstride.learn.agent import configure_jax
from midstride.learn.agent_settings import RunSettings
from midstride.learn.agents import Training, agent_called
from midstride.learn.baselines.switches import Switched
from midstride.learn.sac import Normal
from midstride.learn.targets import (
    after_switch_target,
    full_period_target,
    until_switch_target,
)
from midstride.learn.train import train
from midstride.theory.tabular import (
    ConcurrentMDP,
    TickMDP,
    capture_value,
    solve_concurrent,
    to_switch,
)
from midstride.timing import Timing
from tests.helpers import FakeEnvs, flat_envs, step_of

PERIOD_S, GAMMA = 0.5, 0.81  # 0.9 in a period


@pytest.fixture(autouse=True)
def _jax():
    configure_jax()


def envs_of(latency_s, features=("previous_action",), base=1, actions=1):
    timing = Timing(
        latency_s if isinstance(latency_s, PerStep) else Fixed(latency_s), period_s=PERIOD_S
    )
    names = tuple(map(str, range(actions)))
    layout = Layout(
        tuple(f"s{i}" for i in range(base)), names, None, features,
        pending_slots=timing.pending_slots,
    )  # fmt: skip
    envs = FakeEnvs(
        spaces.Box(-np.inf, np.inf, (len(layout.columns),), np.float32),
        spaces.Box(-1, 1, (actions,), np.float32),
        num_envs=1,
        layout=layout,
    )
    envs.timing = timing
    return envs


def agent_of(name, envs, **options):
    kind = agent_called(name)
    usual = {"hidden": (8,), "replay_size": 500, "batch_size": 16, "learning_starts": 10}
    settings = kind.Settings(**{**usual, "gamma_per_s": GAMMA, "normalise": False, **options})
    kind.check(settings, envs)
    return kind(settings, RunSettings(num_envs=1), envs, np.random.default_rng(0))


# --- By hand -------------------------------------------------------------------------------------


class Hand(eqx.Module):
    """Linear critics, one action whatever is seen: what a loss does with them fits on paper."""

    critics: list
    at_capture: list
    action: jax.Array
    log_temperature: jax.Array
    density: float = -2.0

    def sample(self, x, key):
        return jnp.broadcast_to(self.action, (len(x), 1)), jnp.full(len(x), self.density)

    def values(self, x, action):
        return jnp.stack([jnp.concatenate([x, action], axis=1) @ c for c in self.critics])

    def capture_values(self, x):
        return jnp.stack([x @ c for c in self.at_capture])


def by_hand(name, latency_s, critics, steps, at_capture=((0.0, 0.0),) * 2, **fields):
    """The loss without the temperature's part, and its gradient in the actor's action."""
    agent = agent_of(name, envs_of(latency_s, **fields))
    agent.entropy = -Hand.density  # as wanted: the temperature stays
    steps = {name: jnp.asarray(value) for name, value in steps.items()}
    steps |= {
        "normal": Normal(jnp.zeros(3), jnp.ones(3)),
        "moves": Normal(jnp.zeros(1), jnp.ones(1)),
    }

    def loss(action):
        network = Hand(
            [jnp.array(c) for c in critics], [jnp.array(c) for c in at_capture],
            action, jnp.zeros(()),
        )  # fmt: skip
        return agent.loss(network, network, steps, jax.random.split(jax.random.key(0)))[0]

    value, gradient = jax.value_and_grad(loss)(jnp.array([0.25]))
    return float(value), float(gradient[0])


def one_step(latency_s, **fields):
    """s, u = 1, 2 -- a = 0.5 --> s = 3; s~ = 2 at the switch."""
    return {
        "observation_capture": [[1.0, 2.0]], "observation_next": [[3.0, 0.5]],
        "observation_switch": [[2.0, 0.5]], "action": [[0.5]],
        "reward_before_switch": [4.0], "reward_after_switch": [5.0],
        "latency_s": [latency_s], "period_s": [PERIOD_S],
        "terminated": [False], "truncated": [False], **fields,
    }  # fmt: skip


def squares(*errors):
    return 0.5 * sum(error**2 for error in errors)


def test_rtac_by_hand():
    """V_1 = s + 2u, V_2 = 2s. The action that was lived, 0.5, appears nowhere."""
    loss, gradient = by_hand("rtac", 0.5, [[1.0, 2.0], [2.0, 0.0]], one_step(0.5))
    y = 9 + 2 + 0.9 * min(3 + 2 * 0.25, 2 * 3)
    assert loss == pytest.approx(squares(5 - y, 2 - y) - y, rel=1e-5)
    assert gradient == pytest.approx(-0.9 * 2, rel=1e-5)
    ended = one_step(0.5, terminated=[True])
    loss, gradient = by_hand("rtac", 0.5, [[1.0, 2.0], [2.0, 0.0]], ended)
    assert (loss, gradient) == (pytest.approx(squares(5 - 11, 2 - 11) - 11, rel=1e-5), 0)


def test_rtac_within_the_period_by_hand():
    """W_1 = s~ + 3a, W_2 = 10; V_1 = s + u, V_2 = 2s. 0.81^0.25 = 0.9487 for either half."""
    half = GAMMA**0.25
    loss, gradient = by_hand(
        "rtac_substep", 0.25, [[1.0, 3.0], [5.0, 0.0]], one_step(0.25), [[1.0, 1.0], [2.0, 0.0]]
    )
    y_capture = 4 + 2 + half * min(2 + 3 * 0.25, 10)
    y_switch = 5 + half * min(3 + 0.5, 6)
    errors = (3 - y_capture, 2 - y_capture, 2 + 3 * 0.5 - y_switch, 10 - y_switch)
    assert loss == pytest.approx(squares(*errors) - y_capture, rel=1e-5)
    assert gradient == pytest.approx(-half * 3, rel=1e-5)


def test_rtac_within_the_period_ends_at_the_switch_or_after_it():
    """A termination after the switch leaves it alive; at it, W learns nothing and V its reward."""
    critics, at_capture = [[1.0, 3.0], [5.0, 0.0]], [[1.0, 1.0], [2.0, 0.0]]
    ended, half = one_step(0.25, terminated=[True]), GAMMA**0.25
    loss, gradient = by_hand("rtac_substep", 0.25, critics, ended, at_capture)
    y = 4 + 2 + half * 2.75
    assert loss == pytest.approx(squares(3 - y, 2 - y, 3.5 - 5, 10 - 5) - y, rel=1e-5)
    assert gradient == pytest.approx(-half * 3, rel=1e-5)
    at_switch = one_step(0.5, terminated=[True], reward_after_switch=[0.0])
    loss, gradient = by_hand("rtac_substep", 0.5, critics, at_switch, at_capture)
    assert (loss, gradient) == (pytest.approx(squares(3 - 6, 2 - 6) - 6, rel=1e-5), 0)


def windows(*steps):
    """Steps in a row as an agent gets them, (1, span, ...)."""
    return {name: np.stack([np.array(one[name]) for one in steps], axis=1) for name in steps[0]}


def test_bpql_by_hand():
    """Q_1 = s~ + 3a, Q_2 = 10 s~; from the switch at s~ = 2 to the next, at s~ = 4."""
    following = one_step(
        0.25, observation_capture=[[3.0, 0.5]], observation_switch=[[4.0, 9.0]],
        reward_before_switch=[6.0], reward_after_switch=[100.0], action=[[9.0]],
    )  # fmt: skip
    steps, half = windows(one_step(0.25), following), GAMMA**0.25
    loss, gradient = by_hand("bpql", 0.25, [[1.0, 3.0], [10.0, 0.0]], steps)
    y = 5 + half * (6 + half * (min(4 + 3 * 0.25, 40) + 2))
    assert loss == pytest.approx(squares(3.5 - y, 20 - y) - 2 - (2 + 0.75), rel=1e-5)
    assert gradient == pytest.approx(-3, rel=1e-5)


def test_bpql_of_two_periods_by_hand():
    """What is captured two periods later is the state at the switch."""
    known = {"features": ("previous_action", "pending_actions")}

    def step(s, reward):
        wide = {"observation_capture": [[s, 0.0, 0.0]], "observation_next": [[s + 1, 0.0, 0.0]]}
        return one_step(
            1.0, **wide, observation_switch=[[0.0] * 3], reward_before_switch=[reward],
            reward_after_switch=[0.0],
        )  # fmt: skip

    steps = windows(step(1.0, 50.0), step(2.0, 60.0), step(3.0, 7.0))
    loss, _ = by_hand("bpql", 1.0, [[1.0, 3.0], [10.0, 0.0]], steps, **known)
    y = 7 + 0.9 * (4 + 0.75 + 2)
    assert loss == pytest.approx(squares(3 + 1.5 - y, 30 - y) - 2 - 3.75, rel=1e-5)


def test_dcac_of_two_periods_by_hand():
    """V_1 = s + 2 u + 3 p, of what is in force and what is pending; both are drawn anew."""
    known = {"features": ("previous_action", "pending_actions")}
    wide = {"observation_capture": [[1.0, 2.0, 3.0]], "observation_next": [[4.0, 5.0, 6.0]]}
    first = one_step(1.0, **wide, observation_switch=[[0.0] * 3])
    later = one_step(
        1.0, observation_capture=[[4.0, 5.0, 6.0]], observation_next=[[7.0, 8.0, 9.0]],
        observation_switch=[[0.0] * 3], reward_before_switch=[10.0], reward_after_switch=[0.0],
    )  # fmt: skip
    critics = [[1.0, 2.0, 3.0], [50.0, 0.0, 0.0]]
    loss, gradient = by_hand("dcac", 1.0, critics, windows(first, later), **known)
    y = (9 + 2) + 0.9 * (10 + 2) + 0.81 * (7 + 2 * 0.25 + 3 * 0.25)
    assert loss == pytest.approx(squares(14 - y, 50 - y) - y, rel=1e-5)
    assert gradient == pytest.approx(-0.81 * 5, rel=1e-5)
    # An episode that ends in the first of the steps has nothing to do with the second; one that
    # the clock ended goes on at what was seen last, with the one decision that was made.
    over = {**first, "truncated": [True]}
    loss, _ = by_hand("dcac", 1.0, critics, windows(over, later), **known)
    y = 11 + 0.9 * (4 + 2 * 5 + 3 * 0.25)
    assert loss == pytest.approx(squares(14 - y, 50 - y) - y, rel=1e-5)
    over = {**first, "terminated": [True]}
    loss, _ = by_hand("dcac", 1.0, critics, windows(over, later), **known)
    assert loss == pytest.approx(squares(14 - 11, 50 - 11) - 11, rel=1e-5)


@pytest.mark.parametrize("latency_s", [0.25, PERIOD_S, 1.0])
def test_decisions_are_paired_with_the_states_they_came_into_force_in(latency_s):
    """Observations are their own numbers; episodes of 5 steps end in both ways, and early."""
    known = ("previous_action", "pending_actions")
    agent = agent_of("bpql", envs_of(latency_s, known))
    columns = agent._columns
    for i in range(60):
        terminated, truncated = i % 10 == 4, i % 10 == 9

        def seen(number):
            return np.full((1, columns), number, np.float32)

        agent.remember(
            step_of(
                observation_capture=seen(i), observation_next=seen(i + 1),
                observation_switch=seen(i + latency_s / PERIOD_S),
                latency_s=np.full(1, latency_s), period_s=np.full(1, PERIOD_S),
                terminated=np.array([terminated]), truncated=np.array([truncated]),
                notes={"action": np.full((1, 1), i)},
            )
        )  # fmt: skip
    steps = agent.row.unpack(agent.draw((3000,)))
    met = agent.pairing({name: jnp.asarray(value) for name, value in steps.items()})
    decision, state = np.asarray(met.action)[:, 0], np.asarray(met.state)[:, 0]
    # In each episode of five, whose decisions came into force while it was alive.
    late = {0.25: ({0, 1, 2, 3, 4}, {0, 1, 2, 3}), PERIOD_S: ({0, 1, 2, 3},) * 2,
            1.0: ({0, 1, 2},) * 2}[latency_s]  # fmt: skip
    held = set(range(60 - (agent.pairing.span - 1)))
    expected = {i for i in held if i % 5 in late[i // 5 % 2]}
    assert set(decision.astype(int)) == expected
    np.testing.assert_array_equal(state, decision + latency_s / PERIOD_S)
    goes_on = ~np.asarray(met.terminated)
    np.testing.assert_array_equal(np.asarray(met.state_next)[goes_on, 0], state[goes_on] + 1)
    np.testing.assert_array_equal(np.asarray(met.x_next)[goes_on, 0], decision[goes_on] + 1)
    ends = {0.25: 4, PERIOD_S: 3, 1.0: 2}[latency_s]  # whose action was in force at the end
    assert {int(i) % 10 for i in decision[~goes_on]} == {ends}


class Foresees(Hand):
    """Foresees that the state moves by twice what is in flight; the actor does what it sees."""

    def predictor(self, x):
        return 2 * x[1:2]

    def sample(self, x, key):
        assert x.shape[1] == 1
        return self.action * x, jnp.full(len(x), self.density)


def test_the_actor_sees_what_the_model_foresees():
    agent = agent_of("predict", envs_of(0.25))
    agent.entropy = -Hand.density
    following = one_step(0.25, observation_capture=[[3.0, 0.5]], observation_switch=[[4.0, 9.0]])
    steps = {n: jnp.asarray(v) for n, v in windows(one_step(0.25), following).items()}
    # Observations are in units of 1/10, moves in units of 1/5 around 1.
    steps |= {
        "normal": Normal(jnp.zeros(2), jnp.array([10.0, 1.0])),
        "moves": Normal(jnp.ones(1), jnp.array([5.0])),
    }
    critics = [jnp.array([1.0, 3.0]), jnp.array([50.0, 0.0])]
    network = Foresees(critics, [], jnp.array([0.25]), jnp.zeros(()))
    half = GAMMA**0.25
    loss, measured = agent.loss(network, network, steps, jax.random.split(jax.random.key(0)))
    wrong = 2 * 2.0 - ((2 - 1) / 10 - 1) * 5  # what it says, and what would have been right
    seen = 1 + (1 + 2 * 2.0 / 5) * 10
    seen_next = 3 + (1 + 2 * 0.5 / 5) * 10
    y = 5 + half * (4 + half * (4 + 3 * 0.25 * seen_next + 2))
    expected = squares(3.5 - y, 100 - y) - 2 - min(2 + 3 * 0.25 * seen, 100) + wrong**2
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert float(measured["auxiliary"]) == pytest.approx(wrong**2, rel=1e-5)


def test_dau_by_hand():
    """q = V + H (A - max A): with A of 1, 4, 2 per second and a second's half, 1 is worth -1.5."""
    agent = agent_called("dau")(
        agent_called("dau").Settings(hidden=(4,), gamma_per_s=GAMMA),
        RunSettings(num_envs=1), flat_envs(2, 3, 1), np.random.default_rng(0),
    )  # fmt: skip

    class Stub(eqx.Module):
        advantage = staticmethod(lambda x: jnp.array([1.0, 4.0, 2.0]) - 4.0)
        value = staticmethod(lambda x: x.sum())

    row = np.zeros(agent.row.width, np.float32)
    at = agent.row.places
    row[at["observation_capture"]], row[at["observation_next"]] = (1, 2), (3, 4)
    row[at["reward_before_switch"]], row[at["period_s"]], row[at["action"]] = 5, 0.5, 0
    loss, measured = agent.loss(Stub(), Stub(), {"transitions": row[None]})
    error = (3 - 0.5 * 3) - (5 + 0.9 * 7)
    assert float(measured["error"][0]) == pytest.approx(error, rel=1e-5)
    assert float(loss) == pytest.approx(abs(error) - 0.5, rel=1e-5)  # Huber


# --- Exact values --------------------------------------------------------------------------------


def a_world(latencies, known, seed=0):
    """Five states, three actions, four ticks a period; a period is a second."""
    rng = np.random.default_rng(seed)
    moves = rng.dirichlet(np.full(5, 0.4), (3, 5))
    share = rng.dirichlet(np.ones(len(latencies)))
    return ConcurrentMDP(
        TickMDP(list(moves), rng.normal(size=(5, 3))), 4, 0.9, latencies, tuple(share),
        latency_known=known, discount_within=False,
    )  # fmt: skip


def held(mdp, ticks):
    """Where each action leads in so many ticks, (actions, states, states); and what it pays."""
    moves = np.stack([np.linalg.matrix_power(p, ticks) for p in mdp.world.transitions])
    return moves, mdp.stretch_rewards[ticks].T


def batched(target, reward, ended, value, gamma, seconds):
    """A target function of arrays of any shape, with one time for all."""
    parts = np.broadcast_arrays(reward, ended, value, np.float64(seconds))
    with jax.enable_x64(True):
        return np.asarray(target(*map(jnp.asarray, parts[:3]), gamma, jnp.asarray(parts[3])))


def iterate(step, start):
    for _ in range(400):
        start = step(start)
    return start


def test_rtac_has_the_exact_values_of_one_period():
    mdp = a_world((4,), known=True)
    moves, rewards = held(mdp, 4)

    def step(v):  # (states, in flight)
        # (in flight, s, a, s'): r of what is in flight, then V(s', a)
        following = v.T[None, None]
        y = batched(full_period_target, rewards[:, :, None, None], False, following, 0.9, 1.0)
        return (moves[:, :, None] * y).sum(axis=-1).max(axis=-1).T

    exact = capture_value(mdp, solve_concurrent(mdp))
    np.testing.assert_allclose(iterate(step, np.zeros((5, 3))), exact, atol=1e-6)


@pytest.mark.parametrize("latencies", [(1,), (3,), (0,), (4,), (0, 1, 3)])
def test_rtac_within_the_period_has_the_exact_values(latencies):
    mdp = a_world(latencies, known=False)

    def to_capture(w):  # (latencies, states, actions) -> (latencies, in flight, states, actions)
        found = []
        for one, ticks in zip(w, latencies, strict=True):
            moves, rewards = held(mdp, ticks)
            y = batched(
                until_switch_target, rewards[:, :, None, None], False, one.T[None, None], 0.9,
                ticks / 4,
            )  # fmt: skip
            found.append((moves[:, :, None] * y).sum(axis=-1))
        return np.stack(found)

    def step(both):
        v, w = both
        following = []
        for ticks in latencies:
            moves, rewards = held(mdp, 4 - ticks)  # of the action, (a, s~, s')
            y = batched(
                after_switch_target, rewards[:, :, None], False, v.T[:, None], 0.9, 1 - ticks / 4
            )
            following.append((moves * y).sum(axis=-1).T)
        mixed = np.tensordot(mdp.probabilities, to_capture(w), 1)
        return mixed.max(axis=-1).T, np.stack(following)

    v, w = iterate(step, (np.zeros((5, 3)), np.zeros((len(latencies), 5, 3))))
    exact = solve_concurrent(mdp)
    np.testing.assert_allclose(v, capture_value(mdp, exact), atol=1e-6)
    np.testing.assert_allclose(w, to_switch(mdp, exact), atol=1e-6)


@pytest.mark.parametrize("latencies", [(1,), (3,), (0,), (4,), (0, 1, 3)])
def test_bpql_at_the_switch_has_the_exact_values(latencies):
    """Q at the switch by itself; the actor maximises it as far as x tells."""
    mdp = a_world(latencies, known=False)
    share = np.array(mdp.probabilities)

    def step(q):  # (latencies, states, actions)
        # What an actor can expect of each decision at a capture: (in flight, s, a)
        reach = [held(mdp, ticks) for ticks in latencies]
        hopes = [m @ (0.9 ** (t / 4) * one) for (m, _), one, t in
                 zip(reach, q, latencies, strict=True)]  # fmt: skip
        chosen = np.tensordot(share, np.stack(hopes), 1).argmax(axis=-1)  # (in flight, s)
        found = []
        for ticks in latencies:
            moves, rewards = held(mdp, 4 - ticks)
            total = 0.0
            for p, (on, paid), one, later in zip(share, reach, q, latencies, strict=True):
                # (a, s', s~'): decided at s' with a in flight
                value = np.moveaxis(one[:, chosen], 0, -1)
                parts = np.broadcast_arrays(
                    rewards[:, :, None, None], paid[:, None, :, None], value[:, None]
                )
                none, times = np.zeros(parts[0].shape, bool), np.ones(parts[0].shape)
                with jax.enable_x64(True):
                    met = Switched(
                        *[None] * 3, *map(jnp.asarray, (parts[0], none, times * (1 - ticks / 4),
                        parts[1], none, times * (later / 4))), None, None,
                    )  # fmt: skip
                    y = np.asarray(met.target(jnp.asarray(parts[2]), 0.9))
                total = total + p * (moves[..., None] * on[:, None] * y).sum(axis=(-1, -2))
            found.append(total.T)
        return np.stack(found)

    q = iterate(step, np.zeros((len(latencies), 5, 3)))
    np.testing.assert_allclose(q, to_switch(mdp, solve_concurrent(mdp)), atol=1e-6)


# --- What they collapse to -----------------------------------------------------------------------


def live(agent, columns, steps=40, seed=1):
    rng = np.random.default_rng(seed)
    seen = rng.normal(size=(1, columns)).astype(np.float32)
    for i in range(steps):
        following = rng.normal(size=(1, columns)).astype(np.float32)
        agent.remember(
            step_of(
                observation_capture=seen, observation_next=following, observation_switch=seen,
                action=np.zeros((1, 1)), reward_after_switch=rng.normal(size=1),
                period_s=np.full(1, PERIOD_S), terminated=np.array([i % 7 == 6]),
                notes={"action": rng.uniform(-1, 1, (1, 1)).astype(np.float32)},
            )
        )  # fmt: skip
        seen = following


def learned(agent, columns):
    live(agent, columns)
    agent.dispatch(agent.sample(5))
    agent.sync()
    return agent.named(agent.state["online"])


@pytest.mark.parametrize("name", ["bpql", "predict"])
def test_without_latency_it_is_sac_bit_for_bit(name):
    sac, other = (agent_of(n, envs_of(0.0, (), base=3)) for n in ("sac", name))
    if name == "predict":  # of a model that has learned that nothing moves
        still = eqx.tree_at(
            lambda net: (net.predictor.out.weight, net.predictor.out.bias),
            other.network(other.state["online"]),
            replace_fn=jnp.zeros_like,
        )
        weights = jax.flatten_util.ravel_pytree(eqx.filter(still, eqx.is_array))[0]
        other.state |= {"online": weights, "target": jnp.copy(weights)}
    found, exact = learned(other, 3), learned(sac, 3)
    assert {n for n in found if not n.startswith("predictor")} == exact.keys()
    for part, weights in exact.items():
        np.testing.assert_array_equal(found[part], weights, err_msg=part)


def test_without_latency_the_two_heads_are_the_two_halves_of_sac():
    """Nothing lies before the switch, and all of the period after it."""
    reward, ended, value = jnp.array([1.0, 2.0]), jnp.array([False, True]), jnp.array([3.0, 4.0])
    nothing, no, whole = jnp.zeros(2), jnp.zeros(2, bool), jnp.full(2, PERIOD_S)
    at_capture = until_switch_target(nothing, no, value, GAMMA, nothing)
    np.testing.assert_array_equal(at_capture, value)
    np.testing.assert_array_equal(
        after_switch_target(reward, ended, at_capture, GAMMA, whole),
        full_period_target(reward, ended, value, GAMMA, whole),
    )
    sac, other = (agent_of(n, envs_of(0.0, (), base=3)) for n in ("sac", "rtac_substep"))
    live(sac, 3), live(other, 3)
    for agent in (sac, other):
        agent.rng = np.random.default_rng(3)
    gradients = []
    for agent in (sac, other):
        steps = agent.row.unpack(jnp.asarray(agent.draw((16,))))
        target, key = agent.network(agent.state["target"]), jax.random.key(0)

        def loss(vector, agent=agent, steps=steps, target=target, key=key):
            return agent.loss(agent.network(vector), target, steps, [key, key])[0]

        gradients.append(agent.named(jax.grad(loss)(agent.state["online"])))
    for part, gradient in gradients[0].items():
        if part.startswith("actor"):  # W is Q here, and the actor climbs it
            np.testing.assert_allclose(gradients[1][part], gradient, rtol=1e-5, atol=1e-7)


def test_dcac_with_one_in_flight_is_rtac_bit_for_bit():
    rtac, dcac = (agent_of(n, envs_of(PERIOD_S, base=2)) for n in ("rtac", "dcac"))
    found, exact = learned(dcac, 3), learned(rtac, 3)
    for part, weights in exact.items():
        np.testing.assert_array_equal(found[part], weights, err_msg=part)


def test_dau_is_dqn_of_the_same_values():
    """Q = V + H (A - max A) in DQN's loss, without double: the maximum is V."""
    options = {"hidden": (8,), "gamma_per_s": GAMMA, "double": False}
    dau, dqn = (
        agent_called(name)(
            agent_called(name).Settings(**options), RunSettings(num_envs=1), flat_envs(3, 4, 1),
            np.random.default_rng(0),
        )
        for name in ("dau", "dqn")
    )  # fmt: skip
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(32, dau.row.width)).astype(np.float32)
    rows[:, dau.row.places["action"]] = rng.integers(4, size=32)
    rows[:, dau.row.places["period_s"]] = PERIOD_S
    network = dau.network(dau.state["online"])
    values = lambda x: network.value(x) + PERIOD_S * network.advantage(x)  # noqa: E731
    batch = {"transitions": jnp.asarray(rows)}
    found, exact = dau.loss(network, network, batch), dqn.loss(values, values, batch)
    np.testing.assert_allclose(found[0], exact[0], rtol=1e-6)


# --- Memory --------------------------------------------------------------------------------------


def test_what_recurrent_sac_remembers_in_learning_is_what_its_policy_remembered():
    """Segments of two episodes, lived by the policy: the second begins from nothing."""
    agent = agent_of("rsac", envs_of(0.0, (), base=3), lstm_size=5, segment=4, burn_in=2)
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(9, 3)).astype(np.float32)
    done, remembered = np.zeros(9, bool), []
    done[3] = True
    for i in range(8):
        _, notes = agent.act(seen[i : i + 1], steps=10**6)
        remembered.append(agent.policy.state(1)[0][0].copy())
        agent.remember(
            step_of(
                observation_capture=seen[i : i + 1], observation_next=seen[i + 1 : i + 2],
                observation_switch=None, truncated=done[i : i + 1], notes=notes,
            )
        )  # fmt: skip
        agent.policy.reset(done[i : i + 1])
    found = agent.replay.data
    steps = agent.row.unpack(jnp.asarray(found["transitions"][1:7].swapaxes(0, 1)))
    steps |= {name: jnp.asarray(found[name][1]) for name in "hc"}
    z, z_next = agent._remembered(agent.network(agent.state["online"]), steps)
    np.testing.assert_allclose(z[:, 3:], remembered[3:7], atol=1e-6)
    np.testing.assert_array_equal(z[:, :3], seen[3:7])
    np.testing.assert_allclose(z_next[1:3, 3:], remembered[5:7], atol=1e-6)
    assert np.abs(z_next[0, 3:] - remembered[4]).max() > 1e-3  # the end of an episode goes on


def test_recurrent_sac_that_remembers_nothing_is_sac():
    """With an LSTM that stays at 0 the losses are SAC's, on the same steps."""
    rsac = agent_of("rsac", envs_of(0.0, (), base=3), lstm_size=4, segment=3, burn_in=0)
    network = rsac.network(rsac.state["online"])
    blank = eqx.tree_at(lambda net: net.cell, network, replace_fn=lambda cell: jax.tree.map(
        lambda leaf: jnp.zeros_like(leaf) if eqx.is_array(leaf) else leaf, cell))  # fmt: skip

    def without_memory(linear):
        return eqx.tree_at(lambda one: one.weight, linear, linear.weight[:, :3])

    sac = agent_of("sac", envs_of(0.0, (), base=3))
    plain = sac.network(sac.state["online"])
    plain = eqx.tree_at(
        lambda net: (net.actor, net.critics, net.log_temperature), plain,
        (blank.actor, blank.critics, blank.log_temperature),
    )  # fmt: skip
    plain = eqx.tree_at(lambda n: n.actor.layers[0], plain, without_memory(blank.actor.layers[0]))
    for k in (0, 1):
        first = blank.critics[k].layers[0]
        kept = jnp.concatenate([first.weight[:, :3], first.weight[:, 7:]], axis=1)
        plain = eqx.tree_at(lambda n, k=k: n.critics[k].layers[0].weight, plain, kept)
    rng = np.random.default_rng(1)
    rows = jnp.asarray(rng.normal(size=(8, 3, rsac.row.width)), jnp.float32)
    steps = rsac.row.unpack(rows)
    flat = {name: value.reshape(24, *value.shape[2:]) for name, value in steps.items()}
    steps |= {"h": jnp.zeros((8, 4)), "c": jnp.zeros((8, 4))}
    keys = jax.random.split(jax.random.key(0))
    found, exact = rsac.loss(blank, blank, steps, keys), sac.loss(plain, plain, flat, keys)
    np.testing.assert_allclose(found[0], exact[0], rtol=1e-5)


@pytest.mark.parametrize("name", ["rtac", "bpql", "predict", "rsac", "dau"])
def test_a_trained_policy_is_saved_and_loads(name, tmp_path):
    settings = {} if name == "dau" else {"latency": "50ms", "period": "50ms"}
    training = Training.of(
        "pointmass", name, actions="continuous", knowledge=("previous_action",), steps=64,
        num_envs=4, learning_starts=40, hidden=(8,), replay_size=100, evaluate_every=64,
        evaluation_episodes=1, batch_size=16, **settings,
    )  # fmt: skip
    result = train(training, tmp_path / "run")
    policy = midstride.load(tmp_path / "run")
    assert policy(np.zeros(policy.observation_size)).shape == (2,)
    assert result["parameters"] > 100


# --- What does not fit ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("rtac", {"latency": "25ms"}, "use rtac_substep for shorter"),
        ("rtac", {"latency": "50ms", "knowledge": ()}, "give --knowledge previous_action"),
        (
            "rtac",
            {"latency": "50ms", "knowledge": ("previous_action", "vector_to_go")},
            "leave them out",
        ),
        ("dcac", {"latency": "125ms"}, "whole number of periods"),
        ("dcac", {"latency": "100ms"}, "previous_action pending_actions"),
        ("rtac_substep", {"latency": "100ms"}, "dcac is for several whole periods"),
        ("bpql", {"latency": "step:25ms,100ms"}, "within the period, or of whole periods"),
        ("predict", {"latency": "lost:0.1:25ms"}, "lost decisions"),
        ("bpql", {"latency": "25ms", "actions": "5"}, "continuous actions"),
    ],
)
def test_what_does_not_fit_is_said(name, settings, said):
    usual = {"period": "50ms", "knowledge": ("previous_action",), "actions": "continuous"}
    settings = {**usual, **settings}
    if settings["actions"] != "continuous":
        del settings["actions"]
    with pytest.raises(ValueError, match=said):
        Training.of("cartpole", name, **settings).check()


def test_their_targets_are_their_own():
    with pytest.raises(ValueError, match="leave out target"):
        Training.of("cartpole", "bpql", target="concurrent")

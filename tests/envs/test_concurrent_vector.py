"""Vector environments that others wrote, each environment at its own tick, against the rule."""

import math

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from hypothesis import given, settings
from hypothesis import strategies as st

import midstride
from midstride import Concurrent, ConcurrentVector, Fixed, Lossy, PerEpisode, PerStep
from tests.envs.reference import Reference
from tests.envs.test_any_environment import MODELS, STEP_S, Tape, action_code

KNOWLEDGE = ("previous_action", "pending_actions", "selection_time")
MODES = tuple(AutoresetMode)


class Mortal(Tape):
    """A tape whose episodes end by chance, some of them by time."""

    def reset(self, *, seed=None, options=None):
        found = super().reset(seed=seed)
        self.ends = int(self.np_random.integers(1, 12))
        return found

    def step(self, action):
        observation, reward, over, _, info = super().step(action)
        cut = over and self.ends % 2 == 0
        return observation, reward, over and not cut, cut, info


class ByHand:
    """n environments and their clocks, one tick after another, in plain Python."""

    def __init__(self, n, mode, discrete, hold):
        self.envs = [Mortal(discrete=discrete) for _ in range(n)]
        self.mode, self.hold = mode, hold
        self.waiting = [False] * n  # the next step of the batch begins a new episode here
        self.unreset = [False] * n  # the next tick does

    def reset(self, seed):
        self.clocks, self.ticks = [Reference() for _ in self.envs], [0] * len(self.envs)
        return [env.reset(seed=seed + i)[0] for i, env in enumerate(self.envs)]

    def begin(self, i):
        self.clocks[i], self.ticks[i] = Reference(), 0

    def step(self, actions, latency, lost, interval):
        n = len(self.envs)
        asleep, ended = list(self.waiting), [None] * n
        self.rewards, self.lived = np.zeros((2, n)), np.zeros(n, int)
        self.observed = [None] * n
        for i in range(n):
            if not self.waiting[i]:
                self.clocks[i].decide(self.ticks[i], actions[i], latency[i], lost[i])
        self.began_stale = [clock.stale for clock in self.clocks]
        for _ in range(interval):
            if all(asleep) and not any(
                w and u for w, u in zip(self.waiting, self.unreset, strict=True)
            ):
                break
            for i, env in enumerate(self.envs):
                self.tick(i, env, asleep, ended)
        begun = [w and not u for w, u in zip(self.waiting, self.unreset, strict=True)]
        if self.mode is not AutoresetMode.SAME_STEP:
            for i in range(n):
                self.waiting[i] = (self.waiting[i] or ended[i] is not None) and not begun[i]
                if begun[i]:
                    self.begin(i)
        return ended, begun

    def tick(self, i, env, asleep, ended):
        if self.unreset[i]:
            self.observed[i], self.unreset[i] = env.reset()[0], False
            return
        clock = self.clocks[i]
        followed = None if asleep[i] else clock.at(self.ticks[i])
        newest = followed is not None and followed.number == clock.made - 1
        action = self.hold if followed is None else followed.action
        if asleep[i] and self.mode is AutoresetMode.DISABLED and not getattr(env, "alive", True):
            env.reset()
            env.alive = True
        self.observed[i], reward, terminated, truncated, _ = env.step(action)
        over = terminated or truncated
        if not asleep[i]:
            self.rewards[int(newest), i] += reward
            self.lived[i] += 1
            self.ticks[i] += 1
            if over:
                clock.at(self.ticks[i])
                ended[i] = (self.observed[i], terminated, clock)
                asleep[i] = True
        if over:
            if self.mode is AutoresetMode.NEXT_STEP:
                self.unreset[i] = True
            elif self.mode is AutoresetMode.SAME_STEP:
                self.observed[i] = env.reset()[0]
                if ended[i] is not None:
                    self.begin(i)
            else:
                env.alive = False


def row(clock, own, layout, high_s, space):
    size, in_force = len(layout.action), clock.in_force

    def code(action):
        return np.zeros(size) if action is None else action_code(space, action)

    measured = 0.0 if in_force is None or not high_s else in_force.latency * STEP_S / high_s
    previous = code(None if in_force is None else in_force.action)
    return np.concatenate(
        [own, previous, *map(code, clock.pending(layout.pending_slots)), [measured]]
    )


@given(
    model=MODELS,
    period=st.integers(1, 5),
    serial=st.booleans(),
    mode=st.sampled_from(MODES),
    discrete=st.booleans(),
    n=st.integers(1, 4),
    seed=st.integers(0, 99),
)
@settings(max_examples=120)
def test_every_tick_follows_what_the_rule_says(model, period, serial, mode, discrete, n, seed):
    """Actions, observations, rewards, ends, knowledge and info, in every mode of autoreset."""
    own = SyncVectorEnv([lambda: Mortal(discrete=discrete)] * n, autoreset_mode=mode)
    options = {"period": period * STEP_S, "step_s": STEP_S, "knowledge": KNOWLEDGE}
    try:
        envs = ConcurrentVector(own, model, thinker="serial" if serial else "pipelined", **options)
    except ValueError as error:
        assert "must observe together" in str(error)  # noqa: PT017
        assert serial
        return
    space, layout, high_s = own.single_action_space, envs.layout, envs.timing.latency_high_s
    hand = ByHand(n, mode, discrete, 2 if discrete else np.zeros(2))
    first, _ = envs.reset(seed=seed)
    expected = hand.reset(seed)
    assert np.array_equal(first[:, :2], expected)
    assert not first[:, 2:].any()
    envs.action_space.seed(seed)
    interval = period
    if serial:
        interval *= max(1, math.ceil(round(high_s / STEP_S) / period))
    for _ in range(12):
        actions = envs.action_space.sample()
        was_waiting = np.array(hand.waiting)
        observation, reward, terminated, truncated, info = envs.step(actions)
        latency = np.rint(info["latency_s"] / STEP_S).astype(int)
        ended, begun = hand.step(actions, latency, info["lost"], interval)
        assert reward == pytest.approx(hand.rewards.sum(axis=0), abs=1e-12)
        assert info["reward_before_switch"] == pytest.approx(hand.rewards[0], abs=1e-12)
        assert info["reward_after_switch"] == pytest.approx(hand.rewards[1], abs=1e-12)
        assert np.array_equal(info["period_s"], hand.lived * STEP_S)
        assert np.array_equal(info["_period_s"], ~was_waiting)
        for i in range(n):
            over = ended[i]
            assert terminated[i] == (over is not None and over[1])
            assert truncated[i] == (over is not None and not over[1])
            clock = hand.clocks[i] if over is None else over[2]
            clock.at(hand.ticks[i] if over is None else -1)
            if not was_waiting[i]:
                pending = [a is not None for a in clock.pending(layout.pending_slots)]
                assert info["pending"][i] == sum(pending)
                assert info["stale"][i] == clock.stale - hand.began_stale[i]
            seen = hand.observed[i]
            if over is not None:
                last = row(clock, over[0], layout, high_s, space)
                if mode is AutoresetMode.SAME_STEP:
                    assert info["_final_obs"][i]
                    assert info["final_obs"][i] == pytest.approx(last, abs=1e-12)
                    assert info["final_info"]["tick"][i] == over[0][0]
                    clock = Reference()
                else:
                    seen = over[0]
            elif begun[i] or was_waiting[i]:
                clock = Reference()
            assert observation[i] == pytest.approx(
                row(clock, seen, layout, high_s, space), abs=1e-12
            )
        if mode is AutoresetMode.DISABLED and any(hand.waiting):
            mask = np.array(hand.waiting)
            observation, _ = envs.reset(options={"reset_mask": mask})
            for i in np.flatnonzero(mask):
                hand.envs[i].alive, hand.waiting[i] = True, False
                hand.begin(i)
                begun_with = np.append(hand.envs[i].reset()[0], np.zeros(len(layout.columns) - 2))
                assert np.array_equal(observation[i], begun_with)
    for ours, theirs in zip(own.envs, hand.envs, strict=True):
        assert np.array_equal(ours.followed, theirs.followed)


@pytest.mark.parametrize("mode", MODES)
@given(seed=st.integers(0, 2**20))
@settings(max_examples=4)
def test_zero_latency_is_the_bare_environment(mode, seed):
    def make():
        makers = [lambda: gymnasium.make("CartPole-v1", max_episode_steps=21)] * 3
        return SyncVectorEnv(makers, autoreset_mode=mode)

    same_as_bare(make(), ConcurrentVector(make(), step_s=0.02), seed)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Reacher-v5"])
def test_zero_latency_is_the_bare_environment_of_every_kind(env_id):
    def make():
        kind = "vector_entry_point" if env_id == "CartPole-v1" else "async"
        return gymnasium.make_vec(env_id, num_envs=2, vectorization_mode=kind)

    same_as_bare(make(), ConcurrentVector(make(), step_s=0.02), 5)


def same_as_bare(bare, wrapped, seed, steps=60):
    assert wrapped.observation_space == bare.observation_space
    assert np.array_equal(wrapped.reset(seed=seed)[0], bare.reset(seed=seed)[0])
    bare.action_space.seed(seed)
    for _ in range(steps):
        actions = bare.action_space.sample()
        ours, theirs = wrapped.step(actions), bare.step(actions)
        for a, b in zip(ours[:4], theirs[:4], strict=True):
            assert np.array_equal(a, b)
            assert a.dtype == b.dtype
        assert set(theirs[4]) <= set(ours[4])
        over = ours[2] | ours[3]
        if bare.metadata["autoreset_mode"] is AutoresetMode.DISABLED and over.any():
            again = wrapped.reset(options={"reset_mask": over})[0]
            assert np.array_equal(again, bare.reset(options={"reset_mask": over})[0])
    wrapped.close()
    bare.close()


@pytest.mark.parametrize("kind", [SyncVectorEnv, AsyncVectorEnv])
def test_a_batch_is_its_environments_one_by_one(kind):
    """Latencies, states and knowledge are those of `Concurrent`, seeded with s + i."""
    latency = Lossy(PerStep((0.0, 0.02, 0.04, 0.1)), 0.2)
    options = {"period": 0.04, "step_s": 0.02, "knowledge": KNOWLEDGE}
    envs = ConcurrentVector(kind([lambda: gymnasium.make("Acrobot-v1")] * 3), latency, **options)
    singles = [Concurrent(gymnasium.make("Acrobot-v1"), latency, **options) for _ in range(3)]
    first, _ = envs.reset(seed=7)
    assert np.array_equal(first, [env.reset(seed=7 + i)[0] for i, env in enumerate(singles)])
    envs.action_space.seed(0)
    for _ in range(100):
        actions = envs.action_space.sample()
        observation, reward, *_, info = envs.step(actions)
        steps = [env.step(action) for env, action in zip(singles, actions, strict=True)]
        assert np.array_equal(observation, [step[0] for step in steps])
        assert np.array_equal(reward, [step[1] for step in steps])
        for name in ("latency_s", "period_s", "pending", "stale", "lost", "reward_before_switch"):
            assert np.array_equal(info[name], [step[4][name] for step in steps]), name
    envs.close()


def test_gymnasiums_own_vector_environment():
    """Its state follows the actions in force, integrated here from its own equations."""
    make = lambda: gymnasium.make_vec(  # noqa: E731
        "CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point"
    )
    envs = ConcurrentVector(make(), PerEpisode((0.0, 0.02, 0.06)), step_s=0.02)
    twin = make()
    assert np.array_equal(envs.reset(seed=3)[0], twin.reset(seed=3)[0])
    chosen = np.random.default_rng(0).integers(0, 2, (12, 4))
    for t, actions in enumerate(chosen):
        observation, _, _, _, info = envs.step(actions)
        latency = np.rint(info["latency_s"] / 0.02).astype(int)
        due = [0 if t < k else chosen[t - k, i] for i, k in enumerate(latency)]
        assert np.array_equal(observation, twin.step(np.array(due))[0])


# --- Others' vector environments


def test_atari():
    """From ale-py: images pass as they are, an episode that ends begins anew by itself."""
    ale_py = pytest.importorskip("ale_py")
    gymnasium.register_envs(ale_py)
    make = lambda: gymnasium.make_vec(  # noqa: E731
        "ALE/Breakout-v5", num_envs=3, vectorization_mode="vector_entry_point",
        max_num_frames_per_episode=80, noop_max=0, num_threads=1, repeat_action_probability=0.0,
    )  # fmt: skip
    step_s = 4 / 60  # four frames of a console that draws sixty a second
    same_as_bare(make(), ConcurrentVector(make(), step_s=step_s), 5, 30)
    envs = ConcurrentVector(make(), 2 * step_s, step_s=step_s)
    twin = make()
    assert np.array_equal(envs.reset(seed=1)[0], twin.reset(seed=1)[0])
    chosen, began = np.random.default_rng(0).integers(0, 4, (50, 3)), np.zeros(3, int)
    ends, waiting = 0, np.zeros(3, bool)
    for t, actions in enumerate(chosen):
        observation, reward, terminated, truncated, _ = envs.step(actions)
        due = [0 if t - 2 < began[i] else chosen[t - 2, i] for i in range(3)]
        theirs = twin.step(np.array(due))
        assert np.array_equal(observation, theirs[0])
        assert np.array_equal(reward, theirs[1])
        began[waiting] = t + 1
        waiting = terminated | truncated
        assert np.array_equal(waiting, theirs[2] | theirs[3])
        ends += waiting.sum()
    assert ends >= 3
    with pytest.raises(ValueError, match="observes a flat Box"):
        ConcurrentVector(make(), step_s=step_s, knowledge=("previous_action",))


class OnDevice(VectorEnv):
    """A simulator with a vector face, in PyTorch or JAX; episodes begin anew in the same step."""

    dt = 0.02

    def __init__(self, xp, n=5):
        self.xp, self.num_envs = xp, n
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.single_action_space = spaces.Box(-1, 1, (1,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)

    def reset(self, *, seed=None, options=None):
        self.state = self.xp.zeros((self.num_envs, 2))
        return self.xp.asarray(self.state, copy=True), {}

    def step(self, actions):
        xp = self.xp
        self.followed = actions
        place = self.state[:, 0] + 0.3 * actions[:, 0]
        last = xp.stack([place, self.state[:, 1] + 1], 1)
        over = abs(place) > 0.35
        self.state = xp.where(over[:, None], xp.zeros_like(last), last)
        info = {"final_obs": last, "_final_obs": over} if bool(over.any()) else {}
        return xp.asarray(self.state, copy=True), -place, over, xp.zeros_like(over), info


def guard(torch, monkeypatch):
    """Only flags may come to the host."""
    for name in ("cpu", "numpy", "tolist", "__array__"):
        own = getattr(torch.Tensor, name)

        def guarded(tensor, *rest, own=own):
            assert tensor.dtype == torch.bool
            return own(tensor, *rest)

        monkeypatch.setattr(torch.Tensor, name, guarded)


@pytest.mark.parametrize("make", ["torch", "jax.numpy"])
def test_arrays_stay_where_they_are(make, monkeypatch):
    """PyTorch or JAX in, the same out, as if it were NumPy."""
    xp = pytest.importorskip(make)
    latency = PerStep((0.0, 0.02, 0.06))
    envs = ConcurrentVector(OnDevice(xp), latency, knowledge=KNOWLEDGE)
    own = SyncVectorEnv([NumpyOne] * 5, autoreset_mode=AutoresetMode.SAME_STEP)
    twin = ConcurrentVector(own, latency, knowledge=KNOWLEDGE)
    ours, theirs = envs.reset(seed=0)[0], twin.reset(seed=0)[0]
    kind = type(xp.zeros(1))
    assert isinstance(ours, kind)
    assert np.array_equal(ours, theirs)
    actions = np.random.default_rng(0).uniform(-1, 1, (40, 5, 1)).astype(np.float32)
    steps = []
    with monkeypatch.context() as patched:
        if make == "torch":
            guard(xp, patched)
        for action in actions:
            steps.append(envs.step(xp.asarray(action)))
            assert isinstance(envs.unwrapped.followed, kind)
    ended = 0
    for action, step in zip(actions, steps, strict=True):
        expected = twin.step(action)
        for a, b in zip(step[:4], expected[:4], strict=True):
            assert isinstance(a, kind)
            assert np.asarray(a) == pytest.approx(b, abs=1e-5)
        over = expected[2]
        ended += over.sum()
        if over.any():
            final = np.stack(expected[4]["final_obs"][over])
            assert np.asarray(step[4]["final_obs"])[over] == pytest.approx(final, abs=1e-5)
        before = expected[4]["reward_before_switch"]
        assert np.asarray(step[4]["reward_before_switch"]) == pytest.approx(before, abs=1e-5)
    assert ended > 5


class NumpyOne(gymnasium.Env):
    """One environment of `OnDevice`, in NumPy."""

    dt = 0.02
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = np.zeros(2, np.float32)
        return self.state.copy(), {}

    def step(self, action):
        place = self.state[0] + np.float32(0.3) * action[0]
        self.state = np.array([place, self.state[1] + 1], np.float32)
        return self.state.copy(), -place, bool(abs(place) > 0.35), False, {}


def anything(envs):
    return ConcurrentVector(envs)


def cartpoles(**options):
    return ConcurrentVector(gymnasium.make_vec("CartPole-v1", num_envs=2), **options)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: cartpoles(), "does not say how long a step lasts"),
        (lambda: cartpoles(step_s=0.02, latency=0.03), "the ticks are the environment's own steps"),
        (
            lambda: cartpoles(step_s=0.02, latency=PerStep((0.0, 0.06)), thinker="serial"),
            "must observe together",
        ),
        (lambda: cartpoles(step_s=0.02, knowledge=("vector_to_go",)), "needs position-controlled"),
        (lambda: cartpoles(step_s=0.02, hold=7), "hold must be an action"),
        (lambda: ConcurrentVector(cartpoles(step_s=0.02)), "concurrent already"),
        (
            lambda: anything(gymnasium.make("CartPole-v1")),
            "wrap a single one in Concurrent",
        ),
        (lambda: ConcurrentVector(Silent()), "does not say how it begins episodes anew"),
    ],
)
def test_bad_input(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt()


class Silent(VectorEnv):
    num_envs = 1
    metadata = {}  # noqa: RUF012


def test_misuse():
    envs = cartpoles(step_s=0.02)
    with pytest.raises(RuntimeError, match="call reset before"):
        envs.step(np.zeros(2, int))
    makers = [lambda: gymnasium.make("Pendulum-v1", max_episode_steps=2)] * 2
    envs = ConcurrentVector(SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED))
    envs.reset(seed=0)
    with pytest.raises(ValueError, match="actions must be finite numbers"):
        envs.step(np.array([[0.0], [np.nan]]))
    envs.step(np.zeros((2, 1)))
    envs.step(np.zeros((2, 1)))
    with pytest.raises(RuntimeError, match="an episode is over"):
        envs.step(np.zeros((2, 1)))
    assert midstride.ConcurrentVector is ConcurrentVector
    assert envs.timing.latency == Fixed(0.0)

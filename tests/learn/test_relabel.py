"""Relabelled transitions are those that the environment gives when it is run at that latency."""

from collections import Counter
from dataclasses import replace

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from midstride.envs.vector import interact
from midstride.envs.wrapped import WrappedSettings
from midstride.knowledge import Layout
from midstride.latency import Fixed, OnScaleOf, PerEpisode
from midstride.learn.agents import Training
from midstride.learn.lived import Plan
from midstride.learn.relabel import Hindsight, RelabelledReplay
from midstride.learn.replay import Replay, Row
from midstride.learn.train import train
from midstride.learn.trainer import Trainer
from midstride.tasks.env import TaskVectorEnv
from midstride.tasks.settings import TaskSettings
from tests.helpers import TASK_NAMES, step_of

KNOWN = ("previous_action", "pending_actions", "selection_time")
TICK_S, PERIOD = 0.005, 4  # of our tasks here, in seconds and ticks


# --- Hand-computed -------------------------------------------------------------------------------


def by_hand(latency: int, ends: list[str], span_after: int = 6) -> tuple[Hindsight, Replay]:
    """A frozen world of unit periods that observes the time: action t % 3 at t earns 10 t.

    ends: what happens in the end of each step: "" (it goes on), "fall" or "limit"
    """
    layout = Layout(("time",), ("0", "1", "2"), None, KNOWN, pending_slots=max(0, latency - 1))
    plan = Plan(layout, (0,), (latency,), period=1, tick_s=1.0, scale=latency)
    hindsight = Hindsight(plan, Row(len(layout.columns), switch=False))
    replay = Replay(100, 1, hindsight.row)
    code, first = np.zeros(3), 0
    for time, end in enumerate([*ends, *[""] * span_after]):
        capture = np.zeros((1, len(layout.columns)))
        capture[0, :4] = [time, *code]
        code = np.eye(3)[time % 3]
        following = np.zeros_like(capture)
        following[0, :4] = [time + 1, *code]
        replay.add(
            step_of(
                observation_capture=capture,
                observation_next=following,
                action=np.array([time % 3]),
                reward_after_switch=np.array([10.0 * time]),
                terminated=np.array([end == "fall"]),
                truncated=np.array([end == "limit"]),
            )
        )
        if end:
            code, first = np.zeros(3), time + 1
    assert first <= len(ends)
    return hindsight, replay


def relabelled(hindsight: Hindsight, replay: Replay, at: int, latency: int, seed: int = 0):
    """The transition whose capture is in time step `at`, of environment 0; None: there is none."""
    plan = hindsight.plan
    steps = at + np.arange(-plan.back, plan.ahead + 1)
    window = replay.take(steps[None], np.zeros((1, 1), int))
    found, valid = hindsight.relabel(window, np.array([latency]), np.random.default_rng(seed))
    return hindsight.plain.unpack(found[0]) if valid[0] else None


def test_two_periods_by_hand():
    """At time 3 the action of 3 comes into force, that of 4 is pending, that of 5 is decided."""
    hindsight, replay = by_hand(2, [""] * 8)
    step = relabelled(hindsight, replay, 3, 2)
    in_force, pending = [1, 0, 0], [0, 1, 0]  # 3 % 3, 4 % 3
    assert step["observation_capture"].tolist() == [3, *in_force, *pending, 1.0]
    assert step["action"] == 5 % 3
    assert step["reward_before_switch"] + step["reward_after_switch"] == 30
    assert step["observation_next"].tolist() == [4, *pending, 0, 0, 1, 1.0]
    assert not step["terminated"]
    assert not step["truncated"]
    assert (step["latency_s"], step["period_s"]) == (2, 1)


def test_latency_0_is_what_was_lived():
    hindsight, replay = by_hand(1, ["", "", "", ""])
    plan = Plan(hindsight.plan.layout, (0,), (0, 1), period=1, tick_s=1.0, scale=1)
    step = relabelled(Hindsight(plan, hindsight.plain), replay, 2, 0)
    assert step["observation_capture"].tolist() == [2, 0, 1, 0, 0.0]
    assert step["action"] == 2
    assert step["observation_next"].tolist() == [3, 0, 0, 1, 0.0]
    assert step["period_s"] == 1


@pytest.mark.parametrize("end", ["fall", "limit"])
def test_decisions_that_were_pending_at_the_end_may_be_anything(end):
    """The episode ends in step 5. What would have come into force then, nobody decided."""
    hindsight, replay = by_hand(2, ["", "", "", "", "", end], span_after=8)
    seen = {at: [relabelled(hindsight, replay, at, 2, s) for s in range(30)] for at in range(2, 6)}
    for at, steps in seen.items():
        for step in steps:
            assert step["observation_capture"][:4].tolist() == [at, *np.eye(3)[at % 3]]
            assert step["reward_before_switch"] == 10 * at
            assert step["terminated"] == (at == 5 and end == "fall")
            assert step["truncated"] == (at == 5 and end == "limit")
            # what is decided is the newest that is pending next
            assert step["observation_next"][4:7].tolist() == np.eye(3)[step["action"]].tolist()
    assert {int(step["action"]) for step in seen[3]} == {5 % 3}
    assert len({int(step["action"]) for step in seen[4]}) > 1
    assert len({tuple(step["observation_capture"][4:7]) for step in seen[4]}) == 1
    assert len({tuple(step["observation_capture"][4:7]) for step in seen[5]}) > 1


def test_nothing_of_another_episode_is_in_flight():
    hindsight, replay = by_hand(1, ["", "", "fall", "", "", ""])
    plan = Plan(hindsight.plan.layout, (0,), (0, 1), period=1, tick_s=1.0, scale=1)
    first = relabelled(Hindsight(plan, hindsight.plain), replay, 3, 0)
    assert first["observation_capture"].tolist() == [3, 0, 0, 0, 0.0]
    # in the frozen world an action is in force at once: of latency 1 it is so at the capture
    assert relabelled(hindsight, replay, 3, 1)["observation_capture"].tolist() == [3, 1, 0, 0, 1]


def test_latencies_are_drawn_evenly_from_what_is_held():
    hindsight, replay = by_hand(1, [""] * 60)
    plan = Plan(hindsight.plan.layout, (0,), (0, 1), period=1, tick_s=1.0, scale=1)
    hindsight = Hindsight(plan, hindsight.plain)
    rows = hindsight.sample(replay, np.random.default_rng(0), (20, 100))
    fields = hindsight.plain.unpack(rows)
    assert rows.shape == (20, 100, hindsight.plain.width)
    counts = Counter(fields["latency_s"].ravel().tolist())
    assert counts[0.0] == pytest.approx(1000, abs=5 * np.sqrt(500))
    times = fields["observation_capture"][..., 0]
    assert set(times.ravel()) == set(range(plan.back, replay.added - plan.ahead))
    assert (fields["reward_before_switch"] == 10 * times).all()


# --- Our tasks, at any tick, against the environment at that latency -----------------------------


class Lived:
    """Random episodes of a task, and its physics tick by tick, by hand."""

    def __init__(self, name, lived, learned, knowledge, limit, seed):
        on = OnScaleOf(PerEpisode(learned), PerEpisode(lived))
        period = PERIOD * TICK_S
        self.settings = TaskSettings(name, on, knowledge=knowledge, period=period)
        self.env = TaskVectorEnv(self.settings, 1, 1, observe_switch="vector_to_go" in knowledge)
        self.env._limit_ticks = limit
        plan = Plan.of(self.env)
        self.env.observe_within(plan.instants)
        self.hindsight = Hindsight(plan, Row(len(self.env.columns), switch=False))
        self.replay = Replay(1000, 1, self.hindsight.row)
        rng, self.actions, self.starts = np.random.default_rng(seed), [], []
        self.first = [0]  # step at which each episode begins
        self.late = {}  # latency in ticks -> the same task at that latency

        def act(observation):
            if len(self.first) > len(self.starts):
                plant = self.env.plant
                self.starts.append((plant.qpos[0].copy(), plant.qvel[0].copy()))
            self.actions.append(int(rng.integers(5)))
            return np.array(self.actions[-1:]), {}

        self.told = []
        for step in interact(self.env, act, seed, lambda which: None):
            self.replay.add(step)
            self.told.append(float(step.latency_s[0]))
            if step.done[0]:
                self.first.append(self.replay.added)
            if len(self.first) > 3:
                break

    def ticks(self, episode):
        """Physics before and after what is switched at each tick: dictionaries of arrays."""
        task, limit = self.env.task, self.env._limit_ticks
        latency = round(self.told[self.first[episode]] / TICK_S)
        actions = self.actions[self.first[episode] : self.first[episode + 1]]
        data, c = mujoco.MjData(task.model), task.controlled
        data.qpos[:], data.qvel[:] = self.starts[episode]
        data.ctrl[:] = data.qpos[c.qpos]
        before, after = [], []
        for tick in range(limit + 1):
            before.append(state_of(data))
            number, off = divmod(tick - latency, PERIOD)
            if off == 0 and 0 <= number < len(actions):
                move = self.env._displacements[actions[number]] * c.scale
                data.ctrl[:] = np.clip(data.qpos[c.qpos] + move, c.low, c.high)
            after.append(state_of(data))
            mujoco.mj_step(task.model, data)
        return latency, actions, before, after


def state_of(data):
    names = ("qpos", "qvel", "ctrl", "qacc_warmstart")
    return {name: getattr(data, name).copy() for name in names}


def at_latency(lived, latency, now, state, decisions):
    """The same task at a latency, in a state, with decisions in flight (captured when, action)."""
    if latency not in lived.late:
        on = OnScaleOf(lived.settings.latency.trained, Fixed(latency * TICK_S))
        lived.late[latency] = TaskVectorEnv(replace(lived.settings, latency=on), 1, 1)
        lived.late[latency]._limit_ticks = lived.env._limit_ticks
    env = lived.late[latency]
    env.reset(seed=0)
    plant, flight = env.plant, env.flight
    for captured, action in decisions:
        flight.now[:] = captured
        flight.capture(env._decode(np.array([action])), np.array([latency]))
    flight.now[:] = now
    flight._arrive()
    plant.qpos[0], plant.qvel[0], plant.target[0] = state["qpos"], state["qvel"], state["ctrl"]
    plant.batch.bind("qacc_warmstart")[0] = state["qacc_warmstart"]
    env._latency_s[:] = flight.latency * TICK_S
    return env, env._capture()[0]


@pytest.mark.parametrize("name", TASK_NAMES)
@given(
    lived=st.tuples(st.integers(0, PERIOD), st.integers(0, PERIOD)),
    learned=st.tuples(st.integers(0, 3 * PERIOD), st.just(3 * PERIOD)),
    limit=st.integers(16, 24),
    goes=st.booleans(),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=8)
def test_tasks_at_any_tick(name, lived, learned, limit, goes, seed):
    lived = (0,) if goes else tuple(sorted(set(lived)))
    knowledge = (*KNOWN, "vector_to_go") if goes else KNOWN
    seconds = [tuple(t * TICK_S for t in times) for times in (lived, set(learned))]
    world = Lived(name, *seconds, knowledge, limit, seed)
    ticks, first = world.ticks(1), world.first[1]
    for number in range(first, world.first[2]):
        for latency in world.hindsight.plan.learned:
            step = relabelled(world.hindsight, world.replay, number, latency, seed)
            if step is not None:
                check(world, step, number - first, latency, *ticks)


def check(world, step, row, latency, lived, actions, before, after):
    """A relabelled transition against the environment at that latency, put into the same state."""
    layout, code = world.env.layout, world.env.layout.slices
    steps, into = divmod(lived - latency, PERIOD)
    now, decision = row * PERIOD + into, row - steps
    k = max(1, -(-latency // PERIOD))
    in_flight = []
    for number in range(max(0, decision - k), decision):
        action = actions[number] if number < len(actions) else None
        if action is None or number * PERIOD + lived > len(before) - 1:  # nobody decided it: drawn
            age = decision - number
            block = step["observation_capture"][code["pending_actions"]]
            block = np.concatenate([step["observation_capture"][code["previous_action"]], block])
            columns = block.reshape(-1, 5)[-age] if age < k else block[:5]
            assert sorted(columns) == [0, 0, 0, 0, 1]
            action = int(columns.argmax())
        in_flight.append((number * PERIOD + lived - latency, action))
    state = after[now] if latency else before[now]
    env, observed = at_latency(world, latency, now, state, in_flight)
    np.testing.assert_array_equal(step["observation_capture"], observed)
    if decision < len(actions) and decision * PERIOD + lived <= len(before) - 1:
        assert step["action"] == actions[decision]
    following, reward, terminated, truncated, info = env.step(step["action"][None])
    following = info["final_obs"][0] if truncated[0] else following[0]
    np.testing.assert_array_equal(step["observation_next"], following)
    assert (step["terminated"], step["truncated"]) == (terminated[0], truncated[0])
    assert step["period_s"] == np.float32(info["period_s"][0])
    assert step["latency_s"] == np.float32(latency * TICK_S)
    paid = step["reward_before_switch"] + step["reward_after_switch"]
    np.testing.assert_allclose(paid, reward[0], rtol=3e-7, atol=1e-6)  # float32 of parts
    assert layout.pending_slots == env.layout.pending_slots


# --- Environments of others, by whole periods ----------------------------------------------------


def episodes_of(settings_, decide, steps, seed, row=None):
    """Replay of an environment, and the number of each step in its episode."""
    envs = settings_.make(1)
    plain = Row(len(envs.layout.columns), False, int(np.prod(envs.single_action_space.shape)))
    replay = Replay(10_000, 1, plain)
    numbers = [0]

    def act(observation):
        return np.asarray(decide(numbers[-1], len(numbers)))[None], {}

    for step in interact(envs, act, seed, lambda which: None):
        replay.add(step)
        if replay.added >= steps:
            break
        numbers.append(0 if step.done[0] else numbers[-1] + 1)
    return envs, replay, numbers


class ShortPendulum(gymnasium.Env):
    """Not MuJoCo: a pendulum that falls over when it swings, and ends after 9 steps at most."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(-2, 2, (1,), np.float64)
    dt = 0.05

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state, self.steps = self.np_random.normal(0, 0.4, 2), 0
        return self.state.copy(), {}

    def step(self, action):
        angle, speed = self.state
        speed += 0.05 * (9.81 * np.sin(angle) + 6 * float(action[0]))
        self.state = np.array([angle + 0.05 * speed, speed])
        self.steps += 1
        paid = float(np.cos(self.state[0]) - 0.01 * action[0] ** 2)
        return self.state.copy(), paid, bool(abs(angle) > 1.0), self.steps >= 9, {}


gymnasium.register("ShortPendulumForRelabel-v0", lambda **options: ShortPendulum(**options))
OTHERS = {
    "InvertedDoublePendulum-v5": {"seconds": 0.05, "tick": 0.01},
    # MuJoCo's own pay for the action that they are handed, when it is decided, not when it acts.
    "Hopper-v5": {"seconds": 0.008, "tick": 0.002, "cost": 1e-3},
    "ShortPendulumForRelabel-v0": {"seconds": 0.05, "tick": 0.05},
    "CartPole-v1": {"seconds": 0.02, "tick": 0.02, "step": 0.02},
}


@pytest.mark.parametrize("name", OTHERS)
@given(whole=st.integers(1, 4), part=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 10**6))
@settings(max_examples=5)
def test_environments_of_others_by_whole_periods(name, whole, part, seed):
    """Decisions of `whole` periods more, after as many at rest: the same happens, step by step."""
    about = OTHERS[name]
    ticks = round(about["seconds"] / about["tick"])
    lived_s = int(part * ticks) * about["tick"]
    latency_s = lived_s + whole * about["seconds"]
    common = {"knowledge": KNOWN, "step": about.get("step")}
    late = WrappedSettings(f"gym:{name}", latency_s, **common)
    space = late.make(1).single_action_space
    space.seed(seed)
    steps = 90
    table = [space.sample() for _ in range(steps)]
    rest = 0 if isinstance(space, spaces.Discrete) else np.zeros(space.shape, space.dtype)
    # Decision j of the episode that begins at step b is number b + j of the table.
    envs, truth, numbers = episodes_of(late, lambda j, count: table[count - 1], steps, seed)
    _, replay, again = episodes_of(
        late.lived_at(lived_s),
        lambda j, count: rest if j < whole else table[count - 1 - whole],
        steps,
        seed,
    )
    assert numbers == again
    plan = Plan.of(late.lived_at(lived_s).make(1))
    assert not plan.instants
    hindsight = Hindsight(plan, replay.row)
    latency = round(latency_s / plan.tick_s)
    slices, compared = envs.layout.slices, 0
    for at in range(plan.back, steps - plan.ahead):
        step = relabelled(hindsight, replay, at, latency)
        real = replay.row.unpack(truth.data["transitions"][at, 0])
        base = slices["base"]
        for field in ("observation_capture", "observation_next"):
            np.testing.assert_array_equal(step[field][base], real[field][base])
        lived = replay.row.unpack(replay.data["transitions"][at, 0])
        paid = [
            s["reward_before_switch"]
            + s["reward_after_switch"]
            + about.get("cost", 0) * np.square(handed["action"], dtype=float).sum()
            for s, handed in ((step, lived), (real, real))
        ]
        np.testing.assert_allclose(*paid, rtol=3e-7 if "cost" in about or lived_s else 0)
        assert step["terminated"] == real["terminated"]
        assert step["truncated"] == real["truncated"]
        np.testing.assert_allclose(step["period_s"], real["period_s"])
        ahead = numbers[at + 1 : at + plan.ahead + 1]
        if numbers[at] >= whole + 1 and 0 not in ahead:  # all that is in flight was decided
            np.testing.assert_array_equal(step["observation_capture"], real["observation_capture"])
            np.testing.assert_array_equal(step["observation_next"], real["observation_next"])
            np.testing.assert_array_equal(step["action"], real["action"])
            compared += 1
    assert compared > 0 or max(numbers) < 2 * whole + 3


# --- What agents make of it ----------------------------------------------------------------------

TINY = {
    "steps": 640, "num_envs": 4, "learning_starts": 64, "hidden": (8,), "batch_size": 16,
    "replay_size": 300, "evaluate_every": 640, "evaluation_episodes": 1, "checkpoint_every": 10_000,
}  # fmt: skip


@pytest.mark.parametrize("agent", ["dqn", "sac"])
def test_agents_live_at_one_latency_and_are_judged_at_another(agent, tmp_path):
    actions = {"actions": "continuous"} if agent == "sac" else {}
    training = Training.of(
        "pointmass", agent, latency="episode:25ms,250ms", knowledge=KNOWN, hindsight_from="0",
        **actions, **TINY,
    )  # fmt: skip
    trainer = Trainer.create(training)
    assert trainer.envs.timing.latency_bounds_ticks == (0, 0)
    assert trainer.agent.hindsight.plan.learned == (0, 5, 50)
    result = train(training, tmp_path / "run")
    assert result["steps"] == 640
    latencies = trainer.agent.hindsight.plan
    assert latencies.instants == (10, 15)  # 250 ms and 25 ms before a switch, periods of 100 ms


def test_qtopt_learns_in_hindsight_too(tmp_path):
    """Its demonstrations, made in environments of their own, are relabelled like its own steps."""
    training = Training.of(
        "pointmass", "qtopt", latency="episode:25ms,250ms", knowledge=KNOWN, hindsight_from="0",
        actions="continuous", steps=256, num_envs=4, batch_size=16, demonstrations=400,
        offline_updates=2, hidden_size=8, samples=8, evaluate_every=256, evaluation_episodes=1,
    )  # fmt: skip
    agent = Trainer.create(training).agent
    drawn = agent.demonstrations.sample(np.random.default_rng(0), 2_000)
    latencies, counts = np.unique(drawn["latency_s"], return_counts=True)
    np.testing.assert_allclose(latencies, [0, 0.025, 0.25], atol=1e-7)
    assert counts.min() > 500
    # In the frozen world nothing is ever pending at capture: it is there in hindsight only.
    at = agent.hindsight.plan.layout.slices["pending_actions"]
    late = drawn["latency_s"] > 0.1
    assert np.abs(drawn["state_capture"][late, at]).max() > 0
    assert np.abs(drawn["state_capture"][~late, at]).max() == 0
    assert train(training, tmp_path / "run")["steps"] == 256


def test_a_relabelled_replay_samples_what_hindsight_does():
    hindsight, plain = by_hand(2, [""] * 10)
    replay = RelabelledReplay(100, 1, hindsight)
    replay.data, replay.added = plain.data, plain.added
    assert len(replay) == plain.added - hindsight.span + 1
    found = replay.sample(np.random.default_rng(3), 20)
    rows = hindsight.sample(plain, np.random.default_rng(3), (20,))
    expected = hindsight.plain.unpack(rows)
    np.testing.assert_array_equal(found["state_capture"], expected["observation_capture"])
    np.testing.assert_array_equal(found["state_next"], expected["observation_next"])
    np.testing.assert_array_equal(found["action"], expected["action"])
    empty = RelabelledReplay(100, 1, hindsight)
    seen = np.zeros((1, len(hindsight.plan.layout.columns)))
    empty.add(step_of(observation_capture=seen, observation_next=seen))
    assert len(empty) == 0  # one step is no window


def test_qtopt_refuses_what_it_cannot_learn_in_hindsight():
    usual = {"knowledge": ("previous_action", "selection_time"), "hindsight_from": "0"}
    for observation in ("image", "state"):
        training = Training.of("grasp", "qtopt", latency="300ms", observation=observation, **usual)
        with pytest.raises(ValueError, match="are learned as lived"):
            training.check()
    with pytest.raises(ValueError, match="begins with demonstrations"):
        Training.of("pointmass", "qtopt", actions="continuous", hindsight_run="runs/other", **usual)


def test_sac_normalises_what_it_learns_from():
    """Selection time is 0 in the frozen world, and is learned at 1: it must not be blown up."""
    training = Training.of(
        "pointmass", "sac", latency="100ms", knowledge=("previous_action", "selection_time"),
        hindsight_from=0, actions="continuous", **TINY,
    )  # fmt: skip
    agent = Trainer.create(training).agent
    columns = agent.policy.observation_size
    for time in range(40):
        seen = np.full((4, columns), float(time), np.float32)
        agent.remember(step_of(observation_capture=seen, notes={"action": np.zeros((4, 2))}))
    agent.sample(1)
    at = agent.hindsight.plan.layout.slices["selection_time"]
    _, scale = agent.normal.mean_and_scale()
    assert scale[at] == pytest.approx(2.0, rel=0.2)  # of a coin


def test_a_run_in_the_frozen_world_is_learned_from_without_a_step(tmp_path, monkeypatch):
    common = {"knowledge": ("previous_action",), **TINY}
    frozen = Training.of("pointmass", "dqn", latency="0", **common)
    train(frozen, tmp_path / "frozen", keep_checkpoint=True)
    monkeypatch.setattr("midstride.learn.train.interact", None)  # nobody steps in training
    given = {"hindsight_from": 0, "hindsight_run": str(tmp_path / "frozen")}
    late = Training.of("pointmass", "dqn", latency="100ms", **given, **common)
    result = train(late, tmp_path / "late")
    assert result["steps"] == 640
    agent = Trainer.create(late).agent
    assert agent.hindsight.plan.learned == (20,)
    assert len(agent.replay) == 300 - 4 * (agent.hindsight.span - 1)
    lived = agent.hindsight.sample(agent.replay, np.random.default_rng(0), (50,))
    assert (agent.row.unpack(lived)["latency_s"] == np.float32(0.1)).all()
    for values, said in (
        ({"latency": "150ms", "knowledge": KNOWN}, "was trained with knowledge"),
        ({"latency": "150ms"}, "add pending_actions"),
        ({"actions": 3}, "was trained with actions 5"),
        ({"hindsight_from": "100ms"}, "was trained with latency '0'"),
        ({"hindsight_from": None}, "hindsight_run needs hindsight_from"),
        ({"num_envs": 2}, "4 environments and rows"),
        ({"latency": "50ms"}, "latencies that are whole periods apart"),
        ({"replay_size": 100}, "kept 300 steps: give a replay_size"),
        ({"hindsight_run": str(tmp_path / "late")}, "kept no replay"),
        ({"hindsight_run": str(tmp_path / "none")}, "none"),
    ):
        with pytest.raises(ValueError, match=said):
            Trainer.create(late.with_(**values))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"knowledge": ("selection_time",)}, "add previous_action to --knowledge"),
        ({"knowledge": ("previous_action",)}, "add selection_time to --knowledge"),
        ({"latency": "120ms"}, "add pending_actions to --knowledge"),
        ({"stack_actions": 1}, "stacked observations and actions cannot be known in hindsight"),
        ({"hindsight_from": "60ms", "latency": "50ms"}, "at most the period"),
        ({"hindsight_from": "50ms", "latency": "25ms"}, "must not be longer"),
        ({"hindsight_from": "step:0,25ms"}, "stay the same in an episode"),
        ({"latency": "lost:0.1:50ms"}, "stay the same in an episode"),
        ({"hindsight_from": "3ms"}, "3 ms"),
        ({"hindsight_from": "soon"}, "soon"),
        ({"target": "concurrent", "hindsight_from": "5ms"}, "use target full_period"),
        ({"n_step": 3}, "use n_step 1"),
        ({"prioritised": True}, "unprioritised"),
        ({"execution": "25ms"}, "give --period instead of --execution"),
        (
            {"knowledge": ("selection_time", "vector_to_go"), "hindsight_from": "25ms"},
            "of the frozen world only",
        ),
        (
            {"latency": "100ms", "thinker": "serial", "knowledge": KNOWN},
            "use thinker pipelined",
        ),
    ],
)
def test_what_cannot_be_known_in_hindsight_is_refused_in_a_sentence(values, said):
    usual = {
        "latency": "50ms", "knowledge": ("previous_action", "selection_time"), "hindsight_from": "0"
    }  # fmt: skip
    with pytest.raises(ValueError, match=said):
        Training.of("cartpole", "dqn", **{**usual, **values}).check()


def test_others_move_by_whole_periods_and_recurrent_agents_not_at_all():
    usual = {"knowledge": ("previous_action", "selection_time"), "hindsight_from": "0"}
    others = Training.of("gym:InvertedDoublePendulum-v5", "sac", latency="20ms", **usual)
    with pytest.raises(ValueError, match="valid near it are 0 ms and 50 ms"):
        others.check()
    with pytest.raises(ValueError, match="hindsight_from"):
        Training.of("cartpole", "drqn", latency="50ms", **usual)

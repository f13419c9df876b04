"""Environments that others wrote, against themselves."""

import copy
import pickle
import subprocess
import sys

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.envs.mujoco import MujocoEnv
from gymnasium.utils.env_checker import check_env

import midstride
from midstride.envs.dm_control import DMControlEnv
from tests.helpers import assert_columns_alive

suite = pytest.importorskip("dm_control.suite")

GYM_IDS = (
    "Reacher-v5",
    "Pusher-v5",
    "HalfCheetah-v5",
    "Hopper-v5",
    "Walker2d-v5",
    "Ant-v5",
    "Swimmer-v5",
    "InvertedDoublePendulum-v5",
)
DM_TASKS = (
    ("cartpole", "swingup"),  # RK4
    ("pendulum", "swingup"),
    ("walker", "walk"),
    ("cheetah", "run"),
    ("reacher", "easy"),
    ("fish", "swim"),  # position actuators
    ("finger", "spin"),
    ("hopper", "hop"),
)


def make(kind: str, **options):
    if kind == "gym":
        return midstride.Concurrent(gymnasium.make("Reacher-v5"), **options)
    return midstride.from_dm_control("walker", "walk", **options)


SERVO_XML = """
<mujoco>
  <option timestep="0.01"/>
  <worldbody>
    <body>
      <joint name="hinge" axis="0 1 0" damping="0.1"/>
      <geom type="capsule" size=".02" fromto="0 0 0 .3 0 0"/>
    </body>
    <body pos="0 1 0">
      <joint name="slide" type="slide" axis="1 0 0" damping="1"/>
      <geom size=".05"/>
    </body>
  </worldbody>
  <actuator>
    <position name="turn" joint="hinge" kp="20" ctrlrange="-3 3"/>
    <position name="push" joint="slide" kp="50" gear="2" ctrlrange="-.5 .5"/>
  </actuator>
</mujoco>"""


class Servos(MujocoEnv):
    """A robot of a user's own: two position actuators, noisy observations if asked for."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, path: str, noise: float = 0.0, start: float = 0.0) -> None:
        space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float64)
        super().__init__(path, 5, space)
        self.noise, self.start = noise, start

    def _get_obs(self):
        state = np.concatenate([self.data.qpos, self.data.qvel])
        return state + self.noise * self.np_random.standard_normal(4)

    def step(self, action):
        self.do_simulation(action, self.frame_skip)
        return self._get_obs(), 0.0, False, False, {}

    def reset_model(self):
        self.set_state(self.init_qpos + self.start, self.init_qvel)
        return self._get_obs()


@pytest.fixture
def servo_xml(tmp_path):
    path = tmp_path / "servos.xml"
    path.write_text(SERVO_XML)
    return str(path)


@pytest.mark.parametrize("latency", [0.0, 0.02, 0.05])
def test_vector_to_go_is_measured_at_capture(servo_xml, latency):
    """From qpos itself, by hand: hinge as it is, slide through its gear of 2."""
    env = midstride.Concurrent(
        Servos(servo_xml), latency=latency, knowledge=("vector_to_go",), observe_switch=True
    )
    first, _ = env.reset(seed=0)
    assert (first[4:] == 0).all()
    env.action_space.seed(0)
    for _ in range(20):
        action = env.action_space.sample().astype(float)
        observation, *_, info = env.step(action)
        for seen in (observation, info["observation_switch"]):
            length = seen[:2] * [1, 2]
            assert seen[4:] == pytest.approx((action - length) / [3, 0.5], abs=1e-12)


def test_vector_to_go_goes_the_way_the_servo_goes(servo_xml):
    """A servo told a place unwinds to it: what is left is not wrapped."""
    env = midstride.Concurrent(
        Servos(servo_xml, start=6.0), knowledge=("vector_to_go",), observe_switch=True
    )
    env.reset(seed=0)
    info = env.step(np.array([-3.0, 0.0]))[4]
    assert info["observation_switch"][4] == -3  # (-3 - 6) / 3, not the short way round


@pytest.mark.parametrize("latency", [0.0, 0.02, 0.05])
def test_vector_to_go_leads_to_where_the_actuator_goes(servo_xml, latency):
    """MuJoCo keeps a control within its range: beyond it, actions that move alike read alike."""
    seen = []
    for push in (0.5, 2.0, 50.0):
        env = midstride.Concurrent(
            Servos(servo_xml), latency=latency, knowledge=("vector_to_go",), observe_switch=True
        )
        env.reset(seed=0)
        steps = [env.step(np.array([push - 1, push])) for _ in range(20)]
        seen.append(
            [np.concatenate([s[0][[1, 5]], s[4]["observation_switch"][[1, 5]]]) for s in steps]
        )
    assert np.array_equal(seen[0], seen[1])
    assert np.array_equal(seen[0], seen[2])
    for observed in (step[0] for step in steps):
        assert observed[5] == pytest.approx((0.5 - 2 * observed[1]) / 0.5, abs=1e-12)


def test_a_control_range_that_is_switched_off_keeps_nothing_in(servo_xml):
    inner = Servos(servo_xml)
    inner.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CLAMPCTRL
    env = midstride.Concurrent(inner, knowledge=("vector_to_go",))
    env.reset(seed=0)
    observed = env.step(np.array([0.0, 2.0]))[0]
    assert observed[5] == pytest.approx((2.0 - 2 * observed[1]) / 0.5, abs=1e-12)


def test_holding_stays_within_the_control_range(servo_xml):
    env = midstride.Concurrent(Servos(servo_xml, start=6.0), latency=0.05)
    env.reset(seed=0)
    env.step(np.zeros(2))
    assert env.unwrapped.data.qpos[0] < 5.9  # held at 3, the end of its range: pulled back


@pytest.mark.parametrize(
    "how",
    [
        'biasprm="0 -30 0"',  # does not balance
        'biasprm="0 -20 0" dyntype="filterexact" dynprm="0.1"',  # follows later
    ],
)
def test_a_spring_of_another_kind_is_no_position_actuator(tmp_path, how):
    odd = tmp_path / "odd.xml"
    spring = f'general name="turn" joint="hinge" gainprm="20" biastype="affine" {how}'
    odd.write_text(SERVO_XML.replace('position name="turn" joint="hinge" kp="20"', spring))
    with pytest.raises(ValueError, match="position-controlled"):
        midstride.Concurrent(Servos(str(odd)), knowledge=("vector_to_go",))


def test_looking_at_the_switch_leaves_no_trace(servo_xml):
    """Noisy observations: the wrapper's own look must not use up the environment's noise."""
    bare = Servos(servo_xml, 0.1)
    wrapped = midstride.Concurrent(Servos(servo_xml, 0.1), observe_switch=True)
    assert np.array_equal(bare.reset(seed=0)[0], wrapped.reset(seed=0)[0])
    for _ in range(5):
        ours, theirs = wrapped.step(np.ones(2)), bare.step(np.ones(2))
        assert np.array_equal(ours[0], theirs[0])


def test_no_observation_at_the_switch_behind_wrappers_that_change_it(servo_xml):
    for wrap in (
        lambda env: gymnasium.wrappers.DelayObservation(env, delay=1),
        lambda env: gymnasium.wrappers.TransformObservation(env, lambda o: 2 * o, None),
    ):
        with pytest.raises(ValueError, match="no wrapper inside Concurrent that changes"):
            midstride.Concurrent(wrap(Servos(servo_xml)), latency=0.02, observe_switch=True)
        env = midstride.Concurrent(wrap(Servos(servo_xml)), latency=0.02)
        env.reset(seed=0)
        assert "observation_switch" not in env.step(np.ones(2))[4]
    env = midstride.Concurrent(gymnasium.make("Reacher-v5"), latency=0.01, observe_switch=True)
    env.reset(seed=0)
    assert "observation_switch" in env.step(np.ones(2))[4]


@pytest.mark.parametrize("kind", ["gym", "dm"])
def test_nobody_looks_at_the_switch_unless_asked(kind):
    looks = []
    for observe_switch in (False, True):
        env = make(kind, latency=make(kind).timing.tick_s, observe_switch=observe_switch)
        env.reset(seed=0)
        inner, own = env.unwrapped, env.unwrapped._get_obs
        count = []
        inner._get_obs = lambda own=own, count=count: [count.append(1), own()][1]
        info = env.step(env.action_space.high)[4]
        assert ("observation_switch" in info) == observe_switch
        looks.append(len(count))
    assert looks[1] - looks[0] == 1


def test_previous_actions_keep_to_their_space():
    env = midstride.Concurrent(gymnasium.make("Reacher-v5"), knowledge=("previous_action",))
    env.reset(seed=0)
    assert env.step(np.array([5.0, -5.0]))[0] in env.observation_space
    unbounded = midstride.from_dm_control("lqr", "lqr_2_1", knowledge=("previous_action",))
    unbounded.reset(seed=0)
    observation = unbounded.step(np.array([0.5], np.float32))[0]
    assert observation[-1] == 0.5


def test_discrete_actions_are_one_hot(servo_xml):
    class Discrete(gymnasium.ActionWrapper):
        def __init__(self, env):
            super().__init__(env)
            self.action_space = gymnasium.spaces.Discrete(3)

        def action(self, action):
            return np.full(2, float(action) - 1)

    env = midstride.Concurrent(
        Discrete(Servos(servo_xml)), latency=0.02, knowledge=("previous_action",)
    )
    env.reset(seed=0)
    for action in (2, 0, 1):
        assert env.step(action)[0][4:].tolist() == np.eye(3)[action].tolist()


@pytest.mark.parametrize("kind", ["gym", "dm"])
def test_stacked_observations_are_those_returned_before(kind):
    env = make(kind, stack_observations=2)
    own = make(kind).observation_space.shape[0]
    first, _ = env.reset(seed=0)
    assert np.array_equal(first[own:], np.tile(first[:own], 2))
    returned = [first[:own], first[:own]]
    for _ in range(4):
        observation, *_ = env.step(env.action_space.sample())
        assert np.array_equal(observation[own:], np.concatenate([returned[-1], returned[-2]]))
        returned.append(observation[:own])


@pytest.mark.parametrize("observe_switch", [False, True])
@pytest.mark.parametrize("env_id", GYM_IDS)
def test_zero_latency_is_the_bare_gymnasium_environment(env_id, observe_switch):
    bare = gymnasium.make(env_id)
    wrapped = midstride.Concurrent(
        gymnasium.make(env_id), latency=0.0, observe_switch=observe_switch
    )
    assert wrapped.observation_space == bare.observation_space
    assert np.array_equal(wrapped.reset(seed=0)[0], bare.reset(seed=0)[0])
    bare.action_space.seed(0)
    for _ in range(400):
        action = bare.action_space.sample()
        ours, theirs = wrapped.step(action), bare.step(action)
        assert np.array_equal(ours[0], theirs[0])
        assert ours[1:4] == theirs[1:4]
        if ours[2] or ours[3]:
            assert np.array_equal(wrapped.reset()[0], bare.reset()[0])


@pytest.mark.parametrize("observe_switch", [False, True])
@pytest.mark.parametrize(("domain", "task"), DM_TASKS)
def test_zero_latency_is_the_bare_dm_control_task(domain, task, observe_switch):
    bare = suite.load(domain, task, task_kwargs={"random": 3})
    wrapped = midstride.from_dm_control(domain, task, latency=0.0, observe_switch=observe_switch)

    def flat(step):
        return np.concatenate([np.ravel(v) for v in step.observation.values()])

    # The seed that reset gives must be the one that dm_control would have started from.
    assert np.array_equal(wrapped.reset(seed=3)[0], flat(bare.reset()))
    wrapped.action_space.seed(0)
    for _ in range(400):
        action = np.clip(wrapped.action_space.sample(), -1, 1)
        observation, reward, terminated, truncated, _ = wrapped.step(action)
        step = bare.step(action)
        assert np.array_equal(observation, flat(step))
        assert reward == step.reward
        assert terminated == (step.last() and step.discount == 0)
        assert truncated == (step.last() and step.discount != 0)
        if step.last():
            assert np.array_equal(wrapped.reset()[0], flat(bare.reset()))


def test_a_termination_is_not_a_time_limit():
    env = midstride.from_dm_control("walker", "walk")
    env.reset(seed=0)
    assert env.step(env.action_space.sample())[2:4] == (False, False)
    env.unwrapped.dm_env.task.get_termination = lambda physics: 0.0
    assert env.step(env.action_space.sample())[2:4] == (True, False)


@pytest.mark.parametrize("calls", [1, 5])
def test_an_environment_may_move_in_several_calls(calls):
    """The switch falls where it falls, however the environment divides its own step."""
    states = []
    for divided in (False, True):
        env = midstride.Concurrent(gymnasium.make("HalfCheetah-v5"), latency=0.03)
        inner = env.unwrapped
        if divided:
            whole = inner.do_simulation
            inner.do_simulation = lambda control, n, whole=whole: [
                whole(control, n // calls) for _ in range(calls)
            ]
        env.reset(seed=0)
        env.action_space.seed(0)
        for _ in range(20):
            env.step(env.action_space.sample())
        states.append(inner.data.qpos.copy())
    assert np.array_equal(*states)


@pytest.mark.parametrize("calls", [1, 2, 3, 6])
@pytest.mark.parametrize("latency_ticks", range(7))
def test_each_call_of_a_step_may_have_its_own_control(servo_xml, calls, latency_ticks):
    """By hand: after the switch, every tick follows what the call that it belongs to says."""

    class Ramp(Servos):
        def step(self, action):
            for k in range(calls):
                self.do_simulation(action * (k + 1) / calls, 6 // calls)
            return self._get_obs(), 0.0, False, False, {}

    inner = Ramp(servo_xml)
    inner.frame_skip = 6
    env = midstride.Concurrent(inner, latency=latency_ticks * 0.01)
    env.reset(seed=0)
    model, data = inner.model, mujoco.MjData(inner.model)
    mujoco.mj_forward(model, data)
    env.action_space.seed(0)
    for _ in range(10):
        action = env.action_space.sample()
        info = env.step(action)[4]
        for tick in range(6):
            if tick >= latency_ticks:
                data.ctrl[:] = action * (tick * calls // 6 + 1) / calls
            mujoco.mj_step(model, data)
        data.ctrl[:] = action * calls / calls  # in force, at the latest, when the period ends
        assert np.array_equal(inner.data.qpos, data.qpos)
        assert (info["latency_s"], info["period_s"]) == (latency_ticks * 0.01, 0.06)


class Short(Servos):
    """It moves by 2 ticks of its 5."""

    def step(self, action):
        self.do_simulation(action, 2)
        return self._get_obs(), 1.0, False, False, {}


def test_nothing_pending_survives_a_reset(servo_xml):
    used, fresh = (midstride.Concurrent(Short(servo_xml), latency=0.05) for _ in range(2))
    used.reset(seed=0)
    used.step(np.ones(2))
    used.step(np.ones(2))
    assert np.array_equal(used.reset(seed=1)[0], fresh.reset(seed=1)[0])
    for action in np.linspace([-1, 0.5], [1, -0.5], 6):
        assert np.array_equal(used.step(action)[0], fresh.step(action)[0])


def test_a_step_may_be_shorter_than_the_latency(servo_xml):
    """The decision comes into force in the next step, when its latency has passed."""
    env = midstride.Concurrent(Short(servo_xml), latency=0.03, observe_switch=True)
    env.reset(seed=0)
    model, data = env.unwrapped.model, mujoco.MjData(env.unwrapped.model)
    mujoco.mj_forward(model, data)
    actions = np.linspace([-1, 0.5], [1, -0.5], 10)
    for k, action in enumerate(actions):
        info = env.step(action)[4]
        for tick in (2 * k, 2 * k + 1):
            if tick >= 3 and (tick - 3) % 2 == 0:
                data.ctrl[:] = actions[(tick - 3) // 2]
            mujoco.mj_step(model, data)
        assert np.array_equal(env.unwrapped.data.qpos, data.qpos)
        assert info["period_s"] == 0.02
        assert info["reward_before_switch"] == 1.0
        assert "observation_switch" not in info  # those that come are of steps before


def test_an_action_in_flight_is_the_wrappers_own(servo_xml):
    """A user may write the next action into the array of the last one."""
    one, other = (midstride.Concurrent(Servos(servo_xml), latency=0.03) for _ in range(2))
    one.reset(seed=0)
    other.reset(seed=0)
    reused = np.zeros(2)
    for action in np.linspace([-1, 0.5], [1, -0.5], 6):
        reused[:] = action
        assert np.array_equal(one.step(reused)[0], other.step(action.copy())[0])


@pytest.mark.parametrize("latency", [0.0, 0.02])
def test_an_environment_that_moves_behind_our_back_is_told_at_once(servo_xml, latency):
    class Own(Servos):
        def step(self, action):
            self.data.ctrl[:] = action
            mujoco.mj_step(self.model, self.data, nstep=self.frame_skip)
            return self._get_obs(), 0.0, False, False, {}

    env = midstride.Concurrent(Own(servo_xml), latency=latency)
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match=r"its step must call self.do_simulation\(control"):
        env.step(np.ones(2))
    assert "_step_mujoco_simulation" not in vars(env.unwrapped)


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Ant-v5", "Reacher-v5"])
@pytest.mark.parametrize("latency", ["fixed", "per step", "whole period"])
def test_gymnasium_physics_is_split_at_the_switch(env_id, latency):
    """A second copy of the model, stepped by hand with the same control schedule."""
    bare = gymnasium.make(env_id).unwrapped
    tick_s, ticks = bare.model.opt.timestep, bare.frame_skip
    choices = {
        "fixed": midstride.Fixed((ticks - 1) * tick_s),
        "per step": midstride.PerStep(tuple(k * tick_s for k in range(ticks + 1))),
        "whole period": midstride.Fixed(ticks * tick_s),
    }
    env = midstride.Concurrent(
        gymnasium.make(env_id), latency=choices[latency], observe_switch=True
    )
    env.reset(seed=1)
    model, data = env.unwrapped.model, mujoco.MjData(env.unwrapped.model)
    data.qpos[:], data.qvel[:] = env.unwrapped.data.qpos, env.unwrapped.data.qvel
    mujoco.mj_forward(model, data)
    env.action_space.seed(0)
    for _ in range(100):
        action = env.action_space.sample()
        *_, terminated, truncated, info = env.step(action)
        switch = round(info["latency_s"] / tick_s)
        mujoco.mj_step(model, data, nstep=switch) if switch else None
        data.ctrl[:] = action
        at_switch = data.qpos.copy()
        mujoco.mj_step(model, data, nstep=ticks - switch) if ticks > switch else None
        assert np.array_equal(env.unwrapped.data.qpos, data.qpos)
        assert np.array_equal(env.unwrapped.data.qvel, data.qvel)
        if env_id == "HalfCheetah-v5":
            assert np.array_equal(info["observation_switch"][:8], at_switch[1:])
        if terminated or truncated:
            break


@pytest.mark.parametrize("domain_task", [("walker", "walk"), ("cartpole", "swingup")])
def test_dm_control_physics_is_split_at_the_switch(domain_task):
    env = midstride.from_dm_control(*domain_task)
    tick_s, ticks = env.timing.tick_s, env.unwrapped.frame_skip
    latency = midstride.PerStep(tuple(k * tick_s for k in range(ticks + 1)))
    env = midstride.from_dm_control(*domain_task, latency=latency)
    env.reset(seed=2)
    own = env.unwrapped.data
    model, data = env.unwrapped.model, mujoco.MjData(env.unwrapped.model)
    data.qpos[:], data.qvel[:] = own.qpos, own.qvel
    data.qacc_warmstart[:] = own.qacc_warmstart
    env.action_space.seed(0)
    for _ in range(150):
        action = env.action_space.sample()
        *_, info = env.step(action)
        for tick in range(ticks):
            if tick == round(info["latency_s"] / tick_s):
                data.ctrl[:] = action
            mujoco.mj_step(model, data)
        if info["latency_s"] == ticks * tick_s:
            data.ctrl[:] = action
        assert np.array_equal(own.qpos, data.qpos)
        assert np.array_equal(own.qvel, data.qvel)


@pytest.mark.parametrize("kind", ["gym", "dm"])
@pytest.mark.filterwarnings("ignore")
def test_gymnasium_contract(kind):
    check_env(make(kind, latency=0.005 if kind == "dm" else 0.01), skip_render_check=True)
    knowing = make(kind, latency=0.0, knowledge=("previous_action", "selection_time"))
    check_env(knowing, skip_render_check=True)


@pytest.mark.parametrize("kind", ["gym", "dm"])
@pytest.mark.filterwarnings("ignore")
def test_stable_baselines3_contract(kind):
    checker = pytest.importorskip("stable_baselines3.common.env_checker")
    checker.check_env(make(kind, knowledge=("previous_action",), stack_observations=1))


@pytest.mark.parametrize("kind", ["gym", "dm"])
def test_knowledge_follows_the_environments_own_columns(kind):
    tick_s = make(kind).timing.tick_s
    latency = midstride.PerStep((0.0, tick_s))
    plain = make(kind, latency=latency)
    env = make(
        kind, latency=latency, knowledge=("previous_action", "selection_time"), stack_actions=1
    )
    own = plain.observation_space.shape[0]
    first, _ = env.reset(seed=0)
    assert np.array_equal(first[:own], plain.reset(seed=0)[0])
    assert (first[own:] == 0).all()
    env.action_space.seed(0)
    seen = [first]
    for _ in range(60):
        action = env.action_space.sample()
        observation, *_, info = env.step(action)
        assert np.array_equal(observation[:own], plain.step(action)[0])
        low, high = env.action_space.low, env.action_space.high
        scaled = (action - (low + high) / 2) / ((high - low) / 2)
        assert observation[env.layout.slices["previous_action"]] == pytest.approx(scaled)
        assert observation[env.layout.slices["past_actions"]] == pytest.approx(scaled)
        measured = info["latency_s"] / tick_s
        assert observation[env.layout.slices["selection_time"]] == pytest.approx(measured)
        seen.append(observation)
    names = env.columns
    changing = [i for i, name in enumerate(names) if "observation:" not in name]
    assert_columns_alive(np.array(seen)[:, changing], tuple(names[i] for i in changing))


def test_vector_to_go_of_position_actuators():
    env = midstride.from_dm_control(
        "fish", "swim", latency=0.02, knowledge=("vector_to_go",), observe_switch=True
    )
    observation, _ = env.reset(seed=0)
    columns = env.layout.slices["vector_to_go"]
    assert observation[columns] == pytest.approx(np.zeros(5), abs=1e-12)
    env.action_space.seed(0)
    for _ in range(20):
        action = env.action_space.sample()
        observation, *_, info = env.step(action)
        low, high = env.unwrapped.model.actuator_ctrlrange.T
        left = (action - env.unwrapped.data.actuator_length) / ((high - low) / 2)
        assert observation[columns] == pytest.approx(left)
        assert info["observation_switch"][columns] != pytest.approx(left)


def test_position_actuators_hold_before_the_first_switch():
    env = midstride.from_dm_control("fish", "swim", latency=0.04)
    env.reset(seed=0)
    start = env.unwrapped.data.actuator_length.copy()
    env.step(env.action_space.high)
    # The whole first period is latency: the fins stay (water moves them a little).
    assert np.abs(env.unwrapped.data.actuator_length - start).max() < 0.05
    env.step(env.action_space.high)
    assert np.abs(env.unwrapped.data.actuator_length - start).max() > 0.2


def test_motors_rest_before_the_first_switch():
    env = midstride.Concurrent(gymnasium.make("HalfCheetah-v5"), latency=0.05)
    other = midstride.Concurrent(gymnasium.make("HalfCheetah-v5"), latency=0.05)
    env.reset(seed=0)
    other.reset(seed=0)
    first = env.step(env.action_space.high)[0]
    assert np.array_equal(first, other.step(env.action_space.low)[0])
    assert not np.array_equal(
        env.step(env.action_space.high)[0], other.step(env.action_space.high)[0]
    )


@pytest.mark.parametrize("kind", ["gym", "dm"])
def test_nothing_in_flight_survives_a_reset(kind):
    tick_s = make(kind).timing.tick_s
    options = {
        "latency": midstride.PerStep((0.0, tick_s, 2 * tick_s)),
        "knowledge": ("previous_action", "selection_time"),
        "stack_observations": 2,
    }
    used, fresh = make(kind, **options), make(kind, **options)
    used.reset(seed=9)
    for _ in range(10):
        used.step(used.action_space.sample())
    assert np.array_equal(used.reset(seed=4)[0], fresh.reset(seed=4)[0])
    fresh.action_space.seed(0)
    for _ in range(20):
        action = fresh.action_space.sample()
        assert np.array_equal(used.step(action)[0], fresh.step(action)[0])


def test_the_reward_is_split_in_proportion_to_time():
    env = midstride.Concurrent(gymnasium.make("HalfCheetah-v5"), latency=0.02)
    env.reset(seed=0)
    _, reward, *_, info = env.step(env.action_space.high)
    assert info["reward_before_switch"] == pytest.approx(0.4 * reward)
    assert info["reward_before_switch"] + info["reward_after_switch"] == pytest.approx(reward)


def test_wrappers_inside_and_outside():
    inside = gymnasium.wrappers.RescaleAction(gymnasium.make("Pusher-v5"), -1.0, 1.0)
    env = midstride.Concurrent(inside, latency=0.01, knowledge=("previous_action",))
    env = gymnasium.wrappers.RecordEpisodeStatistics(env)
    env.reset(seed=0)
    for _ in range(100):
        *_, truncated, info = env.step(env.action_space.sample())
        if truncated:
            break
    assert info["episode"]["l"] == 100


def test_the_environment_itself_is_untouched():
    bare = gymnasium.make("Reacher-v5")
    wrapped = midstride.Concurrent(bare, latency=0.01)
    wrapped.reset(seed=0)
    wrapped.step(wrapped.action_space.high)
    assert "_step_mujoco_simulation" not in vars(bare.unwrapped)
    dm = make("dm", latency=0.005)
    dm.reset(seed=0)
    dm.step(dm.action_space.high)
    assert "step" not in vars(dm.unwrapped.physics)
    assert "_step_mujoco_simulation" not in vars(dm.unwrapped)


@pytest.mark.parametrize("kind", ["gym", "dm"])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_keeps_its_latency(kind, duplicate):
    tick_s = make(kind).timing.tick_s
    env = make(kind, latency=2 * tick_s, knowledge=("previous_action",))
    env.reset(seed=3)
    env.step(env.action_space.high)
    twin = duplicate(env)
    assert np.array_equal(env.reset(seed=1)[0], twin.reset(seed=1)[0])
    for sign in (1, -1, 1):
        action = sign * env.action_space.high
        ours, theirs = env.step(action), twin.step(action)
        assert np.array_equal(ours[0], theirs[0])
        assert theirs[4]["latency_s"] == 2 * tick_s


def test_an_environment_without_get_obs():
    class Quiet(type(gymnasium.make("Reacher-v5").unwrapped)):
        def _observe(self):
            return self.data.qpos.copy()

        def step(self, action):
            self.do_simulation(action, self.frame_skip)
            return self._observe(), 0.0, False, False, {}

        def reset_model(self):
            self.set_state(self.init_qpos, self.init_qvel)
            return self._observe()

        _get_obs = None

    env = midstride.Concurrent(Quiet(), latency=0.01)
    env.reset(seed=0)
    assert "observation_switch" not in env.step(env.action_space.high)[4]
    with pytest.raises(ValueError, match="needs an environment with a _get_obs method"):
        midstride.Concurrent(Quiet(), latency=0.01, observe_switch=True)


# --- Finer ticks


def make_finer(kind, servo_xml, **options):
    """An environment of 10, 2.5 or 10 ms, in ticks of 1, 0.5 or 2 ms."""
    if kind == "servos":  # unlike the others it is copied with its model, not built anew
        return midstride.Concurrent(Servos(servo_xml), tick=0.001, **options)
    return make(kind, tick={"gym": 0.002, "dm": 0.0005}[kind], **options)


KINDS = ("gym", "dm", "servos")


@pytest.mark.parametrize("kind", KINDS)
def test_finer_ticks_leave_the_period_and_the_environment_as_they_are(kind, servo_xml):
    bare = make(kind) if kind != "servos" else midstride.Concurrent(Servos(servo_xml))
    env = make_finer(kind, servo_xml)
    assert env.timing.period_s == bare.timing.period_s == env.unwrapped.dt == bare.unwrapped.dt
    env.reset(seed=0)
    info = env.step(env.action_space.high)[4]
    assert info["period_s"] == pytest.approx(bare.unwrapped.dt)
    assert env.unwrapped.data.time == pytest.approx(bare.unwrapped.dt)
    assert env.unwrapped.dt == bare.unwrapped.dt
    assert env.unwrapped.frame_skip == bare.unwrapped.frame_skip
    assert env.unwrapped.model.opt.timestep == bare.timing.tick_s


@pytest.mark.parametrize("kind", KINDS)
def test_finer_ticks_are_steps_of_the_same_model_in_finer_ones(kind, servo_xml):
    """A second copy of the model, with a finer timestep, stepped by hand."""
    ticks = {"gym": 10, "dm": 50, "servos": 50}[kind]
    tick_s = make_finer(kind, servo_xml).timing.tick_s
    latency = midstride.PerStep(tuple(k * tick_s for k in range(ticks + 1)))
    env = make_finer(kind, servo_xml, latency=latency)
    env.reset(seed=2)
    own = env.unwrapped.data
    model = copy.deepcopy(env.unwrapped.model)
    model.opt.timestep = tick_s
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = own.qpos, own.qvel
    data.qacc_warmstart[:] = own.qacc_warmstart
    data.ctrl[:] = own.ctrl
    if kind == "gym":
        mujoco.mj_forward(model, data)
    env.action_space.seed(0)
    for _ in range(30):
        action = env.action_space.sample()
        *_, info = env.step(action)
        for tick in range(ticks):
            if tick == round(info["latency_s"] / tick_s):
                data.ctrl[:] = action
            mujoco.mj_step(model, data)
        data.ctrl[:] = action
        assert np.array_equal(own.qpos, data.qpos)
        assert np.array_equal(own.qvel, data.qvel)


def test_the_environments_own_tick_changes_nothing():
    plain, same = make("gym", latency=0.01), make("gym", latency=0.01, tick=0.01)
    assert np.array_equal(plain.reset(seed=0)[0], same.reset(seed=0)[0])
    for _ in range(20):
        action = plain.action_space.sample()
        assert np.array_equal(plain.step(action)[0], same.step(action)[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_keeps_its_finer_ticks(kind, duplicate, servo_xml):
    env = make_finer(kind, servo_xml, observe_switch=True)
    env = make_finer(kind, servo_xml, latency=3 * env.timing.tick_s, observe_switch=True)
    env.reset(seed=3)
    env.step(env.action_space.high)
    twin = duplicate(env)
    assert twin.timing == env.timing
    assert twin.unwrapped.dt == env.unwrapped.dt
    assert np.array_equal(env.reset(seed=1)[0], twin.reset(seed=1)[0])
    for sign in (1, -1, 1):
        ours, theirs = (e.step(sign * env.action_space.high) for e in (env, twin))
        assert np.array_equal(ours[0], theirs[0])
        assert np.array_equal(ours[4]["observation_switch"], theirs[4]["observation_switch"])


@pytest.mark.parametrize("latency", [0.005, 0.003, midstride.PerStep((0.0, 0.004, 0.0065))])
def test_the_error_recommends_a_tick_that_helps(latency):
    with pytest.raises(ValueError, match="nearest valid times") as caught:
        make("gym", latency=latency)
    tick = float(str(caught.value).rpartition("tick=")[2])
    env = make("gym", latency=latency, tick=tick)
    env.reset(seed=0)
    assert env.step(env.action_space.high)[4]["latency_s"] in env.timing.latency.values_s


def test_no_tick_is_recommended_where_none_helps():
    with pytest.raises(ValueError, match="nearest valid times") as caught:
        make("gym", latency=0.00123456789)
    assert "tick=" not in str(caught.value)


def test_dm_control_pictures_need_no_opengl():
    env = midstride.from_dm_control("walker", "walk", render_mode="rgb_array")
    env.reset(seed=0)
    image = env.render()
    assert image.shape == (240, 320, 3)
    assert len(np.unique(image.reshape(-1, 3), axis=0)) > 50


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: make("gym", latency=0.005), "nearest valid times are 0 ms and 10 ms"),
        (lambda: make("gym", latency=0.005), r"or take finer physics: tick=0\.005$"),
        (lambda: make("gym", latency=35), "an episode, which lasts 1 s at most: did you mean 35ms"),
        (lambda: make("gym", latency=10), "did you mean 10ms"),
        (lambda: make("gym", tick=0.003), "own timestep of 10 ms: valid .* are 5 ms and 2.5 ms$"),
        (lambda: make("gym", tick=0.02), "own timestep of 10 ms: valid .* are 10 ms$"),
        (lambda: make("gym", tick=0.0), "longer than 0 s"),
        (lambda: make("gym", tick="1ms"), "must be a number of seconds"),
        (lambda: make("gym", knowledge=("vector_to_go",)), "needs position-controlled actuators"),
        (lambda: make("dm", knowledge=("vector_to_go",)), "needs position-controlled actuators"),
        (lambda: make("gym", knowledge=("magic",)), "unknown knowledge 'magic'"),
        (lambda: midstride.from_dm_control("walker", "fly"), "walker has the tasks run, stand"),
        (lambda: midstride.from_dm_control("yeti", "walk"), "unknown .* the domains are acrobot"),
        (lambda: DMControlEnv("walker", "walk", "human"), "render_mode"),
        (lambda: midstride.Concurrent(make("gym", latency=0.01)), "Concurrent already"),
        (lambda: make("gym", knowledge=None), "knowledge must be names"),
        (lambda: make("gym", latency=True), "must be a number of seconds"),
        (
            lambda: midstride.Concurrent(
                gymnasium.wrappers.FrameStackObservation(gymnasium.make("Reacher-v5"), 2),
                knowledge=("previous_action",),
            ),
            "observes a flat Box",
        ),
    ],
)
def test_bad_input(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt()


def test_step_before_reset():
    with pytest.raises(RuntimeError, match="call reset before"):
        make("gym").step(np.zeros(2))


def test_dm_control_actions_are_not_broadcast():
    env = make("dm")
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"got shape \(1,\)"):
        env.step(np.zeros(1))


def test_dm_control_after_the_end():
    env = make("dm")
    env.reset(seed=0)
    env.unwrapped.dm_env.task.get_termination = lambda physics: 0.0
    env.step(env.action_space.sample())
    with pytest.raises(RuntimeError, match="episode is over"):
        env.step(env.action_space.sample())
    assert env.render() is None


def test_what_is_heavy_is_imported_only_when_it_is_needed():
    code = (
        "import sys; import midstride.envs.concurrent, midstride.envs.dm_control; "
        "print([m for m in ('dm_control', 'jax', 'matplotlib', 'scipy') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.strip() == "[]", found.stderr


# --- Hold: the environment rests while the agent thinks


class Counter(gymnasium.Env):
    """Observes what it was told so far, and is paid what it is told now."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    action_space = gymnasium.spaces.Box(-9, 9, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.told = []
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.told.append(float(action[0]))
        return np.array([sum(self.told)], np.float32), self.told[-1], False, False, {}


@pytest.mark.parametrize(("latency", "period"), [(0.0, 0.2), (0.1, 0.1), (0.2, 0.1), (0.3, 0.2)])
def test_a_wrapped_environment_that_holds_rests_from_each_capture_to_the_switch(latency, period):
    env = midstride.Concurrent(
        Counter(), latency, ("previous_action",), step_s=0.1, period=period, mode="hold",
        hold=np.full(1, -2.0),
    )  # fmt: skip
    env.reset(seed=0)
    rests, acts = round(latency / 0.1), round(period / 0.1)
    expected = []
    for action in (1.0, 3.0, 5.0):
        observation, reward, *_, info = env.step(np.array([action]))
        lived = [-2.0] * rests + [action] * acts
        expected += lived
        assert env.unwrapped.told == expected
        assert observation == pytest.approx([sum(expected), action / 9])
        assert reward == pytest.approx(sum(lived))
        assert info["reward_before_switch"] == pytest.approx(sum(lived[:rests]))
        assert info["reward_after_switch"] == pytest.approx(sum(lived[rests:]))
        assert info["period_s"] == pytest.approx(latency + period)
        assert info["pending"] == 0


@pytest.mark.parametrize("kind", ["motors", "servos"])
def test_mujoco_that_holds_is_the_bare_environment_told_to_rest_and_then_to_act(kind, servo_xml):
    """Whole steps of the physics, against the environment itself."""

    def made():
        if kind == "servos":
            return Servos(servo_xml)
        return gymnasium.make("InvertedPendulum-v5", reset_noise_scale=0.02).unwrapped

    bare, rest = made(), np.full(made().model.nu, 0.1)
    step_s = bare.dt
    env = midstride.Concurrent(made(), 2 * step_s, mode="hold", hold=rest)
    env.reset(seed=3)
    bare.reset(seed=3)
    rng = np.random.default_rng(0)
    for _ in range(4):
        action = rng.uniform(-0.2, 0.2, bare.action_space.shape)
        observation = env.step(action)[0]
        for told in (rest, rest, action):
            seen = bare.step(told)[0]
        np.testing.assert_array_equal(observation, seen)


def test_what_hold_needs_is_said():
    with pytest.raises(ValueError, match="mode hold needs it as hold="):
        midstride.Concurrent(Counter(), 0.1, step_s=0.1, mode="hold")
    with pytest.raises(ValueError, match="blocking, the world frozen"):
        midstride.Concurrent(Counter(), 0.1, step_s=0.1, mode="blocking", hold=np.zeros(1))
    env = gymnasium.make("InvertedPendulum-v5")
    with pytest.raises(ValueError, match="not a whole number of the environment's own steps"):
        midstride.Concurrent(env, env.unwrapped.dt / 2, mode="hold", hold=np.zeros(1))

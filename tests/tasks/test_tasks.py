"""The tasks against DeepMind Control itself, and against closed forms."""

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstride.sim.task import suite_spec
from midstride.tasks import pointmass
from midstride.tasks.env import TaskVectorEnv
from midstride.tasks.settings import make_task
from tests.helpers import TASK_NAMES

suite = pytest.importorskip("dm_control.suite")

DOMAINS = {"cartpole": "cart", "pendulum": "pole"}


def random_states(task, count: int):
    rng = np.random.default_rng(0)
    nq, nv = task.model.nq, task.model.nv
    qpos = rng.uniform(-2 * np.pi, 2 * np.pi, (count, nq))
    near = rng.uniform(-0.3, 0.3, (count, nq))  # where the rewards are
    qpos[::2] = near[::2]
    return qpos, rng.normal(0, 4, (count, nv))


@pytest.mark.parametrize("name", DOMAINS)
def test_reward_and_observation_equal_dm_control(name):
    task = make_task(name)
    env = suite.load(name, "swingup")
    physics = env.physics
    qpos, qvel = random_states(task, 3000)
    ours, observed = task.reward(qpos, qvel), task.observe(qpos, qvel)
    theirs = []
    for i in range(len(qpos)):
        with physics.reset_context():
            physics.data.qpos[:], physics.data.qvel[:] = qpos[i], qvel[i]
        theirs.append(env.task.get_reward(physics))
        values = env.task.get_observation(physics).values()
        flat = np.concatenate([np.ravel(v) for v in values])
        assert observed[i] == pytest.approx(flat, abs=1e-12)
    assert ours == pytest.approx(np.array(theirs), abs=1e-12)
    assert ours.min() < 0.1
    assert ours.max() > 0.9


@pytest.mark.parametrize("name", DOMAINS)
def test_only_actuator_and_timestep_differ_from_dm_control(name):
    ours, theirs = make_task(name).model, suite_spec(name).compile()
    motor_limit = theirs.actuator_gear[0, 0] * theirs.actuator_ctrlrange[0, 1]
    assert ours.actuator_forcelimited[0]
    assert ours.actuator_forcerange[0].tolist() == [-motor_limit, motor_limit]
    assert motor_limit == {"cartpole": 10, "pendulum": 1}[name]
    for field in dir(theirs):
        value = getattr(theirs, field)
        if isinstance(value, np.ndarray) and not field.startswith("actuator_"):
            assert np.array_equal(value, getattr(ours, field)), field
    assert ours.opt.integrator == theirs.opt.integrator


@pytest.mark.parametrize("name", DOMAINS)
def test_the_servo_never_pushes_harder_than_the_motor(name):
    task = make_task(name)
    data = mujoco.MjData(task.model)
    rng = np.random.default_rng(0)
    limit = task.model.actuator_forcerange[0, 1]
    largest = 0.0
    for _ in range(300):
        data.ctrl[:] = data.qpos[task.controlled.qpos] + rng.choice([-1, 1]) * task.controlled.scale
        mujoco.mj_step(task.model, data, nstep=5)
        largest = max(largest, abs(data.actuator_force[0]))
    assert largest == limit


@pytest.mark.parametrize("name", DOMAINS)
def test_start_states_have_dm_controls_distribution(name):
    task = make_task(name)
    env = suite.load(name, "swingup", task_kwargs={"random": 0})
    rng = np.random.default_rng(0)
    ours, theirs = [], []
    for _ in range(400):
        ours.append(np.concatenate(task.initial(rng)))
        env.reset()
        theirs.append(np.concatenate([env.physics.data.qpos, env.physics.data.qvel]))
    ours, theirs = np.array(ours), np.array(theirs)
    spread = theirs.std(axis=0)
    assert np.abs(ours.mean(axis=0) - theirs.mean(axis=0)).max() < 6 * spread.max() / np.sqrt(200)
    assert ours.std(axis=0) == pytest.approx(spread, rel=0.2, abs=1e-12)


@pytest.mark.parametrize("period", [0.005, 0.025, 0.05, 0.055])
@pytest.mark.parametrize("name", TASK_NAMES)
def test_returns_are_out_of_1000_whatever_the_period(name, period):
    """With a reward of 1 throughout, every episode returns 1000."""
    env = TaskVectorEnv(name, num_envs=2, latency=0.005, period=period, autoreset_mode="Disabled")
    object.__setattr__(env.task, "reward", lambda qpos, qvel: np.ones(qpos.shape[:-1]))
    env.reset(seed=0)
    total, seconds, truncated = np.zeros(2), np.zeros(2), np.zeros(2, bool)
    while not truncated.all():
        _, reward, terminated, truncated, info = env.step(np.array([0, 1]))
        assert not terminated.any()
        total += reward
        seconds += info["period_s"]
    assert total == pytest.approx([1000, 1000])
    assert seconds == pytest.approx(np.full(2, env.task.time_limit_s))


def test_episode_lengths():
    limits = {name: make_task(name).time_limit_s for name in TASK_NAMES}
    assert limits == {"pointmass": 5, "cartpole": 10, "pendulum": 20, "balance": 5}
    assert limits["cartpole"] == suite.cartpole._DEFAULT_TIME_LIMIT
    assert limits["pendulum"] == suite.pendulum._DEFAULT_TIME_LIMIT


@pytest.mark.parametrize("name", TASK_NAMES)
@pytest.mark.parametrize("count", range(3, 9))
def test_discrete_actions_differ_and_stay_in_range(name, count):
    table = make_task(name).displacements(count)
    assert table.shape == (count, len(make_task(name).controlled.names))
    assert len({tuple(row) for row in table.round(6)}) == count
    assert np.linalg.norm(table, axis=1).max() == pytest.approx(1)
    assert np.abs(table.sum(axis=0)) == pytest.approx(0, abs=1e-12)


def test_unknown_task():
    with pytest.raises(ValueError, match="unknown task 'juggling': choose from pointmass, cart"):
        make_task("juggling")


# --- Point mass: every position by hand


@given(
    latency=st.integers(0, 20),
    tick_s=st.sampled_from([0.005, 0.0025, 0.001]),
    angles=st.lists(st.integers(1, 7), min_size=2, max_size=6),
    seed=st.integers(0, 1000),
)
def test_point_mass_closed_form(latency, tick_s, angles, seed):
    """x(t) = target + (x(0) - target) exp(-t / tau), and what is left at each capture."""
    period = 20
    env = TaskVectorEnv(
        "pointmass",
        observe_switch=True,
        latency=latency * tick_s,
        period=period * tick_s,
        knowledge=("vector_to_go",),
        actions=8,
        tick=tick_s,
    )
    observation, _ = env.reset(seed=seed)
    position = env.plant.qpos[0, :2].copy()
    target = position.copy()
    assert observation[0, 4:].tolist() == [0, 0]

    def moved(start, goal, ticks):
        return goal + (start - goal) * np.exp(-ticks * tick_s / pointmass.TAU_S)

    for action in angles:
        angle = 2 * np.pi * (action - 1) / 7
        at_switch = moved(position, target, latency)
        step = 0.3 * np.array([np.cos(angle), np.sin(angle)])
        target = np.clip(at_switch + step, -1, 1)
        position = moved(at_switch, target, period - latency)
        observation, _, _, _, info = env.step(np.array([action]))
        assert env.plant.qpos[0, :2] == pytest.approx(position, abs=1e-6)
        assert observation[0, 4:] == pytest.approx((target - position) / 0.3, abs=1e-5)
        switch = info["observation_switch"][0]
        assert switch[:2] == pytest.approx(at_switch, abs=1e-6)
        assert switch[4:] == pytest.approx((target - at_switch) / 0.3, abs=1e-5)


def test_point_mass_numbers():
    """One step in plain numbers: 25 ms of a 100 ms period, tau 100 ms, 0.3 m to the right."""
    env = TaskVectorEnv("pointmass", latency=0.025, period=0.1, knowledge=("vector_to_go",))
    env.reset(seed=0)
    env.plant.qpos[0, :2] = env.plant.target[0] = 0.0
    observation, *_ = env.step(np.array([1]))
    # 75 ms of motion leave exp(-0.75) = 0.472367 of the way
    assert observation[0, 0] == pytest.approx(0.3 * (1 - 0.472367), abs=1e-6)
    assert observation[0, 4] == pytest.approx(0.472367, abs=1e-5)
    observation, *_ = env.step(np.array([0]))
    # 25 ms more leave exp(-1) = 0.367879; "stay" then holds where the point is at the switch
    assert observation[0, 0] == pytest.approx(0.3 * (1 - 0.367879), abs=1e-6)
    assert observation[0, 4] == pytest.approx(0, abs=1e-5)

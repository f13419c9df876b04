"""What happens in a period, against a copy stepped by hand with plain `mujoco.mj_step`."""

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstride import Fixed, PerEpisode, PerStep, Sampled, Trace
from midstride.envs.faults import Fault
from midstride.sim.task import Task
from midstride.tasks.env import TaskVectorEnv
from tests.helpers import TASK_NAMES

TICK_S = 0.005
LATENCY_MODELS = {
    "fixed": Fixed(0.025),
    "blocking": Fixed(0.0),
    "fills the period": Fixed(0.05),
    "per episode": PerEpisode((0.0, 0.005, 0.01, 0.025, 0.05)),
    "per step": PerStep((0.0, 0.005, 0.01, 0.025, 0.05)),
    "sampled": Sampled(lambda rng, n: rng.exponential(0.02, n), 0.0, 0.05),
    "trace": Trace((0.0, 0.012, 0.033, 0.05), rounding="up"),
}


class ByHand:
    """One environment, stepped tick by tick with nothing but `mj_step`."""

    def __init__(self, task: Task, qpos: np.ndarray, qvel: np.ndarray) -> None:
        self.task = task
        self.data = mujoco.MjData(task.model)
        self.data.qpos[:], self.data.qvel[:] = qpos, qvel
        self.data.ctrl[:] = qpos[task.controlled.qpos]

    def run(self, ticks: int) -> float:
        total = 0.0
        for _ in range(ticks):
            mujoco.mj_step(self.task.model, self.data)
            total += float(self.task.reward(self.data.qpos, self.data.qvel))
        return total * self.task.reward_per_s * TICK_S

    def period(self, displacement: np.ndarray, latency_ticks: int, period_ticks: int):
        before = self.run(latency_ticks)
        controlled = self.task.controlled
        target = self.data.qpos[controlled.qpos] + displacement * controlled.scale
        self.data.ctrl[:] = np.clip(target, controlled.low, controlled.high)
        switch = self.data.qpos.copy(), self.data.qvel.copy()
        after = self.run(period_ticks - latency_ticks)
        return before, after, switch


def compare_with_hand_stepping(env, steps, seed):
    """Step `env` with random actions and check everything about every period."""
    env.reset(seed=seed)
    simulation, task = env.plant, env.task
    copies = [ByHand(task, *state) for state in zip(simulation.qpos, simulation.qvel, strict=True)]
    rng = np.random.default_rng(seed)
    table = task.displacements(env.single_action_space.n)
    columns = len(task.columns)
    for _ in range(steps):
        actions = rng.integers(env.single_action_space.n, size=env.num_envs)
        observation, reward, _, _, info = env.step(actions)
        for i, copy in enumerate(copies):
            latency = round(info["latency_s"][i] / TICK_S)
            period = round(info["period_s"][i] / TICK_S)
            before, after, switch = copy.period(table[actions[i]], latency, period)
            assert (simulation.qpos[i] == copy.data.qpos).all()
            assert (simulation.qvel[i] == copy.data.qvel).all()
            assert info["reward_before_switch"][i] == pytest.approx(before, abs=1e-12)
            assert info["reward_after_switch"][i] == pytest.approx(after, abs=1e-12)
            assert reward[i] == pytest.approx(before + after, abs=1e-12)
            at_switch = task.observe(*switch).astype(np.float32)
            assert (info["observation_switch"][i, :columns] == at_switch).all()
            at_capture = task.observe(copy.data.qpos, copy.data.qvel).astype(np.float32)
            assert (observation[i, :columns] == at_capture).all()


@pytest.mark.parametrize("latency", LATENCY_MODELS.values(), ids=LATENCY_MODELS.keys())
@pytest.mark.parametrize("task", TASK_NAMES)
def test_states_equal_hand_stepping_bit_for_bit(task, latency):
    env = TaskVectorEnv(
        task, num_envs=5, observe_switch=True, latency=latency, period=0.05, threads=2
    )
    compare_with_hand_stepping(env, steps=40, seed=3)


@pytest.mark.parametrize("latency", [PerStep((0.0, 0.005, 0.05)), PerEpisode((0.005, 0.025))])
def test_a_fixed_execution_equals_hand_stepping(latency):
    env = TaskVectorEnv(
        "cartpole", num_envs=5, observe_switch=True, latency=latency, execution=0.025
    )
    compare_with_hand_stepping(env, steps=40, seed=4)


@given(
    task=st.sampled_from(TASK_NAMES),
    period=st.integers(1, 24),
    share=st.floats(0, 1),
    actions=st.integers(3, 8),
    num_envs=st.integers(1, 4),
    seed=st.integers(0, 10_000),
)
def test_any_timing_equals_hand_stepping(task, period, share, actions, num_envs, seed):
    latency_s = round(share * period) * TICK_S
    env = TaskVectorEnv(
        task,
        num_envs,
        observe_switch=True,
        latency=latency_s,
        period=period * TICK_S,
        actions=actions,
    )
    compare_with_hand_stepping(env, steps=6, seed=seed)


@given(
    task=st.sampled_from(TASK_NAMES),
    latencies=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    execution=st.integers(1, 12),
    seed=st.integers(0, 10_000),
)
def test_any_mix_of_latencies_equals_hand_stepping(task, latencies, execution, seed):
    model = PerStep(tuple(ticks * TICK_S for ticks in latencies))
    env = TaskVectorEnv(task, 3, observe_switch=True, latency=model, execution=execution * TICK_S)
    compare_with_hand_stepping(env, steps=6, seed=seed)


@pytest.mark.parametrize("task", TASK_NAMES)
def test_zero_latency_is_blocking_control(task):
    """An independent blocking loop: freeze, choose, run the action for the whole period."""
    env = TaskVectorEnv(task, num_envs=3, observe_switch=True, latency=0.0, period=0.05)
    default = TaskVectorEnv(task, num_envs=3, period=0.05)
    env.reset(seed=0)
    default.reset(seed=0)
    model, controlled = env.task.model, env.task.controlled
    frozen = []
    for qpos, qvel in zip(env.plant.qpos, env.plant.qvel, strict=True):
        data = mujoco.MjData(model)
        data.qpos[:], data.qvel[:] = qpos, qvel
        frozen.append(data)
    table = env.task.displacements(5)
    rng = np.random.default_rng(0)
    for _ in range(60):
        actions = rng.integers(5, size=3)
        observation, *_ = env.step(actions)
        assert (default.step(actions)[0] == observation).all()
        for data, action, qpos in zip(frozen, actions, env.plant.qpos, strict=True):
            goal = data.qpos[controlled.qpos] + table[action] * controlled.scale
            data.ctrl[:] = np.clip(goal, controlled.low, controlled.high)
            mujoco.mj_step(model, data, nstep=10)
            assert (data.qpos == qpos).all()


@given(
    latency=st.integers(0, 10),
    first=st.integers(0, 4),
    second=st.integers(0, 4),
    seed=st.integers(0, 1000),
)
def test_an_action_changes_nothing_before_its_switch(latency, first, second, seed):
    infos, observations = [], []
    for action in (first, second):
        env = TaskVectorEnv("cartpole", observe_switch=True, latency=latency * TICK_S, period=0.05)
        env.reset(seed=seed)
        env.step(np.array([4]))
        observation, _, _, _, info = env.step(np.array([action]))
        infos.append(info)
        observations.append(observation)
    assert infos[0]["reward_before_switch"] == infos[1]["reward_before_switch"]
    assert (infos[0]["observation_switch"] == infos[1]["observation_switch"]).all()
    if latency == 10:  # nothing of the new action has run at the next capture
        assert (observations[0] == observations[1]).all()
    elif first < 2 < second:  # one way or the other (both actions one way may saturate)
        assert (observations[0] != observations[1]).any()


def test_threads_and_company_change_nothing():
    """An environment's trajectory depends on its seed alone."""
    model = PerStep((0.0, 0.005, 0.025))
    actions = np.random.default_rng(0).integers(5, size=(30, 6))
    together = TaskVectorEnv(
        "cartpole", 6, observe_switch=True, latency=model, execution=0.02, threads=2
    )
    together.reset(seed=10)
    crowd = [together.step(a)[0] for a in actions]
    for i in range(6):
        alone = TaskVectorEnv(
            "cartpole", 1, observe_switch=True, latency=model, execution=0.02, threads=1
        )
        alone.reset(seed=10 + i)
        for a, observation in zip(actions, crowd, strict=True):
            assert (alone.step(a[i : i + 1])[0][0] == observation[i]).all()


def test_unstable_physics_is_an_error_not_a_number():
    env = TaskVectorEnv("cartpole", num_envs=2)
    env.reset(seed=0)
    env.plant.qvel[1] = 1e12
    with pytest.raises(Fault, match=r"cartpole became unstable in environments \[1\]"):
        env.step(np.array([2, 2]))
    # and a reset recovers, to the last bit
    fresh = TaskVectorEnv("cartpole", num_envs=2)
    assert (env.reset(seed=5)[0] == fresh.reset(seed=5)[0]).all()
    for _ in range(5):
        assert (env.step(np.array([0, 4]))[0] == fresh.step(np.array([0, 4]))[0]).all()

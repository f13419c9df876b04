"""Concurrent environments: physics against bare `mj_step`, steps against peers."""

from __future__ import annotations

import threading
from typing import Any

import gymnasium
import mujoco
import numpy as np

from benchmarks.figures import Figure, rates
from midstride.tasks.env import TaskVectorEnv

THREADS = 2
NUM_ENVS = 256
LATENCY_S, PERIOD_S = 0.025, 0.05
TICKS = 10  # in a period
STEPS = 60
REPEATS = 7
OPTIONS: dict[str, Any] = {"latency": LATENCY_S, "period": PERIOD_S, "knowledge": ("vector_to_go",)}


def run() -> list[Figure]:
    native = TaskVectorEnv("cartpole", NUM_ENVS, threads=THREADS, **OPTIONS)
    sync = gymnasium.make_vec(
        "midstride/CartpoleSwingup-v0", num_envs=32, vectorization_mode="sync", **OPTIONS
    )
    dm_control = dm_control_envs(32)
    rng = np.random.default_rng(0)
    native.reset(seed=0)
    sync.reset(seed=0)
    actions = rng.integers(5, size=(STEPS, NUM_ENVS))

    def step_native() -> None:
        for action in actions:
            native.step(action)

    def step_sync() -> None:
        for action in actions[: STEPS // 4]:
            sync.step(action[:32])

    def step_dm_control() -> None:
        for action in actions[: STEPS // 4]:
            for env, a in zip(dm_control, action, strict=False):
                env.step(a / 2 - 1)

    model = native.task.model
    bare_ticks = STEPS * NUM_ENVS * TICKS // THREADS // 4
    measured = rates(
        {
            "native steps": (step_native, STEPS * NUM_ENVS),
            "bare ticks": (lambda: bare_physics(model, bare_ticks), bare_ticks * THREADS),
            "sync steps": (step_sync, STEPS // 4 * 32),
            "dm_control steps": (step_dm_control, STEPS // 4 * 32),
        },
        REPEATS,
    )
    steps = measured["native steps"]
    return [
        Figure(
            "simulation/ticks-vs-bare",
            steps * TICKS / measured["bare ticks"],
            "x",
            f"bare mj_step of the same model on {THREADS} threads",
            limit=1.0,
        ),
        Figure(
            "simulation/steps-vs-dm_control",
            steps / measured["dm_control steps"],
            "x",
            "a loop over 32 dm_control environments, same ticks per step",
        ),
        Figure(
            "simulation/steps-vs-sync-vector",
            steps / measured["sync steps"],
            "x",
            "gymnasium.vector.SyncVectorEnv over 32 single environments",
        ),
    ]


def bare_physics(model: mujoco.MjModel, ticks: int) -> None:
    """The same model with nothing around it: `mj_step` in a C loop on each thread."""

    def work() -> None:
        data = mujoco.MjData(model)
        data.qpos[1] = np.pi - 0.1
        mujoco.mj_step(model, data, nstep=ticks)

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def dm_control_envs(count: int) -> list:  # type: ignore[type-arg]
    """dm_control's own Cartpole at our timestep and ticks per step, one after another."""
    from dm_control.suite import cartpole, common

    xml, assets = cartpole.get_model_and_assets()
    assert xml == common.read_model("cartpole.xml")
    xml = xml.replace(b'timestep="0.01"', b'timestep="0.005"')
    envs = []
    for seed in range(count):
        env = cartpole.control.Environment(
            cartpole.Physics.from_xml_string(xml, assets),
            cartpole.Balance(swing_up=True, sparse=False, random=seed),
            time_limit=10,
            n_sub_steps=TICKS,
        )
        assert env.physics.timestep() == 0.005
        env.reset()
        envs.append(env)
    return envs

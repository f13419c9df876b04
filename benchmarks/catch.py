"""Catch: physics in the batch against bare `mj_step` of the same model."""

from __future__ import annotations

import threading

import mujoco
import numpy as np

from benchmarks.figures import Figure, rates
from midstride.tasks.env import TaskVectorEnv

THREADS, NUM_ENVS, STEPS, TICKS, REPEATS = 2, 512, 30, 20, 7  # ticks: of a period


def run() -> list[Figure]:
    envs = TaskVectorEnv(
        "catch", NUM_ENVS, threads=THREADS, latency=0.1, knowledge=("vector_to_go",)
    )
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(5, size=(STEPS, NUM_ENVS))

    def step() -> None:
        for action in actions:
            envs.step(action)

    model = envs.task.model
    start = envs.task.initial(np.random.default_rng(0))
    bare_ticks = STEPS * NUM_ENVS * TICKS // THREADS // 4

    def bare() -> None:
        def work() -> None:
            data = mujoco.MjData(model)
            data.qpos[:], data.qvel[:] = start
            mujoco.mj_step(model, data, nstep=bare_ticks)

        threads = [threading.Thread(target=work) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    measured = rates(
        {"steps": (step, STEPS * NUM_ENVS), "bare ticks": (bare, bare_ticks * THREADS)}, REPEATS
    )
    value = measured["steps"] * TICKS / measured["bare ticks"]
    peer = f"bare mj_step of the same model on {THREADS} threads"
    return [Figure("catch/ticks-vs-bare", value, "x", peer, limit=1.0)]

"""Reinforcement learning for machines that think while they move."""

import gymnasium

from midstride.envs.concurrent import Concurrent
from midstride.envs.dm_control import from_dm_control
from midstride.policies import Policy, load
from midstride.tasks.env import TaskEnv, TaskVectorEnv
from midstride.timing import Fixed, LatencyModel, PerEpisode, PerStep, Sampled, Timing, Trace

__version__ = "0.1.0"

for _id, _task in (
    ("PointMass", "pointmass"),
    ("CartpoleSwingup", "cartpole"),
    ("PendulumSwingup", "pendulum"),
):
    gymnasium.register(
        id=f"midstride/{_id}-v0",
        entry_point="midstride.tasks.env:TaskEnv",
        vector_entry_point="midstride.tasks.env:TaskVectorEnv",
        kwargs={"task": _task},
    )
gymnasium.register(
    id="midstride/Grasp-v0",
    entry_point="midstride.tasks.grasp.env:GraspEnv",
    vector_entry_point="midstride.tasks.grasp.env:GraspVectorEnv",
)

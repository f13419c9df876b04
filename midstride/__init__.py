"""Reinforcement learning for machines that think while they move."""

from midstride.envs.concurrent import Concurrent
from midstride.envs.dm_control import from_dm_control
from midstride.policies import Policy, load
from midstride.tasks.env import TaskEnv, TaskVectorEnv, register
from midstride.timing import Fixed, PerEpisode, PerStep, Sampled, Timing, Trace

__version__ = "0.1.0"

__all__ = [
    "Concurrent",
    "Fixed",
    "PerEpisode",
    "PerStep",
    "Policy",
    "Sampled",
    "TaskEnv",
    "TaskVectorEnv",
    "Timing",
    "Trace",
    "from_dm_control",
    "load",
]

register()

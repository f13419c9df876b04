"""Reinforcement learning for machines that think while they move."""

from midstride.envs import TaskEnv, TaskVectorEnv, register
from midstride.timing import Fixed, PerEpisode, PerStep, Sampled, Timing, Trace
from midstride.wrappers import Concurrent, from_dm_control

__version__ = "0.1.0"

__all__ = [
    "Concurrent",
    "Fixed",
    "PerEpisode",
    "PerStep",
    "Sampled",
    "TaskEnv",
    "TaskVectorEnv",
    "Timing",
    "Trace",
    "from_dm_control",
]

register()

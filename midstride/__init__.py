"""Reinforcement learning for machines that think while they move."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from midstride.extras import MissingExtra, needed_by
from midstride.registration import register

if TYPE_CHECKING:
    from midstride.envs.concurrent import Concurrent
    from midstride.envs.concurrent_vector import ConcurrentVector
    from midstride.envs.dm_control import from_dm_control
    from midstride.latency import (
        Fixed,
        Jittered,
        LatencyModel,
        Lossy,
        PerEpisode,
        PerStep,
        Sampled,
        Trace,
    )
    from midstride.learn.adapt import adapt
    from midstride.learn.adapted import Adapted, AdaptSettings
    from midstride.measure.decision_time import DecisionTime, decision_time
    from midstride.measure.margin import Margin, margin
    from midstride.policies import Policy, as_policy, load
    from midstride.tasks.env import TaskVectorEnv
    from midstride.tasks.grasp.env import GraspEnv, GraspVectorEnv
    from midstride.tasks.single import TaskEnv
    from midstride.timing import Timing

__version__ = "0.1.0"

__all__ = [
    "AdaptSettings",
    "Adapted",
    "Concurrent",
    "ConcurrentVector",
    "DecisionTime",
    "Fixed",
    "GraspEnv",
    "GraspVectorEnv",
    "Jittered",
    "LatencyModel",
    "Lossy",
    "Margin",
    "MissingExtra",
    "PerEpisode",
    "PerStep",
    "Policy",
    "Sampled",
    "TaskEnv",
    "TaskVectorEnv",
    "Timing",
    "Trace",
    "adapt",
    "as_policy",
    "decision_time",
    "from_dm_control",
    "load",
    "margin",
]

# Where each name lives. It is imported when it is first used: MuJoCo takes a quarter of a second.
_HOMES = {
    "AdaptSettings": "midstride.learn.adapted",
    "Adapted": "midstride.learn.adapted",
    "Concurrent": "midstride.envs.concurrent",
    "ConcurrentVector": "midstride.envs.concurrent_vector",
    "DecisionTime": "midstride.measure.decision_time",
    "Fixed": "midstride.latency",
    "GraspEnv": "midstride.tasks.grasp.env",
    "GraspVectorEnv": "midstride.tasks.grasp.env",
    "Jittered": "midstride.latency",
    "LatencyModel": "midstride.latency",
    "Lossy": "midstride.latency",
    "Margin": "midstride.measure.margin",
    "PerEpisode": "midstride.latency",
    "PerStep": "midstride.latency",
    "Policy": "midstride.policies",
    "Sampled": "midstride.latency",
    "TaskEnv": "midstride.tasks.single",
    "TaskVectorEnv": "midstride.tasks.env",
    "Timing": "midstride.timing",
    "Trace": "midstride.latency",
    "adapt": "midstride.learn.adapt",
    "as_policy": "midstride.policies",
    "decision_time": "midstride.measure.decision_time",
    "from_dm_control": "midstride.envs.dm_control",
    "load": "midstride.policies",
    "margin": "midstride.measure.margin",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'midstride' has no attribute {name!r}")
    with needed_by(f"midstride.{name}"):
        value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


register()

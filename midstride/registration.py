"""What the environments are called in Gymnasium. `import midstride` makes the names known.

Only names are given here: MuJoCo and the tasks are imported when an environment is made. Gymnasium
has looked for no plug-ins since 1.0; it imports a module that is named before the id, so that
`gymnasium.make("midstride:midstride/PointMass-v0")` needs no import.
"""

from __future__ import annotations

from typing import Any

import gymnasium

# id: classes of one environment and of many, and what they are made with
_ENVIRONMENTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "midstride/PointMass-v0": ("TaskEnv", "TaskVectorEnv", {"task": "pointmass"}),
    "midstride/CartpoleSwingup-v0": ("TaskEnv", "TaskVectorEnv", {"task": "cartpole"}),
    "midstride/PendulumSwingup-v0": ("TaskEnv", "TaskVectorEnv", {"task": "pendulum"}),
    "midstride/Catch-v0": ("TaskEnv", "TaskVectorEnv", {"task": "catch"}),
    "midstride/CatchDrag-v0": ("TaskEnv", "TaskVectorEnv", {"task": "catch-drag"}),
    "midstride/CatchBounce-v0": ("TaskEnv", "TaskVectorEnv", {"task": "catch-bounce"}),
    "midstride/Balance-v0": ("TaskEnv", "TaskVectorEnv", {"task": "balance"}),
    "midstride/Grasp-v0": ("GraspEnv", "GraspVectorEnv", {}),
    "midstride/ConveyorGrasp-v0": ("GraspEnv", "GraspVectorEnv", {"task": "conveyor"}),
}


def register() -> None:
    """Make the environments known to `gymnasium.make` and `gymnasium.make_vec`, once."""
    for env_id, (one, many, options) in _ENVIRONMENTS.items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                id=env_id,
                entry_point=f"midstride:{one}",
                vector_entry_point=f"midstride:{many}",
                kwargs=options,
            )

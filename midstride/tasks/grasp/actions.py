"""Actions, encoded as in QT-Opt: a displacement, and three commands that are on or off.

    x  y  z  yaw  |  close  open  terminate
    -1 to 1       |  0 to 1, on above one half

The first four are displacements in units of `SCALE`. Of close and open the larger one counts; with
neither on, the gripper does what it did. Terminate ends the episode at the switch, and nothing else
of such an action counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from midstride.envs.learnable import Commands
from midstride.policies.cem import as_meant

Array = NDArray[np.floating]

NAMES = ("x", "y", "z", "yaw", "close", "open", "terminate")
SIZE = len(NAMES)
CLOSE, OPEN, TERMINATE = 4, 5, 6
LOW = np.array([-1.0] * 4 + [0.0] * 3)
HIGH = np.ones(SIZE)


# Of gripper and terminate: nothing, close, open, end the episode; and how often each is tried.
COMMANDS = Commands(
    settings=np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]]),
    tried=np.array([0.4, 0.28, 0.28, 0.04]),
    ends=TERMINATE,
)


def decode(actions: Array) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Of actions (n, 7): displacement (n, 4), grip (+1 open, -1 close, 0 as it is), terminate."""
    actions = as_meant(actions, TERMINATE)
    close, open_ = actions[:, CLOSE], actions[:, OPEN]
    on = np.maximum(close, open_) > 0.5
    return actions[:, :4], np.where(on, np.sign(open_ - close), 0.0), actions[:, TERMINATE] > 0.5

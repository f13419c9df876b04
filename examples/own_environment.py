"""An environment of one's own: a planar drone with two rotors that shall hover at a point.

Plain Gymnasium and NumPy, no simulator. Importing this file registers `PlanarDrone-v0`, so that
`midstride evaluate POLICY --env own_environment:PlanarDrone-v0` finds it from this folder.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

MASS_KG = 0.6
ARM_M = 0.15  # from the centre to each rotor
INERTIA_KG_M2 = 0.006
GRAVITY_M_S2 = 9.81
DRAG_N_S_M = 0.1
LARGEST_THRUST_N = MASS_KG * GRAVITY_M_S2  # of each rotor: both together lift twice the weight
ROTOR_S = 0.03  # time in which a rotor makes 63 % of a change of thrust
SUBSTEPS = 8  # of the integrator in one step

FARTHEST_M, STEEPEST_RAD = 2.0, 1.2  # beyond these it has crashed


class PlanarDrone(gymnasium.Env[np.ndarray, np.ndarray]):
    """Hover at the origin. 50 steps a second; an action is the thrust asked of each rotor.

    Observation (8,): position x, z in m from the target; tilt in rad; their speeds; the thrusts of
    the left and right rotor as shares of the largest. Action (2,): thrusts asked for, -1 is none
    and 1 is the largest. Reward of a step: 1 at the target, less with distance and spin; the
    episode ends when the drone is 2 m away or tilted by 1.2 rad.
    """

    dt = 0.02  # seconds of a step

    def __init__(self) -> None:
        far = np.full(8, np.inf, np.float32)
        self.observation_space = spaces.Box(-far, far)
        self.action_space = spaces.Box(-1, 1, (2,), np.float32)
        self._position = np.zeros(3)  # x, z, tilt
        self._speed = np.zeros(3)
        self._thrust = np.zeros(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._position = self.np_random.uniform([-1, -1, -0.3], [1, 1, 0.3])
        self._speed = self.np_random.uniform(-0.3, 0.3, 3)
        self._thrust = np.full(2, MASS_KG * GRAVITY_M_S2 / 2)
        return self._observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        asked = (np.clip(action, -1, 1) + 1) / 2 * LARGEST_THRUST_N
        h = self.dt / SUBSTEPS
        for _ in range(SUBSTEPS):  # speeds first, then positions: symplectic Euler
            self._thrust += (1 - np.exp(-h / ROTOR_S)) * (asked - self._thrust)
            self._speed += h * self._acceleration()
            self._position += h * self._speed
        x, z, tilt = self._position
        distance_m, spin = float(np.hypot(x, z)), float(self._speed[2])
        reward = 1 / (1 + 2 * distance_m) - 0.01 * min(abs(spin), 10.0)
        crashed = distance_m > FARTHEST_M or abs(tilt) > STEEPEST_RAD
        return self._observation(), reward, bool(crashed), False, {}

    def _acceleration(self) -> np.ndarray:
        """Of x, z and tilt; a positive tilt leans to the left."""
        left, right = self._thrust
        tilt, total = self._position[2], left + right
        drag = DRAG_N_S_M * self._speed[:2]
        force = np.array([-np.sin(tilt) * total, np.cos(tilt) * total - MASS_KG * GRAVITY_M_S2])
        return np.append((force - drag) / MASS_KG, ARM_M * (right - left) / INERTIA_KG_M2)

    def _observation(self) -> np.ndarray:
        shares = self._thrust / LARGEST_THRUST_N
        return np.concatenate([self._position, self._speed, shares]).astype(np.float32)


gymnasium.register("PlanarDrone-v0", entry_point=PlanarDrone, max_episode_steps=250)

"""Catch: a cup on a rail, and a thrown ball that does not wait.

The cup goes where it is told, first order as the point mass, but no faster than `SPEED_M_S`. An
episode is one throw: it ends when the ball comes down through the height of the rim, in the cup or
beside it. Whoever rests while thinking moves less: with a latency t, n decisions and a flight of T
seconds a robot that holds moves for T - n t, one that thinks while it moves for T - t
(`reach_m`). Half of the throws are beyond the first and within the second, whatever the period.

`bounce`: on its way the ball meets a wall that is not observed, so that where it comes down is
known late, and no plan made at the throw is right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import mujoco
import numpy as np
from numpy.typing import NDArray

from midstride.sim.task import (
    Array,
    Controlled,
    Finish,
    Task,
    Viewpoint,
    gaussian_tolerance,
    line_of_displacements,
)

PERIOD_S = 0.1  # of control, unless told otherwise
LATENCY_S = 0.1  # that throws are drawn for
SPEED_M_S = 1.0
TAU_S = 0.02
DISPLACEMENT_M = 0.15  # an action runs at full speed for 0.127 s
RAIL_M = 1.2
MOUTH_M = 0.05  # half of the cup's opening
FLIGHT_S = (0.6, 0.8)
BEYOND_HOLD = 0.5  # share of the throws
MARGIN_M = 0.25  # a miss by this much is hardly better than one by more

_GRAVITY = 9.81
_FROM_M, _HEIGHT_M = 1.5, (0.1, 0.5)  # where balls are thrown: left or right, above the rim
_RADIUS_M, _BOARD_M = 0.03, 0.02  # of the ball; half of the wall's thickness
_MASS_KG = 3e-9  # of the cup: see pointmass.py
_HIT_AT_S, _HIT_M_S = (0.25, 0.35), (0.8, 1.6)  # when the ball meets the wall, and how fast
# The wall is a damped spring that pushes and does not pull: a contact lasts about 30 ms.
_SPRING_PER_S, _FADING = 100.0, 0.12


def reach_m(flight_s: float, latency_s: float, holds: bool) -> float:
    """How far the cup can get before the ball comes down, whatever it is told and however often.

    Of a robot that holds: the best over the number of its decisions, each of which takes a latency
    at rest and displaces by `DISPLACEMENT_M` at most. Otherwise the cup never stops, once told to
    go (for periods of up to 0.12 s; longer ones exhaust a displacement before the next comes).
    """
    if not holds or latency_s <= 0:
        return max(0.0, SPEED_M_S * (flight_s - latency_s))
    # n decisions reach min(n DISPLACEMENT_M, SPEED_M_S (flight_s - n latency_s)): rising, then not.
    n = int(SPEED_M_S * flight_s / (DISPLACEMENT_M + SPEED_M_S * latency_s))
    return max(n * DISPLACEMENT_M, SPEED_M_S * (flight_s - (n + 1) * latency_s))


def bounced() -> tuple[float, float, float]:
    """Of a bounce, in closed form: the share of the speed that is left, seconds, depth per speed.

    x(t) = v exp(-f w t) sin(d w t) / (d w), d = sqrt(1 - f^2); it ends when w^2 x + 2 f w x' = 0.
    """
    f, d = _FADING, np.sqrt(1 - _FADING**2)
    angle = np.pi - np.arctan2(2 * f * d, 1 - 2 * f**2)
    kept = np.exp(-f / d * angle)
    return float(kept), float(angle / (d * _SPRING_PER_S)), float(2 * f * kept / _SPRING_PER_S)


def make(tick_s: float = 0.005) -> Task:
    return _task("catch", _model(tick_s, wall=False), initial)


@dataclass(frozen=True)
class Bounce:
    """The same with a wall."""

    PERIOD_S = PERIOD_S

    @staticmethod
    def make(tick_s: float = 0.005) -> Task:
        return _task("catch-bounce", _model(tick_s, wall=True), initial_bounce)


bounce = Bounce()


Draw = Callable[[np.random.Generator, float], tuple[Array, Array]]


def _task(name: str, model: mujoco.MjModel, draw: Draw) -> Task:
    tick_s = float(model.opt.timestep)
    return Task(
        name=name,
        model=model,
        controlled=Controlled(
            names=("cup",),
            qpos=np.array([0]),
            scale=np.array([DISPLACEMENT_M]),
            low=np.array([-RAIL_M]),
            high=np.array([RAIL_M]),
            wraps=np.array([False]),
        ),
        columns=("cup", "ball_x", "ball_z", "ball_x_velocity", "ball_z_velocity"),
        observation_low=np.full(5, -np.inf),
        observation_high=np.full(5, np.inf),
        time_limit_s=1.0,
        reward_per_s=1000.0 / tick_s,  # all of it is paid at one tick
        period_s=PERIOD_S,
        initial=lambda rng: draw(rng, tick_s),
        observe=observe,
        reward=lambda qpos, qvel: reward(qpos, qvel, tick_s),
        displacements=line_of_displacements,
        marker=marker,
        viewpoint=Viewpoint(position=(0, -2.9, 0.42), target=(0, 0, 0.42), fov_deg=40),
        finish=Finish(
            lambda qpos, qvel: comes_down(qpos, qvel, tick_s), partial(measures, tick_s=tick_s)
        ),
    )


def _model(tick_s: float, wall: bool) -> mujoco.MjModel:
    # As of the point mass: the share of the way that an exponential covers in a tick.
    stiffness = -np.expm1(-tick_s / TAU_S) / tick_s
    spring = f"{-(_SPRING_PER_S**2)} {-2 * _FADING * _SPRING_PER_S}"
    side, rim = MOUTH_M + 0.01, 0.06
    cup = "".join(
        f'<geom type="box" pos="{x} 0 {z}" size="{sx} .06 {sz}" rgba=".25 .45 .75 1" {{touch}}/>'
        for x, z, sx, sz in [
            (-side, -rim, 0.01, rim),
            (side, -rim, 0.01, rim),
            (0, -2 * rim, side + 0.01, 0.01),
        ]
    ).format(touch='contype="0" conaffinity="0" mass="0"')
    board = f"""
        <body name="wall">
          <joint name="wall" type="slide" axis="1 0 0"/>
          <geom type="box" pos="0 0 .5" size="{_BOARD_M} .15 .8" mass="1e6" rgba=".7 .45 .3 1"
                solref="{spring}" solimp="0.9999 0.9999 .001" priority="1"
                contype="1" conaffinity="0" condim="1"/>
        </body>"""
    contact = "" if wall else '<flag contact="disable"/>'
    xml = f"""
    <mujoco>
      <option timestep="{tick_s}" integrator="implicitfast" gravity="0 0 {-_GRAVITY}">
        {contact}
      </option>
      <worldbody>
        <geom type="plane" size="3 2 .1" pos="0 0 -.2" rgba=".2 .3 .4 1" contype="0"
              conaffinity="0"/>
        <geom type="box" pos="0 0 -.16" size="{RAIL_M + 0.1} .02 .015" rgba=".35 .4 .5 1"
              contype="0" conaffinity="0"/>
        <body name="cup">
          <joint name="cup" type="slide" axis="1 0 0" damping="1"/>
          <inertial pos="0 0 0" mass="{_MASS_KG}" diaginertia="1e-9 1e-9 1e-9"/>
          {cup}
        </body>
        <body name="ball">
          <joint name="ball_x" type="slide" axis="1 0 0"/>
          <joint name="ball_z" type="slide" axis="0 0 1"/>
          <geom type="sphere" size="{_RADIUS_M}" mass=".05" rgba=".95 .65 .15 1" contype="0"
                conaffinity="1" condim="1"/>
        </body>{board if wall else ""}
      </worldbody>
      <actuator>
        <position joint="cup" kp="{stiffness}" forcelimited="true"
                  forcerange="{-SPEED_M_S} {SPEED_M_S}"/>
      </actuator>
    </mujoco>"""
    return mujoco.MjSpec.from_string(xml).compile()


def initial(rng: np.random.Generator, tick_s: float) -> tuple[Array, Array]:
    """A throw that comes down within reach; `BEYOND_HOLD` of them out of the reach of hold."""
    flight_s = rng.uniform(*FLIGHT_S)
    held, moving = (reach_m(flight_s, LATENCY_S, holds) for holds in (True, False))
    if rng.random() < BEYOND_HOLD:
        away = rng.uniform(held + MOUTH_M + 0.001, moving - MOUTH_M)
    else:
        away = rng.uniform(0, held)
    cup = rng.uniform(-0.05, 0.05)
    lands = cup + away * _side(rng)
    start = _FROM_M * _side(rng)
    height = rng.uniform(*_HEIGHT_M)
    rise = _rise(height, flight_s, tick_s)
    return np.array([cup, start, height]), np.array([0, (lands - start) / flight_s, rise])


def initial_bounce(rng: np.random.Generator, tick_s: float) -> tuple[Array, Array]:
    """A throw that comes down within reach of a cup that waits for the bounce, and then goes.

    It sees the bounce a period later at most, and goes a latency after that.
    """
    flight_s, hit_s = rng.uniform(0.7, 0.8), rng.uniform(*_HIT_AT_S)
    kept, contact_s, depth_s = bounced()
    left_s = flight_s - hit_s - contact_s
    cup = rng.uniform(-0.05, 0.05)
    away = rng.uniform(0, reach_m(left_s - PERIOD_S, LATENCY_S, holds=False))
    lands = cup + away * _side(rng)
    speed = rng.uniform(*_HIT_M_S) * _side(rng)  # before the bounce
    hit = lands + kept * speed * left_s - depth_s * speed
    height = rng.uniform(*_HEIGHT_M)
    board = hit + np.sign(speed) * (_RADIUS_M + _BOARD_M)
    qpos = np.array([cup, hit - speed * hit_s, height, board])
    return qpos, np.array([0, speed, _rise(height, flight_s, tick_s), 0])


def _side(rng: np.random.Generator) -> int:
    """-1 or 1."""
    return 2 * int(rng.integers(2)) - 1


def _rise(height: float, flight_s: float, tick_s: float) -> float:
    """Velocity upwards of a ball that is at the rim, on its way down, after a while.

    A velocity that falls before each tick's motion is that of half a tick later.
    """
    return _GRAVITY * (flight_s + tick_s) / 2 - height / flight_s


def flight_s(height: Array, rise: Array, tick_s: float) -> Array:
    """How long a ball flies until it comes down to the rim: the inverse of `_rise`."""
    thrown = rise - _GRAVITY * tick_s / 2
    return np.asarray((thrown + np.sqrt(thrown**2 + 2 * _GRAVITY * height)) / _GRAVITY)


def observe(qpos: Array, qvel: Array) -> Array:
    return np.concatenate([qpos[..., :3], qvel[..., 1:3]], axis=-1)


def comes_down(qpos: Array, qvel: Array, tick_s: float) -> NDArray[np.bool_]:
    """Whether the ball came down through the height of the rim in the tick that ended now."""
    z, rise = qpos[..., 2], qvel[..., 2]
    return np.asarray((z <= 0) & (z - rise * tick_s > 0))


def _since_s(qpos: Array, qvel: Array) -> Array:
    """How long ago a ball that is below the rim came down through its height."""
    return qpos[..., 2] / np.where(qvel[..., 2] < 0, qvel[..., 2], -np.inf)


def lands_m(qpos: Array, qvel: Array) -> Array:
    """Where the ball came down."""
    return qpos[..., 1] - qvel[..., 1] * _since_s(qpos, qvel)


def missed_m(qpos: Array, qvel: Array) -> Array:
    """How far that is from where the middle of the cup was at that instant."""
    return np.abs(lands_m(qpos, qvel) - qpos[..., 0] + qvel[..., 0] * _since_s(qpos, qvel))


def reward(qpos: Array, qvel: Array, tick_s: float) -> Array:
    """When the ball comes down: half for the catch, half for how near it was."""
    missed = missed_m(qpos, qvel)
    paid = 0.5 * (missed <= MOUTH_M) + 0.5 * gaussian_tolerance(missed, MARGIN_M)
    return np.where(comes_down(qpos, qvel, tick_s), paid, 0.0)


def measures(
    start: tuple[Array, Array], qpos: Array, qvel: Array, tick_s: float
) -> dict[str, Array]:
    """Of throws (n, ...) from where they started and where they came down."""
    missed = missed_m(qpos, qvel)
    from_qpos, from_qvel = start
    lasted_s = flight_s(from_qpos[..., 2], from_qvel[..., 2], tick_s)
    held = np.array([reach_m(one_s, LATENCY_S, holds=True) for one_s in lasted_s])
    away = np.abs(lands_m(qpos, qvel) - from_qpos[..., 0])
    return {
        "success": missed <= MOUTH_M,
        "reach_error_m": missed,
        "impact_speed_m_s": np.hypot(qvel[..., 1] - qvel[..., 0], qvel[..., 2]),
        "beyond_hold": away > held + MOUTH_M,  # at the latency that throws are drawn for
    }


def marker(qpos: Array, target: Array) -> Array:
    return np.array([target[0], 0, -0.16])

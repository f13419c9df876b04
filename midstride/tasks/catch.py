"""Catch: a cup on a rail, and a thrown ball that does not wait.

The cup goes where it is told, first order as the point mass, but no faster than `SPEED_M_S`. An
episode is one throw: it ends when the ball comes down through the height of the rim, in the cup or
beside it. Whoever rests while thinking moves less: with a latency t, n decisions and a flight of T
seconds a robot that holds moves for T - n t, one that thinks while it moves for T - t
(`reach_m`). Throws are drawn for a latency of 100 ms: half of them are beyond the first, whatever
its period, and within the second, for periods of up to 120 ms.

`drag`: the same with a ball as light as a shuttlecock, which the air slows down.

`bounce`: until the ball is on its way for a while nothing tells whether it meets a wall, by a coin:
there are two places where it may come down. Of half of the throws a robot that holds reaches at
most one of the two after that, wherever it waited; one that thinks while it moves, and waited in
the middle, reaches both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import mujoco
import numpy as np
from numpy.typing import NDArray

from midstride.seconds import format_s
from midstride.sim.task import (
    Array,
    Controlled,
    Ended,
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

DRAG_PER_M = 0.2  # of catch-drag: slows down by this times the speed squared; falls at 7 m/s
PARTS_S = 0.8  # of catch-bounce: before it comes down the ball meets the wall, or it does not

_GRAVITY = 9.81
_FROM_M, _HEIGHT_M = 1.5, (0.1, 0.5)  # where balls are thrown: left or right, above the rim
_RADIUS_M, _BOARD_M = 0.03, 0.02  # of the ball; half of the wall's thickness
_BALL_KG = 0.05
_MASS_KG = 3e-9  # of the cup: see pointmass.py
_BOUNCE_FLIGHT_S, _BOUNCE_TICK_S = (1.05, 1.15), 0.005
_LEAST_M = 0.1  # half of the way between the two places, at least
_NEARER_M, _FARTHER_M = 0.02, 0.045  # that bounces come down by, at ticks of 5 ms
_NO_WALL_M = 10.0  # where the wall is that the ball does not meet
_RK_STEPS, _AIMS = 20, 8  # of a flight in air, and at its end: within a tenth of a millimetre
# MuJoCo's air: drag by the area against the wind, nothing else. A body without it is a box to it.
_AIR = ' fluidshape="ellipsoid" fluidcoef="{} 0 0 0 0"'
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


def apart_m(speed_m_s: Array | float) -> Array | float:
    """With the wall and without: half of the way between the places where a ball comes down."""
    kept, contact_s, depth_s = bounced()
    return np.abs(speed_m_s) * (PARTS_S - depth_s + kept * (PARTS_S - contact_s)) / 2


def fly(place: Any, velocity: Any, for_s: Any, drag_per_m: float) -> tuple[Any, Any]:
    """Where a ball is after a while, and how fast: x + i z, of one ball or of many.

    Runge and Kutta's fourth order, in steps short enough for a throw.
    """
    step_s = for_s / _RK_STEPS

    def acceleration(v: Any) -> Any:
        return -1j * _GRAVITY - drag_per_m * abs(v) * v

    for _ in range(_RK_STEPS):
        a = acceleration(velocity)
        b = acceleration(velocity + a * step_s / 2)
        c = acceleration(velocity + b * step_s / 2)
        d = acceleration(velocity + c * step_s)
        place = place + step_s * velocity + step_s**2 / 6 * (a + b + c)
        velocity = velocity + step_s / 6 * (a + 2 * b + 2 * c + d)
    return place, velocity


def make(tick_s: float = 0.005) -> Task:
    model = _model(tick_s, wall=False)
    return _task("catch", model, initial, beyond_hold)


@dataclass(frozen=True)
class Drag:
    """The same in air."""

    PERIOD_S = PERIOD_S

    @staticmethod
    def make(tick_s: float = 0.005) -> Task:
        model = _model(tick_s, wall=False, drag_per_m=DRAG_PER_M)
        return _task("catch-drag", model, initial_drag, beyond_hold)


@dataclass(frozen=True)
class Bounce:
    """The same with a wall."""

    PERIOD_S = PERIOD_S

    @staticmethod
    def make(tick_s: float = 0.005) -> Task:
        if tick_s > _BOUNCE_TICK_S + 1e-9:
            raise ValueError(
                f"a bounce lasts {format_s(round(bounced()[1], 3))}, which ticks of "
                f"{format_s(tick_s)} do not resolve: catch-bounce needs a tick of at most "
                f"{format_s(_BOUNCE_TICK_S)}"
            )
        model = _model(tick_s, wall=True)
        return _task("catch-bounce", model, initial_bounce, beyond_hold_after, 1.2)


drag, bounce = Drag(), Bounce()


Draw = Callable[[np.random.Generator, float], tuple[Array, Array]]
Beyond = Callable[[Ended], NDArray[np.bool_]]


def _task(
    name: str, model: mujoco.MjModel, draw: Draw, beyond: Beyond, limit_s: float = 1.0
) -> Task:
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
        time_limit_s=limit_s,
        reward_per_s=1000.0 / tick_s,  # all of it is paid at one tick
        period_s=PERIOD_S,
        initial=lambda rng: draw(rng, tick_s),
        observe=observe,
        reward=lambda qpos, qvel: reward(qpos, qvel, tick_s),
        displacements=line_of_displacements,
        marker=marker,
        viewpoint=Viewpoint(position=(0, -3.4, 0.55), target=(0, 0, 0.55), fov_deg=40),
        finish=Finish(
            lambda qpos, qvel: comes_down(qpos, qvel, tick_s), partial(measures, beyond=beyond)
        ),
    )


def _model(tick_s: float, wall: bool, drag_per_m: float = 0.0) -> mujoco.MjModel:
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
    ).format(touch='contype="0" conaffinity="0" mass="0"' + (_AIR.format(0) if drag_per_m else ""))
    blunt = drag_per_m * _BALL_KG / (np.pi * _RADIUS_M**2)
    board = f"""
        <body name="wall">
          <joint name="wall" type="slide" axis="1 0 0"/>
          <geom type="box" pos="0 0 1" size="{_BOARD_M} .15 1.5" mass="1e6" rgba="0 0 0 0"
                solref="{spring}" solimp="0.9999 0.9999 .001" priority="1"
                contype="1" conaffinity="0" condim="1"/>
        </body>"""
    # It is not seen either: nothing tells before the bounce.
    contact = "" if wall else '<flag contact="disable"/>'
    xml = f"""
    <mujoco>
      <option timestep="{tick_s}" integrator="implicitfast" gravity="0 0 {-_GRAVITY}"
              density="{1 if drag_per_m else 0}">
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
          <geom type="sphere" size="{_RADIUS_M}" mass="{_BALL_KG}" rgba=".95 .65 .15 1"
                contype="0" conaffinity="1" condim="1"
                {_AIR.format(blunt) if drag_per_m else ""}/>
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
    cup, start, height, lands, flight_s = _drawn(rng)
    rise = _rise(height, flight_s, tick_s)
    return np.array([cup, start, height]), np.array([0, (lands - start) / flight_s, rise])


def initial_drag(rng: np.random.Generator, tick_s: float) -> tuple[Array, Array]:
    """The same balls, thrown so much harder that they come down there and then."""
    cup, start, height, lands, flight_s = _drawn(rng)
    place = complex(start, height)
    velocity = complex((lands - start) / flight_s, _GRAVITY * flight_s / 2 - height / flight_s)
    for _ in range(_AIMS):
        velocity += (lands - fly(place, velocity, flight_s, DRAG_PER_M)[0]) / flight_s
    # As in `_rise`: the velocity of half a tick earlier.
    velocity += (1j * _GRAVITY + DRAG_PER_M * abs(velocity) * velocity) * tick_s / 2
    return np.array([cup, start, height]), np.array([0, velocity.real, velocity.imag])


def _drawn(rng: np.random.Generator) -> tuple[float, float, float, float, float]:
    """Of a throw: where the cup is, from where, from what height, to where, and how long."""
    flight_s = rng.uniform(*FLIGHT_S)
    held, moving = (reach_m(flight_s, LATENCY_S, holds) for holds in (True, False))
    if rng.random() < BEYOND_HOLD:
        away = rng.uniform(held + MOUTH_M + 0.001, moving - MOUTH_M)
    else:
        away = rng.uniform(0, held)
    cup = rng.uniform(-0.05, 0.05)
    lands = cup + away * _side(rng)
    start = _FROM_M * _side(rng)
    return cup, start, rng.uniform(*_HEIGHT_M), lands, flight_s


def initial_bounce(rng: np.random.Generator, tick_s: float) -> tuple[Array, Array]:
    """A throw that meets a wall `PARTS_S` before it comes down, or not, by a coin.

    Of `BEYOND_HOLD` of the throws the two places are farther apart than a robot that holds reaches,
    to both sides, from that instant on; and not farther than one that thinks while it moves does
    from the middle, though it sees the bounce a period after it at the latest.
    """
    flight_s, seen_s = rng.uniform(*_BOUNCE_FLIGHT_S), PARTS_S - bounced()[1] - PERIOD_S
    if rng.random() < BEYOND_HOLD:
        held = reach_m(PARTS_S, LATENCY_S, holds=True)
        moving = reach_m(seen_s, LATENCY_S, holds=False)
        apart = rng.uniform(held + MOUTH_M + _NEARER_M, moving + MOUTH_M - _FARTHER_M)
    else:  # within hold's reach, although it sees the bounce a latency later
        apart = rng.uniform(_LEAST_M, reach_m(seen_s - LATENCY_S, LATENCY_S, holds=True))
    cup = rng.uniform(-0.05, 0.05)
    middle = cup + rng.uniform(-_LEAST_M, _LEAST_M)
    speed = _side(rng) * apart / float(apart_m(1.0))
    start = middle + np.sign(speed) * apart - speed * flight_s
    wall = start + speed * (flight_s - PARTS_S) + np.sign(speed) * (_RADIUS_M + _BOARD_M)
    if rng.random() < 0.5:
        wall = -np.sign(speed) * _NO_WALL_M
    height = rng.uniform(*_HEIGHT_M)
    qpos = np.array([cup, start, height, wall])
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


def measures(ended: Ended, beyond: Beyond) -> dict[str, Array]:
    """Of throws."""
    qvel, missed = ended.qvel, missed_m(ended.qpos, ended.qvel)
    return {
        "success": missed <= MOUTH_M,
        "reach_error_m": missed,
        "impact_speed_m_s": np.hypot(qvel[..., 1] - qvel[..., 0], qvel[..., 2]),
        "beyond_hold": beyond(ended),
    }


def beyond_hold(ended: Ended) -> NDArray[np.bool_]:
    """Whether no robot that holds could have been there, at the latency of the environment.

    Where that is 0 or changes: at the one that throws are drawn for.
    """
    latency_s = LATENCY_S if ended.latency_s is None else ended.latency_s
    lasted_s = ended.after_s - _since_s(ended.qpos, ended.qvel)
    held = np.array([reach_m(one_s, latency_s, holds=True) for one_s in lasted_s])
    away = np.abs(lands_m(ended.qpos, ended.qvel) - ended.start[0][..., 0])
    return np.asarray(away > held + MOUTH_M)


def beyond_hold_after(ended: Ended) -> NDArray[np.bool_]:
    """The same of one of the two places, wherever the robot was when their ways parted."""
    latency_s = LATENCY_S if ended.latency_s is None else ended.latency_s
    held = reach_m(PARTS_S, latency_s, holds=True)
    return np.asarray(apart_m(ended.start[1][..., 1]) > held + MOUTH_M)


def marker(qpos: Array, target: Array) -> Array:
    return np.array([target[0], 0, -0.16])

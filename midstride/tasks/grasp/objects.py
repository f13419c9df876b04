"""Procedurally generated objects: seeded families of shapes, and a set of household-like things.

Every object is up to three primitive shapes on one body. One horizontal width is always small
enough for the gripper. The training and the held-out set are drawn from the same families with
different seeds; no object is in both.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]

MAX_PARTS = 3
OBJECT_SETS = ("train", "held_out", "household")
SET_SIZE = 200  # objects of the training set and of the held-out set
_SEEDS = {"train": 1, "held_out": 2}
_MIN_INERTIA = 1.5e-5  # kg m^2: thin things would need a finer physics tick
_UPRIGHT = (1.0, 0.0, 0.0, 0.0)
_LYING_X = (0.5**0.5, 0.0, 0.5**0.5, 0.0)  # a cylinder's axis along x
_LYING_Y = (0.5**0.5, 0.5**0.5, 0.0, 0.0)  # along y


@dataclass(frozen=True)
class Part:
    """A primitive shape in the frame of its object; sizes as in MuJoCo, in metres."""

    kind: str  # box, cylinder, capsule, ellipsoid
    size: tuple[float, ...]
    position: tuple[float, float, float] = (0.0, 0.0, 0.0)
    quaternion: tuple[float, float, float, float] = _UPRIGHT
    rgb: tuple[float, float, float] = (0.8, 0.2, 0.2)


@dataclass(frozen=True)
class Design:
    """An object: parts around the middle of its bounding box, taken as its centre of mass, in kg.

    `half_extents` are those of its bounding box. `grip_yaw` is the direction, in the object's
    frame, along which the fingers should close.
    """

    name: str
    parts: tuple[Part, ...]
    mass: float

    @property
    def half_extents(self) -> Array:
        corners = [_corners(part) for part in self.parts]
        return np.max([np.abs(c).max(axis=0) for c in corners], axis=0)

    @property
    def grip_yaw(self) -> float:
        x, y, _ = self.half_extents
        return 0.0 if x <= y else np.pi / 2

    @property
    def inertia(self) -> Array:
        """That of its bounding box, and no less than the physics tick can carry."""
        x, y, z = self.half_extents**2
        box = self.mass / 3 * np.array([y + z, x + z, x + y])
        return np.maximum(box, _MIN_INERTIA)


def object_set(name: str) -> tuple[Design, ...]:
    """All objects of a set."""
    if name == "household":
        return tuple(make() for make in _HOUSEHOLD)
    if name not in _SEEDS:
        raise ValueError(f"unknown object set {name!r}: choose from {', '.join(OBJECT_SETS)}")
    rng = np.random.default_rng(_SEEDS[name])
    families = list(_FAMILIES)
    return tuple(
        _coloured(_FAMILIES[families[i % len(families)]](rng), f"{name}{i}", rng)
        for i in range(SET_SIZE)
    )


def _coloured(design: Design, name: str, rng: np.random.Generator) -> Design:
    hue, saturation = rng.uniform(), rng.uniform(0.6, 1.0)
    parts = []
    for k, part in enumerate(design.parts):
        value = (0.95, 0.7, 0.85)[k]
        parts.append(replace(part, rgb=colorsys.hsv_to_rgb(hue, saturation, value)))
    return centred(Design(f"{name}-{design.name}", tuple(parts), float(rng.uniform(0.03, 0.08))))


def centred(design: Design) -> Design:
    """The same object with the middle of its bounding box at the origin."""
    corners = np.concatenate([_corners(part) for part in design.parts])
    middle = (corners.min(axis=0) + corners.max(axis=0)) / 2
    parts = []
    for part in design.parts:
        x, y, z = (float(v) for v in np.subtract(part.position, middle))
        parts.append(replace(part, position=(x, y, z)))
    return replace(design, parts=tuple(parts))


def _corners(part: Part) -> Array:
    """Corners of a box around a part, in the object's frame."""
    s = part.size
    half = {
        "box": s,
        "ellipsoid": s,
        "cylinder": (s[0], s[0], s[-1]),
        "capsule": (s[0], s[0], s[0] + s[-1]),
    }[part.kind]
    signs = np.array(np.meshgrid(*[[-1, 1]] * 3)).T.reshape(-1, 3)
    w, x, y, z = part.quaternion
    rotation = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    return np.asarray(signs * half @ rotation.T + part.position)


# --- Families: narrow enough to be grasped, large enough to be seen -------------------------------

_NARROW = (0.011, 0.022)  # half widths that the fingers close on
_LONG = (0.018, 0.034)
_HIGH = (0.014, 0.025)


def _box(rng: np.random.Generator) -> Design:
    size = (rng.uniform(*_NARROW), rng.uniform(*_LONG), rng.uniform(*_HIGH))
    return Design("box", (Part("box", size),), 0.05)


def _cylinder(rng: np.random.Generator) -> Design:
    return Design(
        "cylinder", (Part("cylinder", (rng.uniform(0.013, 0.022), rng.uniform(*_HIGH))),), 0.05
    )


def _rod(rng: np.random.Generator) -> Design:
    size = (rng.uniform(0.011, 0.018), rng.uniform(*_LONG))
    return Design("rod", (Part("cylinder", size, quaternion=_LYING_Y),), 0.05)


def _capsule(rng: np.random.Generator) -> Design:
    size = (rng.uniform(0.012, 0.019), rng.uniform(0.012, 0.024))
    return Design("capsule", (Part("capsule", size, quaternion=_LYING_Y),), 0.05)


def _ellipsoid(rng: np.random.Generator) -> Design:
    size = (rng.uniform(0.014, 0.022), rng.uniform(0.018, 0.032), rng.uniform(0.014, 0.022))
    return Design("ellipsoid", (Part("ellipsoid", size),), 0.05)


def _step(rng: np.random.Generator) -> Design:
    """A smaller box on a larger one."""
    low = (rng.uniform(*_NARROW), rng.uniform(0.02, 0.032), rng.uniform(0.010, 0.015))
    top = (low[0] * rng.uniform(0.7, 1), low[1] * rng.uniform(0.35, 0.6), rng.uniform(0.007, 0.011))
    shift = rng.uniform(-0.4, 0.4) * low[1]
    return Design(
        "step", (Part("box", low), Part("box", top, (0.0, float(shift), low[2] + top[2]))), 0.05
    )


def _tee(rng: np.random.Generator) -> Design:
    """Two boxes in a T, lying flat."""
    width, height = rng.uniform(0.010, 0.014), rng.uniform(0.012, 0.018)
    stem = (width, rng.uniform(0.02, 0.03), height)
    bar = (rng.uniform(0.018, 0.024), width, height)
    return Design(
        "tee", (Part("box", stem), Part("box", bar, (0.0, float(stem[1] + width), 0.0))), 0.05
    )


def _dumbbell(rng: np.random.Generator) -> Design:
    """A bar with a cylinder at each end."""
    bar = (rng.uniform(0.009, 0.012), rng.uniform(0.018, 0.026))
    end = (bar[0] * rng.uniform(1.3, 1.7), rng.uniform(0.006, 0.009))
    at = float(bar[1] + end[1])
    return Design(
        "dumbbell",
        (
            Part("cylinder", bar, quaternion=_LYING_Y),
            Part("cylinder", end, (0.0, at, 0.0), _LYING_Y),
            Part("cylinder", end, (0.0, -at, 0.0), _LYING_Y),
        ),
        0.05,
    )


_FAMILIES: dict[str, Callable[[np.random.Generator], Design]] = {
    "box": _box,
    "cylinder": _cylinder,
    "rod": _rod,
    "capsule": _capsule,
    "ellipsoid": _ellipsoid,
    "step": _step,
    "tee": _tee,
    "dumbbell": _dumbbell,
}


# --- Things of a household, at the size of this gripper ------------------------------------------


def _mug() -> Design:
    white, blue = (0.92, 0.92, 0.88), (0.2, 0.35, 0.75)
    return _named(
        "mug",
        Part("cylinder", (0.020, 0.022), rgb=blue),
        Part("capsule", (0.004, 0.010), (0.0, 0.026, 0.0), rgb=blue),
        Part("cylinder", (0.017, 0.001), (0.0, 0.0, 0.0225), rgb=white),
    )


def _bottle() -> Design:
    green = (0.1, 0.5, 0.25)
    return _named(
        "bottle",
        Part("cylinder", (0.017, 0.028), quaternion=_LYING_Y, rgb=green),
        Part("cylinder", (0.008, 0.010), (0.0, 0.038, 0.0), _LYING_Y, green),
        Part("cylinder", (0.010, 0.004), (0.0, 0.050, 0.0), _LYING_Y, (0.9, 0.9, 0.9)),
    )


def _banana() -> Design:
    yellow = (0.95, 0.85, 0.2)
    a = np.deg2rad(90)
    bend = np.deg2rad(25)

    def along(yaw: float) -> tuple[float, float, float, float]:
        # axis z turned to y (about x), then about z by yaw
        c, s = np.cos(yaw / 2), np.sin(yaw / 2)
        w, x = np.cos(a / 2), np.sin(a / 2)
        return (float(c * w), float(c * x), float(s * x), float(s * w))

    return _named(
        "banana",
        Part("capsule", (0.012, 0.014), quaternion=along(0.0), rgb=yellow),
        Part("capsule", (0.011, 0.012), (0.006, 0.026, 0.0), along(-bend), yellow),
        Part("capsule", (0.011, 0.012), (0.006, -0.026, 0.0), along(bend), yellow),
    )


def _can() -> Design:
    red, metal = (0.8, 0.1, 0.12), (0.75, 0.75, 0.78)
    return _named(
        "can",
        Part("cylinder", (0.019, 0.021), rgb=red),
        Part("cylinder", (0.017, 0.002), (0.0, 0.0, 0.0225), rgb=metal),
        Part("cylinder", (0.017, 0.002), (0.0, 0.0, -0.0225), rgb=metal),
    )


def _carton() -> Design:
    return _named(
        "carton",
        Part("box", (0.016, 0.026, 0.020), rgb=(0.95, 0.6, 0.2)),
        Part("box", (0.0165, 0.020, 0.008), (0.0, 0.0, 0.004), rgb=(0.95, 0.95, 0.9)),
    )


def _soap() -> Design:
    return _named("soap", Part("ellipsoid", (0.018, 0.030, 0.014), rgb=(0.85, 0.6, 0.75)))


def _apple() -> Design:
    return _named(
        "apple",
        Part("ellipsoid", (0.021, 0.021, 0.019), rgb=(0.75, 0.15, 0.1)),
        Part("capsule", (0.002, 0.004), (0.0, 0.0, 0.021), rgb=(0.35, 0.22, 0.1)),
    )


def _brush() -> Design:
    wood = (0.7, 0.5, 0.3)
    return _named(
        "brush",
        Part("capsule", (0.009, 0.022), quaternion=_LYING_Y, rgb=wood),
        Part("box", (0.014, 0.016, 0.008), (0.0, 0.040, 0.0), rgb=wood),
        Part("box", (0.012, 0.014, 0.005), (0.0, 0.040, -0.010), rgb=(0.15, 0.15, 0.2)),
    )


def _battery() -> Design:
    return _named(
        "battery",
        Part("cylinder", (0.013, 0.026), quaternion=_LYING_Y, rgb=(0.15, 0.15, 0.15)),
        Part("cylinder", (0.013, 0.008), (0.0, 0.034, 0.0), _LYING_Y, (0.85, 0.6, 0.25)),
        Part("cylinder", (0.005, 0.002), (0.0, 0.044, 0.0), _LYING_Y, (0.8, 0.8, 0.8)),
    )


def _sponge() -> Design:
    return _named(
        "sponge",
        Part("box", (0.020, 0.030, 0.010), rgb=(0.95, 0.85, 0.3)),
        Part("box", (0.020, 0.030, 0.004), (0.0, 0.0, 0.014), rgb=(0.2, 0.55, 0.3)),
    )


def _named(name: str, *parts: Part) -> Design:
    return centred(Design(name, parts, 0.06))


_HOUSEHOLD = (
    _mug, _bottle, _banana, _can, _carton, _soap, _apple, _brush, _battery, _sponge,
)  # fmt: skip

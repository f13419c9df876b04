"""The model: a Panda-like arm built from primitive shapes, a two-finger gripper, a bin, objects.

Kinematics, masses and limits are the published ones of Franka Emika's Panda (modified
Denavit-Hartenberg parameters); shapes are capsules, cylinders and boxes, so that contacts and
camera rays are cheap. The arm itself touches nothing: the hand and the fingers do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import mujoco
import numpy as np
from numpy.typing import NDArray

from midstride.sim.task import Viewpoint
from midstride.tasks.grasp.objects import MAX_PARTS, Design, Part

Array = NDArray[np.floating]

TICK_S = 0.004
JOINTS = 7
# Each joint's frame in the one before: position, and a turn about x.
POSITIONS = np.array(
    [
        [0, 0, 0.333],
        [0, 0, 0],
        [0, -0.316, 0],
        [0.0825, 0, 0],
        [-0.0825, 0.384, 0],
        [0, 0, 0],
        [0.088, 0, 0],
    ]
)
TURNS = np.array([0, -1, 1, 1, -1, 1, 1]) * np.pi / 2
FLANGE_M, FINGERTIP_M = 0.107, 0.1034  # along the last axis
HAND_TURN = -np.pi / 4  # of the hand on the flange, about the last axis

JOINT_LOW = np.array([-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973])
JOINT_HIGH = np.array([2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973])
JOINT_SPEED = np.array([2.175] * 4 + [2.61] * 3)  # rad/s
JOINT_TORQUE = np.array([87.0] * 4 + [12.0] * 3)  # N m
LINK_MASS = (4.97, 0.647, 3.23, 3.59, 1.23, 1.67, 0.736)
HAND_MASS = 0.73
# Softer at the wrist than is usual: a stiff servo that saturates at 12 N m shakes at every tick.
GAIN = np.array([4500, 4500, 3500, 3500, 300, 300, 300.0])
DAMPING = GAIN / 10
HOME = np.array([0, 0.35, 0, -2.25, 0, 2.6, np.pi / 4])

FINGER_OPEN_M, FINGER_CLOSED_M = 0.04, -0.008  # target of each finger; closed squeezes
FINGER_GAIN, FINGER_DAMPING, FINGER_FORCE = 400.0, 40.0, 25.0

BIN_CENTRE = np.array([0.5, 0.0])
BIN_HALF_M, WALL_HEIGHT_M, WALL_M = 0.125, 0.025, 0.006
TRAY_KG, BELT_M_S2 = 20.0, 4.0  # how fast the belt changes its speed
MAX_OBJECTS = 5
PARKED_M = np.array([[2.0, 0.3 * i, 0.1] for i in range(MAX_OBJECTS)])  # objects not in the bin

# From the shoulder's side: looking down the arm, the hand would hide what it grasps.
VIEWPOINT = Viewpoint(position=(0.75, -0.48, 0.48), target=(0.5, 0.0, 0.055), fov_deg=31)
# From the same place, turned to what is under the hand: closer.
FOLLOWING_VIEWPOINT = replace(VIEWPOINT, fov_deg=22)
FOLLOWED_HEIGHT_M = 0.03  # about where things are
# Shows the whole arm.
WIDE_VIEWPOINT = Viewpoint(position=(1.12, -0.80, 0.66), target=(0.34, 0.0, 0.29), fov_deg=45)
UPPER_ARM = 1  # group of geoms that are never in view of the first

# Contact bits: the world and objects meet objects, hand and fingers; hand and fingers do not meet
# the arm or each other.
_WORLD, _OBJECT, _HAND = (1, 3), (1, 3), (2, 1)
_SOLREF = [0.008, 1.0]  # two ticks
# N m s: without it a rod that was touched would roll on to the wall. With it, its speed falls by e
# in a quarter of a second. (On a displacement, as N s/m, it is nothing.)
ROLLING_DAMPING = 1e-4

_WHITE, _GREY, _DARK = (0.93, 0.93, 0.92), (0.62, 0.65, 0.70), (0.16, 0.17, 0.19)
_FINGER = (0.95, 0.45, 0.10)  # a colour of their own, for the eye and for the network
_TABLE, _BIN, _WALL = (0.30, 0.27, 0.25), (0.42, 0.44, 0.48), (0.20, 0.25, 0.34)


@dataclass(frozen=True)
class Places:
    """Where things are in the model's arrays."""

    arm: NDArray[np.intp]  # of joints in qpos, qvel and ctrl
    fingers: NDArray[np.intp]
    object_qpos: NDArray[np.intp]  # (objects, 7)
    object_dofs: NDArray[np.intp]  # (objects, 6)
    object_bodies: NDArray[np.intp]  # (objects,)
    object_geoms: NDArray[np.intp]  # (objects, parts)
    tray: int | None = None  # in qpos and qvel
    belt: int | None = None  # in ctrl


def build(designs: tuple[Design, ...], belt: bool = False) -> mujoco.MjModel:
    """The whole model, with `designs` as its objects; belt: in a tray that moves, not in a bin."""
    if not 1 <= len(designs) <= MAX_OBJECTS:
        raise ValueError(f"a bin holds 1 to {MAX_OBJECTS} objects, got {len(designs)}")
    spec = mujoco.MjSpec()
    spec.compiler.degree = False
    option = spec.option
    option.timestep = TICK_S
    option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    option.cone = mujoco.mjtCone.mjCONE_ELLIPTIC
    option.impratio = 10
    # What lies still costs nothing until it is touched.
    option.enableflags |= mujoco.mjtEnableBit.mjENBL_SLEEP
    # Sizes differ between simulations; bounding volumes of one would be wrong for another.
    option.disableflags |= mujoco.mjtDisableBit.mjDSBL_MIDPHASE
    _add_surroundings(spec.worldbody, bin_there=not belt)
    _add_arm(spec)
    for i, design in enumerate(designs):
        _add_object(spec.worldbody, i, design)
    if belt:
        _add_tray(spec)
    return spec.compile()


def places(model: mujoco.MjModel) -> Places:
    has_tray = model.nu > JOINTS + 2
    objects = model.njnt - JOINTS - 2 - has_tray  # a free joint each
    bodies = np.array([model.body(f"object{i}").id for i in range(objects)])
    joints = model.body_jntadr[bodies]
    qpos, dofs = model.jnt_qposadr[joints], model.jnt_dofadr[joints]
    return Places(
        arm=np.arange(JOINTS),
        fingers=np.arange(JOINTS, JOINTS + 2),
        object_qpos=qpos[:, None] + np.arange(7),
        object_dofs=dofs[:, None] + np.arange(6),
        object_bodies=bodies,
        object_geoms=model.body_geomadr[bodies][:, None] + np.arange(MAX_PARTS),
        tray=model.nq - 1 if has_tray else None,
        belt=model.nu - 1 if has_tray else None,
    )


# --- Pieces --------------------------------------------------------------------------------------


def _add_surroundings(world: mujoco.MjsBody, bin_there: bool) -> None:
    world.add_light(name="lamp", pos=[0.8, -0.9, 1.6], dir=[-0.3, 0.9, -1.5])  # for OpenGL
    world.add_geom(
        name="floor",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[3, 3, 0.1],
        rgba=[*_TABLE, 1],
        contype=_WORLD[0],
        conaffinity=_WORLD[1],
    )
    if bin_there:
        x, y = BIN_CENTRE
        _add_box(world, (x, y, 0.0005), (BIN_HALF_M, BIN_HALF_M, 0.0005), _BIN, bits=(0, 0))
        _add_walls(world, x, y)


def _add_walls(body: mujoco.MjsBody, x: float, y: float) -> None:
    inside, wall, half = BIN_HALF_M, WALL_M, WALL_HEIGHT_M / 2
    for sign in (-1, 1):
        out = sign * (inside + wall)
        _add_box(body, (x + out, y, half), (wall, inside + 2 * wall, half), _WALL, bits=_WORLD)
        _add_box(body, (x, y + out, half), (inside, wall, half), _WALL, bits=_WORLD)


def _add_tray(spec: mujoco.MjSpec) -> None:
    """A bin on a belt: it slides along y, driven no harder than friction holds what is in it."""
    tray = spec.worldbody.add_body(name="tray", pos=[*BIN_CENTRE, 0])
    tray.add_joint(name="tray", type=mujoco.mjtJoint.mjJNT_SLIDE, axis=[0, 1, 0])
    # As thick as the table is deep: what is pressed does not get through it.
    _add_box(tray, (0, 0, -0.0195), (BIN_HALF_M, BIN_HALF_M, 0.0205), _BIN, _WORLD, mass=TRAY_KG)
    _add_walls(tray, 0.0, 0.0)
    spec.add_exclude(bodyname1="world", bodyname2="tray")
    limit = TRAY_KG * BELT_M_S2
    actuator = spec.add_actuator(
        name="belt", target="tray", trntype=mujoco.mjtTrn.mjTRN_JOINT, forcelimited=True,
        forcerange=[-limit, limit],
    )  # fmt: skip
    actuator.set_to_velocity(kv=100 * TRAY_KG)


def _add_box(
    body: mujoco.MjsBody,
    position: tuple[float, float, float],
    size: tuple[float, float, float],
    rgb: tuple[float, float, float],
    bits: tuple[int, int],
    **options: object,
) -> mujoco.MjsGeom:
    return body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_BOX,
        pos=position,
        size=size,
        rgba=[*rgb, 1],
        contype=bits[0],
        conaffinity=bits[1],
        **options,
    )


# What each link looks like: (kind, radius, from, to, colour), in the link's frame.
_LOOKS = (
    (("capsule", 0.060, (0, 0, -0.19), (0, 0, -0.05), _WHITE),),
    (
        ("cylinder", 0.060, (0, 0, -0.065), (0, 0, 0.065), _GREY),
        ("capsule", 0.056, (0, -0.02, 0), (0, -0.17, 0), _WHITE),
    ),
    (("capsule", 0.056, (0, 0, -0.14), (0, 0, -0.03), _WHITE),),
    (
        ("cylinder", 0.056, (0, 0, -0.06), (0, 0, 0.06), _GREY),
        ("capsule", 0.050, (-0.04, 0.03, 0), (-0.0825, 0.10, 0), _WHITE),
    ),
    (("capsule", 0.052, (0, 0, -0.26), (0, 0.04, -0.06), _WHITE),),
    (
        ("cylinder", 0.050, (0, 0, -0.055), (0, 0, 0.055), _GREY),
        ("capsule", 0.038, (0, 0, 0), (0.088, 0, 0), _WHITE),
    ),
    (("cylinder", 0.044, (0, 0, 0.01), (0, 0, 0.09), _WHITE),),
)


def _add_arm(spec: mujoco.MjSpec) -> None:
    base = spec.worldbody.add_body(name="base")
    base.add_geom(
        type=mujoco.mjtGeom.mjGEOM_CYLINDER,
        fromto=[0, 0, 0, 0, 0, 0.14],
        size=[0.075, 0, 0],
        rgba=[*_DARK, 1],
        contype=0,
        conaffinity=0,
        group=UPPER_ARM,
    )
    body = base
    for i in range(JOINTS):
        half = TURNS[i] / 2
        body = body.add_body(
            name=f"link{i + 1}",
            pos=POSITIONS[i],
            quat=[np.cos(half), np.sin(half), 0, 0],
            gravcomp=1,
        )
        body.add_joint(
            name=f"joint{i + 1}",
            axis=[0, 0, 1],
            range=[JOINT_LOW[i], JOINT_HIGH[i]],
            limited=mujoco.mjtLimited.mjLIMITED_TRUE,
            armature=0.1,
            damping=[1, 0, 0],
        )
        looks = _LOOKS[i]
        for kind, radius, start, end, rgb in looks:
            body.add_geom(
                type=_KINDS[kind],
                fromto=[*start, *end],
                size=[radius, 0, 0],
                rgba=[*rgb, 1],
                mass=LINK_MASS[i] / len(looks),
                group=UPPER_ARM if i < 4 else 0,
                contype=0,
                conaffinity=0,
            )
        _add_servo(spec, f"joint{i + 1}", GAIN[i], DAMPING[i], JOINT_TORQUE[i])
    _add_hand(spec, body)


def _add_hand(spec: mujoco.MjSpec, flange: mujoco.MjsBody) -> None:
    half = HAND_TURN / 2
    hand = flange.add_body(
        name="hand", pos=[0, 0, FLANGE_M], quat=[np.cos(half), 0, 0, np.sin(half)], gravcomp=1
    )
    _add_box(hand, (0, 0, 0.026), (0.024, 0.075, 0.026), _WHITE, _HAND, mass=HAND_MASS)
    for name, quat in (("finger_left", [1, 0, 0, 0]), ("finger_right", [0, 0, 0, 1])):
        finger = hand.add_body(name=name, pos=[0, 0, 0.0584], quat=quat, gravcomp=1)
        finger.add_joint(
            name=name,
            type=mujoco.mjtJoint.mjJNT_SLIDE,
            axis=[0, 1, 0],
            range=[-0.01, 0.04],
            limited=mujoco.mjtLimited.mjLIMITED_TRUE,
            damping=[1, 0, 0],
            armature=0.02,
        )
        _add_box(
            finger,
            (0, 0.005, 0.024),
            (0.010, 0.005, 0.024),
            _FINGER,
            _HAND,
            mass=0.03,
            friction=[1.2, 0.02, 0.001],
            condim=4,
            solref=_SOLREF,
        )
        _add_servo(spec, name, FINGER_GAIN, FINGER_DAMPING, FINGER_FORCE)


def _add_servo(spec: mujoco.MjSpec, joint: str, kp: float, kv: float, limit: float) -> None:
    actuator = spec.add_actuator(
        name=joint,
        target=joint,
        trntype=mujoco.mjtTrn.mjTRN_JOINT,
        forcelimited=True,
        forcerange=[-limit, limit],
    )
    actuator.set_to_position(kp=kp, kv=kv)


_KINDS = {
    "box": mujoco.mjtGeom.mjGEOM_BOX,
    "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
    "capsule": mujoco.mjtGeom.mjGEOM_CAPSULE,
    "ellipsoid": mujoco.mjtGeom.mjGEOM_ELLIPSOID,
}
_NO_PART = Part("box", (0.001, 0.001, 0.001))


def _add_object(world: mujoco.MjsBody, i: int, design: Design) -> None:
    body = world.add_body(name=f"object{i}", pos=PARKED_M[i])
    body.add_joint(type=mujoco.mjtJoint.mjJNT_FREE, damping=[ROLLING_DAMPING, 0, 0])
    body.explicitinertial = True
    body.mass = design.mass
    body.inertia = design.inertia
    body.ipos = [0, 0, 0]
    for k in range(MAX_PARTS):
        there = k < len(design.parts)
        part = design.parts[k] if there else _NO_PART
        size = [*part.size, 0, 0][:3]
        body.add_geom(
            type=_KINDS[part.kind],
            size=size,
            pos=part.position,
            quat=part.quaternion,
            rgba=[*part.rgb, 1 if there else 0],  # what cannot be seen, rays pass through
            contype=_OBJECT[0] if there else 0,
            conaffinity=_OBJECT[1] if there else 0,
            friction=[1.0, 0.01, 0.001],
            condim=4,
            solref=_SOLREF,
        )

"""The grasping world: many arms and bins, stepped together; the one place where its time passes.

The world is a plant of the one clock (`flight.py`). Up to the switch the motion in flight goes on;
at the switch the new action pre-empts it: its goal is relative to where the hand is then. In
concurrent control the next capture comes after a fixed period; in blocking control once the hand
has arrived and is at rest. Blocking thinks while it stands still; there is no other difference.

The controller has a turn at every capture, at every switch, and every 20 ms after each: the
reference moves on, and inverse kinematics gives joint targets. Captures and switches may come at
any physics tick; a turn that one of them cuts short moves the reference on by so much less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import mujoco
import numpy as np
from mujoco.batch import Batch
from numpy.typing import NDArray

from midstride.flight import NEVER, Flight, Ticks
from midstride.tasks.grasp import actions as columns
from midstride.tasks.grasp import kinematics, motion
from midstride.tasks.grasp.belt import HALF_LENGTH_M, Belt
from midstride.tasks.grasp.model import (
    BIN_CENTRE,
    FINGER_CLOSED_M,
    FINGER_OPEN_M,
    HOME,
    MAX_OBJECTS,
    PARKED_M,
    TICK_S,
    build,
    places,
)
from midstride.tasks.grasp.objects import Design

Array = NDArray[np.floating]
Mask = NDArray[np.bool_]

CONTROL_TICKS = 5  # between two turns of the controller; fewer before a capture or a switch
LAG_S = 0.1  # of the servos, kv / kp: what the feed-forward makes up for

# An action of 1 moves this far; goals stay within the workspace.
SCALE = np.array([0.06, 0.06, 0.06, 0.5])
LOW = np.array([BIN_CENTRE[0] - 0.095, BIN_CENTRE[1] - 0.095, 0.012, -1.6])
HIGH = np.array([BIN_CENTRE[0] + 0.095, BIN_CENTRE[1] + 0.095, 0.20, 1.6])

# Blocking: arrived when nearer than this, at rest when no faster than that.
ARRIVED = np.array([0.004, 0.004, 0.004, 0.03])
REFERENCE_ARRIVED = np.array([0.002, 0.002, 0.002, 0.02])
AT_REST = 0.1  # rad/s, every joint
_AHEAD_S = 1e-5  # over which a velocity is the difference of two poses
FINGERS_AT_REST_M = 0.0006  # moved in a control interval
AT_LEAST_TICKS, AT_MOST_TICKS = 25, 275  # after the switch

LIFTED_M = 0.08  # height of an object's centre that is clear of the bin

# Fields of the model that make one object different from another.
_BODY_FIELDS = ("body_mass", "body_inertia", "body_subtreemass", "body_invweight0", "body_gravcomp")
_GEOM_FIELDS = (
    "geom_type", "geom_size", "geom_pos", "geom_quat", "geom_rgba", "geom_rbound", "geom_aabb",
    "geom_contype", "geom_conaffinity", "geom_sameframe",
)  # fmt: skip
_DOF_FIELDS = ("dof_invweight0", "dof_M0", "dof_length")


@dataclass(frozen=True)
class Decision:
    """What happened from a capture to the next; first axis: environments."""

    latency_ticks: NDArray[np.int64]
    period_ticks: NDArray[np.int64]
    # At every switch: where; the pose (n, 4); the displacement that the action which comes into
    # force asks for, within the workspace (n, 4).
    switches: list[tuple[Mask, Array, Array]]
    # At every turn of the controller: ticks to the next (0: not under way), measured joints.
    trail: list[tuple[NDArray[np.int64], Array]]


class World:
    """`n` arms over bins. Nothing here knows of rewards, images or episodes."""

    def __init__(
        self,
        n: int,
        designs: tuple[Design, ...],
        slots: int,
        threads: int,
        most_pending: int = 1,
        belt: bool = False,
        change: Callable[[mujoco.MjModel], None] = lambda model: None,
    ) -> None:
        """`n` bins that hold up to `slots` of the objects of `designs` each.

        most_pending: decisions that can be under way at once
        belt: whether they are carried past the arm, which is faster then
        change: makes the model another one, of the same parts, before anything moves
        """
        self.n = n
        self.slots = slots
        self.designs = designs
        self.rows = _design_rows(designs)
        self.model = build(designs[:1] * slots, belt)
        change(self.model)
        self.belt = Belt(n) if belt else None
        along = np.array([0, HALF_LENGTH_M if belt else 0.0, 0, 0])
        self.low, self.high = LOW - along, HIGH + along  # of goals
        self.places = places(self.model)
        self.batch = Batch(self.model, n, threads, persistent=True)  # for sleep
        self.qpos = self.batch.bind("qpos")
        self.qvel = self.batch.bind("qvel")
        self.ctrl = self.batch.bind("ctrl")
        self.fields = {name: self.batch.expand(name) for name in self.rows}
        self.limits = motion.Limits(speed=0.5, acceleration=4.0) if belt else motion.Limits()
        self.commanded_joints = np.tile(HOME, (n, 1))
        self.reference = np.zeros((n, 4))
        self.velocity = np.zeros((n, 4))  # of the reference
        self.goal = np.zeros((n, 4))
        self.grip = np.full(n, FINGER_OPEN_M)  # target of each finger
        self._extents = np.stack([design.half_extents for design in designs])
        self.half_extents = np.zeros((n, slots, 3))  # of each object
        self.flight = Flight(n, (columns.SIZE,), most_pending)
        # Of the period under way: ticks since its capture, those since each controller's turns are
        # counted from, the fingers at the last turn; see `Decision` for the rest.
        self._elapsed = 0
        self._since_event = np.zeros(n, np.int64)
        self._fingers = np.zeros((n, 2))
        self._switches: list[tuple[Mask, Array, Array]] = []
        self._trail: list[tuple[Ticks, Array]] = []
        self._at_switch: Callable[[Mask], None] = lambda which: None
        # Called at every turn of the controller, with the ticks since the capture: for films.
        self.each_turn: Callable[[int], None] = lambda now: None

    def close(self) -> None:
        """Free the physics and its threads; views of it would keep them."""
        del self.batch, self.qpos, self.qvel, self.ctrl, self.fields

    # --- What can be measured

    def pose(self) -> Array:
        """(x, y, z, yaw) between the fingertips, from the measured joints."""
        return kinematics.pose(self.qpos[:, self.places.arm])

    def hand_velocity(self) -> Array:
        """Of the pose, from the measured joints and their velocities."""
        joints, speeds = self.qpos[:, self.places.arm], self.qvel[:, self.places.arm]
        ahead = kinematics.pose(joints + _AHEAD_S * speeds)
        return kinematics.difference(ahead, kinematics.pose(joints)) / _AHEAD_S

    def opening(self) -> Array:
        """Between the fingers, as a share of fully open; (n,)."""
        return np.asarray(self.qpos[:, self.places.fingers].sum(axis=1) / (2 * FINGER_OPEN_M))

    def vector_to_go(self) -> Array:
        """Goal minus measured pose in units of the action scale, and of the gripper's opening."""
        pose = kinematics.difference(self.goal, self.pose()) / SCALE
        grip = np.maximum(self.grip, 0) / FINGER_OPEN_M - self.opening()
        return np.concatenate([pose, grip[:, None]], axis=1)

    def objects(self) -> Array:
        """Positions and quaternions of all objects, (n, objects, 7)."""
        return np.asarray(self.qpos[:, self.places.object_qpos])

    def there(self) -> Mask:
        """Which slots hold an object, (n, objects)."""
        return np.asarray(self.qpos[:, self.places.object_qpos[:, 0]] < PARKED_M[0, 0] / 2)

    def lifted(self, margin_m: float = 0.0) -> Mask:
        """Which objects are clear of the bin, (n, objects)."""
        height = self.qpos[:, self.places.object_qpos[:, 2]]
        return np.asarray((height > LIFTED_M + margin_m) & self.there())

    def belt_m_s(self) -> Array:
        """How fast each tray is carried along y, (n,)."""
        if self.places.tray is None:
            return np.zeros(self.n)
        return np.asarray(self.qvel[:, self.model.nv - 1])

    # --- What can be set

    def place_objects(self, ids: NDArray[np.integer], chosen: NDArray[np.integer]) -> None:
        """Give environments `ids` the objects chosen (len(ids), slots); -1: none there.

        Where there is none, something weightless and untouchable is parked far away.
        """
        at = self.places
        self.half_extents[ids] = self._extents[chosen]
        index = {"body": at.object_bodies, "geom": at.object_geoms, "dof": at.object_dofs}
        for name, rows in self.rows.items():
            where = index[name.partition("_")[0]]
            self.fields[name][ids[:, None, None], where.reshape(len(where), -1)[None]] = rows[
                chosen
            ].reshape(*chosen.shape, -1, *rows.shape[2:])
        own = self.model.body_subtreemass[0] - self.model.body_mass[at.object_bodies].sum()
        masses = self.fields["body_mass"][ids[:, None], at.object_bodies]
        self.fields["body_subtreemass"][ids, 0] = own + masses.sum(axis=1)
        absent_env, absent_slot = np.nonzero(chosen < 0)
        bodies = at.object_bodies[absent_slot]
        self.fields["body_gravcomp"][ids[absent_env], bodies] = 1
        for name in ("geom_contype", "geom_conaffinity"):
            self.fields[name][ids[absent_env][:, None], at.object_geoms[absent_slot]] = 0
        self.fields["geom_rgba"][ids[absent_env][:, None], at.object_geoms[absent_slot], 3] = 0

    def hold(self, ids: NDArray[np.integer]) -> None:
        """Nothing is in flight: the goal is where the commanded joints are."""
        self.flight.reset(ids)
        pose = kinematics.pose(self.commanded_joints[ids])
        self.reference[ids] = self.goal[ids] = pose
        self.velocity[ids] = 0
        self.grip[ids] = FINGER_OPEN_M
        self.ctrl[ids[:, None], self.places.arm] = self.commanded_joints[ids]
        self.ctrl[ids[:, None], self.places.fingers] = FINGER_OPEN_M

    # --- Time

    def control(self, which: Mask, ticks: NDArray[np.int64]) -> None:
        """The controller's turn: the reference moves on by `ticks` (n,), the joints follow."""
        ids = np.flatnonzero(which)
        dt_s = ticks[ids] * TICK_S
        self.reference[ids], self.velocity[ids] = motion.advance(
            self.reference[ids], self.velocity[ids], self.goal[ids], dt_s, self.limits
        )
        before = self.commanded_joints[ids]
        after = kinematics.track(before, self.reference[ids], dt_s)
        self.commanded_joints[ids] = after
        self.ctrl[ids[:, None], self.places.arm] = after + LAG_S * (after - before) / dt_s[:, None]
        self.ctrl[ids[:, None], self.places.fingers] = self.grip[ids, None]

    def physics(self, which: Mask, ticks: int) -> None:
        ids = None if which.all() else np.flatnonzero(which)
        self.batch.step(ids=ids, nstep=ticks)

    def decide(
        self,
        actions: Array,
        latency_ticks: Ticks,
        period_ticks: Ticks | None,
        active: Mask | None = None,
        at_switch: Callable[[Mask], None] = lambda which: None,
        lost: Mask | None = None,
    ) -> Decision:
        """From capture to next capture. Without periods: until the hand has arrived (blocking).

        actions: (n, 7), see `actions.py`; one that terminates, and is not lost, ends its period
            at the switch, though that be longer than others are
        active: who takes part
        at_switch: called when new actions have come into force in some environments, and nothing
            of them is done
        lost: whose decision never arrives
        """
        end = np.full(self.n, NEVER) if period_ticks is None else period_ticks
        ends = actions[:, columns.TERMINATE] > 0.5
        end = np.where(ends if lost is None else ends & ~lost, latency_ticks, end)
        self._elapsed = 0
        self._since_event[:] = 0
        self._fingers = self.qpos[:, self.places.fingers].copy()
        self._switches, self._trail = [], []
        self._at_switch = at_switch
        self.flight.capture(actions, latency_ticks, active, lost)
        passed = self.flight.period(self, end, active)
        return Decision(latency_ticks, passed, self._switches, self._trail)

    def switch(self, which: Mask, actions: Array) -> None:
        """Goals relative to where the hands are now, within the workspace."""
        displacement, grip, _ = columns.decode(actions)
        pose = self.pose()
        goal = np.clip(pose + np.clip(displacement, -1, 1) * SCALE, self.low, self.high)
        self.goal[which] = goal[which]
        self.grip[which & (grip > 0)] = FINGER_OPEN_M
        self.grip[which & (grip < 0)] = FINGER_CLOSED_M
        self._switches.append((which, pose, kinematics.difference(goal, pose)))
        self._since_event[which] = 0
        self._at_switch(which)

    def advance(self, running: Mask, ticks: int, ahead: Ticks) -> int:
        """To the next turn of some controller, no farther than `ticks`."""
        phase = self._since_event % CONTROL_TICKS
        turn = running & (phase == 0)
        if turn.any():
            self.each_turn(self._elapsed)
            self._fingers[turn] = self.qpos[turn][:, self.places.fingers]
            until = np.where(turn, np.minimum(CONTROL_TICKS, ahead), 0)
            self._trail.append((until, self.qpos[:, self.places.arm].copy()))
            self.control(turn, until)
        passed = min(ticks, int((CONTROL_TICKS - phase)[running].min()))
        if self.belt is not None:
            now = self.flight.now
            self.ctrl[running, self.places.belt] = self.belt.speed_m_s(now)[running]
            passed = min(passed, int(self.belt.until_change(now)[running].min()))
        self.physics(running, passed)
        self._elapsed += passed
        self._since_event += passed
        return passed

    def at_rest(self) -> Mask:
        """Whose hand has arrived and whose fingers are still, as seen at a turn of the controller.

        Only some time after the switch, and at last whether they are or not.
        """
        turn = self._since_event % CONTROL_TICKS == 0
        due = turn & (self._since_event >= AT_LEAST_TICKS)
        if not due.any():
            return due
        moved = np.abs(self.qpos[:, self.places.fingers] - self._fingers).max(axis=1)
        rest = self._arrived() & (moved < FINGERS_AT_REST_M)
        return due & (rest | (self._since_event >= AT_MOST_TICKS))

    def _arrived(self) -> Mask:
        to_go = np.abs(kinematics.difference(self.goal, self.pose()))
        reference_to_go = np.abs(kinematics.difference(self.goal, self.reference))
        near = (to_go < ARRIVED) & (reference_to_go < REFERENCE_ARRIVED)
        still = np.abs(self.qvel[:, self.places.arm]) < AT_REST
        return np.asarray(near.all(axis=1) & still.all(axis=1))


@lru_cache(maxsize=4)
def _design_rows(designs: tuple[Design, ...]) -> dict[str, Array]:
    """What each design puts into the model's arrays: field -> (designs, rows of a slot, ...)."""
    names = (*_BODY_FIELDS, *_GEOM_FIELDS, *_DOF_FIELDS)
    rows: dict[str, list[Array]] = {name: [] for name in names}
    for start in range(0, len(designs), MAX_OBJECTS):
        some = designs[start : start + MAX_OBJECTS]
        model = build((*some, *designs[:1] * (MAX_OBJECTS - len(some))))
        at = places(model)
        index = {"body": at.object_bodies[:, None], "geom": at.object_geoms, "dof": at.object_dofs}
        for name in names:
            values = getattr(model, name)
            rows[name] += [values[index[name.partition("_")[0]][i]] for i in range(len(some))]
    return {name: np.stack(values) for name, values in rows.items()}

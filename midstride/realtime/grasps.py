"""A grasp on a robot: one episode from arming to its end, and what is measured of it.

The same on the wall clock, where nobody knows how long a thought takes before it is finished, and
on a virtual one, where every latency is drawn: with the same draws, the twin of the first that
anybody can repeat to the last bit. Everything is measured by the robot's own record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from midstride.realtime.clock import Clock, VirtualClock
from midstride.realtime.drive import OVER, Plan, Run, drive
from midstride.realtime.recording import TURN_S, Moment
from midstride.realtime.robot import Array, Observation, Robot, RobotFault
from midstride.realtime.thinker import DrawnThinker

_LONGEST_REST_S = 10.0


class Grasper(Robot, Protocol):
    """A hand that begins anew, says when it has arrived, and recalls what it did."""

    def reset(self, seed: int | None) -> None: ...

    def recall(self) -> list[Moment]: ...


@dataclass(frozen=True)
class Grasp:
    """One grasp; the measures are those of `tasks/grasp/measures.py`, by the robot's record.

    success: an object is clear of the bin when the episode ends
    policy_duration_s: from the first switch to the end (the paper's policy duration)
    completion: of the displacements that were told, how much was done at the next observation
    jerk: root mean square of the fingertips' third derivative, m/s^3
    latency_s, most_latency_s: the mean of the decisions in force, and the largest
    is_cut_off: by the limit of decisions; the policy had not ended it
    missed, late_ticks: cycles that the policy's process, and ticks that the robot's, came too late
        for: whether the machine was too busy
    ended: by a fault of the robot: what it said; such a grasp is none
    """

    success: float
    policy_duration_s: float
    completion: float
    jerk: float
    latency_s: float
    decisions: int
    most_latency_s: float = 0.0
    is_cut_off: bool = False
    missed: int = 0
    late_ticks: int = 0
    ended: str = ""

    @classmethod
    def broken(cls, ended: str, decisions: int = 0) -> Grasp:
        """One that a fault ended."""
        return cls(0.0, 0.0, 0.0, 0.0, 0.0, decisions, ended=ended)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def grasp(
    robot: Grasper, policy: Any, plan: Plan, clock: Clock, seed: int, longest: int
) -> tuple[Grasp, Run]:
    """One grasp in the scene of `seed`; longest: decisions after which it is cut off.

    A robot that is lost, so that nothing can be measured, is a `RobotFault`. One that stopped in
    the grasp before is armed again: it is a simulation, and begins anew.
    """
    robot.reset(seed)
    virtual = isinstance(clock, VirtualClock)
    thinks = (lambda chosen: _drawn(chosen, plan, clock)) if virtual else None
    goes_on = lambda run: run.captures <= longest  # noqa: E731
    run = drive(robot, policy, plan, clock, goes_on, thinks=thinks, arm_after_fault=True)
    try:
        _wait_for_rest(robot, clock)
        return measured(robot.recall(), run), run
    except RobotFault as fault:
        raise RobotFault(run.ended or str(fault)) from None


def _drawn(policy: Any, plan: Plan, clock: Clock) -> DrawnThinker:
    coming = plan.latency.episode(np.random.default_rng(plan.seed))

    def steps() -> Iterator[tuple[float, bool]]:
        while True:
            yield float(coming(1)[0]), False

    return DrawnThinker(policy, clock, steps(), is_serial=True)


def _wait_for_rest(robot: Robot, clock: Clock) -> Observation:
    give_up_s = clock.now_s() + _LONGEST_REST_S
    while (seen := robot.get_observation()).state in ("armed", "stopping"):
        if clock.now_s() > give_up_s:
            raise RobotFault("the robot was told to stop, and did not come to rest")
        clock.sleep_until(clock.now_s() + TURN_S)
    return seen


# --- What is measured ----------------------------------------------------------------------------


def measured(moments: Sequence[Moment], run: Run) -> Grasp:
    """What a robot's record of a run says of it."""
    taken = [one for one in run.decisions if one.fate == "in force" and one.taken_s is not None]
    fault = run.ended if run.ended not in ("", OVER) else ""
    switches = [moment for moment in moments if moment.is_switch]
    if fault or not switches:
        return Grasp.broken(fault or "nothing was decided", len(taken))
    ended_s = switches[-1].at_s if run.ended == OVER else run.seen_s
    lived = [moment for moment in moments if moment.at_s <= ended_s + 1e-9]
    end = switches[-1] if run.ended == OVER else lived[-1]
    latencies_s = [one.taken_s - one.captured_s for one in taken if one.taken_s is not None]
    return Grasp(
        success=float(end.score > 0.5),
        policy_duration_s=ended_s - switches[0].at_s,
        completion=completion(lived, [one.captured_s for one in run.decisions], ended_s),
        jerk=jerk(lived),
        latency_s=float(np.mean(latencies_s)),
        decisions=len(taken),
        most_latency_s=max(latencies_s),
        is_cut_off=run.ended != OVER,
        missed=run.missed,
        late_ticks=run.late_ticks,
    )


def completion(moments: Sequence[Moment], captures_s: Sequence[float], end_s: float) -> float:
    """Of the commanded displacements, how much was done when the next observation was taken.

    Or when the next action took over before it: what was moved along the commanded directions,
    overshoot left out, summed, over the sum of their lengths.
    """
    switches = [moment for moment in moments if moment.is_switch]
    until_s = [*(switch.at_s for switch in switches[1:]), end_s]
    times_s = [moment.at_s for moment in moments]
    path = np.stack([_xyz(moment.position) for moment in moments])
    done = commanded = 0.0
    for switch, next_s in zip(switches, until_s, strict=True):
        seen_s = min([at_s for at_s in captures_s if at_s > switch.at_s], default=next_s)
        here = _xyz(switch.position)
        asked = _xyz(switch.target) - here
        length = float(np.linalg.norm(asked))
        if length < 1e-6:
            continue
        at_s = min(seen_s, next_s)
        there = np.array([np.interp(at_s, times_s, axis) for axis in path.T])
        done += min(float((there - here) @ asked) / length, length)
        commanded += length
    return done / commanded if commanded else 0.0


def jerk(moments: Sequence[Moment]) -> float:
    """Root mean square of the third derivative of the places at every turn, m/s^3."""
    path = np.stack([_xyz(m.position) for m in moments if not m.is_switch] or [np.zeros(3)])
    if len(path) < 4:
        return 0.0
    third = np.diff(path, 3, axis=0) / TURN_S**3
    return float(np.sqrt((third**2).sum(axis=1).mean()))


def _xyz(place: Array | None) -> Array:
    assert place is not None
    return place[:3]

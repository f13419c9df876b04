"""A run: a policy on a robot from arming to rest, and the same without motion, to measure it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from midstride.knowledge import Layout
from midstride.latency import Fixed, LatencyModel, loses
from midstride.policies.fit import fit
from midstride.realtime.clock import Clock, steady
from midstride.realtime.journal import Decision
from midstride.realtime.robot import STAY, Declared, Observation, Robot, RobotFault, Sent, Stamp
from midstride.realtime.runtime import Enough, Mode, Pace, Runtime
from midstride.realtime.senses import Senses
from midstride.realtime.thinker import Thinker, ThreadThinker
from midstride.seconds import format_s
from midstride.timing import Timing

OVER = "the episode is over"
AS_IT_IS = "as the action is"  # what the units of grasping say of actions


@dataclass(frozen=True)
class Plan:
    """How a policy is run, checked against the robot that it runs on.

    workers: thoughts at a time
    latency: no decision comes into force earlier after its capture than this draws
    seed: of these draws
    """

    senses: Senses
    pace: Pace
    workers: int = 1
    latency: LatencyModel = field(default_factory=lambda: Fixed(0.0))
    seed: int = 0

    def __post_init__(self) -> None:
        if loses(self.latency):
            raise ValueError("a robot's decisions are not lost on purpose: give a latency alone")


@dataclass
class Run:
    """What happened so far; also read while it goes on, by who shows it."""

    decisions: list[Decision] = field(default_factory=list)  # whose fate is known
    captures: int = 0
    missed: int = 0
    starved: int = 0
    late_ticks: int = 0  # that the robot's process came too late for
    began_s: float = 0.0
    lasted_s: float = 0.0
    seen_s: float = 0.0  # when the last observation was captured
    score: float | None = None  # reward of a simulated robot
    state: str = "idle"
    ended: str = ""  # why
    watchdog_s: float | None = None  # of the robot

    def count(self, fate: str) -> int:
        return sum(one.fate == fate for one in list(self.decisions))

    def longest_silence_s(self) -> float:
        """The longest time without a fresh command: what the robot's watchdog looks at.

        The one under way, when the run was last looked at, counts too.
        """
        taken = [one.taken_s for one in list(self.decisions) if one.fate == "in force"]
        times_s = [self.began_s, *(at_s for at_s in taken if at_s is not None)]
        times_s.append(max(times_s[-1], self.began_s + self.lasted_s))
        return float(np.diff(times_s).max())


def plan_of(
    declared: Declared,
    trained: tuple[Layout, Timing] | None,
    mode: Mode,
    period_s: float | None = None,
) -> Plan:
    """How to run a policy on a robot.

    trained: columns and timing of the environment that the policy was trained in; None: the
        policy sees what the robot observes, and nothing else
    period_s: from one observation to the next (default: as trained)
    """
    if trained is None:
        if mode == "rest":
            return _checked(declared, Plan(Senses(declared), Pace(mode)))
        if period_s is None:
            raise ValueError(
                "this policy does not say how long a period is: give it, --period 50ms"
            )
        return _checked(declared, Plan(Senses(declared), Pace(mode, period_s)))
    layout, timing = trained
    _check_columns(declared, layout)
    senses = Senses(
        declared,
        layout.features,
        layout.stack_observations,
        layout.stack_actions,
        timing.pending_slots,
        timing.selection_scale_s,
        raw_actions=layout.units.get("previous_action") == AS_IT_IS,
    )
    if mode == "rest":
        pace = Pace(mode)
    elif period_s is not None:
        pace = Pace(mode, period_s)
    elif timing.execution_s == 0:
        raise ValueError(
            "the policy was trained without execution, each period as long as its latency: give "
            f"the period that it had, --period {format_s(timing.latency_high_s).replace(' ', '')}"
        )
    else:
        pace = Pace(mode, timing.period_s, timing.execution_s)
    workers = timing.most_pending if timing.thinker == "pipelined" else 1
    return _checked(declared, Plan(senses, pace, workers))


def _checked(declared: Declared, plan: Plan) -> Plan:
    """The plan, unless the robot would stop between two of its commands."""
    pace, latency_s = plan.pace, float(plan.latency.values_s.max())
    if pace.mode == "rest":
        lasts_s = (declared.arrives_s or 0.0) + latency_s
        said = f"a motion to its end and the thought after it can take {format_s(lasts_s, 3)}"
    elif pace.mode == "hold":
        lasts_s = (pace.execution_s or 0.0) + latency_s
        said = f"a thought and the period after it last {format_s(lasts_s, 3)}"
    else:
        lasts_s = max(pace.period_s or pace.execution_s or 0.0, latency_s)
        said = f"a period or a thought lasts {format_s(lasts_s, 3)}"
    if declared.watchdog_s is not None and lasts_s >= declared.watchdog_s:
        raise ValueError(
            f"{declared.name} stops without a fresh command for {format_s(declared.watchdog_s)}, "
            f"and {said}: serve it with a longer --watchdog"
            + ("" if pace.mode == "rest" else ", or give a shorter --period")
        )
    return plan


def _check_columns(declared: Declared, layout: Layout) -> None:
    """An error unless the robot observes what the policy was trained on, in the same units."""
    if declared.columns != layout.base:
        raise ValueError(
            f"the policy was trained on the columns {', '.join(layout.base)[:200]}, the robot "
            f"{declared.name} observes {', '.join(declared.columns)[:200]}"
        )
    scale = layout.units.get("vector_to_go")
    controlled = declared.controlled
    if "vector_to_go" not in layout.features or controlled is None or scale is None:
        return
    if list(scale) != controlled.scale.tolist():
        raise ValueError(
            f"an action of 1 moves this robot by {controlled.scale.tolist()}, and moved it by "
            f"{list(scale)} in training"
        )


def drive(
    robot: Robot,
    policy: Any,
    plan: Plan,
    clock: Clock,
    goes_on: Callable[[Run], bool],
    run: Run | None = None,
    thinks: Callable[[Any], Thinker] | None = None,
    arm_after_fault: bool = False,
) -> Run:
    """Arm a robot that is connected, run the policy on it while `goes_on`, bring it to rest.

    thinks: makes the thinker of the policy (default: a thread of its own, for the wall clock)
    arm_after_fault: a person has looked at the robot that stopped after a fault

    Whatever ends it, the robot is told to stop. A fault of the robot ends it: it is in `ended`.
    """
    run = Run() if run is None else run
    run.watchdog_s = robot.declared.watchdog_s
    _checked(robot.declared, plan)
    seen = robot.get_observation()
    if seen.fault is not None and not arm_after_fault:
        raise ValueError(
            f"the robot is {seen.state} after a fault: {seen.fault}; look at it, and say that it "
            "may be armed (--arm, or arm_after_fault=True)"
        )
    policy = fit(policy, plan.senses.observation_space, robot.declared.action_space)
    policy.reset()

    def still() -> bool:
        run.lasted_s = clock.now_s() - run.began_s
        return goes_on(run)

    thinker = thinks(policy) if thinks else _thread(policy, plan, clock)
    runtime = Runtime(robot, thinker, plan.senses, plan.pace, clock, still)
    try:
        with steady():
            runtime.warm_up()
            robot.arm()
            run.began_s, run.state = clock.now_s(), "armed"
            _walk(runtime, run, still)
    except Enough:
        pass
    except RobotFault as fault:
        run.ended = str(fault)
    finally:
        if run.state == "armed":
            run.lasted_s = clock.now_s() - run.began_s
        thinker.close()
        with suppress(RobotFault):  # it is gone, and its own watchdog stops it
            robot.stop()
        runtime.journal.close()
        run.decisions += runtime.journal.settled()
        run.state = "stopped"
    return run


def _thread(policy: Any, plan: Plan, clock: Clock) -> Thinker:
    coming = plan.latency.episode(np.random.default_rng(plan.seed))
    return ThreadThinker(policy, clock, plan.workers, lambda: float(coming(1)[0]))


def _walk(runtime: Runtime, run: Run, still: Callable[[], bool]) -> None:
    for cycle in runtime.cycles():
        run.score, run.seen_s = cycle.seen.score, cycle.seen.captured_s
        run.captures, run.late_ticks = run.captures + 1, cycle.seen.late_ticks
        run.decisions += runtime.journal.settled()
        run.missed, run.starved = runtime.journal.counts["missed"], runtime.starved
        if not still():
            return
    run.ended = OVER


class Resting:
    """A robot that is told to rest whatever is decided: to measure its latencies without motion."""

    def __init__(self, robot: Robot) -> None:
        self._robot = robot

    @property
    def declared(self) -> Declared:
        return replace(self._robot.declared, pauses=False)

    def connect(self) -> None:
        self._robot.connect()

    def arm(self) -> None:
        self._robot.arm()

    def get_observation(self) -> Observation:
        return self._robot.get_observation()

    def send_action(self, action: Any, stamp: Stamp) -> Sent:
        """It stays; the policy is left in the belief that it did not: only latencies are used."""
        sent = self._robot.send_action(STAY, stamp)
        return sent if sent.refused is not None else replace(sent, action=action)

    def stop(self) -> None:
        self._robot.stop()

    def disconnect(self) -> None:
        self._robot.disconnect()

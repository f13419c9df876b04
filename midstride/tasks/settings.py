"""The tasks by name, and the settings of their environments."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, Self

from midstride.envs.learnable import Environment, LearnableEnvs
from midstride.knowledge import MAX_STACK
from midstride.latency_text import Latency, read_latency
from midstride.seconds import Time, as_seconds, check_tick_s, seconds_of
from midstride.settings import Range
from midstride.sim.task import Task
from midstride.tasks import balance, cartpole, catch, pendulum, pointmass
from midstride.timing import Mode, Timing

TASKS: dict[str, Any] = {
    "pointmass": pointmass,
    "cartpole": cartpole,
    "pendulum": pendulum,
    "catch": catch,
    "catch-drag": catch.drag,
    "catch-bounce": catch.bounce,
    "balance": balance,
}
DISCRETE_ACTIONS = (3, 8)


@dataclass(frozen=True)
class TaskSettings(Environment):
    """Of point mass, Cartpole, pendulum, catch and balance."""

    times: ClassVar[tuple[str, ...]] = ("execution", "period", "tick")
    bytes_each: ClassVar[int] = 6_000  # of memory that one of many takes, about (measured)
    task: str = "cartpole"
    """pointmass, cartpole, pendulum, catch, catch-drag, catch-bounce or balance"""
    latency: Latency = "0"
    """from an observation to the switch to the action chosen on it: 25ms, or episode:0,5ms,25ms
    (drawn at each reset), step:0,5ms,25ms (at each step), jitter:25ms,10ms (evenly around a mean),
    trace:latencies.csv (measured); lost:0.1: before it loses a tenth of the decisions"""
    execution: Time | None = None
    """how long a new action has run at the next observation (25ms); or give the period"""
    period: Time | None = None
    """from one observation to the next (default: the task's own, 50ms, of pointmass, catch and
    balance 100ms)"""
    mode: Annotated[
        Mode,
        "concurrent or hold (blocking, the world frozen while the policy thinks, is concurrent "
        "with latency 0)",
    ] = "concurrent"
    """concurrent: what is in force goes on while the policy thinks; hold: the actuators rest
    meanwhile and the world goes on, then the action runs for the period. Latency 0, the world
    frozen while the policy thinks, is what only a simulation can"""
    actions: int | Literal["continuous"] = 5
    """how many discrete displacements there are, 3 to 8, or continuous"""
    observation: Literal["state", "image"] = "state"
    """state: everything that moves; image: pictures, and where the controlled joints are"""
    image_size: Annotated[int, Range(1, 512)] = 64
    """width and height of a picture in pixels"""
    frames: Annotated[int, Range(1, 1 + MAX_STACK)] = 2
    """image: pictures of so many captures are observed, the newest first: 2 show what moves"""
    stack_observations: Annotated[int, Range(0, MAX_STACK)] = 0
    """how many previous observations are observed too, 0 to 4"""
    stack_actions: Annotated[int, Range(0, MAX_STACK)] = 0
    """how many previous actions are observed too, 0 to 4"""
    tick: Time = "5ms"
    """timestep of the physics; all other times are whole numbers of it"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task not in TASKS:
            raise ValueError(f"unknown task {self.task!r}: choose from {', '.join(TASKS)}")
        low, high = DISCRETE_ACTIONS
        if self.actions != "continuous" and not low <= self.actions <= high:
            raise ValueError(
                f"actions must be from {low} to {high}, or 'continuous', got {self.actions}"
            )
        if self.observation == "state":
            usual = {one.name: one.default for one in fields(self)}
            for name in ("image_size", "frames"):
                if getattr(self, name) != usual[name]:
                    raise ValueError(
                        f"{name} is of pictures, and nothing reads it with observation state: give "
                        f"observation image, or leave {name} out"
                    )
        self.timing()  # all times fit, or an error says which do

    def timing(self) -> Timing:
        """With neither execution nor period, the task's own period."""
        execution_s, period_s = as_seconds(self.execution), as_seconds(self.period)
        if execution_s is None and period_s is None:
            period_s = TASKS[self.task].PERIOD_S
        tick_s = check_tick_s(seconds_of(self.tick))
        latency = read_latency(self.latency)
        return Timing(latency, period_s, execution_s, tick_s, self.thinker, self.mode)

    @property
    def label(self) -> str:
        seen = "-image" if self.observation == "image" else ""
        return super().label + ("-hold" if self.mode == "hold" else "") + seen

    def lived_at(self, latency: Any) -> Self:
        if self.mode == "hold":
            raise ValueError(
                "hindsight moves captures while actions go on, and in mode hold none goes on: use "
                "mode concurrent"
            )
        if self.execution is not None:
            raise ValueError(
                "with an execution time the period depends on the latency, and hindsight cannot "
                "change the period: give --period instead of --execution"
            )
        return super().lived_at(latency)

    def make(
        self,
        num_envs: int,
        threads: int | None = 1,
        render_mode: str | None = None,
        observe_switch: bool = False,
    ) -> LearnableEnvs:
        from midstride.tasks.env import TaskVectorEnv

        return TaskVectorEnv(
            self, num_envs, threads, render_mode=render_mode, observe_switch=observe_switch
        )


def make_task(name: str, tick_s: float = 0.005) -> Task:
    """The task called `name`, stepped by physics ticks of `tick_s` seconds."""
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}: choose from {', '.join(TASKS)}")
    return TASKS[name].make(check_tick_s(tick_s))

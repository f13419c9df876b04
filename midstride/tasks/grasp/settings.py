"""The settings of grasping environments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from midstride.envs.learnable import Environment, LearnableEnvs
from midstride.knowledge import MAX_STACK
from midstride.latency import loses
from midstride.latency_text import Latency, latency_name, read_latency
from midstride.seconds import Time, as_seconds
from midstride.settings import Range
from midstride.tasks.grasp.model import MAX_OBJECTS, TICK_S
from midstride.timing import Timing, check_shorter

PERIOD_S = 0.3
EVALUATION_SCENE_COUNT = 512
_BLOCKING_WORDS = (
    "concurrent or blocking (which is hold here: the arm rests while it thinks, and nothing else "
    "moves)"
)
_HOLD_WORDS = (
    "concurrent or hold (blocking, the world frozen while the policy thinks, is hold at latency 0)"
)
ObjectSet = Literal["train", "held_out", "household"]


@dataclass(frozen=True)
class GraspSettings(Environment):
    """Of grasping."""

    times: ClassVar[tuple[str, ...]] = ("execution", "period")
    own_period_s: ClassVar[float] = PERIOD_S
    recommended_agent: ClassVar[str] = "qtopt"
    filmed: ClassVar[str] = "timeline"
    task: Literal["grasp"] = "grasp"
    """grasp"""
    mode: Annotated[Literal["concurrent", "blocking"], _BLOCKING_WORDS] = "concurrent"
    """concurrent: the arm moves on while the policy thinks, and a new action pre-empts the old;
    blocking: every action runs to completion and rest, and thinking time passes at rest"""
    latency: Latency = "100ms"
    """from an observation to the switch to the action chosen on it: 100ms, or episode:0,100ms
    (drawn at each reset), step:0,100ms (at each step), jitter:100ms,40ms (evenly around a mean),
    trace:latencies.csv (measured); lost:0.1: before it loses a tenth of the decisions"""
    period: Time | None = None
    """concurrent: from one observation to the next (default: 300ms, on the conveyor 100ms); or give
    the execution"""
    execution: Time | None = None
    """concurrent: how long a new action has run at the next observation"""
    observation: Literal["image", "state"] = "image"
    """image: a picture, gripper opening and height; state: the places of all objects, nearest
    first"""
    hand_velocity: bool = False
    """observe the hand's measured velocity too, in displacements of an action per second"""
    frames: Annotated[int, Range(1, 1 + MAX_STACK)] = 1
    """what is seen of so many captures is observed, the newest first: 2 show what moves"""
    image_size: Annotated[int, Range(1)] = 64
    """width and height of the picture in pixels"""
    camera: Literal["fixed", "following"] = "fixed"
    """fixed, or following: in the same place, turned to what is under the hand, and closer"""
    depth: bool = False
    """observe a depth image too"""
    camera_jitter: Annotated[float, Range(0, 0.2)] = 0.0
    """how many metres the camera's place differs from episode to episode"""
    light_jitter: Annotated[float, Range(0, 1)] = 0.0
    """how much the light's direction differs from episode to episode, 0 to 1"""
    colour_jitter: Annotated[float, Range(0, 1)] = 0.0
    """how much every colour differs from episode to episode, 0 to 1"""
    objects: int | tuple[int, int] = 1
    """how many objects are in the bin, 1 to 5, or the fewest and the most; from images, several
    need the following camera to be learned"""
    object_set: ObjectSet = "train"
    """the objects to learn with"""
    evaluation_set: ObjectSet = "held_out"
    """the objects to evaluate with"""
    scenes: Annotated[int, Range(1)] = 1024
    """how many settled scenes there are that episodes start from"""
    scene_seed: Annotated[int, Range(0)] = 0
    """the scenes depend on this seed alone"""
    step_penalty: Annotated[float, Range(0, 0.1)] = 0.0
    """taken off the reward at every step; the paper: 0.01"""
    max_steps: Annotated[int, Range(1)] = 20
    """after so many steps an episode is cut off"""
    end_on_success: bool = False
    """end an episode when an object is lifted, as seen at an observation; otherwise the terminate
    command ends it"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth and self.observation == "state":
            raise ValueError("depth is an image: it needs observation 'image'")
        fewest, most = self.counts
        if not 1 <= fewest <= most <= MAX_OBJECTS:
            asked = fewest if fewest == most else f"{fewest} to {most}"
            raise ValueError(f"a bin holds 1 to {MAX_OBJECTS} objects, got {asked}")
        self.timing()

    @property
    def counts(self) -> tuple[int, int]:
        """The fewest and the most objects of a scene."""
        return self.objects if isinstance(self.objects, tuple) else (self.objects, self.objects)

    def timing(self) -> Timing:
        latency = read_latency(self.latency)
        period_s, execution_s = as_seconds(self.period), as_seconds(self.execution)
        if self.mode != "concurrent":
            if period_s is not None or execution_s is not None:
                raise ValueError(
                    f"in {self.mode} mode an action takes the time it takes: no period"
                )
            if loses(latency):
                raise ValueError(
                    f"in {self.mode} mode the arm waits for every decision, so none can be lost: "
                    "use mode concurrent, or a latency without lost decisions"
                )
            return Timing(latency, execution_s=PERIOD_S, tick_s=TICK_S)  # for its latencies alone
        if period_s is None and execution_s is None:
            period_s = self.own_period_s
        timing = Timing(latency, period_s, execution_s, TICK_S, self.thinker)
        if period_s is not None:
            check_shorter(timing, self.max_steps * period_s)
        return timing

    def make(
        self,
        num_envs: int,
        threads: int | None = 1,
        render_mode: str | None = None,
        observe_switch: bool = False,
    ) -> LearnableEnvs:
        from midstride.tasks.grasp.env import GraspVectorEnv

        return GraspVectorEnv(
            num_envs, threads, render_mode=render_mode, observe_switch=observe_switch, settings=self
        )

    def for_evaluation(self, seed: int) -> GraspSettings:
        """On the objects to evaluate with, in other scenes."""
        return replace(
            self, object_set=self.evaluation_set, scenes=EVALUATION_SCENE_COUNT, scene_seed=seed
        )

    def small(self) -> GraspSettings:
        return replace(self, scenes=1)

    @property
    def label(self) -> str:
        thinker = "" if self.thinker == "pipelined" else f"-{self.thinker}"
        return f"{self.task}-{self.mode}-latency_{latency_name(self.latency)}{thinker}"


@dataclass(frozen=True)
class ConveyorSettings(GraspSettings):
    """Of grasping from a tray that a belt carries past the arm."""

    own_period_s: ClassVar[float] = 0.1
    task: Literal["conveyor"] = "conveyor"  # type: ignore[assignment]
    """conveyor"""
    mode: Annotated[Literal["concurrent", "hold"], _HOLD_WORDS] = "concurrent"  # type: ignore[assignment]
    """concurrent: the arm moves on while the policy thinks, and a new action pre-empts the old;
    hold: every action runs to completion and rest, and while the arm thinks at rest the belt goes
    on. With latency 0, which only a simulation has, hold is blocking control: an oracle"""
    camera: Literal["fixed", "following"] = "following"
    """fixed, or following: in the same place, turned to what is under the hand, and closer"""
    max_steps: Annotated[int, Range(1)] = 60
    """after so many steps an episode is cut off"""
    belt_low: Annotated[float, Range(0, 0.3)] = 0.0
    """the slowest speed of the belt, which is drawn for each episode, in m/s"""
    belt_high: Annotated[float, Range(0, 0.3)] = 0.3
    """the fastest speed of the belt, in m/s"""
    reversals: bool = True
    """whether the belt turns back at random times, every 0.5 to 2 s, and not at its ends alone"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.belt_low > self.belt_high:
            raise ValueError(
                f"the belt's slowest speed ({self.belt_low} m/s) must not be above its fastest "
                f"({self.belt_high} m/s)"
            )

    @property
    def belt(self) -> tuple[tuple[float, float], bool]:
        """Speeds in m/s, and whether it turns back at random times."""
        return (self.belt_low, self.belt_high), self.reversals


def settings_from(values: Mapping[str, Any]) -> GraspSettings:
    """The settings of grasping, or of grasping from a belt, by the task that is named."""
    kind = ConveyorSettings if values.get("task") == "conveyor" else GraspSettings
    return kind.from_dict(values)

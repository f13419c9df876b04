"""Environments that others wrote, many at a time: gym:ID and dmc:DOMAIN/TASK."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from midstride.envs.checks import check_render_mode
from midstride.envs.concurrent import Concurrent
from midstride.envs.faults import Fault, Guarded, said
from midstride.envs.learnable import Environment, Hints, Image
from midstride.envs.physics import MovesByTicks
from midstride.knowledge import MAX_STACK, Layout
from midstride.latency import Latency, read_latency
from midstride.seconds import Time, as_seconds
from midstride.settings import Range
from midstride.sim.follow import Follower
from midstride.timing import Timing


@dataclass(frozen=True)
class WrappedSettings(Environment):
    """Of Gymnasium's MuJoCo environments (gym:ID) and DeepMind Control's (dmc:DOMAIN/TASK)."""

    times: ClassVar[tuple[str, ...]] = ("tick",)
    task: str
    """gym:ID (a Gymnasium MuJoCo environment; gym:module:ID imports the module first) or
    dmc:DOMAIN/TASK"""
    latency: Latency = "0"
    """from an observation to the switch to the action chosen on it, at most the environment's own
    period: 10ms, or episode:0,10ms (drawn at each reset), step:0,10ms (at each step),
    trace:latencies.csv (measured)"""
    knowledge: tuple[str, ...] = ()
    """what the agent knows of the action in flight: any of previous_action, selection_time,
    vector_to_go (position actuators only)"""
    stack_observations: Annotated[int, Range(0, MAX_STACK)] = 0
    """how many previous observations are observed too, 0 to 4"""
    stack_actions: Annotated[int, Range(0, MAX_STACK)] = 0
    """how many previous actions are observed too, 0 to 4"""
    tick: Time | None = None
    """a finer timestep of the physics than the environment's own"""

    def __post_init__(self) -> None:
        super().__post_init__()
        read_latency(self.latency)
        as_seconds(self.tick)
        kind, _, name = self.task.partition(":")
        separators = name.count("/") == 1 if kind == "dmc" else name.count(":") < 2
        if kind not in ("gym", "dmc") or not name.strip() or name[0] in ".:" or not separators:
            raise ValueError(f"a task of others is gym:ID or dmc:DOMAIN/TASK, got {self.task!r}")

    def make_one(
        self, render_mode: str | None = None, observe_switch: bool = False
    ) -> gymnasium.Env[Any, Any]:
        """One environment, concurrent."""
        kind, _, name = self.task.partition(":")
        if kind == "dmc":
            from midstride.envs.dm_control import DMControlEnv

            domain, task = name.split("/")
            bare: gymnasium.Env[Any, Any] = DMControlEnv(domain, task, render_mode)
        else:
            bare = _make_gymnasium(name, render_mode)
        return Concurrent(
            bare,
            latency=read_latency(self.latency),
            knowledge=self.knowledge,
            stack_observations=self.stack_observations,
            stack_actions=self.stack_actions,
            tick=as_seconds(self.tick),
            observe_switch=observe_switch,
        )

    def make(
        self,
        num_envs: int,
        threads: int | None = 1,
        render_mode: str | None = None,
        observe_switch: bool = False,
    ) -> WrappedEnvs:
        return WrappedEnvs(self, num_envs, render_mode, observe_switch)


class WrappedEnvs(SyncVectorEnv):
    """Environments of others, one after another in this process."""

    camera_s = 0.0

    def __init__(
        self,
        settings: WrappedSettings,
        num_envs: int,
        render_mode: str | None = None,
        observe_switch: bool = False,
    ) -> None:
        # We render, without OpenGL: the environments themselves need not.
        def make(number: int) -> gymnasium.Env[Any, Any]:
            return Guarded(settings.make_one(None, observe_switch), settings.task, number)

        self._task = settings.task
        super().__init__(
            [partial(make, i) for i in range(num_envs)], autoreset_mode=AutoresetMode.SAME_STEP
        )
        self.layout: Layout = self.envs[0].get_wrapper_attr("layout")
        self.timing: Timing = self.envs[0].get_wrapper_attr("timing")
        longest = self.envs[0].spec.max_episode_steps if self.envs[0].spec else None
        self.hints = Hints(longest_episode=longest)
        self.render_mode = check_render_mode(render_mode)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        try:
            return super().step(actions)
        except Fault:
            raise
        except Exception as error:  # what each gave was right, but they do not go together
            raise Fault(f"{self._task}: its steps do not go together: {said(error)}") from error

    @cached_property
    def _followers(self) -> list[Follower]:
        return [Follower(cast(MovesByTicks, env.unwrapped).model) for env in self.envs]

    def render(self) -> tuple[Image, ...] | None:  # type: ignore[override]
        """A picture of each robot."""
        if self.render_mode is None:
            return None
        pairs = zip(self._followers, self.envs, strict=True)
        return tuple(f.picture(cast(MovesByTicks, env.unwrapped).data) for f, env in pairs)


def _make_gymnasium(name: str, render_mode: str | None) -> gymnasium.Env[Any, Any]:
    here = str(Path.cwd())
    if ":" in name and here not in sys.path:  # the user's own module, in the folder they are in
        sys.path.insert(0, here)
    try:
        return gymnasium.make(name, render_mode=render_mode)
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(f"unknown Gymnasium environment {name!r}: {error}") from None
    except Exception as error:
        raise Fault(f"the environment {name!r} cannot be made: {said(error)}") from error

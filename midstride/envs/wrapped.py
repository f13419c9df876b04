"""Environments that others wrote, many at a time: gym:ID and dmc:DOMAIN/TASK."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from midstride.envs.checks import check_render_mode
from midstride.envs.concurrent import Concurrent
from midstride.envs.faults import Fault, Guarded, said
from midstride.envs.learnable import Environment, Hints, Image
from midstride.envs.physics import MovesByTicks
from midstride.knowledge import MAX_STACK, Layout
from midstride.latency_text import Latency, read_latency
from midstride.seconds import Time, as_seconds
from midstride.settings import Range
from midstride.sim.follow import Follower
from midstride.timing import Timing


@dataclass(frozen=True)
class WrappedSettings(Environment):
    """Of Gymnasium's environments (gym:ID) and DeepMind Control's (dmc:DOMAIN/TASK)."""

    times: ClassVar[tuple[str, ...]] = ("tick", "period", "step")
    task: str
    """gym:ID (a Gymnasium environment; gym:module:ID imports the module first) or
    dmc:DOMAIN/TASK"""
    latency: Latency = "0"
    """from an observation to the switch to the action chosen on it, shorter or longer than the
    period: 10ms, or episode:0,10ms (drawn at each reset), step:0,10ms (at each step),
    jitter:20ms,5ms, trace:latencies.csv (measured), lost:0.1:10ms"""
    knowledge: tuple[str, ...] = ()
    """what the agent knows of what is in flight: any of previous_action, pending_actions,
    selection_time, vector_to_go (MuJoCo with position actuators only)"""
    stack_observations: Annotated[int, Range(0, MAX_STACK)] = 0
    """how many previous observations are observed too, 0 to 4"""
    stack_actions: Annotated[int, Range(0, MAX_STACK)] = 0
    """how many previous actions are observed too, 0 to 4"""
    tick: Time | None = None
    """MuJoCo: a finer timestep of the physics than the environment's own"""
    period: Time | None = None
    """from one observation to the next, a whole number of the environment's own steps (default:
    one)"""
    step: Time | None = None
    """how long one step of the environment lasts, where it does not say so itself; of a MuJoCo
    environment, too, whole steps are then the ticks"""
    hold: tuple[float, ...] | None = None
    """the action before the first decision of an episode arrives (default: zeros, within bounds; of
    discrete actions the first); of a MuJoCo environment the control of each actuator (default:
    motors get zero, position actuators stay)"""

    def __post_init__(self) -> None:
        super().__post_init__()
        read_latency(self.latency)
        for name in self.times:
            as_seconds(getattr(self, name))
        kind, _, name = self.task.partition(":")
        separators = name.count("/") == 1 if kind == "dmc" else name.count(":") < 2
        if kind not in ("gym", "dmc") or not name.strip() or name[0] in ".:" or not separators:
            raise ValueError(f"a task of others is gym:ID or dmc:DOMAIN/TASK, got {self.task!r}")

    def make_one(
        self, render_mode: str | None = None, observe_switch: bool = False
    ) -> gymnasium.Env[Any, Any]:
        """One environment, concurrent."""
        bare = self._bare(render_mode)
        return Concurrent(
            bare,
            latency=read_latency(self.latency),
            knowledge=self.knowledge,
            stack_observations=self.stack_observations,
            stack_actions=self.stack_actions,
            tick=as_seconds(self.tick),
            observe_switch=observe_switch,
            period=as_seconds(self.period),
            step_s=as_seconds(self.step),
            thinker=self.thinker,
            hold=_as_action(self.hold, bare.action_space),
        )

    def _bare(self, render_mode: str | None) -> gymnasium.Env[Any, Any]:
        kind, _, name = self.task.partition(":")
        if kind == "dmc":
            from midstride.envs.dm_control import DMControlEnv

            domain, task = name.split("/")
            return DMControlEnv(domain, task, render_mode)
        return _make_gymnasium(name, render_mode)

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
        self._task = settings.task
        drawn = check_render_mode(render_mode)
        first = settings.make_one(None, observe_switch)
        # Of MuJoCo we make pictures, without OpenGL. Others draw themselves, if they can.
        self._ours = isinstance(first.unwrapped, MovesByTicks)
        if drawn is not None and not self._ours:
            _check_draws(first, settings.task)
        own_mode = None if self._ours else drawn

        def make(number: int) -> gymnasium.Env[Any, Any]:
            is_made = number == 0 and own_mode is None
            env = first if is_made else settings.make_one(own_mode, observe_switch)
            return Guarded(env, settings.task, number)

        super().__init__(
            [partial(make, i) for i in range(num_envs)], autoreset_mode=AutoresetMode.SAME_STEP
        )
        self.layout: Layout = first.get_wrapper_attr("layout")
        self.timing: Timing = first.get_wrapper_attr("timing")
        self.hints = Hints(longest_episode=first.get_wrapper_attr("longest_episode"))
        self.render_mode = drawn

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
        """A picture of each environment."""
        if self.render_mode is None:
            return None
        if not self._ours:
            try:
                return tuple(np.asarray(env.render(), np.uint8) for env in self.envs)
            except gymnasium.error.Error as error:  # pygame is not installed
                raise ValueError(f"{self.envs[0].unwrapped} cannot draw itself: {error}") from None
        pairs = zip(self._followers, self.envs, strict=True)
        return tuple(f.picture(cast(MovesByTicks, env.unwrapped).data) for f, env in pairs)


def _check_draws(env: gymnasium.Env[Any, Any], task: str) -> None:
    if "rgb_array" not in (env.metadata.get("render_modes") or ()):
        raise ValueError(f"{task} cannot draw itself (it has no render mode rgb_array)")


def _as_action(hold: tuple[float, ...] | None, space: gymnasium.Space[Any]) -> Any:
    """Numbers of a file as an action."""
    if hold is None or not isinstance(space, spaces.Discrete):
        return hold
    if len(hold) != 1 or hold[0] != int(hold[0]):
        raise ValueError(f"hold must be one of the actions of {space}, got {hold}")
    return int(hold[0])


def _make_gymnasium(name: str, render_mode: str | None) -> gymnasium.Env[Any, Any]:
    here = str(Path.cwd())
    if ":" in name and here not in sys.path:  # the user's own module, in the folder they are in
        sys.path.insert(0, here)
    # An environment that draws nothing need not know the word.
    drawing: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
    try:
        return gymnasium.make(name, **drawing)
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(f"unknown Gymnasium environment {name!r}: {error}") from None
    except Exception as error:
        raise Fault(f"the environment {name!r} cannot be made: {said(error)}") from error

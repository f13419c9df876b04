"""How long a step of somebody's environment lasts, and the timing that is made of such steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import SyncVectorEnv

from midstride.envs.physics import MovesByTicks
from midstride.latency import LatencyModel, as_latency
from midstride.seconds import (
    DoesNotFit,
    check_divides,
    check_tick_s,
    check_time_s,
    finer_tick_s,
    format_on_grid,
    format_s,
    whole_ticks,
)
from midstride.timing import Mode, Thinker, Timing


@dataclass(frozen=True)
class OwnTime:
    """The time of an environment: its ticks, and how many there are in a step of its own."""

    tick_s: float
    ticks: int  # in a step
    of_physics: bool  # ticks are physics timesteps, which may be finer; else they are its steps
    longest_s: float | None = None  # of an episode

    def timing(
        self,
        latency: float | LatencyModel,
        period_s: float | None,
        thinker: Thinker,
        mode: Mode = "concurrent",
    ) -> Timing:
        """Timing with a period of whole steps, by default one; in hold also with such latencies."""
        step_s = self.ticks * self.tick_s
        if period_s is None:
            period_s = step_s
        elif not whole_ticks(check_time_s(period_s, "period"), step_s):
            below = math.floor(period_s / step_s)
            valid = [format_on_grid(k, step_s) for k in (below, below + 1) if k > 0]
            raise ValueError(
                f"a period of {format_s(period_s)} is not a whole number of the environment's own "
                f"steps of {format_s(step_s)}: valid near it "
                f"{'are' if len(valid) > 1 else 'is'} {' and '.join(valid)}"
            )
        model = as_latency(latency)
        high_s = float(max(model.values_s))
        if self.longest_s is not None and high_s >= self.longest_s:
            meant = f"did you mean {high_s:.6g}ms?" if high_s >= 1 else "nothing would be decided"
            raise ValueError(
                f"a latency of {format_s(high_s)} is as long as an episode, which lasts "
                f"{format_s(self.longest_s)} at most: {meant}"
            )
        if mode == "hold":
            for value_s in model.values_s:
                if whole_ticks(value_s, step_s) is None:
                    raise ValueError(
                        f"a latency of {format_s(value_s)} is not a whole number of the "
                        f"environment's own steps of {format_s(step_s)}, and in mode hold every "
                        "step must be all rest or all action"
                    )
        try:
            return Timing(model, period_s=period_s, tick_s=self.tick_s, thinker=thinker, mode=mode)
        except DoesNotFit as error:
            raise ValueError(f"{error}{self._remedy(model)}") from None

    def _remedy(self, model: LatencyModel) -> str:
        """What to do about a latency that is no whole number of ticks."""
        if not self.of_physics:
            return "; the ticks are the environment's own steps"
        finer_s = finer_tick_s(model.values_s, self.tick_s)
        return "" if finer_s is None else f"; or take finer physics: tick={finer_s:.6g}"


def mujoco_time(env: Any, tick_s: float | None) -> OwnTime:
    """The physics timestep of a MuJoCo environment, or finer ones."""
    inner: MovesByTicks = env.unwrapped
    own_tick_s = float(inner.model.opt.timestep)
    if tick_s is None:
        tick_s = own_tick_s
    else:
        check_divides(tick_s, own_tick_s)
    substeps = whole_ticks(own_tick_s, tick_s)
    assert substeps is not None
    step_s = inner.frame_skip * own_tick_s
    return OwnTime(tick_s, inner.frame_skip * substeps, True, _longest_s(env, step_s))


def steps_time(env: Any, step_s: float | None, tick_s: float | None = None) -> OwnTime:
    """The steps of any environment: as long as it says itself (`dt`), or as `step_s` says."""
    if tick_s is not None:
        raise ValueError(
            "tick is for MuJoCo environments, whose physics can be refined; of any other the ticks "
            "are its own steps (step_s)"
        )
    if step_s is None:
        step_s = _own_dt(env)
    if step_s is None:
        shown = env.metadata.get("render_fps")
        hint = f" (it is drawn {shown} times a second)" if shown else ""
        raise ValueError(
            f"{env.unwrapped} does not say how long a step lasts{hint}: give step_s in seconds, on "
            "the command line --step 20ms"
        )
    return OwnTime(check_tick_s(step_s), 1, False, _longest_s(env, step_s))


def _own_dt(env: Any) -> float | None:
    """Seconds of a step, where the environment has them by the name that Gymnasium's have."""
    inner = env.unwrapped
    dt = getattr(inner.envs[0].unwrapped if isinstance(inner, SyncVectorEnv) else inner, "dt", None)
    if isinstance(dt, bool) or not isinstance(dt, (int, float, np.number)):
        return None
    return float(dt) if math.isfinite(dt) and dt > 0 else None


def _longest_s(env: Any, step_s: float) -> float | None:
    """How long an episode may last, if that is known."""
    steps = env.spec.max_episode_steps if env.spec else None
    return None if steps is None else steps * step_s

"""How much latency does a policy stand? Whoever trained it, in any environment.

The **delay margin** is the longest latency, on the grid of the environment's ticks, up to which the
policy keeps a share (90 %) of what it has at latency 0. A policy keeps a latency if the mean over
episodes of what it gets there is at least

    floor + share * (what it gets at latency 0 - floor)

with the same seeds at both (paired). The margin is the *first* crossing: a policy that recovers at
a longer latency has not stood what is before it. The **jitter margin** (spread around a mean
latency) and the **loss margin** (share of lost decisions) are found by the same search, against
the same bar.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import gymnasium

from midstride.envs.learnable import Environment
from midstride.envs.wrapped import WrappedSettings
from midstride.knowledge import check_features
from midstride.latency import Fixed
from midstride.latency_text import latency_of_file, read_latency
from midstride.measure.finding import Finding, OnProgress
from midstride.measure.play import Loads, Single, Together, Workers
from midstride.measure.record import Line, Margin, MarginSettings, Point
from midstride.policies.fit import fit
from midstride.seconds import as_seconds
from midstride.timing import Thinker

__all__ = ["Line", "Margin", "MarginSettings", "Point", "margin", "place_of", "with_times"]


def margin(
    policy: Any,
    make_env: Callable[[], gymnasium.Env[Any, Any]] | Environment,
    settings: MarginSettings | None = None,
    jobs: int = 1,
    on_progress: OnProgress = lambda text, episodes: None,
) -> Margin:
    """How much latency `policy` stands, in the environments that `make_env` makes.

    policy: whatever `midstride.load` or `as_policy` gives, or a function of an observation; one
        that was adapted is told what is in flight
    make_env: makes the bare environment, with no latency; or settings of an environment
    jobs: processes that play episodes side by side; policy and environment must be picklable
    on_progress: told what is known, and how many episodes were played
    """
    settings = settings or MarginSettings()
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    began = time.perf_counter()
    loaded = policy() if isinstance(policy, Loads) else policy
    place = _with_knowledge(place_of(make_env, settings), loaded)
    observed, acted = place.spaces(Fixed(0.0))
    fitted = fit(loaded, observed, acted)
    # Our own tasks are stepped together, in this process.
    workers = Workers(policy, place, jobs) if jobs > 1 and isinstance(place, Single) else None
    try:
        record = Finding(fitted, place, workers, settings, on_progress)
        return record.measure(began)
    finally:
        if workers is not None:
            workers.close()


def place_of(make_env: Any, settings: MarginSettings) -> Single | Together:
    """Where episodes are played, with the period that is asked for."""
    period_s, step_s = as_seconds(settings.period), as_seconds(settings.step)
    if not isinstance(make_env, Environment):
        if not callable(make_env):
            raise ValueError(
                "make_env must be a function that makes a Gymnasium environment, such as lambda: "
                f"gymnasium.make('InvertedPendulum-v5'), got {make_env!r}"
            )
        return Single(make_env, period_s, step_s, settings.thinker or "pipelined")
    environment = with_times(make_env, period_s, step_s, settings.thinker)
    return (
        Single(environment) if isinstance(environment, WrappedSettings) else Together(environment)
    )


def _with_knowledge(place: Single | Together, policy: Any) -> Single | Together:
    """A bare environment, with what an adapted policy says that it knows of what is in flight."""
    said: dict[str, Any] = getattr(policy, "description", {})
    is_bare = isinstance(place, Single) and not isinstance(place.make_env, Environment)
    if not is_bare or not {"knowledge", "latency"} <= said.keys():
        return place
    assert isinstance(place, Single)
    latency = read_latency(latency_of_file(said["latency"], None))
    return place.knowing(check_features(said["knowledge"]), latency)


def with_times(
    environment: Any, period_s: float | None, step_s: float | None, thinker: Thinker | None
) -> Any:
    """The environment with a fixed period: what is asked for, or the longest that it has.

    With an `execution` time the period would grow with the latency.
    """
    known = {field.name for field in fields(environment)}
    changed: dict[str, Any] = {"thinker": thinker} if thinker is not None else {}
    if step_s is not None:
        if "step" not in known:
            raise ValueError(f"the steps of {environment.task} have a length of their own: no step")
        changed["step"] = step_s
    if "mode" in known and environment.mode == "blocking":
        changed["mode"] = "concurrent"
    elif period_s is None and getattr(environment, "execution", None) is not None:
        period_s = environment.timing().longest_period_s
    if period_s is not None:
        if "period" not in known:
            raise ValueError(f"the period of {environment.task} is its own step: no period")
        changed |= {"period": period_s} | ({"execution": None} if "execution" in known else {})
    return replace(environment, **changed)

"""What a comparison decides before its trials run: strata, budget, controls, what is compared.

All of it is optional. A specification that has it says, before there are data:

    simulated_s = 5000         every trial sees as much of the world, whatever its period
    fails_below = 0.5          a draw fails below this part of what controls reach (sensitivity)

    [[strata]]                 draw i has the settings of stratum i, over again
    latency = "5ms"

    [controls."blocking"]      an arm in the frozen world, at the period that the draw has; its
                               policies are also run at the draw's latency, as they are
    [[compare]]                what is compared, and expected; all are corrected together (Holm)
    arm = "vector-to-go"
    other = "nothing"
    expected = "more"
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np

from midstride.latency import Fixed, PerEpisode
from midstride.latency_text import read_latency
from midstride.learn.agents import Training
from midstride.settings import Range, Settings, checked, shown
from midstride.sweep.disk import LATE

KEYS = ("simulated_s", "strata", "controls", "compare", "fails_below")
_EVALUATIONS = 5  # of a training whose steps are not given


@dataclass(frozen=True)
class Compared(Settings):
    """Two arms, and which was expected to have more."""

    kind: ClassVar[str] = "key of [[compare]]:"

    arm: str
    other: str
    expected: Literal["more", "less", "either"] = "more"


@dataclass(frozen=True)
class Design:
    """What was decided before the data."""

    strata: tuple[Mapping[str, Any], ...] = ()
    simulated_s: float | None = None
    controls: tuple[str, ...] = ()  # arms that are trained in the frozen world
    compare: tuple[Compared, ...] = ()
    fails_below: float = 0.5  # of the ninth tenth of what controls reach

    def to_dict(self) -> dict[str, Any]:
        """As a file can hold it; the strata are in the table of the sweep."""
        return {
            "simulated_s": self.simulated_s,
            "controls": list(self.controls),
            "compare": [one.to_dict() for one in self.compare],
            "fails_below": self.fails_below,
        }


def read_design(content: Mapping[str, Any], arms: Sequence[str]) -> Design:
    """From the parts of a specification that have been read, and the names of all its arms."""
    strata = content.get("strata", [])
    if not isinstance(strata, list) or not all(isinstance(one, dict) for one in strata):
        raise ValueError(f"strata must be tables, each written as [[strata]], got {shown(strata)}")
    simulated_s = content.get("simulated_s")
    if simulated_s is not None:
        simulated_s = checked("simulated_s", simulated_s, Annotated[float, Range(1, 1e9)])
    compared = content.get("compare", [])
    if not isinstance(compared, list) or not all(isinstance(one, dict) for one in compared):
        raise ValueError(
            f"compare must be tables, each written as [[compare]], got {shown(compared)}"
        )
    controls = tuple(content.get("controls", {}))
    known = (*arms, *(f"{name}{LATE}" for name in controls))
    compare = tuple(Compared.from_dict(one) for one in compared)
    for name in (name for one in compare for name in (one.arm, one.other)):
        if name not in known:
            raise ValueError(
                f"[[compare]]: there is no arm {shown(name)}: choose from {'; '.join(known)}"
            )
    fails_below = checked(
        "fails_below", content.get("fails_below", 0.5), Annotated[float, Range(0, 1)]
    )
    strata = tuple({k: _hashable(v) for k, v in one.items()} for one in strata)
    return Design(strata, simulated_s, controls, compare, fails_below)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def periods_s(environment: Any) -> np.ndarray:
    """The periods that episodes of an environment can have, equally often."""
    timing = environment.timing()
    model = read_latency(environment.latency)
    if not isinstance(model, (Fixed, PerEpisode)):
        raise ValueError(
            "a budget in simulated seconds, and controls, need a latency that is fixed or drawn "
            f"per episode, got {shown(environment.latency)}"
        )
    if timing.period_s is not None:
        return np.array([timing.period_s])
    return np.asarray(model.values_s, float) + timing.execution_s


def with_budget(training: Training, simulated_s: float, given: Mapping[str, Any]) -> Training:
    """As many steps as there are in so many simulated seconds; evaluated a few times on the way."""
    if "steps" in given:
        raise ValueError("steps follow from simulated_s: leave them out")
    n, per_s = training.run.num_envs, float(np.mean(1 / periods_s(training.environment)))
    steps = n * math.ceil(simulated_s * per_s / n - 1e-9)
    every = math.ceil(steps / _EVALUATIONS)
    run = replace(
        training.run,
        steps=steps,
        evaluate_every=given.get("evaluate_every", every),
        checkpoint_every=given.get("checkpoint_every", max(training.run.checkpoint_every, every)),
    )
    return replace(training, run=run)


def frozen(training: Training) -> Training:
    """The same in the frozen world: latency 0, at the period of the draw.

    Where latency is drawn per episode, at the mean of its periods, in whole ticks, rounded up.
    """
    environment: Any = training.environment
    tick_s = environment.timing().tick_s
    ticks = math.ceil(periods_s(environment).mean() / tick_s - 1e-9)
    at_rest = replace(
        environment, latency="0", execution=None, period=f"{1000 * ticks * tick_s:g}ms"
    )
    return replace(training, environment=at_rest)

"""What vector environments share: seeds, resets, autoresets; the record of a step; the one loop.

`interact` is the only loop over environments in midstride: training, evaluation and films consume
it. `Step` is the only record of a step: its names are those that `info` has, that replay keeps and
that targets take.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.utils import EzPickle, seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from midstride.envs.faults import check_start, check_step
from midstride.envs.learnable import Act, Array, Hints, Info, LearnableEnvs, Mask
from midstride.knowledge import Layout
from midstride.timing import Timing

# --- The record of a step, and the loop ----------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """What happened from one capture to the next; first axis: environments.

    An observation is an array (n, columns), or a dictionary of `image` and `state`. Where episodes
    ended, `observation_next` is their last one and `measures` is what the environment took of them.
    """

    observation_capture: Any
    action: NDArray[Any]
    reward_before_switch: Array
    reward_after_switch: Array
    observation_switch: Any  # None unless the environments observe it
    observation_next: Any
    latency_s: Array
    period_s: Array
    terminated: Mask
    truncated: Mask
    notes: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # of whoever acted
    measures: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    # Where they were asked for (`Hints.observe_within`), at instants inside of the period: what was
    # observed, (n, instants x columns), and earned since the capture, (n, instants).
    observation_within: Any = None
    reward_within: Any = None

    @property
    def reward(self) -> Array:
        return self.reward_before_switch + self.reward_after_switch

    @property
    def done(self) -> Mask:
        return self.terminated | self.truncated


MEASURES = (
    "success", "duration_s", "policy_duration_s", "completion", "completion_until_switch", "jerk",
    "squared_jerk", "path_m",
)  # fmt: skip
OF_THROWS = ("reach_error_m", "impact_speed_m_s", "beyond_hold")


def interact(
    envs: LearnableEnvs,
    act: Act,
    seed: int | Sequence[int] | None,
    reset: Callable[[Mask], None],
) -> Iterator[Step]:
    """Act in environments with same-step autoreset, forever.

    `reset(which)` is called when episodes in `which` have ended, before the next action there. A
    reward or an observation that is not a finite number is an error: no step with one is given.
    """
    mode = envs.metadata.get("autoreset_mode")
    if mode is not AutoresetMode.SAME_STEP:
        raise ValueError(f"the environments must reset in the same step (SAME_STEP), not {mode}")
    observation, _ = envs.reset(seed=seed)
    check_start(envs, observation)
    for count in itertools.count(1):
        action, notes = act(observation)
        following, _, terminated, truncated, info = envs.step(action)
        done = terminated | truncated
        step = Step(
            observation,
            action,
            _of_step(info, "reward_before_switch"),
            _of_step(info, "reward_after_switch"),
            _of_step(info, "observation_switch"),
            _with_rows(following, done, info["final_obs"]) if done.any() else following,
            _of_step(info, "latency_s"),
            _of_step(info, "period_s"),
            terminated,
            truncated,
            notes,
            {name: _of_step(info, name) for name in (*MEASURES, *OF_THROWS) if name in info},
            _of_step(info, "observation_within"),
            _of_step(info, "reward_within"),
        )
        check_step(envs, step, following, count)
        yield step
        if done.any():
            reset(done)
        observation = following


def _with_rows(observation: Any, which: Mask, rows: Any) -> Any:
    """Observations with those of `which` taken from `rows`, one per environment."""
    if isinstance(observation, dict):
        return {
            name: _with_rows(part, which, [row if row is None else row[name] for row in rows])
            for name, part in observation.items()
        }
    found = observation.copy()
    found[which] = np.stack([rows[i] for i in np.flatnonzero(which)])
    return found


def _of_step(info: Info, name: str) -> Any:
    """An entry of the step just taken. Where an episode ended, Gymnasium keeps it in final_info."""
    final = info.get("final_info", {})
    if name not in info:
        return np.asarray(final[name]) if name in final else None
    values = info[name]
    if isinstance(values, dict):  # of our own environments, which keep all of a step in info
        return values
    if name in final:
        ended = info["_final_info"]
        values = values.copy()
        values[ended] = final[name][ended]
    return np.asarray(values)


# --- Many environments, stepped together ---------------------------------------------------------


@dataclass
class Outcome:
    """What a period came to, one row per environment."""

    reward: Array
    terminated: Mask
    info: Info
    at_end: Info = field(default_factory=dict)  # entries that only ended episodes have


class ManyEnvs(VectorEnv[Any, Any, Any], EzPickle):
    """Environments stepped together, each with its own random generator.

    A subclass says how an episode begins (`_begin`), what is observed (`_capture`), what happens
    from one capture to the next (`_live`), and which episodes are over (`_over`). A copied or
    pickled environment starts afresh.
    """

    autoreset_mode: AutoresetMode
    layout: Layout
    timing: Timing
    hints = Hints()
    _rngs: list[np.random.Generator] | None = None

    def _begin(self, ids: NDArray[np.integer]) -> None:
        """Start episodes in environments `ids`, each from its generator."""
        raise NotImplementedError

    def _capture(self, ids: NDArray[np.integer] | None = None) -> Any:
        """Observe now; only environments `ids` have changed since the last capture."""
        raise NotImplementedError

    def _live(self, actions: NDArray[Any], active: Mask) -> Outcome:
        """From capture to next capture in the `active` environments; the others stand still."""
        raise NotImplementedError

    def _knowledge(self) -> Info:
        """Entries of `info` that belong to the observation, also at the start of an episode."""
        return {}

    @property
    def _over(self) -> Mask:
        """Whose episode has ended and has not begun anew."""
        raise NotImplementedError

    @property
    def camera_s(self) -> float:
        """Spent on pictures so far."""
        return 0.0

    @property
    def columns(self) -> tuple[str, ...]:
        """The name of every column of an observation."""
        return self.layout.columns

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, Info]:
        """Start an episode everywhere, or where options["reset_mask"] is set.

        With an integer seed, environment i is seeded with seed + i.
        """
        self._check_open()
        seeds: Sequence[int | None]
        if seed is None or isinstance(seed, (int, np.integer)):
            seeds = [None if seed is None else int(seed) + i for i in range(self.num_envs)]
        else:
            seeds = list(seed)
            if len(seeds) != self.num_envs:
                raise ValueError(f"expected {self.num_envs} seeds, got {len(seeds)}")
        mask = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, bool)))
        if mask.shape != (self.num_envs,) or mask.dtype != bool or not mask.any():
            raise ValueError(f"reset_mask must be {self.num_envs} booleans, some of them true")
        if self._rngs is None:
            if not mask.all():
                raise ValueError("the first reset must be of all environments")
            self._rngs = [seeding.np_random(s)[0] for s in seeds]
        for i, s in enumerate(seeds):
            if s is not None and mask[i]:
                self._rngs[i] = seeding.np_random(s)[0]
        ids = np.flatnonzero(mask)
        self._begin(ids)
        info = self._knowledge()
        info.update(_masks(info, mask))
        return self._capture(None if mask.all() else ids), info

    def use_generators(self, rngs: Sequence[np.random.Generator]) -> None:
        """Draw everything random in environment i from rngs[i] from now on."""
        self._rngs = list(rngs)

    def step(self, actions: Any) -> tuple[Any, Array, Mask, Mask, Info]:
        """From capture to next capture: what is in flight, then `actions` from the switch on."""
        self._check_open()
        if self._rngs is None:
            raise RuntimeError("call reset before the first step")
        waiting = self._over.copy()  # they stand still, and observe the start of a new episode
        if waiting.any() and self.autoreset_mode is not AutoresetMode.NEXT_STEP:
            raise RuntimeError("an episode is over: reset it before the next step")
        outcome = self._live(np.asarray(actions), ~waiting)
        ended = self._over & ~waiting
        info = outcome.info | self._knowledge()
        if waiting.any():
            self._begin(np.flatnonzero(waiting))
            info.update(self._knowledge())
        info.update(_masks(info, ~waiting))
        if ended.any():
            info.update(outcome.at_end)
            info.update(_masks(outcome.at_end, ended))
        observation = self._capture()
        if self.autoreset_mode is AutoresetMode.SAME_STEP and ended.any():
            observation = self._restarted(observation, info, ended)
        terminated = outcome.terminated & ended
        return observation, outcome.reward, terminated, ended & ~terminated, info

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeError("these environments are closed: make them anew")

    def _restarted(self, observation: Any, info: Info, ended: Mask) -> Any:
        """Begin anew where an episode has ended; its last observation and entries go to `info`."""
        final_info = {name: entry for name, entry in info.items() if not name.startswith("_")}
        final_info.update(_masks(final_info, ended))
        info["final_obs"], info["final_info"] = _rows(observation), final_info
        info.update(_masks({"final_obs": None, "final_info": None}, ended))
        ids = np.flatnonzero(ended)
        self._begin(ids)
        observation = self._capture(ids)
        info.update(self._knowledge())  # final_info keeps that of the last observation
        return observation


def _rows(observation: Any) -> Any:
    """Gymnasium keeps final observations of a Dict space as one dictionary per environment."""
    if not isinstance(observation, dict):
        return observation
    count = len(next(iter(observation.values())))
    rows = np.empty(count, object)
    for i in range(count):
        rows[i] = {name: part[i] for name, part in observation.items()}
    return rows


def _masks(info: Info, mask: Mask) -> Info:
    """Gymnasium's masks: which environments have each entry."""
    return {f"_{name}": mask for name in info if not name.startswith("_")}

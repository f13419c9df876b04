"""What vector environments share: seeds, resets, autoresets; and one environment out of many."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import EzPickle, seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from midstride.sim.camera import Image

Info = dict[str, Any]
Mask = NDArray[np.bool_]


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def check_count(name: str, count: Any) -> int:
    """`count` as a whole number of at least 1."""
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {count!r}")
    return int(count)


def check_render_mode(render_mode: str | None) -> str | None:
    if render_mode not in (None, "rgb_array"):
        raise ValueError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
    return render_mode


class ManyEnvs(VectorEnv[Any, Any, Any], EzPickle):
    """Environments stepped together, each with its own random generator.

    A subclass says how an episode begins (`_begin`), what is observed (`_capture`), and which
    episodes are over (`_over`); its step calls `_waiting` before and `_conclude` after the time has
    passed. A copied or pickled environment starts afresh.
    """

    autoreset_mode: AutoresetMode
    _rngs: list[np.random.Generator] | None = None

    def _begin(self, ids: NDArray[np.integer]) -> None:
        """Start episodes in environments `ids`, each from its generator."""
        raise NotImplementedError

    def _capture(self, ids: NDArray[np.integer] | None = None) -> Any:
        """Observe now; only environments `ids` have changed since the last capture."""
        raise NotImplementedError

    def _knowledge(self) -> Info:
        """Entries of `info` that belong to the observation, also at the start of an episode."""
        return {}

    @property
    def _over(self) -> Mask:
        """Whose episode has ended and has not begun anew."""
        raise NotImplementedError

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, Info]:
        """Start an episode everywhere, or where options["reset_mask"] is set.

        With an integer seed, environment i is seeded with seed + i.
        """
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

    def _waiting(self) -> Mask:
        """Who stands still through the next step, and observes the start of a new episode."""
        if self._rngs is None:
            raise RuntimeError("call reset before the first step")
        over = self._over.copy()
        if over.any() and self.autoreset_mode is not AutoresetMode.NEXT_STEP:
            raise RuntimeError("an episode is over: reset it before the next step")
        return over

    def _conclude(self, info: Info, at_end: Info, waiting: Mask) -> tuple[Any, Mask]:
        """The observation after a step, and who has just ended; completes `info` in place.

        at_end: entries that only ended episodes have
        """
        info.update(self._knowledge())
        ended = self._over & ~waiting
        if waiting.any():
            self._begin(np.flatnonzero(waiting))
            info.update(self._knowledge())
        info.update(_masks(info, ~waiting))
        if ended.any():
            info.update(at_end)
            info.update(_masks(at_end, ended))
        observation = self._capture()
        if self.autoreset_mode is AutoresetMode.SAME_STEP and ended.any():
            final_info = {name: entry for name, entry in info.items() if not name.startswith("_")}
            final_info.update(_masks(final_info, ended))
            info["final_obs"], info["final_info"] = _rows(observation), final_info
            info.update(_masks({"final_obs": None, "final_info": None}, ended))
            ids = np.flatnonzero(ended)
            self._begin(ids)
            observation = self._capture(ids)
            info.update(self._knowledge())  # final_info keeps that of the last observation
        return observation, ended


class OneEnv(gymnasium.Env[Any, Any], EzPickle):
    """One environment: a vector environment of one, unpacked."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def _unpack(self, vector: ManyEnvs) -> None:
        self.vector = vector
        self.render_mode = vector.render_mode
        self.metadata = vector.metadata
        self.observation_space = vector.single_observation_space
        self.action_space = vector.single_action_space

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self.vector.use_generators([self.np_random])
        observation, info = self.vector.reset()
        return _first(observation), _of_first(info)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Info]:
        observation, reward, terminated, truncated, info = self.vector.step(
            np.asarray(action)[None]
        )
        ended = bool(terminated[0]), bool(truncated[0])
        return _first(observation), float(reward[0]), *ended, _of_first(info)

    def render(self) -> Image | None:
        images: Any = self.vector.render()
        return None if images is None else images[0]


def _first(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: part[0] for name, part in batch.items()}
    return batch[0]


def _of_first(info: Info) -> Info:
    return {
        name: _first(value)
        for name, value in info.items()
        if not name.startswith("_") and info[f"_{name}"][0]
    }


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

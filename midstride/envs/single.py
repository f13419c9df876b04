"""One environment: a vector environment of one, unpacked."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import EzPickle

from midstride.envs.learnable import Image, Info
from midstride.envs.vector import ManyEnvs


class OneEnv(gymnasium.Env[Any, Any], EzPickle):
    """One environment: a vector environment of one, unpacked."""

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def _unpack(self, vector: ManyEnvs) -> None:
        self.vector = vector
        self.render_mode = vector.render_mode
        self.metadata = vector.metadata
        self.columns = vector.columns  # the name of every column of the observation
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

    def close(self) -> None:
        self.vector.close()

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

"""Replay of large observations, each kept once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.envs.learnable import Mask
from midstride.envs.vector import Step

Batch = dict[str, NDArray[Any]]
Kind = tuple[tuple[int, ...], Any]  # shape and type of one row

SCALARS = ("reward_before_switch", "reward_after_switch", "latency_s", "period_s")


def parts_of(observation: Any) -> dict[str, NDArray[Any]]:
    """An observation as named parts: `image` and `state`, or `state` alone."""
    return observation if isinstance(observation, dict) else {"state": observation}


class FrameReplay:
    """The last `capacity` transitions of `num_envs` environments, with large observations.

    An observation is kept once: what follows a step is the observation of the next one. Only where
    an episode was cut off (truncated) its last observation is kept aside.

    observed: part of an observation -> its kind; kept as PART_capture, sampled as PART_next too
    others: further fields of a step: action, and notes of whoever acted
    switch: whether observations at the switch are kept too, as PART_switch
    longest: steps of the longest episode; no other is cut off, but at the seams (`cut`)
    """

    def __init__(
        self,
        capacity: int,
        num_envs: int,
        observed: Mapping[str, Kind],
        others: Mapping[str, Kind],
        longest: int,
        switch: bool = False,
    ) -> None:
        self.length = max(2, capacity // num_envs)
        self.num_envs = num_envs
        self.observed = dict(observed)
        self._instants = ("capture", "switch") if switch else ("capture",)
        fields: dict[str, Kind] = {
            f"{p}_{i}": k for i in self._instants for p, k in observed.items()
        }
        fields |= others
        fields |= dict.fromkeys(SCALARS, ((), np.float32))
        fields |= dict.fromkeys(("terminated", "truncated"), ((), bool))
        self._kept = tuple(fields)
        shape = (self.length, num_envs)
        self.data: Batch = {name: np.zeros((*shape, *s), d) for name, (s, d) in fields.items()}
        self.data["cut_off"] = np.full(shape, -1, np.int32)  # where its last observation is
        room = (self.length // longest + 8) * num_envs
        for part, (s, d) in observed.items():
            self.data[f"last_{part}"] = np.zeros((room, *s), d)
            self.data[f"after_{part}"] = np.zeros((num_envs, *s), d)  # follows the newest step
        self.added = 0  # time steps ever added
        self.cut_offs = 0  # episodes ever cut off

    def __len__(self) -> int:
        """Transitions that can be sampled: the newest have no successor yet."""
        return max(0, min(self.added, self.length) - 1) * self.num_envs

    @property
    def fields(self) -> Batch:
        """What happened, field by field."""
        return {name: self.data[name] for name in self._kept}

    def add(self, step: Step) -> None:
        """Append a time step of all environments."""
        at = self.added % self.length
        for instant in self._instants:
            for part, array in parts_of(getattr(step, f"observation_{instant}")).items():
                if part in self.observed:
                    self.data[f"{part}_{instant}"][at] = array
        for name in (*SCALARS, "terminated", "truncated", "action"):
            self.data[name][at] = getattr(step, name)
        for name, array in step.notes.items():
            self.data[name][at] = array
        self.data["cut_off"][at] = -1
        for part, array in parts_of(step.observation_next).items():
            if part in self.observed:
                self.data[f"after_{part}"][:] = array
        self.added += 1
        self._keep_aside(step.truncated)

    def cut(self) -> None:
        """What is added next does not follow what was added last: other episodes begin."""
        if self.added:
            newest = (self.added - 1) % self.length
            self._keep_aside(~(self.data["terminated"] | self.data["truncated"])[newest])

    def _keep_aside(self, which: Mask) -> None:
        """Keep what follows the newest step of some environments."""
        ids = np.flatnonzero(which)
        room = len(next(self.data[f"last_{part}"] for part in self.observed))
        places = (self.cut_offs + np.arange(len(ids))) % room
        self.data["cut_off"][(self.added - 1) % self.length, ids] = places
        for part in self.observed:
            self.data[f"last_{part}"][places] = self.data[f"after_{part}"][ids]
        self.cut_offs += len(ids)

    def arrays(self) -> Batch:
        """What is held, for a checkpoint."""
        held = min(self.added, self.length)
        sizes = {"last": self.cut_offs, "after": self.num_envs}
        found = {
            name: array[: sizes.get(name.partition("_")[0], held)]
            for name, array in self.data.items()
        }
        return {**found, "counts": np.array([self.added, self.cut_offs])}

    def restore(self, arrays: Batch) -> None:
        """Go on with what was held; the environments have begun other episodes."""
        for name, array in arrays.items():
            if name != "counts":
                self.data[name][: len(array)] = array
        self.added, self.cut_offs = (int(count) for count in arrays["counts"])
        self.cut()

    def sample(self, rng: np.random.Generator, count: int) -> Batch:
        """Random transitions: every field, and PART_next of what is observed.

        After a termination the next observation is that of another episode: do not use it.
        """
        held = min(self.added, self.length)
        if held < 2:
            raise ValueError("cannot sample before two time steps were added")
        times = self.added - held + rng.integers(held - 1, size=count)
        envs = rng.integers(self.num_envs, size=count)
        rows, following = times % self.length, (times + 1) % self.length
        found = {name: self.data[name][rows, envs] for name in self._kept}
        cut_off = self.data["cut_off"][rows, envs]
        elsewhere = np.flatnonzero(cut_off >= 0)
        for part in self.observed:
            found[f"{part}_next"] = self.data[f"{part}_capture"][following, envs]
            found[f"{part}_next"][elsewhere] = self.data[f"last_{part}"][cut_off[elsewhere]]
        return found

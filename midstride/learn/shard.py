"""A part of every batch: what one of several fitters computes the gradient of.

A loss that is a mean over a batch has as its gradient the mean of those of equal parts of the
batch. What is drawn for a batch (noise, shifts of images) is drawn for the whole of it, and each
part takes its own rows: so the gradient is the same, up to rounding, however many share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from midstride.learn.agent import Agent, Batch

Gradient = NDArray[np.float32]


@dataclass(frozen=True)
class Shard:
    """Part number `place` of `count` equal ones."""

    place: int = 0
    count: int = 1

    def rows(self, drawn: Any, axis: int = 0) -> Any:
        """Of numbers drawn for a whole batch, those of this part."""
        if self.count == 1:
            return drawn
        size = drawn.shape[axis] // self.count
        return jax.lax.slice_in_dim(drawn, self.place * size, (self.place + 1) * size, axis=axis)

    def of_all(self, rows: int) -> int:
        """Rows of a whole batch, of which this part has so many."""
        return rows * self.count


WHOLE = Shard()


class InStep:
    """An agent that fits its part of every batch, in step with others that fit the others.

    Between two updates all have the same state: each applies the mean of everybody's gradients.
    """

    def __init__(self, agent: Agent, shard: Shard) -> None:
        self.agent = agent
        agent.shard = shard
        self._gradient = jax.jit(agent.gradient)
        self._stepped = jax.jit(agent.stepped)
        self._batches: list[Any] = []  # of the updates that are left of the block
        self._measured: list[dict[str, Any]] = []

    def begin(self, part: Batch, labels: Any, key: Any, fit_key: Any) -> Gradient:
        """Start a block, of which this is the agent's part; the gradient of its first update."""
        self._batches = self.agent.batches_of(part, labels, key, fit_key)
        self._measured = []
        return self._next_gradient()

    def step(self, gradients: Sequence[Gradient]) -> Gradient:
        """Apply the mean of everybody's gradients; the gradient of the next update."""
        self._apply(gradients)
        return self._next_gradient()

    def end(self, gradients: Sequence[Gradient]) -> dict[str, NDArray[Any]]:
        """Apply the last; what the updates of the block measured, on the agent's part."""
        self._apply(gradients)
        agent = self.agent
        measured = {n: np.stack([one[n] for one in self._measured]) for n in self._measured[0]}
        return agent.finished({**measured, "policy": agent.state[agent.acts_with]})

    def _next_gradient(self) -> Gradient:
        gradient, measured = self._gradient(self.agent.state, self._batches.pop(0))
        self._measured.append({name: np.asarray(value) for name, value in measured.items()})
        return np.asarray(gradient)

    def _apply(self, gradients: Sequence[Gradient]) -> None:
        mean = np.mean(gradients, axis=0, dtype=np.float32)  # in the same order everywhere
        self.agent.state = self._stepped(self.agent.state, mean)

"""A linear world with noise, in closed form: what latency costs, and what hindsight teaches there.

    x_{i+1} = A x_i + B u_i + w_i        w ~ N(0, W): chance in the dynamics
    y_i     = x_i + v_i                  v ~ N(0, V): noise in the sensors
    a step costs x_i' Q x_i + u_i' R u_i

A world that waits is ruled by u_i = -K y_i. With a latency of k steps, u_{i+k} is decided on y_i
and on what is in flight, u_i ... u_{i+k-1}; the first k steps nothing is in force. Rules are
matrices:

    as it is    -K y_i: nothing in flight is known
    best        -K E[x_{i+k}], the expectation over what happens after the capture. Without noise
                in the sensors no other rule costs less (certainty equivalence)
    taught      what regression makes of -K y_{i+k}, given y_i and what was in flight

What is taught depends on whose steps are looked at. In a record of the frozen world, seen in
hindsight, u_{i+1} ... u_{i+k-1} were chosen by somebody who had seen w_i ... w_{i+k-2}: they tell
of it, and when a late agent chooses them they do not. So where k > 1 and chance is in the dynamics,
what is taught is not the best rule. And a reading with noise is trusted as far as states differ in
the record by more than the noise: where the frozen policy holds them close, too little for a
student that strays. Steps in which the student itself acts, late, mend both; so does more noise on
the actions of the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from midstride.theory.tabular import Array

_ENDLESS = 1e100
_RICCATI = 10_000  # iterations at most; each is a few products of small matrices


@dataclass(frozen=True, eq=False)
class LinearWorld:
    """Matrices as above; `process` is W, `sensor` is V."""

    A: Array
    B: Array
    Q: Array
    R: Array
    process: Array
    sensor: Array

    @property
    def size(self) -> int:
        return len(self.A)

    @property
    def inputs(self) -> int:
        return int(self.B.shape[1])

    def gain(self) -> Array:
        """K of the best rule without latency and noise in the sensors (Riccati)."""
        P = self.Q
        for _ in range(_RICCATI):
            gain = np.linalg.solve(self.R + self.B.T @ P @ self.B, self.B.T @ P @ self.A)
            K = np.asarray(gain, np.float64)
            after = self.Q + self.A.T @ P @ (self.A - self.B @ K)
            if np.allclose(after, P, rtol=1e-12, atol=1e-12):
                return K
            if not np.abs(after).max() < _ENDLESS:
                break
            P = after
        raise ValueError("no feedback holds this world: its Riccati equation does not settle")


def as_it_is(world: LinearWorld, k: int) -> Array:
    """The rule (inputs, size + k inputs) of who knows nothing of what is in flight."""
    return np.hstack([-world.gain(), np.zeros((world.inputs, k * world.inputs))])


def best(world: LinearWorld, k: int) -> Array:
    """-K E[x_{i+k} | x_i, what is in flight], with a reading in place of the state."""
    return -world.gain() @ _ahead(world, k)


@dataclass(frozen=True, eq=False)
class Moments:
    """Of captures: what is known there, (y_i, what is in flight), and what is read later."""

    among: Array  # of what is known
    across: Array  # of y_{i+k}, the reading at the switch, and what is known
    steps: float  # that they are means over

    def of(self, steps: float) -> Moments:
        """The same, of so many steps."""
        return Moments(self.among, self.across, steps)

    def __add__(self, other: Moments) -> Moments:
        steps = self.steps + other.steps
        mine, theirs = self.steps / steps, other.steps / steps
        return Moments(
            mine * self.among + theirs * other.among,
            mine * self.across + theirs * other.across,
            steps,
        )


def taught(world: LinearWorld, seen: Moments) -> Array:
    """The rule that regression on such captures comes to."""
    return -world.gain() @ seen.across @ np.linalg.pinv(seen.among, rcond=1e-12)


def in_record(world: LinearWorld, k: int, tried: Array, steps: int, start: Array) -> Moments:
    """Captures of latency k >= 1 in an episode of the frozen world that was recorded.

    tried: (inputs, inputs) covariance of the noise on the actions
    """
    K = world.gain()
    lived = _episode(world, -K, 0, tried, steps - k + 1, start)
    mean = np.mean([moment for moment, _ in lived], axis=0)
    # Everything as a linear map of what is independent: x_i, then for each step v, e and w.
    blocks = [mean] + [world.sensor, tried, world.process] * (k + 1)
    starts = np.cumsum([0, *(len(block) for block in blocks)])
    covariance = np.zeros((int(starts[-1]),) * 2)
    parts = []
    for block, first, last in zip(blocks, starts, starts[1:], strict=False):
        covariance[first:last, first:last] = block
        parts.append(np.eye(len(covariance))[first:last])
    x, known = parts[0], []
    for step in range(k):
        v, e, w = parts[1 + 3 * step : 4 + 3 * step]
        u = -K @ (x + v) + e
        known += [x + v, u] if step == 0 else [u]
        x = world.A @ x + world.B @ u + w
    at_switch, seen = x + parts[1 + 3 * k], np.vstack(known)
    return Moments(seen @ covariance @ seen.T, at_switch @ covariance @ seen.T, float(steps))


def when_late(
    world: LinearWorld, rule: Array, k: int, tried: Array, steps: int, start: Array
) -> Moments:
    """Captures of an episode in which the rule acts with latency k >= 1, and noise on it."""
    moments = [moment for moment, _ in _episode(world, rule, k, tried, steps, start)]
    mean = np.mean(moments, axis=0)
    blurred = mean.copy()
    blurred[: world.size, : world.size] += world.sensor
    return Moments(blurred, _ahead(world, k) @ mean, float(steps))


def cost(world: LinearWorld, rule: Array, k: int, steps: int, start: Array) -> float:
    """The expected cost of an episode that begins in x ~ N(0, `start`) with nothing in flight."""
    still = np.zeros((world.inputs, world.inputs))
    return sum(paid for _, paid in _episode(world, rule, k, still, steps, start))


def _ahead(world: LinearWorld, k: int) -> Array:
    """E[x_{i+k}] from (x_i, what is in flight)."""
    powers = [np.linalg.matrix_power(world.A, j) for j in range(k + 1)]
    return np.hstack([powers[k], *(powers[k - 1 - j] @ world.B for j in range(k))])


def _episode(
    world: LinearWorld, rule: Array, k: int, tried: Array, steps: int, start: Array
) -> Iterator[tuple[Array, float]]:
    """Step by step: the second moments of (x, what is in flight), and the expected cost."""
    n, m = world.size, world.inputs
    width = n + k * m
    line, enters = np.zeros((width, width)), np.zeros((width, m))
    line[:n, :n] = world.A
    if k:
        line[:n, n : n + m] = world.B
        line[n:-m, n + m :] = np.eye((k - 1) * m)
        enters[-m:] = np.eye(m)
    else:
        enters[:n] = world.B
    loop = line + enters @ rule
    blur = rule[:, :n] @ world.sensor @ rule[:, :n].T + tried  # of a decision
    driven = enters @ blur @ enters.T
    driven[:n, :n] += world.process
    moment = np.zeros((width, width))
    moment[:n, :n] = start
    for _ in range(steps):
        acts = moment[n : n + m, n : n + m] if k else rule @ moment @ rule.T + blur
        yield moment, float(np.trace(world.Q @ moment[:n, :n]) + np.trace(world.R @ acts))
        moment = loop @ moment @ loop.T + driven

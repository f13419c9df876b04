"""Concurrent control in continuous time: simulation, returns, and the estimator of Q.

The state follows ds = F(s, a) dt + G(s, a) dbeta (Eq. 1), simulated by Euler-Maruyama for many
sample paths at once. Times are seconds; gamma is a discount *per second*, gamma^t. A control is a
function `control(t, states) -> actions`: the paper's a_i(t) ignores the states, a feedback policy
does not. Integrals of rewards use the left end of each time step, so that everything converges with
the time step at order one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Control = Callable[[float, Array], Array]
Value = Callable[[Array], Array]  # states (paths, dims) -> (paths,)


@dataclass(frozen=True)
class System:
    """ds = drift dt + diffusion dbeta, paying `reward` per second.

    drift(s, a) -> (paths, dims) for s (paths, dims) and a (action dims,) or (paths, action dims)
    diffusion(s, a) -> (paths, dims, noises), or (paths, dims) for one noise per dimension
    reward(s, a) -> (paths,)
    """

    drift: Callable[[Array, Array], Array]
    diffusion: Callable[[Array, Array], Array]
    reward: Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Stretch:
    """A simulated stretch of time: where it ended, and its discounted reward per path."""

    state: Array  # (paths, dims)
    reward: Array  # (paths,): integral of gamma^(t' - t) r over the stretch


@dataclass(frozen=True)
class QEstimate:
    """The three terms of the single-sample estimator of Q, one sample per path, all seen from t."""

    before_switch: Array  # a_{i-1} executing over [t, t + t_AS)
    after_switch: Array  # a_i executing over [t + t_AS, t + H)
    value: Array  # gamma^H V(s(t + H))

    @property
    def total(self) -> Array:
        return self.before_switch + self.after_switch + self.value


def constant(action: Array | float) -> Control:
    """A control that does not change."""
    held = np.atleast_1d(np.asarray(action, float))
    return lambda t, states: held


def run(
    system: System,
    state: Array,
    control: Control,
    start_s: float,
    duration_s: float,
    gamma: float,
    step_s: float,
    rng: np.random.Generator,
) -> Stretch:
    """Let `state` (paths, dims) evolve under a control; the last time step is cut to fit."""
    if duration_s < 0 or step_s <= 0:
        raise ValueError(f"cannot run for {duration_s} s in steps of {step_s} s")
    steps = int(np.ceil(duration_s / step_s - 1e-9))
    reward = np.zeros(len(state))
    for k in range(steps):
        elapsed = k * step_s
        h = min(step_s, duration_s - elapsed)
        action = control(start_s + elapsed, state)
        reward = reward + gamma**elapsed * system.reward(state, action) * h
        spread = system.diffusion(state, action)
        if spread.ndim == 2:
            noise = spread * rng.standard_normal(spread.shape)
        else:
            draws = rng.standard_normal((spread.shape[0], spread.shape[2]))
            noise = np.einsum("pdn,pn->pd", spread, draws)
        state = state + system.drift(state, action) * h + noise * np.sqrt(h)
    return Stretch(state, reward)


def mean_and_error(samples: Array) -> tuple[float, float]:
    """The mean of samples and its standard error."""
    return float(samples.mean()), float(samples.std(ddof=1) / np.sqrt(len(samples)))


def estimate_value(
    system: System,
    state: Array,
    policy: Callable[[Array], Array],
    horizon_s: float,
    gamma: float,
    step_s: float,
    rng: np.random.Generator,
) -> Array:
    """Returns R = integral of gamma^t r (Eq. 2), one per row of `state`, cut at a horizon.

    Their mean is the value of a feedback policy that sees each state as it acts (Eq. 3), up to what
    comes after the horizon, at most gamma^horizon of it.
    """
    return run(
        system, state, lambda t, states: policy(states), 0.0, horizon_s, gamma, step_s, rng
    ).reward


def estimate_q(
    system: System,
    state: Array,
    in_flight: Control,
    chosen: Control,
    t_s: float,
    latency_s: float,
    period_s: float,
    value: Value,
    gamma: float,
    step_s: float,
    rng: np.random.Generator,
) -> QEstimate:
    """The Monte Carlo estimator of Q(s, a_{i-1}, a_i, t, H), one sample per row of `state`.

    The action in flight runs until the switch, the chosen one until the next capture, where
    `value` takes over. Means over paths estimate the three terms of the paper's equation.
    """
    if not 0 <= latency_s <= period_s:
        raise ValueError(f"latency must be from 0 to {period_s} s, got {latency_s} s")
    before = run(system, state, in_flight, t_s, latency_s, gamma, step_s, rng)
    rest_s = period_s - latency_s
    after = run(system, before.state, chosen, t_s + latency_s, rest_s, gamma, step_s, rng)
    return QEstimate(
        before_switch=before.reward,
        after_switch=gamma**latency_s * after.reward,
        value=gamma**period_s * value(after.state),
    )


def concurrent_backup(
    system: System,
    state: Array,
    in_flight: Control,
    q_at_switch: Sequence[Value],
    t_s: float,
    latency_s: float,
    gamma: float,
    step_s: float,
    rng: np.random.Generator,
) -> Array:
    """T_c* in continuous time, one sample per row of `state`.

    The action in flight earns its reward until the switch; then the best of the continuations
    counts: `q_at_switch` holds one function Q(s(t + t_AS), a_i, a_{i+1}) for each a_{i+1}. The
    maximum is taken of their means over the paths, as the paper writes it: max E.
    """
    before = run(system, state, in_flight, t_s, latency_s, gamma, step_s, rng)
    continuations = np.stack([q(before.state) for q in q_at_switch])
    best = continuations.mean(axis=1).argmax()
    return before.reward + gamma**latency_s * continuations[best]

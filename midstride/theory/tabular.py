"""Concurrent Markov decision processes with finitely many states, solved exactly.

A world advances in ticks: `TickMDP` says what one tick of an action does. `ConcurrentMDP` adds the
clock of concurrent control: a period of H ticks, a latency of t_AS ticks before the chosen action
takes over, and a discount gamma per period. Everything is float64 and vectorised; axes are

    l  latency, one of finitely many      s  state at the start
    b  action in flight (a_{t-1})         a  action chosen now (a_t)

How we read the paper. Its Q(s_t, a_{t-1}, a_t, t, t_AS, H) is a function of the *instant*, too: the
last two arguments say how long the action in flight goes on and how far the next capture is. Two
kinds of instant matter, so we keep two tables:

    q_capture (l, s, b, a)   Q(s_t,        a_{t-1}, a_t,     t,        t_AS,  H)
    q_switch  (l, s, a)      Q(s_{t+t_AS}, a_t,     a_{t+1}, t + t_AS, t_AS', H - t_AS)

q_switch has no axis for a_{t+1}: that action is chosen at the next capture, from what is seen
there, so the maximum over it belongs there. The paper writes it at the switch, and outside the
expectation; taken literally (`literal_concurrent_operator`), a_{t+1} would be fixed without looking
at s_{t+H}. The two agree when the dynamics are deterministic; otherwise looking is worth something.
t_AS', the "spill-over" of a_t into the next period, is that period's latency.

The half-steps are, with r_x[k] the reward of k ticks of action x,

    to_capture = T_c*:  q_capture(s, b, a) = r_b[t_AS]     + gamma^(t_AS/H)     E q_switch(s', a)
    to_switch:          q_switch(s, a)     = r_a[H - t_AS] + gamma^(1 - t_AS/H) E max q_capture

and `full_period_operator` is one after the other: the Bellman operator that Algorithm 1 learns, an
ordinary one on the augmented state (s, b[, t_AS]), with modulus gamma.

Rewards within a period. By default each tick's reward is discounted to the capture or switch before
it (gamma^(1/H) per tick), as in the continuous-time equations: then the half-steps compose exactly.
With `discount_within=False` a stretch pays the plain sum of its rewards, r(s_t, a_{t-1}), as the
discrete equations are written and as an environment reports them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Array = NDArray[np.float64]
Operator = Callable[[Array], Array]


# --- The world -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TickMDP:
    """What one physics tick does.

    transitions: one (states, states) matrix per action, dense or sparse; rows sum to 1
    rewards: (states, actions), paid for the tick that starts in the state
    """

    transitions: Sequence[Any]
    rewards: Array

    def __post_init__(self) -> None:
        matrices = tuple(_as_matrix(matrix) for matrix in self.transitions)
        rewards = np.asarray(self.rewards, np.float64)
        shape = (rewards.shape[0],) * 2
        if rewards.ndim != 2 or rewards.shape[1] != len(matrices):
            raise ValueError("rewards must be (states, actions), with one transition per action")
        for action, matrix in enumerate(matrices):
            if matrix.shape != shape:
                raise ValueError(
                    f"the transitions of action {action} must be {shape}, got {matrix.shape}"
                )
            if matrix.min() < 0:
                raise ValueError(f"the transitions of action {action} have negative probabilities")
            if np.abs(matrix.sum(axis=1) - 1).max() > 1e-9:
                raise ValueError(f"the transitions of action {action} do not sum to 1 in every row")
        object.__setattr__(self, "transitions", matrices)
        object.__setattr__(self, "rewards", rewards)

    @property
    def states(self) -> int:
        return self.rewards.shape[0]

    @property
    def actions(self) -> int:
        return self.rewards.shape[1]


def _as_matrix(matrix: Any) -> Any:
    """Sparse where that pays, else dense."""
    sparse = csr_array(matrix, dtype=np.float64)
    rows, columns = sparse.shape
    return sparse if sparse.nnz < 0.1 * rows * columns else sparse.toarray()


@dataclass(frozen=True, eq=False)
class ConcurrentMDP:
    """A world, and the clock of an agent that thinks while it moves.

    period_ticks: H
    gamma: discount per period
    latencies_ticks, probabilities: the latency of each period, drawn independently
    latency_known: whether the agent knows the period's latency when it chooses
    discount_within: whether rewards are discounted tick by tick within a period
    """

    world: TickMDP
    period_ticks: int
    gamma: float
    latencies_ticks: tuple[int, ...] = (0,)
    probabilities: tuple[float, ...] = (1.0,)
    latency_known: bool = True
    discount_within: bool = True

    def __post_init__(self) -> None:
        if self.period_ticks < 1:
            raise ValueError(f"a period needs at least one tick, got {self.period_ticks}")
        if not 0 <= self.gamma < 1:
            raise ValueError(f"gamma must be at least 0 and below 1, got {self.gamma}")
        if not self.latencies_ticks or not all(
            0 <= latency <= self.period_ticks for latency in self.latencies_ticks
        ):
            raise ValueError(
                f"latencies must be from 0 to {self.period_ticks} ticks, got {self.latencies_ticks}"
            )
        p = np.asarray(self.probabilities)
        if p.shape != (len(self.latencies_ticks),) or p.min() < 0 or abs(p.sum() - 1) > 1e-9:
            raise ValueError("probabilities must sum to 1, one per latency")

    @property
    def capture_shape(self) -> tuple[int, int, int, int]:
        """Shape of q_capture: (latencies, states, actions in flight, actions)."""
        actions = self.world.actions
        return len(self.latencies_ticks), self.world.states, actions, actions

    @property
    def switch_shape(self) -> tuple[int, int, int]:
        """Shape of q_switch: (latencies, states, actions)."""
        return len(self.latencies_ticks), self.world.states, self.world.actions

    def discount(self, ticks: int) -> float:
        """gamma^(ticks / H)."""
        return float(self.gamma ** (ticks / self.period_ticks))

    @cached_property
    def _moves(self) -> dict[tuple[int, int], list[Any]]:
        """By action and number of ticks: the matrices to apply, last tick first."""
        counts = {0, self.period_ticks, *self.latencies_ticks}
        counts |= {self.period_ticks - latency for latency in self.latencies_ticks}
        return {
            (action, ticks): _power(matrix, ticks)
            for action, matrix in enumerate(self.world.transitions)
            for ticks in counts
        }

    @cached_property
    def stretch_rewards(self) -> Array:
        """Rewards of holding an action for 0, 1, ..., H ticks, (H + 1, states, actions)."""
        factor = self.discount(1) if self.discount_within else 1.0
        stretches = [np.zeros_like(self.world.rewards)]
        for _ in range(self.period_ticks):
            later = [p @ r for p, r in zip(self.world.transitions, stretches[-1].T, strict=True)]
            stretches.append(self.world.rewards + factor * np.stack(later, axis=1))
        return np.stack(stretches)


def _power(matrix: Any, ticks: int) -> list[Any]:
    """Matrices whose product is the transition over some ticks.

    One power, if applying it is no more work than the ticks one by one; so memory stays within a
    small multiple of the transitions, however quickly the states mix.
    """
    if ticks == 0:
        return []
    power = matrix
    for _ in range(ticks - 1):
        power = power @ matrix
        if not isinstance(power, np.ndarray) and power.nnz > ticks * matrix.nnz:
            return [matrix] * ticks
    return [power]


def _hold(mdp: ConcurrentMDP, action: int, ticks: int, then: Array) -> Array:
    """Rewards of holding an action for some ticks, plus the discounted value `then` after them.

    `then` is (states, ...).
    """
    values = then
    for matrix in mdp._moves[action, ticks]:
        values = matrix @ values
    rewards = mdp.stretch_rewards[ticks, :, action]
    return rewards.reshape(-1, *[1] * (then.ndim - 1)) + mdp.discount(ticks) * values


# --- Operators -----------------------------------------------------------------------------------


def blocking_operator(mdp: ConcurrentMDP, q: Array) -> Array:
    """T* of Appendix A.2 for q (states, actions): the world waits, then the action runs H ticks.

    T* Q(s, a) = r_a over H + gamma E max_a' Q(s', a'). Modulus gamma.
    """
    value = q.max(axis=1)
    return np.stack(
        [_hold(mdp, a, mdp.period_ticks, value) for a in range(mdp.world.actions)], axis=1
    )


def _expected(mdp: ConcurrentMDP, by_latency: Array) -> Array:
    """The mean over latencies, the first axis."""
    parts = zip(mdp.probabilities, by_latency, strict=True)
    return np.asarray(sum(p * values for p, values in parts))


def capture_value(mdp: ConcurrentMDP, q_capture: Array) -> Array:
    """What a capture is worth to an agent that chooses well, (states, actions in flight).

    An agent that knows this period's latency chooses for each; another for their mixture.
    """
    if mdp.latency_known:
        return _expected(mdp, q_capture.max(axis=3))
    return _expected(mdp, q_capture).max(axis=2)


def to_capture(mdp: ConcurrentMDP, q_switch: Array) -> Array:
    """T_c*, the concurrent operator (Eq. 8 of the paper): from the switch back to the capture.

    T_c* Q(s_t, a_{t-1}, a_t) = r(s_t, a_{t-1}) + gamma^(t_AS/H) E Q(s_{t+t_AS}, a_t): the action in
    flight goes on for t_AS. Modulus gamma^(t_AS/H), for each latency.
    """
    return np.stack(
        [
            np.stack(
                [_hold(mdp, b, latency, q_switch[i]) for b in range(mdp.world.actions)], axis=1
            )
            for i, latency in enumerate(mdp.latencies_ticks)
        ]
    )


def to_switch(mdp: ConcurrentMDP, q_capture: Array) -> Array:
    """T_c* from the next capture back to the switch: the new action runs for H - t_AS, then is
    itself in flight when the next one is chosen. Modulus gamma^((H - t_AS)/H).
    """
    value = capture_value(mdp, q_capture)
    return np.stack(
        [
            np.stack(
                [
                    _hold(mdp, a, mdp.period_ticks - latency, value[:, a])
                    for a in range(mdp.world.actions)
                ],
                axis=1,
            )
            for latency in mdp.latencies_ticks
        ]
    )


def full_period_operator(mdp: ConcurrentMDP, q_capture: Array) -> Array:
    """The operator of Algorithm 1, on the augmented state: `to_switch`, then `to_capture`.

    T Q(s, b, a) = r + gamma E max_a' Q(s_{t+H}, a, a'). Modulus gamma. With t_AS = 0 nothing
    depends on b, and it is the blocking operator.
    """
    return to_capture(mdp, to_switch(mdp, q_capture))


def literal_concurrent_operator(mdp: ConcurrentMDP, q_capture: Array) -> Array:
    """The full period with a_{t+1} fixed at the switch, as the paper's Eq. 8 has it.

    q_switch keeps an axis for a_{t+1}, and its maximum is taken at s_{t+t_AS}, before s_{t+H} is
    seen. Never above `full_period_operator`; equal to it where the dynamics are deterministic.
    """
    # At the switch the next period's latency is not known to anyone.
    then = _expected(mdp, q_capture)  # (states, a, a')
    stages = []
    for latency in mdp.latencies_ticks:
        rest = mdp.period_ticks - latency
        at_switch = np.stack(
            [_hold(mdp, a, rest, then[:, a]).max(axis=1) for a in range(mdp.world.actions)],
            axis=1,
        )
        stages.append(
            np.stack([_hold(mdp, b, latency, at_switch) for b in range(mdp.world.actions)], axis=1)
        )
    return np.stack(stages)


# --- Solving -------------------------------------------------------------------------------------


class NotConverged(RuntimeError):
    """Value iteration did not reach its tolerance in the iterations it was given."""


def solve(
    operator: Operator, start: Array, gamma: float, tolerance: float = 1e-10, limit: int = 100_000
) -> Array:
    """The fixed point of a Bellman optimality operator of modulus gamma, to within `tolerance`.

    Value iteration with MacQueen's bounds: if one application changes every entry by between
    `low` and `high`, the fixed point lies between gamma/(1-gamma) low and gamma/(1-gamma) high
    above the result. We stop when those bounds are close and return their middle; that happens
    long before the changes themselves are small wherever the world mixes.
    (Operators of this module satisfy T(Q + c) = TQ + gamma c, which the bounds need.)
    """
    q = np.asarray(start, np.float64)
    scale = gamma / (1 - gamma)
    for _ in range(limit):
        following = operator(q)
        change = following - q
        low, high = scale * change.min(), scale * change.max()
        q = following
        if high - low <= 2 * tolerance:
            return q + (low + high) / 2
    raise NotConverged(
        f"value iteration is still {high - low:.3g} wide after {limit} iterations; allow more "
        "iterations or a larger tolerance"
    )


def solve_blocking(mdp: ConcurrentMDP, tolerance: float = 1e-10) -> Array:
    """The optimal blocking Q, (states, actions)."""
    start = np.zeros((mdp.world.states, mdp.world.actions))
    return solve(lambda q: blocking_operator(mdp, q), start, mdp.gamma, tolerance)


def solve_concurrent(mdp: ConcurrentMDP, tolerance: float = 1e-10) -> Array:
    """The optimal concurrent Q with knowledge, q_capture (latencies, states, b, a)."""
    start = np.zeros(mdp.capture_shape)
    return solve(lambda q: full_period_operator(mdp, q), start, mdp.gamma, tolerance)


def greedy(mdp: ConcurrentMDP, q_capture: Array) -> NDArray[np.intp]:
    """The best action by (latency, state, action in flight), the first among equals.

    For an agent that does not know the period's latency, the same for each.
    """
    if mdp.latency_known:
        return q_capture.argmax(axis=3)
    mixed = _expected(mdp, q_capture).argmax(axis=2)
    return np.broadcast_to(mixed, q_capture.shape[:3]).copy()


# --- Policies ------------------------------------------------------------------------------------


def period_kernel(mdp: ConcurrentMDP) -> tuple[Array, Array]:
    """What a period does, in full: rewards and next states by (latency, s, b, a).

    Returns rewards (l, s, b, a) and transitions (l, s, b, a, s''). Dense, for small worlds only.
    """
    actions, states = mdp.world.actions, mdp.world.states
    identity, nothing = np.eye(states), np.zeros(states)
    moves = [matrix @ identity for matrix in mdp.world.transitions]
    rewards = np.empty(mdp.capture_shape)
    transitions = np.empty((*mdp.capture_shape, states))
    for i, latency in enumerate(mdp.latencies_ticks):
        rest = mdp.period_ticks - latency
        for b in range(actions):
            before = np.linalg.matrix_power(moves[b], latency)
            for a in range(actions):
                transitions[i, :, b, a] = before @ np.linalg.matrix_power(moves[a], rest)
                rewards[i, :, b, a] = _hold(mdp, b, latency, _hold(mdp, a, rest, nothing))
    return rewards, transitions


def evaluate_policy(mdp: ConcurrentMDP, policy: Array) -> Array:
    """The exact value of policies at a capture, (..., states, actions in flight).

    policy: probabilities (..., latencies, states, actions in flight, actions); leading axes are
    many policies at once. A linear solve on the augmented states (s, b): for small worlds.
    """
    rewards, transitions = period_kernel(mdp)
    _, states, actions, _ = mdp.capture_shape
    p = np.asarray(mdp.probabilities)
    weighted = p[:, None, None, None] * policy
    reward = np.einsum("...lsba,lsba->...sb", weighted, rewards)
    # From (s, b) to (s'', a): the chosen action is the next one in flight.
    move = np.einsum("...lsba,lsbat->...sbta", weighted, transitions)
    size = states * actions
    lead = reward.shape[:-2]
    system = np.eye(size) - mdp.gamma * move.reshape(*lead, size, size)
    value = np.linalg.solve(system, reward.reshape(*lead, size, 1))
    return value.reshape(*lead, states, actions)


def as_probabilities(policy: NDArray[np.integer], actions: int) -> Array:
    """A table of actions as a table of probabilities, with one more axis."""
    return np.eye(actions)[policy]

"""Is concurrent knowledge necessary, is it sufficient? Answered exactly on small worlds.

What an agent knows is a function of the augmented state (previous state, state, action in flight,
latency): its observation. For every kind of knowledge we find the best policy that maps the
observation to an action, by trying all of them, each evaluated exactly.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from midstride.theory.tabular import Array, ConcurrentMDP, TickMDP, period_kernel, solve_blocking

Augmented = tuple[int, int, int, int]  # previous state, state, action in flight, latency index
Observation = Callable[[int, int, int, int], tuple[int, ...]]

KNOWLEDGE: dict[str, Observation] = {
    "nothing": lambda before, s, b, latency: (s,),
    "previous observation": lambda before, s, b, latency: (before, s),
    "previous action": lambda before, s, b, latency: (s, b),
    "previous action and t_AS": lambda before, s, b, latency: (s, b, latency),
}
NULL_ACTION = 0  # what the machine does when nothing has been commanded yet
_BATCH = 4096  # policies evaluated at once


@dataclass(frozen=True)
class Answer:
    """The best policy with a kind of knowledge."""

    value: float  # expected discounted reward from the start
    policies: int  # how many were tried
    best: dict[tuple[int, ...], int]  # observation -> action


def turntable(slip: float = 0.0, cells: int = 4) -> TickMDP:
    """A table that an agent turns to face cell 0: stay, or turn by one cell per tick.

    Facing cell 0 pays 1 per tick. With probability `slip` a turning tick does nothing. Turning for
    a period of cells - 1 ticks amounts to one cell backwards, so that every cell can be reached.
    """
    stay, turn = np.eye(cells), np.roll(np.eye(cells), 1, axis=1)
    rewards = np.zeros((cells, 2))
    rewards[0] = 1.0
    return TickMDP([stay, (1 - slip) * turn + slip * stay], rewards)


def blocking_value(mdp: ConcurrentMDP) -> float:
    """The best value when the world waits, from a uniform start."""
    return float(solve_blocking(mdp).max(axis=1).mean())


def best_with(mdp: ConcurrentMDP, observation: Observation, limit: int = 1 << 20) -> Answer:
    """The best deterministic policy on an observation, from a uniform start with nothing in flight.

    Tries every assignment of actions to the observations that can occur; an error if there are more
    than `limit`.
    """
    states, rewards, moves, start = _augment(mdp)
    seen = sorted({observation(*state) for state in states})
    actions = mdp.world.actions
    if actions ** len(seen) > limit:
        raise ValueError(
            f"{actions} actions on {len(seen)} observations make {actions ** len(seen):.3g} "
            f"policies, more than {limit}: take a smaller world"
        )
    where = np.array([seen.index(observation(*state)) for state in states])
    best_value, best_table = -np.inf, np.zeros(len(seen), np.intp)
    for tables in _batches(actions, len(seen)):
        values = _evaluate(mdp.gamma, rewards, moves, start, tables[:, where])
        i = int(values.argmax())
        if values[i] > best_value + 1e-12:
            best_value, best_table = float(values[i]), tables[i]
    best = {o: int(a) for o, a in zip(seen, best_table, strict=True)}
    return Answer(best_value, actions ** len(seen), best)


def _augment(mdp: ConcurrentMDP) -> tuple[list[Augmented], Array, Array, Array]:
    """The augmented states that can occur, with rewards (x, a), moves (x, a, x') and start (x)."""
    rewards, transitions = period_kernel(mdp)
    latencies = [i for i, p in enumerate(mdp.probabilities) if p > 0]

    def following(x: Augmented, a: int) -> Iterator[tuple[Augmented, float]]:
        _, s, b, i = x
        for after, p in enumerate(transitions[i, s, b, a]):
            for j in latencies:
                if p > 0:
                    yield (s, after, a, j), float(p) * mdp.probabilities[j]

    # Stacking repeats the first observation: at the start the previous state is the state.
    first = [(s, s, NULL_ACTION, i) for s in range(mdp.world.states) for i in latencies]
    index: dict[Augmented, int] = {}
    frontier = list(first)
    while frontier:
        x = frontier.pop()
        if x not in index:
            index[x] = len(index)
            frontier += [y for a in range(mdp.world.actions) for y, _ in following(x, a)]

    size, actions = len(index), mdp.world.actions
    reward, move, start = np.zeros((size, actions)), np.zeros((size, actions, size)), np.zeros(size)
    for x, k in index.items():
        for a in range(actions):
            reward[k, a] = rewards[x[3], x[1], x[2], a]
            for y, p in following(x, a):
                move[k, a, index[y]] += p
    for x in first:
        start[index[x]] += mdp.probabilities[x[3]] / mdp.world.states
    return list(index), reward, move, start


def _batches(actions: int, length: int) -> Iterator[NDArray[np.intp]]:
    """All tables of `length` actions, a batch at a time."""
    tables = itertools.product(range(actions), repeat=length)
    while batch := list(itertools.islice(tables, _BATCH)):
        yield np.array(batch, np.intp)


def _evaluate(
    gamma: float, rewards: Array, moves: Array, start: Array, policies: NDArray[np.intp]
) -> Array:
    """Exact values of policies (n, x) -> action, from the start: a linear solve for each."""
    rows = np.arange(len(rewards))
    reward, move = rewards[rows, policies], moves[rows, policies]
    values = np.linalg.solve(np.eye(len(rows)) - gamma * move, reward[..., None])[..., 0]
    return values @ start

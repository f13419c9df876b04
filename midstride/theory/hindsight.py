"""Hindsight latency on small worlds, exactly: what it loses, and when it is wrong.

A frozen world decides once per period: `Frozen`. At a latency of k periods the same world has the
augmented states (s, b_1, ..., b_k): b_1 is in force, the others are pending, oldest first. A
decision joins the end of the line, the first leaves it, and the period pays for the action that is
in force, not for the decision (`delayed`).

Three values at a latency, all of the period at which the first decision comes into force:

    frozen       V*(s): the best that a world that waits allows
    best         the best policy of the augmented states; what chance does in k periods is not known
    distilled    the student that does at the capture what the frozen expert will do at the switch,
                 with the probabilities that it has, seen from there

Where dynamics are deterministic the three are equal (`test_hindsight`). And one that is learned:

    relabelled   the best policy of the world that relabelled data of a frozen world show
                 (`as_relabelled`): a decision that was made at the switch tells what has happened
                 since the capture. It is another world wherever chance is in the dynamics and the
                 behaviour looked at the state; it is the true one where either is not so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from midstride.theory.tabular import Array, ConcurrentMDP, period_kernel, solve

Line = tuple[int, ...]  # decisions in flight, oldest first


@dataclass(frozen=True, eq=False)
class Frozen:
    """What a period of an action does: rewards (s, a), transitions (s, a, s'), gamma per period."""

    rewards: Array
    transitions: Array
    gamma: float

    @classmethod
    def of(cls, mdp: ConcurrentMDP) -> Frozen:
        """The world of a concurrent problem, when it waits for every decision."""
        waits = ConcurrentMDP(mdp.world, mdp.period_ticks, mdp.gamma)
        rewards, transitions = period_kernel(waits)
        return cls(rewards[0, :, 0], transitions[0, :, 0], mdp.gamma)

    @property
    def states(self) -> int:
        return self.rewards.shape[0]

    @property
    def actions(self) -> int:
        return self.rewards.shape[1]

    def lines(self, k: int) -> list[Line]:
        """All that k decisions in flight can be."""
        return list(itertools.product(range(self.actions), repeat=k))

    def best(self) -> Array:
        """The optimal Q, (s, a)."""

        def backup(q: Array) -> Array:
            return self.rewards + self.gamma * self.transitions @ q.max(axis=1)

        return solve(backup, np.zeros_like(self.rewards), self.gamma)

    def value(self, policy: Array) -> Array:
        """The value (s,) of probabilities (s, a)."""
        reward = (policy * self.rewards).sum(axis=1)
        move = np.einsum("sa,sat->st", policy, self.transitions)
        return np.linalg.solve(np.eye(self.states) - self.gamma * move, reward)


def delayed(world: Frozen, k: int) -> Frozen:
    """The world at a latency of k periods, on the augmented states (s, line), line by line."""
    return _augmented(world, k, lambda line, decision: world.transitions[:, line[0]])


def as_relabelled(world: Frozen, k: int, behaviour: Array) -> Frozen:
    """The world at a latency of k periods as relabelled data of a frozen one show it.

    behaviour: probabilities (s, a), all above 0, of what acted in the frozen world
    Where s, then s' and further states were visited, actions b_1, b_2, ... were chosen there. So
    b_2, ..., b_k and the decision were each drawn in a state that came of s', and by Bayes
    P(s' | s, b_1, ..., b_k, decision) is in proportion to P(s' | s, b_1) P(b_2, ... | s').
    """

    def seen(line: Line, decision: int) -> Array:
        likely = world.transitions[:, line[0]] * _likelihood(
            world, behaviour, (*line[1:], decision)
        )
        return likely / likely.sum(axis=1, keepdims=True)

    return _augmented(world, k, seen)


def _likelihood(world: Frozen, behaviour: Array, actions: Line) -> Array:
    """Of choosing these actions, one after another, from each state on, (s,)."""
    if not actions:
        return np.ones(world.states)
    later = world.transitions[:, actions[0]] @ _likelihood(world, behaviour, actions[1:])
    return np.asarray(behaviour[:, actions[0]] * later)


def _augmented(world: Frozen, k: int, moves: Callable[[Line, int], Array]) -> Frozen:
    """moves: what is in flight, and the decision -> (s, s')"""
    if k < 1:
        raise ValueError(f"a latency has at least one period, got {k}")
    lines, s, a = world.lines(k), world.states, world.actions
    place = {line: slice(i * s, (i + 1) * s) for i, line in enumerate(lines)}
    size = len(lines) * s
    rewards, transitions = np.zeros((size, a)), np.zeros((size, a, size))
    for line, rows in place.items():
        rewards[rows] = world.rewards[:, line[0], None]
        for decision in range(a):
            transitions[rows, decision, place[(*line[1:], decision)]] = moves(line, decision)
    return Frozen(rewards, transitions, world.gamma)


def at_switch(world: Frozen, k: int) -> Array:
    """Where the world will be when a decision comes into force, (s, line) x s'."""
    found = []
    for line in world.lines(k):
        reached = np.eye(world.states)
        for action in line:
            reached = reached @ world.transitions[:, action]
        found.append(reached)
    return np.concatenate(found)


def paid_until_switch(world: Frozen, k: int) -> Array:
    """The discounted reward of what is in flight, (s, line): nothing decided now changes it."""
    found = []
    for line in world.lines(k):
        reached, total = np.eye(world.states), np.zeros(world.states)
        for i, action in enumerate(line):
            total += world.gamma**i * reached @ world.rewards[:, action]
            reached = reached @ world.transitions[:, action]
        found.append(total)
    return np.concatenate(found)


def distilled(world: Frozen, k: int, expert: Array) -> Array:
    """The student's probabilities (s, line) x a: those of the expert (s, a) at the switch."""
    return at_switch(world, k) @ expert


def greedy(q: Array) -> Array:
    """The first best action by q (x, a), as probabilities."""
    return np.eye(q.shape[1])[q.argmax(axis=1)]


def nearly_greedy(q: Array, epsilon: float) -> Array:
    """The same, with a share of random actions."""
    return (1 - epsilon) * greedy(q) + epsilon / q.shape[1]


@dataclass(frozen=True)
class Losses:
    """Values at a latency from the first switch on; means over all augmented states."""

    frozen: float
    best: float
    distilled: float
    relabelled: float  # of the policy that is learned from relabelled data
    believed: float  # that those data promise it


def losses(world: Frozen, k: int, epsilon: float) -> Losses:
    """What is lost at a latency of k periods.

    epsilon: share of random actions in the frozen world, beside the best ones: what relabelled data
    are made by
    """
    q, late = world.best(), delayed(world, k)
    seen = as_relabelled(world, k, nearly_greedy(q, epsilon))
    q_seen = seen.best()
    until, later = paid_until_switch(world, k), world.gamma**k

    def after(value: Array) -> float:
        """From the first switch on, worth what it is worth then."""
        return float(((value - until) / later).mean())

    return Losses(
        frozen=float((at_switch(world, k) @ q.max(axis=1)).mean()),
        best=after(late.best().max(axis=1)),
        distilled=after(late.value(distilled(world, k, greedy(q)))),
        relabelled=after(late.value(greedy(q_seen))),
        believed=after(q_seen.max(axis=1)),
    )


def best_by_reading(world: Frozen, sensor: Array, k: int) -> float:
    """The best value, from the first switch on, of a policy on a noisy reading and the line.

    sensor: probabilities (s, reading); k: 0 for the frozen world at the switch of latency 1
    No memory but the line: every assignment of actions is tried.
    """
    readings, actions = sensor.shape[1], world.actions
    lines = actions**k
    late = delayed(world, k) if k else world
    found = -np.inf
    for table in itertools.product(range(actions), repeat=lines * readings):
        by_reading = np.eye(actions)[list(table)].reshape(lines, readings, actions)
        value = late.value(np.einsum("sr,lra->lsa", sensor, by_reading).reshape(-1, actions))
        if k:
            value = (value - paid_until_switch(world, k)) / world.gamma**k
        else:
            value = at_switch(world, 1) @ value
        found = max(found, float(value.mean()))
    return found


# --- By experiment -------------------------------------------------------------------------------


def live(
    world: Frozen, behaviour: Array, steps: int, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """States (steps + 1,) and actions (steps,) of one life in the frozen world."""
    states, actions = np.zeros(steps + 1, np.intp), np.zeros(steps, np.intp)
    chance = rng.random((steps, 2))
    chooses, moves = behaviour.cumsum(axis=1), world.transitions.cumsum(axis=2)
    last = world.actions - 1, world.states - 1
    for i in range(steps):
        s = states[i]
        actions[i] = min(np.searchsorted(chooses[s], chance[i, 0], side="right"), last[0])
        reached = np.searchsorted(moves[s, actions[i]], chance[i, 1], side="right")
        states[i + 1] = min(reached, last[1])
    return states, actions


def counted(
    world: Frozen, k: int, states: NDArray[np.intp], actions: NDArray[np.intp]
) -> NDArray[np.int64]:
    """How often relabelled data went from (s, line) by a decision to s', (x, a, s')."""
    count = len(actions) - k
    line = np.zeros(count, np.intp)
    for i in range(k):
        line = line * world.actions + actions[i : i + count]
    x = line * world.states + states[:count]
    size = (world.states * world.actions**k, world.actions, world.states)
    found = np.zeros(size, np.int64)
    np.add.at(found, (x, actions[k : k + count], states[1 : count + 1]), 1)
    return found


def learned(world: Frozen, k: int, counts: NDArray[np.int64]) -> Array:
    """Q (x, a) that Q-learning on the counted transitions comes to: the best of what they show.

    What was never tried is worth nothing.
    """
    total = counts.sum(axis=2)
    share = counts / np.maximum(total, 1)[..., None]
    lines, s = world.lines(k), world.states
    index = {line: i for i, line in enumerate(lines)}
    first = np.repeat([line[0] for line in lines], s)
    rewards = world.rewards[np.tile(np.arange(s), len(lines)), first]
    after = np.array(
        [[index[(*line[1:], a)] for a in range(world.actions)] for line in lines]
    ).repeat(s, axis=0)  # the line that follows, by (x, a)

    def backup(q: Array) -> Array:
        value = q.max(axis=1).reshape(len(lines), s)
        then = np.einsum("xat,xat->xa", share, value[after])
        return np.where(total > 0, rewards[:, None] + world.gamma * then, 0.0)

    q = np.zeros(total.shape)
    for _ in range(int(np.ceil(np.log(1e-10) / np.log(world.gamma)))):
        q = backup(q)
    return q

"""Solving a concurrent MDP exactly."""

from __future__ import annotations

import tracemalloc

import numpy as np
from scipy.sparse import csr_array

from benchmarks.figures import Figure, seconds
from midstride.theory.tabular import ConcurrentMDP, TickMDP, full_period_operator, solve_concurrent

ROWS, COLUMNS = 50, 40
DIRECTIONS = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if (dy, dx) != (0, 0)]
PERIOD_TICKS, LATENCY_TICKS, GAMMA, TOLERANCE = 10, 5, 0.99, 1e-8


def run() -> list[Figure]:
    mdp = ConcurrentMDP(grid_world(), PERIOD_TICKS, GAMMA, (LATENCY_TICKS,))
    q = solve_concurrent(mdp, TOLERANCE)
    residual = np.abs(full_period_operator(mdp, q) - q).max()
    assert residual <= 2 * TOLERANCE, residual
    times = [seconds(lambda: solve_concurrent(mdp, TOLERANCE)) for _ in range(3)]
    tracemalloc.start()
    solve_concurrent(mdp, TOLERANCE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = (
        f"{mdp.world.states} states x {mdp.world.actions} in flight x {mdp.world.actions} actions"
    )
    return [
        Figure("theory/solve-seconds", float(np.median(times)), "s", f"{size}, to {TOLERANCE:g}"),
        Figure("theory/memory-vs-table", peak / q.nbytes, "x", "the table of Q itself"),
    ]


def grid_world() -> TickMDP:
    """A slippery grid: eight directions, walls at the border, random rewards; mixes slowly."""
    rng = np.random.default_rng(0)
    states = np.arange(ROWS * COLUMNS)
    y, x = np.divmod(states, COLUMNS)
    moves = []
    for dy, dx in DIRECTIONS:
        there = np.clip(y + dy, 0, ROWS - 1) * COLUMNS + np.clip(x + dx, 0, COLUMNS - 1)
        entries = np.concatenate([np.full(len(states), 0.8), np.full(len(states), 0.2)])
        rows, columns = np.concatenate([states, states]), np.concatenate([there, states])
        moves.append(csr_array((entries, (rows, columns)), shape=(len(states), len(states))))
    return TickMDP(moves, rng.random((len(states), len(DIRECTIONS))))

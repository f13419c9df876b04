"""The delay margin of linear feedback, against control theory.

A plant x' = A x + B u under u = -K x, sampled every period of P ticks and held, with a latency of
q periods and r ticks: in a period the decision of q + 1 periods ago is in force for r ticks, then
that of q periods ago. With the inputs on their way as further state it is a linear map, and it is
stable if all its eigenvalues are inside the unit circle. Nothing here but matrices.
"""

from functools import cache, partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from scipy.linalg import expm

from midstride.measure.margin import MarginSettings, margin

TICK_S, PERIOD_TICKS, LEVELS = 0.04, 3, 36
FAR, LONGEST = 100.0, 3000  # of the state; of an episode in ticks. Starts are at distance 1
PLANTS = {"double integrator": 0.0, "inverted pendulum, linearised": 2.0}


@cache
def sampled(stiffness: float) -> tuple[np.ndarray, np.ndarray]:
    """Of one tick, exactly: the matrix exponential."""
    whole = np.zeros((3, 3))
    whole[0, 1], whole[1, 0], whole[1, 2] = 1.0, stiffness, 1.0
    found = expm(whole * TICK_S)
    return found[:2, :2], found[:2, 2:]


def spectral_radius(stiffness: float, gain: np.ndarray, latency_ticks: int) -> float:
    """Of the sampled loop with all inputs that are on their way."""
    a, b = sampled(stiffness)
    q, r = divmod(latency_ticks, PERIOD_TICKS)

    def held(ticks: int) -> np.ndarray:
        """What an input does that is held for some ticks."""
        return sum((np.linalg.matrix_power(a, j) @ b for j in range(ticks)), np.zeros((2, 1)))

    rest = PERIOD_TICKS - r
    older, newer = np.linalg.matrix_power(a, rest) @ held(r), held(rest)
    n = 2 + q + 1  # x, then the inputs of 1, ..., q + 1 periods ago
    loop = np.zeros((n, n))
    loop[:2, :2] = np.linalg.matrix_power(a, PERIOD_TICKS)
    loop[:2, 2 + q] += older[:, 0]
    if q == 0:
        loop[:2, :2] -= newer @ gain[None]
    else:
        loop[:2, 2 + q - 1] += newer[:, 0]
    loop[2, :2] = -gain
    for k in range(1, q + 1):
        loop[2 + k, 2 + k - 1] = 1.0
    return float(np.abs(np.linalg.eigvals(loop)).max())


class Linear(gymnasium.Env):
    """The plant; a step is a tick. An episode ends when the state is far away."""

    dt = TICK_S

    def __init__(self, stiffness: float) -> None:
        self.observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
        self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.a, self.b = sampled(stiffness)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        angle = self.np_random.uniform(0, 2 * np.pi)
        self.x, self.steps = np.array([np.cos(angle), np.sin(angle)]), 0
        return self.x.copy(), {}

    def step(self, action):
        self.x = self.a @ self.x + self.b[:, 0] * action[0]
        self.steps += 1
        far = bool(np.abs(self.x).max() > FAR)
        return self.x.copy(), 1.0, far, self.steps >= LONGEST, {}


def stable_gains(stiffness: float, count: int) -> list[tuple[np.ndarray, int]]:
    """Random gains that are stable without latency, and their exact margins in ticks.

    Left out: gains with which a loop beyond the margin grows so slowly that an episode would have
    to be longer than ours to tell.
    """
    rng = np.random.default_rng(int(stiffness))
    found: list[tuple[np.ndarray, int]] = []
    while len(found) < count:
        gain = np.array([stiffness + 10 ** rng.uniform(-1.5, 0.7), 10 ** rng.uniform(-0.5, 0.7)])
        radii = np.array([spectral_radius(stiffness, gain, k) for k in range(LEVELS + 1)])
        if radii[0] >= 1:
            continue
        crossings = np.flatnonzero(radii >= 1)
        last = int(crossings[0]) - 1 if len(crossings) else LEVELS
        growth = radii[last + 1 :] ** (LONGEST / PERIOD_TICKS)
        if (growth > 3 * FAR).all():
            found.append((gain, last))
    return found


GAINS = 10  # of each plant


@cache
def cases(plant: str) -> list[tuple[np.ndarray, int]]:
    return stable_gains(PLANTS[plant], GAINS)


def test_the_cases_reach_beyond_several_periods():
    margins = [last for plant in PLANTS for _, last in cases(plant)]
    assert len(margins) >= 20
    assert max(margins) > 4 * PERIOD_TICKS
    assert min(margins) < PERIOD_TICKS
    assert any(last % PERIOD_TICKS for last in margins)


@pytest.mark.parametrize("number", range(GAINS))
@pytest.mark.parametrize("plant", PLANTS)
def test_the_margin_is_that_of_control_theory(plant, number):
    gain, exact_ticks = cases(plant)[number]
    found = margin(
        lambda x: -gain @ x[None].T,
        partial(Linear, PLANTS[plant]),
        MarginSettings(
            margins=("delay",),
            episodes=2,
            period=PERIOD_TICKS * TICK_S,
            longest=LEVELS * TICK_S,
        ),
    )
    assert round(found.delay_s / TICK_S) == exact_ticks
    assert found.delay.beyond == (exact_ticks == LEVELS)
    low_s, high_s = found.delay_interval_s
    assert low_s <= found.delay_s
    assert high_s is None or found.delay_s <= high_s + 1e-9

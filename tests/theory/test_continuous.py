"""Continuous time, against the closed form of a linear-quadratic system with input delay.

dx = (ALPHA x + BETA u) dt + SIGMA dbeta, paying -(x^2 + RHO u^2) per second, discounted by GAMMA
per second. Under a constant action x is Gaussian with known mean and variance, so every integral is
one of ordinary functions. Actions hold from switch to switch, so the optimum is that of the sampled
system, u = -K x(switch); with a latency, x(switch) is replaced by its prediction.
"""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.linalg import expm, solve_discrete_are

from midstride.theory.continuous import (
    System,
    concurrent_backup,
    constant,
    estimate_q,
    estimate_value,
    mean_and_error,
    run,
)

ALPHA, BETA, SIGMA, RHO, GAMMA = 1.5, 2.0, 0.4, 0.3, 0.8
PERIOD_S, LATENCY_S = 0.3, 0.2


def linear_quadratic(sigma: float = SIGMA) -> System:
    return System(
        drift=lambda s, a: ALPHA * s + BETA * a,
        diffusion=lambda s, a: np.full_like(s, sigma),
        reward=lambda s, a: -(s[:, 0] ** 2 + RHO * np.broadcast_to(a, s.shape)[:, 0] ** 2),
    )


# --- The closed form


def mean_after(x, u, t):
    return np.exp(ALPHA * t) * x + np.expm1(ALPHA * t) / ALPHA * BETA * u


def variance_after(t, sigma=SIGMA):
    return sigma**2 * np.expm1(2 * ALPHA * t) / (2 * ALPHA)


def expected_reward(x, u, duration, variance=0.0, sigma=SIGMA):
    """From a Gaussian start of mean x, holding u: integral of GAMMA^t E r."""

    def rate(t):
        spread = np.exp(2 * ALPHA * t) * variance + variance_after(t, sigma)
        return -(GAMMA**t) * (mean_after(x, u, t) ** 2 + spread + RHO * u**2)

    return quad(rate, 0, duration, epsabs=1e-12)[0]


@cache
def riccati(sigma=SIGMA):
    """(K, P, c): the optimal gain, and the value -(P x^2 + c) expected at a switch.

    c holds two costs of chance: the noise of each period, and what the choice at each switch loses
    because it was made on a prediction, which errs by the noise of the latency. No knowledge
    recovers the second.
    """
    # The cost of a period as a quadratic form in (x, u), by integrating the flow of (x, u).
    generator = np.array([[ALPHA, BETA], [0, 0]])
    cost = np.array([[1.0, 0], [0, RHO]])

    def integrand(t, i, j):
        flow = expm(generator * t)
        return GAMMA**t * (flow.T @ cost @ flow)[i, j]

    w = np.array(
        [[quad(integrand, 0, PERIOD_S, args=(i, j))[0] for j in range(2)] for i in range(2)]
    )
    phi, gam = expm(generator * PERIOD_S)[0]
    g = GAMMA**PERIOD_S
    p = solve_discrete_are(
        np.array([[phi]]) * np.sqrt(g),
        np.array([[gam]]) * np.sqrt(g),
        w[:1, :1],
        w[1:, 1:],
        s=w[:1, 1:],
    )[0, 0]
    curvature = w[1, 1] + g * gam**2 * p
    gain = (w[0, 1] + g * phi * p * gam) / curvature
    noise = quad(lambda t: GAMMA**t * variance_after(t, sigma), 0, PERIOD_S)[0]
    surprise = curvature * gain**2 * variance_after(LATENCY_S, sigma)
    c = (noise + g * p * variance_after(PERIOD_S, sigma) + surprise) / (1 - g)
    return gain, p, c


def capture_value(x, in_flight, variance=0.0, sigma=SIGMA):
    """V at a capture: the action in flight until the switch, then the optimum."""
    _, p, c = riccati(sigma)
    mean = mean_after(x, in_flight, LATENCY_S)
    spread = np.exp(2 * ALPHA * LATENCY_S) * variance + variance_after(LATENCY_S, sigma)
    before = expected_reward(x, in_flight, LATENCY_S, variance, sigma)
    return before - GAMMA**LATENCY_S * (p * (mean**2 + spread) + c)


def terms(x, in_flight, chosen, sigma=SIGMA):
    """The three terms of Q in closed form."""
    before = expected_reward(x, in_flight, LATENCY_S, 0.0, sigma)
    mean, variance = mean_after(x, in_flight, LATENCY_S), variance_after(LATENCY_S, sigma)
    rest = PERIOD_S - LATENCY_S
    after = GAMMA**LATENCY_S * expected_reward(mean, chosen, rest, variance, sigma)
    end = mean_after(mean, chosen, rest)
    value = capture_value(end, chosen, variance_after(PERIOD_S, sigma), sigma)
    return before, after, GAMMA**PERIOD_S * value


def value_function(chosen):
    """V at a capture as a function of sampled states: -(A x^2 + B x + C)."""
    nodes = np.array([-1.0, 0.0, 1.0])
    quadratic = np.polyfit(nodes, [capture_value(x, chosen) for x in nodes], 2)
    return lambda states: np.polyval(quadratic, states[:, 0])


def estimate(x, in_flight, chosen, step_s, paths, sigma=SIGMA, seed=0):
    return estimate_q(
        linear_quadratic(sigma),
        np.full((paths, 1), float(x)),
        constant(in_flight),
        constant(chosen),
        t_s=0.0,
        latency_s=LATENCY_S,
        period_s=PERIOD_S,
        value=value_function(chosen),
        gamma=GAMMA,
        step_s=step_s,
        rng=np.random.default_rng(seed),
    )


def test_the_closed_form_is_consistent():
    """The optimal gain maximises it, and its maximum is the value."""
    gain, _, _ = riccati()
    best = -gain * mean_after(0.7, 0.4, LATENCY_S)
    q = [sum(terms(0.7, 0.4, best + d)) for d in (-0.1, 0.0, 0.1)]
    assert q[1] > max(q[0], q[2])
    assert q[0] == pytest.approx(q[2], abs=1e-8)
    assert q[1] == pytest.approx(capture_value(0.7, 0.4), abs=1e-8)


# --- The estimator


@pytest.mark.parametrize(
    ("x", "in_flight", "chosen"), [(0.7, 0.4, -1.0), (-1.0, 0.0, 0.5), (0.2, -1.5, 0.0)]
)
def test_each_term_is_within_its_monte_carlo_interval(x, in_flight, chosen):
    sampled = estimate(x, in_flight, chosen, step_s=0.0005, paths=4000)
    expected = terms(x, in_flight, chosen)
    for samples, exact in zip(
        (sampled.before_switch, sampled.after_switch, sampled.value), expected, strict=True
    ):
        mean, error = mean_and_error(samples)
        assert abs(mean - exact) < 4 * error
        assert error < 0.1 * abs(exact)  # the interval is narrow enough to mean something
    mean, error = mean_and_error(sampled.total)
    assert abs(mean - sum(expected)) < 4 * error


def test_optimal_control_acts_on_the_predicted_state():
    """Maximise the estimate over the chosen action: it is -K times the prediction."""
    gain, _, _ = riccati()
    x, in_flight = 0.7, 0.4
    actions = np.array([-3.0, -2.0, -1.0])
    means = [estimate(x, in_flight, a, 0.002, 4000).total.mean() for a in actions]  # same noise
    a, b, _ = np.polyfit(actions, means, 2)
    best = -b / (2 * a)
    predicted, stale = -gain * mean_after(x, in_flight, LATENCY_S), -gain * x
    assert best == pytest.approx(predicted, rel=0.03)
    assert abs(best - stale) > 0.3 * abs(predicted)
    assert sum(terms(x, in_flight, predicted)) > sum(terms(x, in_flight, stale))


def test_the_estimator_converges_at_order_one():
    """Without noise nothing is left but the time step: halve it, halve the error."""
    steps = [0.02, 0.01, 0.005, 0.0025]
    quiet = lambda chosen: (  # noqa: E731
        lambda states: np.array([capture_value(x, chosen, sigma=0.0) for x in states[:, 0]])
    )
    errors = []
    for step_s in steps:
        sampled = estimate_q(
            linear_quadratic(0.0), np.array([[0.7]]), constant(0.4), constant(-1.0), 0.0,
            LATENCY_S, PERIOD_S, quiet(-1.0), GAMMA, step_s, np.random.default_rng(0),
        )  # fmt: skip
        errors.append(abs(sampled.total[0] - sum(terms(0.7, 0.4, -1.0, sigma=0.0))))
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert orders == pytest.approx(np.ones(3), abs=0.1)


class Tape:
    """A generator that plays back standard normals that were drawn before."""

    def __init__(self, draws: np.ndarray) -> None:
        self.draws = iter(draws)

    def standard_normal(self, shape):
        return next(self.draws).reshape(shape)


def test_euler_maruyama_converges_strongly_at_order_one_half():
    """Geometric Brownian motion on given Brownian paths, whose exact end is known."""
    mu, sigma, paths, finest = 0.5, 0.8, 4000, 256
    system = System(
        drift=lambda s, a: mu * s,
        diffusion=lambda s, a: sigma * s,
        reward=lambda s, a: np.zeros(len(s)),
    )
    draws = np.random.default_rng(0).standard_normal((finest, paths, 1))
    exact = np.exp(mu - sigma**2 / 2 + sigma * draws.sum(axis=0) / np.sqrt(finest))
    errors = []
    for steps in (8, 16, 32, 64, 128):
        grouped = draws.reshape(steps, finest // steps, paths, 1).sum(axis=1)
        tape = Tape(grouped / np.sqrt(finest // steps))
        end = run(system, np.ones((paths, 1)), constant(0.0), 0.0, 1.0, 1.0, 1 / steps, tape)
        errors.append(np.abs(end.state - exact).mean())
    slope = np.polyfit(np.log([8, 16, 32, 64, 128]), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.08)


def test_time_is_cut_to_fit():
    """A stretch lasts exactly as long as it should, whatever the time step."""
    drift_only = System(
        drift=lambda s, a: np.ones_like(s),
        diffusion=lambda s, a: np.zeros_like(s),
        reward=lambda s, a: np.ones(len(s)),
    )
    for step_s in (0.3, 0.07, 1.0, 5.0):
        stretch = run(
            drift_only, np.zeros((1, 1)), constant(0.0), 0.0, 1.0, 1.0, step_s,
            np.random.default_rng(0),
        )  # fmt: skip
        assert stretch.state[0, 0] == pytest.approx(1.0)
        assert stretch.reward[0] == pytest.approx(1.0)


def test_controls_are_functions_of_time():
    """a_i(t) is asked at the time since t, also after the switch."""
    asked = []
    system = System(
        drift=lambda s, a: np.zeros_like(s),
        diffusion=lambda s, a: np.zeros_like(s),
        reward=lambda s, a: np.broadcast_to(a, s.shape)[:, 0],
    )

    def ramp(t, states):
        asked.append(t)
        return np.array([t])

    q = estimate_q(
        system, np.zeros((1, 1)), constant(0.0), ramp, 2.0, 0.5, 1.0, lambda s: np.zeros(len(s)),
        1.0, 0.001, np.random.default_rng(0),
    )  # fmt: skip
    assert min(asked) == pytest.approx(2.5)
    # integral of t from 2.5 to 3
    assert q.after_switch[0] == pytest.approx((3**2 - 2.5**2) / 2, rel=1e-3)


def test_noise_of_other_dimension_than_the_state():
    """One Brownian motion drives two states: they stay equal."""
    system = System(
        drift=lambda s, a: np.zeros_like(s),
        diffusion=lambda s, a: np.ones((*s.shape, 1)),
        reward=lambda s, a: np.zeros(len(s)),
    )
    end = run(
        system, np.zeros((3000, 2)), constant(0.0), 0.0, 1.0, 1.0, 0.05, np.random.default_rng(0)
    ).state
    assert (end[:, 0] == end[:, 1]).all()
    assert end[:, 0].std() == pytest.approx(1, abs=0.07)


# --- Value and backup


def test_the_value_of_a_feedback_policy():
    """u = -k x makes an Ornstein-Uhlenbeck process: E x^2 is known at all times."""
    k, x0 = 2.0, 1.0
    rate = ALPHA - BETA * k  # -2.5
    samples = estimate_value(
        linear_quadratic(), np.full((3000, 1), x0), lambda s: -k * s, 15.0, GAMMA, 0.005,
        np.random.default_rng(0),
    )  # fmt: skip

    def second_moment(t):
        return x0**2 * np.exp(2 * rate * t) + SIGMA**2 * np.expm1(2 * rate * t) / (2 * rate)

    exact = -(1 + RHO * k**2) * quad(lambda t: GAMMA**t * second_moment(t), 0, 15)[0]
    mean, error = mean_and_error(samples)
    assert abs(mean - exact) < 4 * error + 0.02 * abs(exact)  # the step's own bias is below 2 %


def test_the_backup_takes_the_best_continuation():
    """Q at the switch in closed form for a few next actions; the best one is backed up."""
    gain, p, c = riccati()
    x, in_flight = 0.7, 0.4
    best = -gain * mean_after(x, in_flight, LATENCY_S)

    def q_at_switch(action):
        quadratic = np.polyfit(
            [-1, 0, 1],
            [
                expected_reward(s, action, PERIOD_S)
                - GAMMA**PERIOD_S
                * (p * (mean_after(s, action, PERIOD_S) ** 2 + variance_after(PERIOD_S)) + c)
                for s in (-1, 0, 1)
            ],
            2,
        )
        return lambda states: np.polyval(quadratic, states[:, 0])

    samples = concurrent_backup(
        linear_quadratic(), np.full((4000, 1), x), constant(in_flight),
        [q_at_switch(best + d) for d in (-2.0, 0.0, 2.0)],
        0.0, LATENCY_S, GAMMA, 0.001, np.random.default_rng(0),
    )  # fmt: skip
    mean, error = mean_and_error(samples)
    # The action that is best for the mean is chosen for all paths: Q of the predicted state.
    assert abs(mean - sum(terms(x, in_flight, best))) < 4 * error


@given(shift=st.floats(-100, 100), latency=st.floats(0, 0.3))
def test_the_backup_contracts_by_gamma_to_the_latency(shift, latency):
    """Lemma 3.1: raise every continuation by c, and the backup rises by gamma^t_AS c."""
    q = [lambda s: s[:, 0], lambda s: -s[:, 0]]
    raised = [lambda s, f=f: f(s) + shift for f in q]
    low, high = (
        concurrent_backup(
            linear_quadratic(), np.ones((5, 1)), constant(0.1), each, 0.0, latency, GAMMA, 0.05,
            np.random.default_rng(0),
        )
        for each in (q, raised)
    )  # fmt: skip
    assert high - low == pytest.approx(np.full(5, GAMMA**latency * shift), abs=1e-9)


def test_bad_times():
    with pytest.raises(ValueError, match="latency must be from 0 to"):
        estimate_q(
            linear_quadratic(), np.ones((1, 1)), constant(0), constant(0), 0.0, 0.5, 0.3,
            lambda s: s[:, 0], GAMMA, 0.01, np.random.default_rng(0),
        )  # fmt: skip
    with pytest.raises(ValueError, match="cannot run for"):
        run(
            linear_quadratic(), np.ones((1, 1)), constant(0), 0.0, -1.0, GAMMA, 0.01,
            np.random.default_rng(0),
        )  # fmt: skip

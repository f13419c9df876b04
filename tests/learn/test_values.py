"""What a critic's number means, between bounds and without."""

import jax.numpy as jnp
import numpy as np
import pytest

from midstride.learn.agents import Training
from midstride.learn.train import train
from midstride.learn.values import Bounded, Unbounded, paid_in_a_second

NUMBERS = jnp.array([-3.0, -0.5, 0.0, 2.0])


@pytest.mark.parametrize("values", [Bounded(-4.0, 6.0), Unbounded(20.0)])
def test_the_number_with_the_least_loss_is_the_one_that_means_the_value(values):
    numbers = jnp.linspace(-4, 4, 801)
    for number in NUMBERS:
        label = values.label(values.value(number))
        assert values.told(number) == pytest.approx(float(label), abs=1e-6)
        losses = jnp.array([values.loss(n[None], label[None]) for n in numbers[::40]])
        assert abs(float(numbers[::40][losses.argmin()]) - float(number)) <= 0.2


def test_values_between_bounds_stay_there_and_others_do_not():
    assert Bounded(-4.0, 6.0).value(jnp.array(50.0)) == pytest.approx(6.0)
    np.testing.assert_allclose(
        Bounded(-4.0, 6.0).label(jnp.array([-9.0, 1.0, 9.0])), [0, 0.5, 1], atol=1e-6
    )
    assert Unbounded(20.0).value(jnp.array(50.0)) == 1000.0
    assert Unbounded(20.0).label(jnp.array(-50.0)) == -2.5


def test_the_unit_is_what_a_second_pays():
    steps = {
        "reward_before_switch": np.array([[1.0, -2.0], [0.0, 0.0]], np.float32),
        "reward_after_switch": np.array([[0.0, -1.0], [2.0, 0.0]], np.float32),
        "period_s": np.full((2, 2), 0.05, np.float32),
    }
    assert paid_in_a_second(steps) == pytest.approx(30.0)
    nothing = {name: np.zeros_like(array) for name, array in steps.items()}
    assert paid_in_a_second({**nothing, "period_s": steps["period_s"]}) == 1.0


@pytest.mark.slow
def test_qtopt_swings_up_a_pendulum_whose_values_nobody_told(tmp_path):
    training = Training.of(
        "gym:Pendulum-v1", "qtopt", steps=24_000, num_envs=16, gamma_per_s=0.818,
        demonstrations=4_000, evaluate_every=10**9, evaluation_episodes=8,
    )  # fmt: skip
    result = train(training, tmp_path / "run")
    assert result["mean_return"] > -300  # random actions: about -1200; the best: about -150

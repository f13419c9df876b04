"""Balance against rolling balls in closed form, and against what control theory says of latency."""

import gymnasium
import mujoco
import numpy as np
import pytest

from midstride.tasks import balance


@pytest.mark.parametrize("tilt", [-0.2, 0.05, 0.2])
def test_a_ball_rolls_down_as_galilei_says(tilt):
    task = balance.make(0.001)
    data = mujoco.MjData(task.model)
    data.qpos[0] = data.ctrl[0] = tilt
    for _ in range(300):
        mujoco.mj_step(task.model, data)
    t, down = 0.3, 5 / 7 * 9.81 * np.sin(tilt)
    assert data.qpos[0] == pytest.approx(tilt, abs=0.01)
    assert data.qpos[1] == pytest.approx(-down * t**2 / 2, rel=0.06)
    assert data.qvel[1] == pytest.approx(-down * t, rel=0.06)


def _balanced(latency_s: float, episodes: int = 20) -> float:
    """Mean return of a controller whose poles are those of 2 rad/s, critically damped."""
    env = gymnasium.make_vec(
        "midstride/Balance-v0", num_envs=episodes, latency=latency_s, actions="continuous"
    )
    observation, _ = env.reset(seed=1)
    pull, fade = 4 / (5 / 7 * 9.81), 4 / (5 / 7 * 9.81)
    total, done = np.zeros(episodes), False
    while not done:
        beam, ball, _, speed = observation.T[:4]
        wanted = pull * ball + fade * speed
        action = np.clip((wanted - beam) / balance.DISPLACEMENT_RAD, -1, 1)
        observation, reward, _, truncated, _ = env.step(action[:, None].astype(np.float32))
        total += reward
        done = bool(truncated.all())
    return float(total.mean())


def test_a_linear_controller_balances_and_latency_takes_it_away():
    frozen, late = _balanced(0.0), _balanced(0.2)
    assert frozen > 700
    assert late < frozen - 100


def test_rims_keep_the_ball():
    env = gymnasium.make_vec("midstride/Balance-v0", num_envs=8)
    env.action_space.seed(0)
    env.reset(seed=0)
    for _ in range(200):
        observation = env.step(env.action_space.sample())[0]
        assert np.abs(observation[:, 1]).max() < balance.BEAM_M

"""Catch against closed forms, plain MuJoCo and a search over all sequences of actions."""

import itertools
import resource

import gymnasium
import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstride.tasks import catch
from midstride.tasks.catch_scripted import to_the_ball
from midstride.tasks.env import TaskVectorEnv
from midstride.tasks.settings import make_task

G = 9.81


def thrown(task, seed):
    """Plain MuJoCo at the start of an episode, the cup told to stay."""
    data = mujoco.MjData(task.model)
    data.qpos[:], data.qvel[:] = task.initial(np.random.default_rng(seed))
    data.ctrl[:] = data.qpos[0]
    return data


def until_down(task, data):
    """Step until the ball is down; ticks."""
    ticks = 0
    while data.qpos[2] > 0:
        mujoco.mj_step(task.model, data)
        ticks += 1
    return ticks


# --- Flight and bounce


@given(seed=st.integers(0, 10_000), tick_s=st.sampled_from([0.005, 0.002, 0.001]))
@settings(max_examples=20)
def test_free_flight_is_a_parabola(seed, tick_s):
    """z + v T - g T^2 / 2, with the velocity of half a tick later; x + v T."""
    task = make_task("catch", tick_s)
    data = thrown(task, seed)
    (_, x, z), (_, along, rise) = data.qpos.copy(), data.qvel.copy()
    rise -= G * tick_s / 2
    for k in range(1, 100):
        mujoco.mj_step(task.model, data)
        t = k * tick_s
        assert data.qpos[1:] == pytest.approx([x + along * t, z + rise * t - G * t * t / 2])
    data = thrown(task, seed)
    ticks = until_down(task, data)
    lasts_s = (rise + np.sqrt(rise**2 + 2 * G * z)) / G
    assert (ticks - 1) * tick_s <= lasts_s + 1e-9 <= ticks * tick_s + 1e-9
    assert catch.lands_m(data.qpos, data.qvel) == pytest.approx(x + along * lasts_s, abs=1e-4)


def test_a_bounce_is_that_of_a_damped_spring():
    """By integrating x'' = -w^2 x - 2 f w x' while it pushes, from scratch."""
    w, f, dt = 100.0, 0.12, 1e-7
    x, v, t = 0.0, 1.0, 0.0
    while True:
        a = -w * w * x - 2 * f * w * v
        if t > 0 and a >= 0:
            break
        v += a * dt
        x += v * dt
        t += dt
    assert catch.bounced() == pytest.approx((-v, t, x), rel=1e-3)


@pytest.mark.parametrize(("tick_s", "apart_m"), [(0.005, 0.04), (0.001, 0.008)])
def test_balls_bounce_off_the_wall_as_the_closed_form_has_it(tick_s, apart_m):
    """Where they come down, and how fast they go then; the finer the ticks the nearer."""
    task = catch.bounce.make(tick_s)
    kept, contact_s, depth_s = catch.bounced()
    for seed in range(25):
        data = thrown(task, seed)
        (_, x, z, wall), (_, along, rise, _) = data.qpos.copy(), data.qvel.copy()
        until_down(task, data)
        hit = wall - np.sign(along) * 0.05
        hit_s = (hit - x) / along
        assert 0.24 < hit_s < 0.36
        after_s = catch.flight_s(z, rise, tick_s) - hit_s - contact_s
        expected = hit + along * (depth_s - kept * after_s)
        assert catch.lands_m(data.qpos, data.qvel) == pytest.approx(expected, abs=apart_m)
        assert -data.qvel[1] / along == pytest.approx(kept, abs=15 * tick_s)
        assert data.qpos[3] == pytest.approx(wall, abs=1e-6)


# --- The cup, and how far it gets


@given(displacement=st.floats(-0.15, 0.15), tick_s=st.sampled_from([0.005, 0.002, 0.001]))
@settings(max_examples=20)
def test_the_cup_goes_at_full_speed_and_then_ever_slower(displacement, tick_s):
    task = make_task("catch", tick_s)
    data = mujoco.MjData(task.model)
    data.ctrl[:] = displacement
    x = 0.0
    for _ in range(round(0.3 / tick_s)):
        mujoco.mj_step(task.model, data)
        share = 1 - np.exp(-tick_s / 0.02)  # of the rest of the way, at most 1 m/s
        x += np.clip(share * (displacement - x), -1.0 * tick_s, 1.0 * tick_s)
        assert data.qpos[0] == pytest.approx(x, abs=1e-7)


def farthest_m(flight_ticks, **options):
    """The farthest that any sequence of full displacements and rests gets the cup."""
    task = TaskVectorEnv("catch", 1, threads=1, **options)
    steps = -(-flight_ticks // task.timing.shortest_period_ticks)
    sequences = np.array(list(itertools.product([0, 1, 2], repeat=steps)))
    env = TaskVectorEnv("catch", len(sequences), threads=1, actions=3, **options)
    env.reset(seed=0)
    env.plant.qpos[:, 0] = env.plant.target[:, 0] = 0.0
    env.plant.qpos[:, 2] = 50.0  # a ball that stays up
    for k in range(steps):
        env.step(sequences[:, k])
    return env.plant.ending._trail[:, flight_ticks, 0].max()


@pytest.mark.parametrize("latency_s", [0.05, 0.1, 0.15])
@pytest.mark.parametrize("flight_s", [0.6, 0.7])
def test_concurrent_reach_is_that_of_the_best_sequence_of_actions(flight_s, latency_s):
    found = farthest_m(round(flight_s / 0.005), latency=latency_s, period=0.1)
    assert found == pytest.approx(catch.reach_m(flight_s, latency_s, holds=False), abs=1e-6)
    assert found == pytest.approx(flight_s - latency_s, abs=1e-6)


@pytest.mark.parametrize("flight_s", [0.6, 0.675, 0.75])
def test_hold_reaches_no_farther_by_any_sequence_at_any_period(flight_s):
    """Of periods that make sense of the flight; the best of them gets about as far as it can."""
    bound = catch.reach_m(flight_s, 0.1, holds=True)
    found = {
        period_ms: farthest_m(
            round(flight_s / 0.005), mode="hold", latency=0.1, period=period_ms / 1000
        )
        for period_ms in (50, 75, 100, 115, 125, 150, 200, 300, 500)
    }
    assert max(found.values()) <= bound + 1e-9
    assert max(found.values()) >= bound - 0.06
    moving = sum(np.clip(flight_s - start, 0, 0.1) for start in (0.1, 0.3, 0.5, 0.7))
    assert found[100] == pytest.approx(moving, abs=1e-6)


def test_half_of_the_throws_are_beyond_hold_and_all_are_within_reach():
    rng, task = np.random.default_rng(0), make_task("catch")
    beyond = []
    for _ in range(2000):
        (cup, x, z), (_, along, rise) = task.initial(rng)
        rise -= G * 0.005 / 2
        flight_s = (rise + np.sqrt(rise**2 + 2 * G * z)) / G
        away = abs(x + along * flight_s - cup)
        # Two or three decisions of 0.15 m, or what 100 ms each of thinking leave of the flight.
        held = max(min(0.15 * n, flight_s - 0.1 * n) for n in range(1, 9))
        beyond.append(away - 0.05 > held)
        assert 0.6 <= flight_s <= 0.8
        assert away <= flight_s - 0.1 - 0.05 + 1e-9
        assert beyond[-1] or away <= held + 1e-9
    assert np.mean(beyond) == pytest.approx(0.5, abs=0.035)


# --- Who catches: a policy that knows the ballistics and what is in flight


@pytest.mark.parametrize(
    ("options", "beyond", "within"),
    [
        ({"latency": 0.0}, 1.0, 1.0),  # the frozen world: an oracle
        ({"latency": 0.1}, 1.0, 1.0),
        ({"latency": 0.1, "mode": "hold"}, 0.0, 0.75),  # at 100 ms it reaches 0.3 to 0.4 m
    ],
)
def test_thinking_while_moving_catches_what_hold_cannot_reach(options, beyond, within):
    env = TaskVectorEnv("catch", 200, threads=1, actions="continuous", **options)
    env.reset(seed=7)
    found = []
    while len(found) < 200:
        *_, terminated, truncated, info = env.step(to_the_ball(env))
        assert not truncated.any()
        if terminated.any():
            final = info["final_info"]
            rows = [final[name][terminated] for name in ("beyond_hold", "success")]
            found += list(zip(*rows, strict=True))
    far, caught = np.array(found).T.astype(bool)
    assert caught[far].mean() == beyond
    assert caught[~far].mean() >= within


def test_a_catcher_that_does_not_know_what_is_in_flight_overshoots():
    """The same policy, counting from where the cup was seen."""
    env = TaskVectorEnv("catch", 200, threads=1, actions="continuous", latency=0.1)
    env.reset(seed=7)
    caught = []
    while len(caught) < 200:
        *_, terminated, _, info = env.step(to_the_ball(env, knows=False))
        if terminated.any():
            caught += info["final_info"]["success"][terminated].tolist()
    assert 0.1 < np.mean(caught) < 0.75


# --- The environment


@pytest.mark.parametrize("name", ["catch", "catch-bounce"])
def test_an_episode_ends_at_the_capture_after_the_ball_is_down(name):
    """Measures, reward and the state at the rim against plain MuJoCo."""
    env = TaskVectorEnv(name, 3, threads=1, latency=0.1, autoreset_mode="Disabled")
    env.reset(seed=5)
    task, starts = env.task, (env.plant.qpos.copy(), env.plant.qvel.copy())
    moves = np.random.default_rng(0).integers(5, size=(10, 3))
    over, totals, final = np.zeros(3, bool), np.zeros(3), [None] * 3
    for k in range(10):
        _, reward, terminated, truncated, info = env.step(moves[k])
        totals += np.where(over, 0, reward)
        for i in np.flatnonzero(terminated & ~over):
            final[i] = k, {name: info[name][i] for name in info if not name.startswith("_")}
        over |= terminated
        assert not truncated.any()
        if over.any():
            break
    (i, *_) = np.flatnonzero(over)
    last, measured = final[i]
    data = mujoco.MjData(task.model)
    data.qpos[:], data.qvel[:] = starts[0][i], starts[1][i]
    data.ctrl[:] = data.qpos[0]
    places = [data.qpos[0]]
    for tick in itertools.count():
        if tick % 20 == 0 and tick >= 20:  # 100 ms of latency: the decision of a period ago
            data.ctrl[:] = data.qpos[0] + (moves[tick // 20 - 1, i] / 2 - 1) * 0.15
        mujoco.mj_step(task.model, data)
        places.append(data.qpos[0])
        if data.qpos[2] <= 0:
            break
    assert last == tick // 20
    assert measured["duration_s"] == pytest.approx((tick + 1) * 0.005)
    since = data.qpos[2] / data.qvel[2]
    missed = abs(data.qpos[1] - data.qpos[0] - since * (data.qvel[1] - data.qvel[0]))
    assert measured["reach_error_m"] == pytest.approx(missed, abs=1e-9)
    assert measured["success"] == (missed <= 0.05)
    speed = np.hypot(data.qvel[1] - data.qvel[0], data.qvel[2])
    assert measured["impact_speed_m_s"] == pytest.approx(speed)
    third = np.diff(places[::4], n=3) / 0.02**3
    assert measured["jerk"] == pytest.approx(np.sqrt(np.mean(third**2)))
    paid = 500 * (missed <= 0.05) + 500 * 0.1 ** ((missed / 0.25) ** 2)
    assert totals[i] == pytest.approx(paid)


def test_a_caught_ball_is_paid_in_full_and_ends_the_episode():
    env = gymnasium.make("midstride/Catch-v0", actions=3)
    env.reset(seed=0)
    plant = env.unwrapped.vector.plant
    plant.qpos[0], plant.qvel[0] = [0.2, 0.2, 0.05], [0, 0, 0]
    plant.target[0] = 0.2
    _, reward, terminated, truncated, info = env.step(1)
    assert (terminated, truncated) == (True, False)
    assert reward == pytest.approx(1000)
    assert info["success"]
    assert info["duration_s"] == pytest.approx(0.1)
    assert info["impact_speed_m_s"] == pytest.approx(np.sqrt(2 * G * 0.05), rel=0.06)


@pytest.mark.parametrize("name", ["catch", "catch-bounce"])
@pytest.mark.parametrize("options", [{}, {"mode": "hold"}, {"period": 0.05}])
def test_the_same_seed_gives_the_same_throws_and_numbers(name, options):
    lived = []
    for _ in range(2):
        env = TaskVectorEnv(name, 4, threads=1, latency=0.1, **options)
        rows = [env.reset(seed=3)[0]]
        env.action_space.seed(1)
        for _ in range(30):
            observation, reward, *_ = env.step(env.action_space.sample())
            rows += [observation, reward]
        lived.append(b"".join(row.tobytes() for row in rows))
    assert lived[0] == lived[1]


def test_hold_and_concurrent_are_thrown_the_same_balls():
    starts = [
        TaskVectorEnv("catch", 5, latency=0.1, **options).reset(seed=11)[0]
        for options in ({}, {"mode": "hold"}, {"period": 0.05})
    ]
    assert (starts[0] == starts[1]).all()
    assert (starts[0] == starts[2]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["catch", "catch-bounce"])
def test_stable_over_100_000_random_steps(name):
    env = TaskVectorEnv(name, 100, latency=0.1, period=0.05)
    env.reset(seed=0)
    env.action_space.seed(0)
    episodes = 0
    for step in range(1000):
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert np.isfinite(observation).all()
        assert (np.abs(observation) < 20).all()
        assert ((reward >= 0) & (reward <= 1000)).all()
        assert not truncated.any()
        episodes += int(terminated.sum())
        if step == 200:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert 100_000 / 16 < episodes < 100_000 / 12
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 5_000  # kB

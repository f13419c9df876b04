"""Catch against closed forms, plain MuJoCo and a search over all sequences of actions."""

import itertools

import gymnasium
import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstride.sim.camera import Look
from midstride.tasks import catch
from midstride.tasks.catch_scripted import to_the_ball
from midstride.tasks.env import TaskVectorEnv
from midstride.tasks.settings import make_task
from tests.helpers import resident_kb

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


def fallen(place, velocity, per_m, dt=1e-4):
    """When and where a ball comes down that the air slows down, by Heun's method: x + i z."""
    t = 0.0
    while place.imag > 0 or velocity.imag > 0:
        first = -1j * G - per_m * abs(velocity) * velocity
        there = velocity + first * dt
        second = -1j * G - per_m * abs(there) * there
        place += (velocity + there) / 2 * dt
        velocity += (first + second) / 2 * dt
        t += dt
    since = place.imag / velocity.imag
    return t - since, place.real - since * velocity.real


@pytest.mark.parametrize(("tick_s", "apart_m"), [(0.005, 0.006), (0.001, 0.0015)])
def test_balls_in_air_come_down_where_an_integration_has_it(tick_s, apart_m):
    """The flight of MuJoCo's ball, and where the throw was meant to come down."""
    task = catch.drag.make(tick_s)
    for seed in range(6):
        data = thrown(task, seed)
        (_, x, z), (_, along, rise) = data.qpos.copy(), data.qvel.copy()
        ticks = until_down(task, data)
        velocity = complex(along, rise)  # of half a tick earlier
        velocity -= (1j * G + 0.2 * abs(velocity) * velocity) * tick_s / 2
        lasts_s, lands = fallen(complex(x, z), velocity, 0.2)
        assert catch.lands_m(data.qpos, data.qvel) == pytest.approx(lands, abs=apart_m)
        assert ticks * tick_s == pytest.approx(lasts_s, abs=1.5 * tick_s)
        straight = make_task("catch", tick_s).initial(np.random.default_rng(seed))
        still = straight[0][1] + straight[1][1] * catch.flight_s(
            straight[0][2], straight[1][2], tick_s
        )
        assert lands == pytest.approx(still, abs=1e-3)  # the same places, thrown harder
        assert abs(along) > abs(straight[1][1])


def test_the_air_slows_the_ball_down_and_not_the_cup():
    tasks = [make_task(name) for name in ("catch", "catch-drag")]
    worlds = [thrown(task, 0) for task in tasks]
    for task, data in zip(tasks, worlds, strict=True):
        data.qvel[1:] = 3, 4
        data.ctrl[:] += 0.15
        for _ in range(100):
            mujoco.mj_step(task.model, data)
    assert worlds[0].qpos[0] == pytest.approx(worlds[1].qpos[0], abs=1e-9)
    assert worlds[0].qvel[1] == pytest.approx(3)
    assert worlds[1].qvel[1] < 2.5


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


@pytest.mark.parametrize(("tick_s", "apart_m"), [(0.005, 0.045), (0.001, 0.007)])
def test_balls_bounce_off_the_wall_as_the_closed_form_has_it(tick_s, apart_m):
    """Where they come down, and how fast they go then; the finer the ticks the nearer."""
    task = catch.bounce.make(tick_s)
    kept, contact_s, depth_s = catch.bounced()
    met = 0
    for seed in range(40):
        data = thrown(task, seed)
        (_, x, z, wall), (_, along, rise, _) = data.qpos.copy(), data.qvel.copy()
        until_down(task, data)
        lasts_s = catch.flight_s(z, rise, tick_s)
        if abs(wall) > 5:  # nothing is in its way
            assert data.qvel[1] == pytest.approx(along)
            expected = x + along * lasts_s
            assert catch.lands_m(data.qpos, data.qvel) == pytest.approx(expected, abs=1e-4)
            continue
        met += 1
        hit = wall - np.sign(along) * 0.05
        hit_s = (hit - x) / along
        assert hit_s == pytest.approx(lasts_s - 0.8)
        expected = hit + along * (depth_s - kept * (0.8 - contact_s))
        assert catch.lands_m(data.qpos, data.qvel) == pytest.approx(expected, abs=apart_m)
        assert -data.qvel[1] / along == pytest.approx(kept, abs=15 * tick_s)
        assert data.qpos[3] == pytest.approx(wall, abs=1e-6)
        assert 2 * catch.apart_m(along) == pytest.approx(abs(x + along * lasts_s - expected))
    assert 10 < met < 30


def test_ticks_that_do_not_resolve_a_bounce_are_refused():
    with pytest.raises(ValueError, match=r"bounce lasts 29 ?ms.* 10 ?ms.* at most 5 ?ms"):
        TaskVectorEnv("catch-bounce", 1, tick=0.01)
    TaskVectorEnv("catch", 1, tick=0.01)


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
    assert max(found.values()) >= bound - 0.025
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


# --- Bounces: two places, of which hold reaches one


def pairs(n, mode, period, latency=0.1):
    """Throws, and the same once more with the wall where there was none and the other way round."""
    env = TaskVectorEnv(
        "catch-bounce", 2 * n, threads=1, actions="continuous",
        latency=latency, mode=mode, period=period,
    )  # fmt: skip
    env.reset(seed=3)
    qpos, qvel = env.plant.qpos, env.plant.qvel
    for part in (qpos, qvel):
        part[n:] = part[:n]
    side, lasts_s = np.sign(qvel[:, 1]), catch.flight_s(qpos[:, 2], qvel[:, 2], 0.005)
    hits = qpos[:, 1] + qvel[:, 1] * (lasts_s - 0.8)
    there, away = hits + side * 0.05, -side * 10
    assert ((qpos[:n, 3] == away[:n]) | np.isclose(qpos[:n, 3], there[:n])).all()
    qpos[:n, 3], qpos[n:, 3] = there[:n], away[n:]
    env.plant.target[:] = qpos[:, :1]
    env.plant.ending.begin(np.arange(2 * n), qpos, qvel)
    far = catch.apart_m(qvel[:n, 1]) > 0.45 + 0.05  # three decisions of 15 cm in 0.8 s
    kept, contact_s, depth_s = catch.bounced()
    bounced = hits + qvel[:, 1] * (depth_s - kept * (0.8 - contact_s))
    return env, far, (qpos[:, 1] + qvel[:, 1] * lasts_s, bounced), lasts_s - 0.8 + contact_s


def caught_of(mode, period, aim, latency=0.1, n=150):
    """Of each throw and of its twin, by one that aims between the places until it knows which."""
    env, far, (without, bounced), known_s = pairs(n, mode, period, latency)
    aims = (1 - aim) * without + aim * bounced
    over, caught, beyond = (np.zeros(2 * n, bool) for _ in range(3))
    while not over.all():
        qpos, qvel = env.plant.qpos, env.plant.qvel
        waits = env.flight.now * 0.005 < known_s
        as_it_is = qpos.copy(), qvel.copy()
        qpos[waits, 1], qvel[waits, 1] = aims[waits], 0
        actions = to_the_ball(env)
        qpos[:], qvel[:] = as_it_is
        *_, terminated, truncated, info = env.step(actions)
        new = terminated & ~over
        if new.any():
            final = info["final_info"]
            caught[new], beyond[new] = final["success"][new], final["beyond_hold"][new]
        assert not (truncated & ~over).any()
        over |= terminated
    assert (beyond == np.tile(far, 2)).all()
    return far, caught[:n], caught[n:]


@pytest.mark.parametrize("options", [("concurrent", 0.1), ("concurrent", 0.05)])
def test_whoever_waits_in_the_middle_and_thinks_while_moving_reaches_both_places(options):
    far, *caught = caught_of(*options, aim=0.5)
    assert np.mean(far) == pytest.approx(0.5, abs=0.1)
    assert np.all(caught)


@pytest.mark.parametrize("aim", [0, 0.25, 0.5, 1])
@pytest.mark.parametrize("period", [0.05, 0.1, 0.15, 0.2])
def test_whoever_holds_reaches_one_of_the_places_at_most(period, aim):
    """Wherever it aims beforehand; in the middle, where it cannot lose all, it catches neither."""
    far, with_wall, without = caught_of("hold", period, aim, n=60)
    assert not (with_wall & without)[far].any()
    if aim == 0.5:
        assert not (with_wall | without)[far].any()
        assert (with_wall & without)[~far].mean() > 0.5
    elif period == 0.15:
        assert (with_wall | without)[far].mean() > 0.5  # it can have one of them


@pytest.mark.parametrize("period", [0.1, 0.15])
def test_no_sequence_of_actions_of_hold_catches_both(period):
    """All sequences of full displacements and rests, equal until a capture that can tell."""
    env, far, *_ = pairs(40, "hold", period)
    interval = env.timing.shortest_period_ticks
    steps = -(-round(1.15 / 0.005) // interval)
    sequences = np.array(list(itertools.product([0, 1, 2], repeat=steps)))
    n = len(sequences)
    for i in np.flatnonzero(far)[:3]:
        many = TaskVectorEnv(
            "catch-bounce", 2 * n, threads=1, actions=3,
            latency=0.1, mode="hold", period=period,
        )  # fmt: skip
        many.reset(seed=0)
        for k in range(2):
            rows = slice(k * n, (k + 1) * n)
            many.plant.qpos[rows] = env.plant.qpos[i + 40 * k]
            many.plant.qvel[rows] = env.plant.qvel[i + 40 * k]
        many.plant.target[:] = many.plant.qpos[:, :1]
        many.plant.ending.begin(np.arange(2 * n), many.plant.qpos, many.plant.qvel)
        lasts_s = catch.flight_s(env.plant.qpos[i, 2], env.plant.qvel[i, 2], 0.005)
        blind = int((lasts_s - 0.8) / 0.005 / interval) + 1  # captures before the wall
        caught, over = np.zeros(2 * n, bool), np.zeros(2 * n, bool)
        for k in range(steps):
            *_, terminated, _, info = many.step(np.tile(sequences[:, k], 2))
            if terminated.any():
                caught |= terminated & ~over & info["final_info"]["success"]
            over |= terminated
        assert over.all()
        begun = [{tuple(s[:blind]) for s in sequences[part]} for part in np.split(caught, 2)]
        assert not begun[0] & begun[1]
        assert begun[0] | begun[1]


def test_nothing_tells_of_the_wall_before_the_bounce():
    """Neither the state nor pictures."""
    for options in ({}, {"observation": "image", "frames": 1}):
        env = TaskVectorEnv("catch-bounce", 2, threads=1, latency=0.1, **options)
        env.reset(seed=0)
        qpos, qvel = env.plant.qpos, env.plant.qvel
        qpos[:], qvel[:] = qpos[0], qvel[0]
        lasts_s = catch.flight_s(qpos[0, 2], qvel[0, 2], 0.005)
        side = np.sign(qvel[0, 1])
        qpos[0, 3] = qpos[0, 1] + qvel[0, 1] * (lasts_s - 0.8) + side * 0.05
        qpos[1, 3] = -side * 10
        env.plant.target[:] = qpos[:, :1]
        same = []
        for _ in range(6):
            observation = env.step(np.full(2, 2))[0]
            parts = observation.values() if isinstance(observation, dict) else [observation]
            same.append(all((part[0] == part[1]).all() for part in parts))
        assert same[:2] == [True, True]
        assert not same[-1]


# --- Who catches: a policy that knows the ballistics and what is in flight


@pytest.mark.parametrize("task", ["catch", "catch-drag"])
@pytest.mark.parametrize(
    ("options", "beyond", "within"),
    [
        ({"latency": 0.0}, 1.0, 1.0),  # the frozen world: an oracle
        ({"latency": 0.1}, 1.0, 1.0),
        ({"latency": 0.1, "mode": "hold"}, 0.0, 0.75),  # at 100 ms it reaches 0.3 to 0.4 m
        ({"latency": 0.1, "mode": "hold", "period": 0.15}, 0.0, 0.98),  # its best period
    ],
)
def test_thinking_while_moving_catches_what_hold_cannot_reach(task, options, beyond, within):
    env = TaskVectorEnv(task, 200, threads=1, actions="continuous", **options)
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


@pytest.mark.parametrize(
    ("options", "latency_s"),
    [
        ({"latency": 0.05}, 0.05),
        ({"latency": 0.2, "mode": "hold"}, 0.2),
        ({"latency": 0.0}, 0.1),  # what throws are drawn for
        ({"latency": "episode:50ms,200ms"}, 0.1),
    ],
)
def test_beyond_hold_is_at_the_latency_that_the_environment_has(options, latency_s):
    env = TaskVectorEnv("catch", 100, threads=1, **options)
    env.reset(seed=1)
    (cup, x, z), (_, along, rise) = env.plant.qpos.T.copy(), env.plant.qvel.T.copy()
    lasts_s = catch.flight_s(z, rise, 0.005)
    away = np.abs(x + along * lasts_s - cup)
    held = np.max([np.minimum(0.15 * n, lasts_s - latency_s * n) for n in range(1, 17)], axis=0)
    over, beyond = np.zeros(100, bool), np.zeros(100, bool)
    while not over.all():
        *_, terminated, _, info = env.step(np.full(100, 2))
        if terminated.any():
            beyond |= terminated & ~over & info["final_info"]["beyond_hold"]
        over |= terminated
    clear = np.abs(away - held - 0.05) > 1e-3
    assert (beyond == (away > held + 0.05))[clear].all()
    assert clear.sum() > 90


# --- The environment


@pytest.mark.parametrize("name", ["catch", "catch-drag", "catch-bounce"])
def test_an_episode_ends_at_the_capture_after_the_ball_is_down(name):
    """Measures, reward and the state at the rim against plain MuJoCo."""
    env = TaskVectorEnv(name, 3, threads=1, latency=0.1, autoreset_mode="Disabled")
    env.reset(seed=5)
    task, starts = env.task, (env.plant.qpos.copy(), env.plant.qvel.copy())
    moves = np.random.default_rng(0).integers(5, size=(12, 3))
    over, totals, final = np.zeros(3, bool), np.zeros(3), [None] * 3
    for k in range(12):
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


@pytest.mark.parametrize("name", ["catch", "catch-drag", "catch-bounce"])
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


@pytest.mark.parametrize("name", ["catch", "catch-drag", "catch-bounce"])
def test_the_ball_is_in_the_first_picture_and_in_all_others(name):
    env = TaskVectorEnv(name, 60, threads=1, observation="image", latency=0.1)
    env.reset(seed=0)
    model = env.task.model
    (ball,) = np.flatnonzero(model.geom_bodyid == model.body("ball").id)
    for _ in range(5):
        _, hits = env._pictures.camera.with_hits(env.plant.batch, None, Look())
        assert (hits.geom == ball).reshape(60, -1).any(axis=1).all()
        env.step(np.full(60, 2))


def test_hold_and_concurrent_are_thrown_the_same_balls():
    starts = [
        TaskVectorEnv("catch", 5, latency=0.1, **options).reset(seed=11)[0]
        for options in ({}, {"mode": "hold"}, {"period": 0.05})
    ]
    assert (starts[0] == starts[1]).all()
    assert (starts[0] == starts[2]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["catch", "catch-drag", "catch-bounce"])
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
            before = resident_kb()
    fewest, most = (22, 24) if name == "catch-bounce" else (12, 17)  # steps of an episode
    assert 100_000 / most < episodes < 100_000 / fewest
    assert resident_kb() - before < 5_000

"""Grasping from a belt: where the tray is, what is in it, and who can grasp it."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from hypothesis import given
from hypothesis import strategies as st

from midstride.measure.evaluate import Episode
from midstride.paper import conveyor_script
from midstride.report import grasp_film
from midstride.tasks.grasp import actions, scripted
from midstride.tasks.grasp.belt import Belt
from midstride.tasks.grasp.env import GraspVectorEnv
from midstride.tasks.grasp.settings import ConveyorSettings

TICK_S = 0.004


@pytest.fixture(autouse=True)
def midstride_is_registered():
    import midstride  # noqa: F401


def make(n=2, **options):
    usual = {"scenes": 8, "observation": "state", "latency": "100ms"}
    return GraspVectorEnv(n, 1, settings=ConveyorSettings(**{**usual, **options}))


@given(seed=st.integers(0, 10_000), speed=st.floats(0.05, 0.3), reverses=st.booleans())
def test_the_belt_turns_in_time_and_within_its_length(seed, speed, reverses):
    belt = Belt(1)
    belt.draw(0, np.random.default_rng(seed), (speed, speed), reverses)
    ticks = np.arange(5000)  # 20 s
    told = np.array([belt.speed_m_s(np.array([tick]))[0] for tick in ticks])
    assert np.abs(told) == pytest.approx(np.full(5000, speed))
    place = belt.begins[0] + np.concatenate([[0], np.cumsum(told * TICK_S)])
    assert np.abs(place).max() <= 0.2 + 1e-9
    turns = np.flatnonzero(np.diff(told)) + 1
    assert belt.until_change(np.array([0]))[0] == turns[0]
    apart_s = np.diff(turns) * TICK_S
    if reverses:
        assert (apart_s <= 2.0).all()
    else:
        assert apart_s == pytest.approx(np.full(len(apart_s), 0.4 / speed), abs=3 * TICK_S)


def test_the_tray_goes_as_it_is_told_and_takes_along_what_is_in_it():
    """At 4 m/s^2 to its speed, then evenly; turning takes a tenth of a second."""
    env = make(8, belt_low=0.2, belt_high=0.2)
    env.reset(seed=4)
    world, tray = env.world, env.world.places.tray
    y = world.places.object_qpos[0, 1]
    start, begins = world.qpos[:, y] - world.qpos[:, tray], world.qpos[:, tray].copy()
    assert begins == pytest.approx(world.belt.begins)
    still = np.zeros((8, actions.SIZE))
    place, speed, now = begins.copy(), np.zeros(8), 0
    for _ in range(15):
        env.step(still)
        for _ in range(25):
            told = world.belt.speed_m_s(np.full(8, now))
            speed += np.clip(told - speed, -4 * TICK_S, 4 * TICK_S)
            place += speed * TICK_S
            now += 1
        assert world.qpos[:, tray] == pytest.approx(place, abs=0.004)
        inside = world.qpos[:, y] - world.qpos[:, tray]
        moved = np.sort(np.abs(inside - start))
        assert moved[3] < 0.005  # what lies flat does not slip
        assert moved[-1] < 0.06  # what is round rolls a little
    assert np.abs(world.qpos[:, tray] - begins).max() > 0.02


def test_when_observations_are_taken_changes_nothing_on_the_belt():
    trays = []
    for period, steps in (("100ms", 12), ("60ms", 20)):
        env = make(2, period=period, latency="40ms", belt_low=0.1, belt_high=0.3)
        env.reset(seed=1)
        for _ in range(steps):
            env.step(np.zeros((2, actions.SIZE)))
        trays.append(env.world.qpos[:, env.world.places.tray].copy())
    assert trays[0] == pytest.approx(trays[1], abs=1e-9)


def caught(mode, latency, speed, ahead_s, n=16):
    """Of the first episode of each environment."""
    steps = {"max_steps": 60 if mode == "concurrent" else 20}
    env = make(n, mode=mode, latency=latency, belt_low=speed, belt_high=speed, scenes=16, **steps)
    env.reset(seed=0)
    found = np.full(n, -1.0)
    while (found < 0).any():
        action = scripted.privileged(env.world, env.next_latency_ticks(), ahead_s=ahead_s)
        *_, terminated, truncated, info = env.step(action)
        first = (terminated | truncated) & (found < 0)
        if first.any():
            found[first] = info["final_info"]["success"][first]
    return found.mean()


def test_thinking_while_moving_grasps_from_the_belt_and_hold_does_not():
    """A script, at 0.2 m/s; on a belt that stands both grasp everything."""
    assert caught("concurrent", "100ms", 0.2, ahead_s=0.1) >= 0.9
    assert caught("hold", "100ms", 0.2, ahead_s=0.4) <= 0.3
    assert caught("hold", "100ms", 0.0, ahead_s=0.4) >= 0.9


@pytest.mark.parametrize("observation", ["state", "image"])
@pytest.mark.parametrize("mode", ["concurrent", "hold"])
@pytest.mark.filterwarnings("ignore:.*A Box observation space m..imum value")
def test_gymnasium_contract(observation, mode):
    env = gymnasium.make(
        "midstride/ConveyorGrasp-v0", observation=observation, mode=mode, scenes=4, image_size=16
    )
    check_env(env.unwrapped, skip_render_check=True)


def test_the_belts_speed_is_observed():
    env = make(2, belt_low=0.15, belt_high=0.15)
    first, _ = env.reset(seed=0)
    assert env.columns[-1] == "belt"
    assert first[:, -1] == pytest.approx([0, 0], abs=1e-5)
    observation, *_ = env.step(np.zeros((2, actions.SIZE)))
    assert np.abs(observation[:, -1]) == pytest.approx([0.5, 0.5], abs=0.02)
    image = make(2, observation="image", image_size=16)
    assert image.columns == ("opening", "height", "belt")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"belt_low": 0.3, "belt_high": 0.1}, "slowest speed .0.3 m/s. must not be above"),
        ({"belt_high": 0.5}, "belt_high must be"),
        (
            {"mode": "blocking"},
            "concurrent or hold .blocking, .* is hold at latency 0., got 'blocking'",
        ),
        ({"mode": "hold", "period": "100ms"}, "in hold mode an action takes the time it takes"),
        ({"mode": "hold", "latency": "lost:0.1:100ms"}, "so none can be lost"),
    ],
)
def test_bad_settings(options, message):
    with pytest.raises(ValueError, match=message):
        ConveyorSettings(**options)


def test_the_same_seed_gives_the_same_numbers():
    lived = []
    for _ in range(2):
        env = make(2)
        rows = [env.reset(seed=9)[0]]
        env.action_space.seed(0)
        rows += [env.step(env.action_space.sample())[0] for _ in range(8)]
        lived.append(b"".join(row.tobytes() for row in rows))
    assert lived[0] == lived[1]


def test_the_table_of_the_conveyor_has_a_row_for_each_robot():
    def episodes(*grasped):
        return [
            Episode(0.0, 5, 1.0, 0.1, {"success": float(g), "duration_s": 1.0}) for g in grasped
        ]

    found = {
        ("hold", 0.0): episodes(1, 1), ("hold", 0.2): episodes(0, 1),
        ("concurrent, knowing", 0.0): episodes(1, 1), ("concurrent, knowing", 0.2): episodes(1, 1),
    }  # fmt: skip
    first, second = conveyor_script.table_rows(found)
    assert first == {"robot": "hold", "0 m/s": "100% (34% to 100%)", "0.2 m/s": "50% (9% to 91%)"}
    assert second["0.2 m/s"].startswith("100%")
    assert len(conveyor_script.plot(found).axes[0].containers) == 2


def test_an_episode_is_filmed_with_its_belt():
    env = make(1, belt_low=0.3, belt_high=0.3, max_steps=6)
    env.autoreset_mode = AutoresetMode.DISABLED
    episode = grasp_film.play(env, lambda seen, envs: np.zeros((1, actions.SIZE)), seed=2)
    frames = grasp_film.pictures(episode, env, threads=1)
    assert len(frames) > 3
    moved = np.abs(frames[-1].astype(int) - frames[0]).max(axis=2) > 20
    assert moved.mean() > 0.002  # of the picture: the tray

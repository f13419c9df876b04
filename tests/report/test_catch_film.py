"""The film of Catch: what is written down is what happens, and watching changes nothing."""

import numpy as np
import pytest

from midstride.cli import main
from midstride.report import catch_film
from midstride.tasks.catch_scripted import to_the_ball
from midstride.tasks.env import TaskVectorEnv


def envs_of(**options):
    return TaskVectorEnv("catch", 1, 1, "Disabled", latency=0.1, actions="continuous", **options)


@pytest.mark.parametrize("mode", ["concurrent", "hold"])
def test_a_throw_is_written_down_every_20_ms(mode):
    throw = catch_film.play(envs_of(mode=mode), lambda row, envs: to_the_ball(envs), 3, "")
    assert np.diff(throw.times_s) == pytest.approx(np.full(len(throw.times_s) - 1, 0.02))
    assert throw.times_s[0] == 0
    unwatched = envs_of(mode=mode)
    unwatched.reset(seed=3)
    over = False
    while not over:
        _, _, terminated, _, info = unwatched.step(to_the_ball(unwatched))
        over = terminated[0]
    assert (throw.places[-1] == unwatched.plant.qpos[0]).all()
    assert throw.missed_m == info["reach_error_m"][0]
    assert throw.end_s == info["duration_s"][0]
    moving_s = sum(seconds for _, seconds in throw.motions)
    thinking_s = sum(seconds for _, seconds in throw.thoughts)
    whole_s = throw.times_s[-1]
    assert moving_s == pytest.approx(whole_s - (thinking_s if mode == "hold" else 0.1))


def test_a_film_shows_the_ball_coming_down_and_says_what_came_of_it():
    envs = envs_of()
    throw = catch_film.play(envs, lambda row, envs: to_the_ball(envs), 3, "knows")
    frames = catch_film.pictures(throw, envs)
    assert len(frames) == int(throw.end_s / 0.02 + 1e-6) + 1
    red, green, blue = (frames[..., k] for k in range(3))
    orange = (red > 150) & (green > 110) & (green < 180) & (blue < 90)  # the ball and its trail
    lowest = [np.flatnonzero(one.any(axis=1)).max(initial=0) for one in orange]
    assert lowest[-1] > lowest[4]  # rows count downwards
    film = catch_film.film([(throw, frames), (throw, frames)])
    assert film.shape[2] == 2 * frames.shape[2]
    assert len(film) > len(frames)
    assert (film[0, :44] != film[-1, :44]).any()  # the verdict


@pytest.mark.slow
def test_catchers_are_filmed_side_by_side(tmp_path):
    main(["watch", "catch", "--episodes", "1", "--output", str(tmp_path)])
    assert (tmp_path / "catch.mp4").stat().st_size > 10_000
    assert (tmp_path / "catch.png").exists()

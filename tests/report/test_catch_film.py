"""The film of Catch: what is written down is what happens, and watching changes nothing."""

import numpy as np
import pytest
from rich.console import Console

from midstride.cli import main, watch
from midstride.report import catch_film
from midstride.tasks.catch_scripted import to_the_ball
from midstride.tasks.env import TaskVectorEnv
from midstride.tasks.settings import TaskSettings


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


ENVIRONMENTS = {
    "hold-100-ms": {"latency": "100ms", "mode": "hold"},
    "unaware-100-ms": {"latency": "100ms"},
    "knowing-what-is-in-flight-100-ms": {
        "latency": "100ms", "knowledge": ("previous_action", "selection_time"),
    },
}  # fmt: skip


@pytest.fixture
def trained(tmp_path, monkeypatch):
    """Folders of trainings, whose policies always do the same; what they say they were made in."""
    environments = {arm: {"task": "catch", **one} for arm, one in ENVIRONMENTS.items()}
    for arm in environments:
        (tmp_path / arm / "0").mkdir(parents=True)
        (tmp_path / arm / "0" / "config.json").write_text("{}")
    monkeypatch.setattr("midstride.policies.load", lambda folder: lambda row: np.array([4]))
    monkeypatch.setattr(
        "midstride.tasks.registry.environment_of",
        lambda folder, trust: TaskSettings.from_dict(environments[folder.parent.name]),
    )
    return tmp_path, environments


def test_trained_catchers_are_thrown_the_same_balls_beyond_the_reach_of_hold(trained, monkeypatch):
    folder, _ = trained
    shown = []
    monkeypatch.setattr(catch_film, "pictures", lambda throw, envs: throw)
    monkeypatch.setattr(
        catch_film,
        "film",
        lambda throws: shown.append([throw for throw, _ in throws]) or np.zeros((2, 8, 8, 3)),
    )
    monkeypatch.setattr("midstride.report.film.save_video", lambda *args: None)
    monkeypatch.setattr("midstride.report.film.save_image", lambda *args: None)
    main(["watch", "catch", "--trained", str(folder), "--episodes", "3"])
    assert len(shown) == 3
    for throws in shown:
        assert [throw.title.split()[0] for throw in throws] == ["hold:", "unaware", "knows"]
        assert all(throw.title.endswith("(DQN)") and throw.beyond_hold for throw in throws)
        assert (throws[0].places[0] == throws[2].places[0]).all()
        assert throws[1].places[-1][0] > throws[1].places[0][0] + 0.3  # always to the right


@pytest.mark.parametrize(
    ("arm", "changes", "message"),
    [
        ("hold-100-ms", {"task": "cartpole"}, "its task is cartpole, and not catch"),
        ("hold-100-ms", {"task": "catch-bounce"}, "its task is catch-bounce, and not catch"),
        ("hold-100-ms", {"mode": "concurrent"}, "it has mode concurrent, .*, and not hold"),
        ("unaware-100-ms", {"latency": "50ms"}, "latency 50ms and no knowledge, and not"),
        ("unaware-100-ms", {"latency": "episode:50ms,100ms"}, "latency episode:50ms,100ms"),
        ("unaware-100-ms", {"knowledge": ("vector_to_go",)}, "some knowledge, and not .* none"),
        ("knowing-what-is-in-flight-100-ms", {"knowledge": ()}, "no knowledge, and not .* some"),
    ],
)
def test_a_training_that_is_not_what_its_title_says_is_not_filmed(trained, arm, changes, message):
    folder, environments = trained
    environments[arm] |= changes
    options = watch.CatchOptions(trained=folder)
    with pytest.raises(ValueError, match=message):
        watch.film_catch(options, Console(quiet=True))


def test_without_a_training_nothing_is_filmed(tmp_path):
    with pytest.raises(ValueError, match=r"hold-100-ms has no training: run midstride reproduce"):
        watch.film_catch(watch.CatchOptions(trained=tmp_path), Console(quiet=True))


@pytest.mark.slow
def test_catchers_are_filmed_side_by_side(tmp_path):
    main(["watch", "catch", "--episodes", "1", "--output", str(tmp_path)])
    assert (tmp_path / "catch.mp4").stat().st_size > 10_000
    assert (tmp_path / "catch.png").exists()

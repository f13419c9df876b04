"""Films of any environment, without a display."""

import subprocess
import sys

import imageio.v3
import mujoco
import numpy as np
import pytest
from rich.console import Console

from midstride.envs.wrapped import WrappedEnvs
from midstride.learn.agents import Training
from midstride.learn.train import train
from midstride.report import grasp_film
from midstride.report.film import film, film_run, median_seed, side_by_side, titled
from midstride.sim.follow import Follower
from midstride.tasks.registry import environment_from

ROBOTS = (
    "gym:HalfCheetah-v5", "gym:Humanoid-v5", "gym:InvertedPendulum-v5", "gym:Reacher-v5",
    "dmc:cheetah/run", "dmc:cartpole/swingup",
)  # fmt: skip


class Still:
    """A policy that does the same thing always."""

    description: dict = {}  # noqa: RUF012

    def __init__(self, environment):
        envs = environment.make(1)
        self.action = np.zeros_like(np.asarray([envs.single_action_space.sample()]))
        self.observation_size = envs.single_observation_space.shape[0]

    def __call__(self, observation):
        return self.action

    def reset(self, which=None):
        pass


def robot_of(environment):
    envs = environment.make(1)
    envs.reset(seed=0)
    envs.step(np.asarray([envs.single_action_space.sample()]))
    return envs.envs[0].unwrapped


@pytest.mark.parametrize("task", ROBOTS)
def test_the_robot_is_well_in_the_picture(task):
    """Of the pixels that it takes: none at the edge, and not too few of them."""
    robot = robot_of(environment_from({"task": task}))
    model, data = robot.model, robot.data
    follower = Follower(model)
    with_robot = follower.picture(data).astype(int)
    moving = model.body_weldid[model.geom_bodyid] != 0
    model.geom_rgba[moving, 3] = 0
    model.geom_matid[moving] = -1
    seen = (np.abs(with_robot - follower.picture(data)) > 0).any(axis=2)
    ys, xs = np.nonzero(seen)
    height, width = seen.shape
    assert ys.min() > 0
    assert ys.max() < height - 1
    assert xs.min() > 0
    assert xs.max() < width - 1
    assert max(np.ptp(ys) / height, np.ptp(xs) / width) > 0.3


def test_looking_changes_nothing():
    robot = robot_of(environment_from({"task": "gym:Humanoid-v5"}))
    before = robot.data.xipos.copy()
    follower = Follower(robot.model)
    follower.picture(robot.data)
    assert (robot.data.xipos == before).all()
    robot.data.qpos[0] += 5  # it is followed wherever it goes
    mujoco.mj_kinematics(robot.model, robot.data)
    assert follower.picture(robot.data).std() > 10


@pytest.mark.parametrize(
    ("task", "fps"), [("gym:HalfCheetah-v5", 20), ("dmc:cartpole/swingup", 25), ("cartpole", 20)]
)
def test_a_film_is_as_long_as_the_time_it_shows(task, fps):
    environment = environment_from({"task": task})
    shares = []
    frames, rate = film(Still(environment), environment, 0.8, 0, shares.append)
    assert rate == pytest.approx(fps)
    assert len(frames) == pytest.approx(0.8 * fps, abs=1)
    assert frames.shape[1:] == (240, 320, 3)
    assert (frames[0] != frames[-1]).any()
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_the_last_picture_is_of_the_episode_that_ended():
    """A pole that fell is shown fallen, not upright again."""
    environment = environment_from({"task": "gym:InvertedPendulum-v5"})
    policy = Still(environment)
    policy.action = policy.action + 3
    frames, _ = film(policy, environment, 20, 0)
    assert 1 < len(frames) < 100
    moved = [np.abs(frame.astype(int) - frames[0]).sum() for frame in frames]
    assert moved[-1] == max(moved)


def trained(folder, task="gym:InvertedPendulum-v5"):
    training = Training.of(
        task, steps=200, num_envs=2, hidden=(8,), learning_starts=100, batch_size=8,
        evaluate_every=200, evaluation_episodes=1,
    )  # fmt: skip
    train(training, folder)
    return folder


def test_a_run_is_filmed_or_it_is_said_why_not(tmp_path, monkeypatch, capsys):
    run = trained(tmp_path / "run")
    assert film_run(run, tmp_path / "video", 2, 0, Console())
    assert len(imageio.v3.imread(tmp_path / "video.mp4")) > 1
    assert imageio.v3.imread(tmp_path / "video.png").shape == (240, 320, 3)

    def broken(self):
        raise RuntimeError("no [picture] today")

    monkeypatch.setattr(WrappedEnvs, "render", broken)
    capsys.readouterr()
    assert not film_run(run, tmp_path / "other", 1, 0, Console(width=200))
    assert "is not filmed: no [picture] today" in capsys.readouterr().out
    assert not (tmp_path / "other.mp4").exists()


def test_the_median_episode_counts_failures_as_the_longest(monkeypatch):
    ends = {5: (True, 3.0), 6: (False, 1.0), 7: (True, 2.0), 8: (True, 2.5), 9: (False, 6.0)}
    resets = []

    def play(envs, choose, seed):
        success, end_s = ends[seed]
        return grasp_film.Episode("", success=success, end_s=end_s)

    monkeypatch.setattr(grasp_film, "play", play)
    envs = type("Envs", (), {})()
    assert median_seed(envs, None, lambda: resets.append(1), 5, 5) == 5  # 2, 2.5, 3, failed, failed
    assert len(resets) == 5


def test_films_beside_each_other():
    frames = np.zeros((3, 20, 320, 3), np.uint8)
    joined = side_by_side([titled(frames, "one"), titled(frames[:2], "two")])
    assert joined.shape == (3, 48, 640, 3)
    assert (joined[:, 40, 10] == 0).all()
    assert joined[:, 40, 330, 0].tolist() == [0, 0, 127]  # it ended, and stays, paled


def test_reports_need_no_learning_framework():
    code = (
        "import sys, midstride.report.page, midstride.report.film, midstride.report.curves, "
        "midstride.sweep.disk, midstride.paper; assert 'jax' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

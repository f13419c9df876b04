"""Tasks observed from images: pictures of this capture, with earlier ones behind them."""

from dataclasses import replace

import gymnasium
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from mujoco.batch import Batch

import midstride  # noqa: F401  registers the environments
from midstride.sim.camera import Look
from midstride.tasks.env import TaskVectorEnv
from tests.helpers import EVERY_TASK

SMALL = {"observation": "image", "image_size": 16, "actions": "continuous"}


def by_hand(envs, i):
    """The picture of environment i, from a world of its own that is put where everything is."""
    world = Batch(envs.task.model, 1, 1)
    world.bind("qpos")[0] = envs.plant.qpos[i]
    return envs._pictures.camera.with_hits(world, None, Look())[0][0]


def actions_of(rng, envs):
    return rng.uniform(-1, 1, envs.action_space.shape)


@pytest.mark.parametrize("task", EVERY_TASK)
def test_pictures_show_where_everything_is_now_and_what_was_seen_before(task):
    envs = TaskVectorEnv(task, 3, threads=1, frames=3, **SMALL)
    rng = np.random.default_rng(1)
    seen = [[] for _ in range(3)]  # of the episode under way, newest first
    observation, _ = envs.reset(seed=5)
    for _ in range(25):
        for i in range(3):
            newest = by_hand(envs, i)
            seen[i].insert(0, newest)
            frames = (seen[i] + [seen[i][-1]] * 2)[:3]
            np.testing.assert_array_equal(
                observation["image"][i], np.concatenate(frames, axis=-1), str(len(seen[i]))
            )
        observation, _, terminated, truncated, _ = envs.step(actions_of(rng, envs))
        for i in np.flatnonzero(terminated | truncated):
            seen[i] = []


def test_the_last_picture_of_an_episode_is_its_own():
    envs = TaskVectorEnv("catch", 4, threads=1, latency=0.1, **{**SMALL, "image_size": 64})
    rng = np.random.default_rng(0)
    before, _ = envs.reset(seed=0)
    ended = 0
    for _ in range(9):
        after, _, terminated, _, info = envs.step(actions_of(rng, envs))
        for i in np.flatnonzero(terminated):
            last = info["final_obs"][i]["image"]
            np.testing.assert_array_equal(last[..., 3:], before["image"][i, ..., :3])
            assert (last[..., :3] != after["image"][i, ..., :3]).any()
            first = after["image"][i]
            np.testing.assert_array_equal(first[..., :3], first[..., 3:])
            ended += 1
        before = after
    assert ended == 4


@pytest.mark.parametrize("task", EVERY_TASK)
@pytest.mark.parametrize("samples", [1, 2, 3])
def test_drawing_only_what_moves_draws_the_same(task, samples):
    envs = TaskVectorEnv(task, 6, threads=1)
    envs.reset(seed=3)
    camera = replace(envs._camera, width=48, height=36, samples=samples)
    for _ in range(3):
        envs.step(envs.action_space.sample())
        for ids in (None, np.array([1, 4])):
            whole, _ = camera.with_hits(envs.plant.batch, ids, Look())
            np.testing.assert_array_equal(camera.of_batch(envs.plant.batch, ids), whole)


def test_beside_pictures_a_robot_knows_its_joints_and_what_is_in_flight():
    knowledge = ("previous_action", "vector_to_go")
    envs = TaskVectorEnv("catch", 2, threads=1, latency=0.1, knowledge=knowledge, **SMALL)
    observation, _ = envs.reset(seed=1)
    assert envs.columns[0] == "cup"
    assert observation["state"].shape == (2, 3)
    observation, *_ = envs.step(np.array([[1.0], [-0.5]]))
    np.testing.assert_allclose(observation["state"][:, 0], envs.plant.qpos[:, 0], rtol=1e-6)


@pytest.mark.parametrize("task", ["Catch-v0", "CatchBounce-v0"])
def test_gymnasium_accepts_them(task):
    env = gymnasium.make(f"midstride/{task}", latency=0.1, **SMALL)
    check_env(env.unwrapped, skip_render_check=True)
    assert env.observation_space["image"].shape == (16, 16, 6)


def test_one_is_as_many():
    one = gymnasium.make("midstride/Catch-v0", latency=0.1, **SMALL)
    many = TaskVectorEnv("catch", 2, threads=1, latency=0.1, **SMALL)
    first, _ = one.reset(seed=8)
    both, _ = many.reset(seed=8)
    for action in (0.3, -1.0, 0.8):
        np.testing.assert_array_equal(first["image"], both["image"][0])
        first, *_ = one.step(np.array([action]))
        both, *_ = many.step(np.full((2, 1), action))


def test_no_picture_is_taken_at_a_switch():
    with pytest.raises(ValueError, match="no picture is taken at the switch"):
        TaskVectorEnv("catch", 1, observe_switch=True, **SMALL)


def test_what_pictures_ought_to_tell_is_the_state():
    envs = TaskVectorEnv("catch", 3, threads=1, **SMALL)
    envs.reset(seed=0)
    told = envs.hints.auxiliary()
    state = TaskVectorEnv("catch", 3, threads=1).reset(seed=0)[0]
    np.testing.assert_array_equal(told, state)
    assert envs.hints.auxiliary_weights.sum() == pytest.approx(1)


def test_rays_hit_what_mujoco_says_they_hit():
    envs = TaskVectorEnv("catch", 2, threads=1, latency=0.1, **{**SMALL, "image_size": 64})
    envs.reset(seed=0)
    for _ in range(3):
        envs.step(np.array([[1.0], [-1.0]]))
    camera, data = envs._pictures.camera, mujoco.MjData(envs.task.model)
    data.qpos[:] = envs.plant.qpos[1]
    mujoco.mj_forward(envs.task.model, data)
    _, hits = camera.with_hits(envs.plant.batch, np.array([1]), Look())
    position, geom, found = np.array(camera.viewpoint.position), np.zeros(1, np.int32), []
    for ray in camera.directions:
        mujoco.mj_ray(envs.task.model, data, position, ray, None, 1, -1, geom)
        found.append(int(geom[0]))
    assert hits.geom[0].tolist() == found
    assert len(set(found)) > 3  # sky, floor, rail, cup, ball

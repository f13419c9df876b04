"""The grasping environments: what is observed and paid, when an episode ends, how time passes."""

import pickle

import gymnasium
import imageio
import mujoco
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

from midstride import Fixed, PerEpisode, PerStep
from midstride.cli import main
from midstride.envs.vector import MEASURES
from midstride.knowledge import FEATURES
from midstride.paper.scripted import grasp
from midstride.report import grasp_film
from midstride.sim.camera import Camera, Look
from midstride.sim.task import Viewpoint
from midstride.tasks.grasp import actions, kinematics, scripted
from midstride.tasks.grasp.env import GraspVectorEnv
from midstride.tasks.grasp.measures import Measures
from midstride.tasks.grasp.model import FINGER_OPEN_M, FINGERTIP_M, TICK_S, VIEWPOINT
from midstride.tasks.grasp.world import SCALE, Decision, World
from tests.helpers import assert_columns_alive, resident_kb
from tests.tasks.test_grasp_world import by_hand

SMALL = {"scenes": 16, "image_size": 16}
ALL = ("previous_action", "selection_time", "vector_to_go")
STILL = np.zeros(7)


def make(n=2, **options):
    return GraspVectorEnv(n, **{**SMALL, **options})


def random_actions(rng, n):
    """Anything but terminate."""
    return np.concatenate(
        [rng.uniform(-1, 1, (n, 4)), rng.uniform(0, 1, (n, 2)), np.zeros((n, 1))], axis=1
    )


def play(env, steps=40, noise=0.0, seed=0):
    """Measures of the episodes that the scripted policy finishes."""
    env.reset(seed=seed)
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(steps):
        action = scripted.privileged(env.world, env.next_latency_ticks(), noise, rng)
        _, _, terminated, truncated, info = env.step(action)
        found += [
            {name: float(info[name][i]) for name in MEASURES}
            for i in np.flatnonzero(terminated | truncated)
        ]
    return {name: np.array([episode[name] for episode in found]) for name in found[0]}


# --- Gymnasium


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "blocking", "knowledge": ALL},
        {"observation": "state", "objects": (1, 5)},
        {"depth": True, "camera_jitter": 0.05, "light_jitter": 0.3, "colour_jitter": 0.2},
    ],
)
def test_gymnasium_accepts_it(options):
    env = gymnasium.make("midstride/Grasp-v0", **SMALL, **options)
    check_env(env.unwrapped, skip_render_check=True)


def test_one_environment_gives_what_the_first_of_many_gives():
    one = gymnasium.make("midstride/Grasp-v0", knowledge=ALL, **SMALL)
    many = gymnasium.make_vec("midstride/Grasp-v0", num_envs=2, knowledge=ALL, **SMALL)
    (a, _), (b, _) = one.reset(seed=3), many.reset(seed=3)
    rng = np.random.default_rng(0)
    for _ in range(5):
        assert (a["image"] == b["image"][0]).all()
        assert (a["state"] == b["state"][0]).all()
        action = random_actions(rng, 2).astype(np.float32)
        a, _, _, _, info = one.step(action[0])
        b, _, _, _, infos = many.step(action)
        assert (info["vector_to_go"] == infos["vector_to_go"][0]).all()
        assert "success" not in info


@pytest.mark.parametrize("mode", ["concurrent", "blocking"])
def test_a_seed_repeats_to_the_last_pixel_whatever_the_threads(mode):
    def record(seed, threads):
        env = make(3, mode=mode, threads=threads, colour_jitter=0.2, camera_jitter=0.02)
        observation, _ = env.reset(seed=seed)
        rng, seen = np.random.default_rng(0), []
        for _ in range(6):
            action = random_actions(rng, 3)
            action[:, actions.TERMINATE] = rng.random(3) < 0.2
            seen.append(observation)
            observation, *_ = env.step(action)
        return seen

    a, b, c = record(1, 1), record(1, 2), record(2, 1)
    for x, y in zip(a, b, strict=True):
        assert (x["image"] == y["image"]).all()
        assert (x["state"] == y["state"]).all()
    assert (a[0]["image"] != c[0]["image"]).any()


def test_an_episode_does_not_depend_on_the_ones_before():
    env = make(2)

    def record():
        observation, _ = env.reset(seed=5)
        rng, seen = np.random.default_rng(0), []
        for _ in range(8):
            seen.append(observation["image"])
            observation, *_ = env.step(random_actions(rng, 2))
        return np.array(seen)

    first = record()
    env.reset(seed=9)
    for _ in range(10):  # other objects are moved, others fall asleep
        env.step(scripted.privileged(env.world, env.next_latency_ticks()))
    assert (record() == first).all()


def test_a_pickled_environment_starts_afresh_with_its_options():
    env = make(2, objects=2, object_set="household", step_penalty=0.05)
    again = pickle.loads(pickle.dumps(env))
    assert again.settings.step_penalty == 0.05
    assert (env.reset(seed=0)[0]["image"] == again.reset(seed=0)[0]["image"]).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objects": 0}, "a bin holds 1 to 5 objects, got 0"),
        ({"objects": 6}, "a bin holds 1 to 5 objects, got 6"),
        ({"objects": (3, 2)}, "a bin holds 1 to 5 objects, got 3 to 2"),
        (
            {"objects": "many"},
            "objects must be a whole number or 2 values, each a whole number, got 'many'",
        ),
        ({"image_size": 0}, "image_size must be a whole number of at least 1, got 0"),
        (
            {"latency": 8},
            "a latency of 8 s is as long as an episode of 6 s, or longer: did you mean",
        ),
        ({"latency": "lost:0.1:0", "mode": "blocking"}, "waits for every decision, so none can be"),
        ({"latency": 0.033}, "latency of 33 ms .* 32 ms and 36 ms"),
        (
            {"object_set": "toys"},
            "object_set must be one of train, held_out, household, got 'toys'",
        ),
        ({"mode": "frozen"}, "mode must be concurrent or blocking .which is hold here"),
        ({"mode": "blocking", "period": 0.3}, "in blocking mode an action takes the time it takes"),
        ({"observation": "sound"}, "observation must be one of image, state"),
        ({"camera": "hidden"}, "camera must be one of fixed, following, got 'hidden'"),
        ({"knowledge": ("weather",)}, "unknown knowledge 'weather'"),
        ({"colour_jitter": -1}, "colour_jitter must be a number from 0 to 1"),
        ({"camera_jitter": 0.5}, "camera_jitter must be a number from 0 to 0.2"),
        ({"step_penalty": "a"}, "step_penalty must be a number, got 'a'"),
        ({"step_penalty": 0.2}, "step_penalty must be a number from 0 to 0.1, got 0.2"),
        ({"scene_seed": -1}, "scene_seed must be a whole number of at least 0"),
        ({"objects": 2.0}, "objects must be a whole number or 2 values"),
        ({"observation": "state", "depth": True}, "depth is an image"),
        ({"max_steps": 0}, "max_steps must be a whole number of at least 1"),
        ({"scenes": 0}, "scenes must be a whole number of at least 1"),
        ({"threads": 0}, "threads must be a whole number of at least 1"),
        ({"render_mode": "human"}, "render_mode must be None or 'rgb_array'"),
    ],
)
def test_impossible_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        make(**options)


def test_impossible_actions_are_named():
    env = make()
    with pytest.raises(RuntimeError, match="call reset"):
        env.step(np.zeros((2, 7)))
    env.reset(seed=0)
    for bad in (np.zeros((2, 6)), np.full((2, 7), np.nan)):
        with pytest.raises(ValueError, match=r"actions must be 2 x 7 numbers \(x, y, z, yaw"):
            env.step(bad)
    with pytest.raises(ValueError, match="num_envs is for many"):
        gymnasium.make("midstride/Grasp-v0", num_envs=3)


# --- What is observed


def test_nothing_is_in_flight_at_reset():
    env = make(4, knowledge=ALL, observation="state")
    _, info = env.reset(seed=0)
    assert all((np.abs(info[name]) < 1e-6).all() for name in ALL)
    rng = np.random.default_rng(0)
    for _ in range(3):
        action = random_actions(rng, 4)
        action[:2, actions.TERMINATE] = 1
        observation, *_, info = env.step(action)
    for name in ALL:
        columns = observation[:, env.layout.slices[name]]
        assert columns[:2] == pytest.approx(0, abs=1e-6), name  # these have just begun anew
        assert (np.abs(columns[2:]).max(axis=1) > 0.05).all(), name
        logged = info[name].reshape(4, -1)
        assert logged == pytest.approx(columns, abs=1e-5), name
        assert (info["final_info"][name].reshape(4, -1)[2:] == logged[2:]).all()
    assert (info["final_info"]["previous_action"][:2, actions.TERMINATE] == 1).all()


def test_vector_to_go_is_the_goal_minus_what_mujoco_measures():
    """The goal by hand: the pose at the switch plus the commanded displacement."""
    env = make(1, latency=0.0, period=0.2, knowledge=("vector_to_go",), observation="state")
    env.reset(seed=0)
    model = env.world.model
    data, hand = mujoco.MjData(model), model.body("hand").id

    def measured():
        data.qpos[:] = env.world.qpos[0]
        mujoco.mj_kinematics(model, data)
        matrix = data.xmat[hand].reshape(3, 3)
        yaw = np.arctan2(matrix[1, 0], matrix[0, 0])
        return np.array([*(data.xpos[hand] + FINGERTIP_M * matrix[:, 2]), yaw])

    for action in ([0.3, -0.2, 0.1, 0.5, 1, 0, 0], [-0.5, 0.4, -0.3, -0.9, 0, 1, 0]):
        goal = measured() + np.array(action[:4]) * SCALE
        observation, *_, info = env.step(np.array([action]))
        opening = env.world.qpos[0, 7:9].sum() / (2 * FINGER_OPEN_M)
        wanted_opening = 0.0 if action[4] else 1.0
        expected = [*((goal - measured()) / SCALE), wanted_opening - opening]
        assert info["vector_to_go"][0] == pytest.approx(expected, abs=1e-6)
        assert observation[0, env.layout.slices["vector_to_go"]] == pytest.approx(
            expected, abs=1e-5
        )


def test_knowledge_is_logged_whether_used_or_not():
    env = make(2, latency=PerStep((0.0, 0.1, 0.2)))
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(4):
        action = random_actions(rng, 2)
        *_, info = env.step(action)
        assert info["previous_action"] == pytest.approx(action, abs=1e-6)
        assert info["selection_time"] == pytest.approx(info["latency_s"] / 0.2)


def test_state_columns_are_the_objects_nearest_first():
    env = make(3, observation="state", objects=(2, 4))
    observation, _ = env.reset(seed=0)
    pose, objects = env.world.pose(), env.world.objects()
    for i in range(3):
        there = objects[i, :, 0] < 1.5
        offsets = (objects[i, there, :3] - pose[i, :3]) / 0.1
        offsets = offsets[np.linalg.norm(offsets[:, :2], axis=1).argsort()]
        columns = dict(zip(env.columns, observation[i], strict=True))
        for k in range(4):
            found = [columns[f"object{k}:{name}"] for name in ("there", "dx", "dy", "dz")]
            expected = [1, *offsets[k]] if k < len(offsets) else [0, 0, 0, 0]
            assert found == pytest.approx(expected, abs=1e-5)


def test_depth_is_where_things_are():
    """The pixels of the floor, put back into the world, lie on the floor."""
    env = make(1, image_size=32, depth=True)
    observation, _ = env.reset(seed=0)
    camera = Camera(VIEWPOINT, 32, 32, samples=1)
    depth = observation["depth"][0]
    rays = camera.rays / camera.rays[:, 2:]
    points = VIEWPOINT.position + (rays * depth.reshape(-1, 1)) @ camera.axes
    corner = points[31 * 32]  # bottom left: beside the bin
    assert corner[2] == pytest.approx(0, abs=1e-5)
    assert (points[:, 2] > -1e-5).all()
    assert (points[:, 2] > 0.05).any()  # the hand


def test_cameras_lights_and_colours_can_differ_by_episode():
    plain = make(4).reset(seed=0)[0]["image"]
    for option in ("camera_jitter", "light_jitter", "colour_jitter"):
        env = make(4, **{option: 0.1})
        image = env.reset(seed=0)[0]["image"]
        assert (make(4, **{option: 0.1}).reset(seed=0)[0]["image"] == image).all()
        if option != "camera_jitter":  # the same things in the same places
            assert np.abs(image.astype(int) - plain).mean() < 30
        assert (image != plain).any(axis=(1, 2, 3)).all(), option


def test_what_the_camera_leaves_out_is_never_in_its_view():
    env = make(8, image_size=32)
    env.reset(seed=0)
    everything = Camera(VIEWPOINT, 32, 32, samples=1)
    rng = np.random.default_rng(0)
    for _ in range(8):
        observation, *_ = env.step(random_actions(rng, 8))
        look = Look(colours=env.world.fields["geom_rgba"])
        assert (observation["image"] == everything.of_batch(env.world.batch, None, look)).all()


def test_a_camera_that_follows_looks_at_what_is_under_the_hand():
    """As one that stands still would, had it been put up to look there."""
    env = make(3, image_size=24, camera="following", objects=2)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(4):
        observation, *_ = env.step(random_actions(rng, 3))
        hands = kinematics.forward(env.world.qpos[:, :7])[0]
        for i, (x, y, _) in enumerate(hands):
            camera = Camera(Viewpoint(VIEWPOINT.position, (x, y, 0.03), 22), 24, 24, samples=1)
            look = Look(colours=env.world.fields["geom_rgba"][[i]])
            expected = camera.of_batch(env.world.batch, np.array([i]), look)[0]
            assert (observation["image"][i] == expected).all()


def test_a_camera_that_follows_can_be_shaken_too():
    shaken = make(2, camera="following", camera_jitter=0.1)
    image = shaken.reset(seed=0)[0]["image"]
    assert (image != make(2, camera="following").reset(seed=0)[0]["image"]).any()
    assert (image != make(2, camera_jitter=0.1).reset(seed=0)[0]["image"]).any()


def test_rays_hit_what_mujoco_says_they_hit():
    """The background is cast once and kept; ray by ray, against all geoms, must agree."""
    env = make(2, image_size=24)
    env.reset(seed=0)
    for _ in range(6):
        env.step(scripted.privileged(env.world, env.next_latency_ticks()))
    _, hits = env.sight.camera.with_hits(env.world.batch, None, env.sight.look)
    position = np.array(VIEWPOINT.position)
    for i in range(2):
        model, data = env.world.batch.get_model(i), mujoco.MjData(env.world.model)
        data.qpos[:] = env.world.qpos[i]
        mujoco.mj_kinematics(model, data)
        for k, direction in enumerate(env.sight.camera.directions):
            geom = np.zeros(1, np.int32)
            distance = mujoco.mj_ray(model, data, position, direction, None, 1, -1, geom)
            assert geom[0] == hits.geom[i, k]
            assert distance == pytest.approx(hits.distance[i, k], abs=1e-9)


def test_rendering_shows_the_arm():
    env = gymnasium.make("midstride/Grasp-v0", render_mode="rgb_array", **SMALL)
    env.reset(seed=0)
    image = env.render()
    assert image.shape == (240, 320, 3)
    white = (image.min(axis=2) > 170) & (np.ptp(image.astype(int), axis=2) < 12)
    assert 0.01 < white.mean() < 0.2  # the arm; the sky is bluish


# --- Rewards and ends


def test_terminate_ends_the_episode_at_the_switch():
    env = make(2, latency=0.1, step_penalty=0.05)
    env.reset(seed=0)
    action = np.stack([STILL, STILL])
    action[0, actions.TERMINATE] = 1
    _, reward, terminated, truncated, info = env.step(action)
    assert terminated.tolist() == [True, False]
    assert not truncated.any()
    assert info["period_s"].tolist() == pytest.approx([0.1, 0.3])
    assert reward == pytest.approx([-0.05, -0.05])
    assert info["_success"].tolist() == [True, False]
    assert not info["success"][0]
    assert info["duration_s"][0] == pytest.approx(0.1)
    assert info["policy_duration_s"][0] == pytest.approx(0.0)


@pytest.mark.parametrize("mode", ["concurrent", "blocking"])
def test_a_lifted_object_pays_when_the_episode_ends(mode):
    env = make(4, mode=mode, step_penalty=0.01)
    env.reset(seed=0)
    total = np.zeros(4)
    for step in range(1, 20):
        action = scripted.privileged(env.world, env.next_latency_ticks())
        _, reward, terminated, truncated, info = env.step(action)
        parts = info["reward_before_switch"] + info["reward_after_switch"]
        assert parts == pytest.approx(reward)
        total += reward
        for i in np.flatnonzero(terminated):
            assert info["success"][i]
            assert reward[i] == pytest.approx(1 - 0.01)
            assert info["reward_before_switch"][i] == pytest.approx(1 - 0.01)
            assert total[i] == pytest.approx(1 - 0.01 * step)
        assert not truncated.any()
        if terminated.any():
            return
    pytest.fail("nothing was grasped")


def test_episodes_can_end_by_themselves_on_success():
    env = make(4, end_on_success=True)
    env.reset(seed=0)
    for _ in range(20):
        action = scripted.privileged(env.world, env.next_latency_ticks())
        action[:, actions.TERMINATE] = 0
        _, reward, terminated, _, info = env.step(action)
        if terminated.any():
            assert reward[terminated].tolist() == info["reward_after_switch"][terminated].tolist()
            assert (reward[terminated] == 1).all()
            return
    pytest.fail("nothing was grasped")


def test_the_step_limit_cuts_off_a_failure():
    env = make(2, max_steps=3)
    env.reset(seed=0)
    for step in range(3):
        _, reward, terminated, truncated, info = env.step(np.stack([STILL, STILL]))
        assert not terminated.any()
        assert truncated.tolist() == [step == 2] * 2
        assert (reward == 0).all()
    assert info["final_obs"][0]["image"].shape == (16, 16, 3)
    assert info["final_info"]["duration_s"] == pytest.approx([0.9, 0.9])
    assert info["completion"].tolist() == [0, 0]  # nothing was asked for


def test_autoreset_as_gymnasium_has_it():
    env = make(2, autoreset_mode=AutoresetMode.DISABLED)
    env.reset(seed=0)
    action = np.stack([STILL, STILL])
    action[0, actions.TERMINATE] = 1
    env.step(action)
    with pytest.raises(RuntimeError, match="an episode is over"):
        env.step(action)
    other = env.world.qpos[1].copy()
    env.reset(options={"reset_mask": np.array([True, False])})
    assert (env.world.qpos[1] == other).all()
    action[0, actions.TERMINATE] = 0
    env.step(action)

    env = make(2, autoreset_mode=AutoresetMode.NEXT_STEP)
    env.reset(seed=0)
    action[0, actions.TERMINATE] = 1
    env.step(action)
    _, reward, terminated, _, info = env.step(action)  # the action is not looked at
    assert not terminated.any()
    assert reward[0] == 0
    assert info["_latency_s"].tolist() == [False, True]


# --- Time


@pytest.mark.parametrize(
    "latency",
    [Fixed(0.1), Fixed(0.032), PerEpisode((0.0, 0.052, 0.2)), PerStep((0.0, 0.012, 0.148, 0.3))],
)
def test_time_passes_as_by_hand(latency):
    """An oracle that walks every tick; latencies need not be whole turns of the controller."""
    n, period = 3, 75
    env = make(n, latency=latency, knowledge=("vector_to_go",), observation="state", max_steps=5)
    env.reset(seed=1)
    twin = World(n, env.world.designs, env.world.slots, threads=1)
    rng, used = np.random.default_rng(0), []

    for name, rows in env.world.fields.items():  # the same objects, field by field
        twin.fields[name][:] = rows
    twin.batch.state[:] = env.world.batch.state
    twin.commanded_joints[:] = env.world.commanded_joints
    twin.hold(np.arange(n))
    for _ in range(4):
        action = random_actions(rng, n)
        observation, *_, info = env.step(action)
        ticks = np.rint(info["latency_s"] / TICK_S).astype(int)
        assert set(np.unique(info["latency_s"])) <= set(latency.values_s)
        used.append(ticks)
        by_hand(twin, action, ticks, np.full(n, period))
        assert env.world.reference == pytest.approx(twin.reference, abs=1e-12)
        assert info["vector_to_go"] == pytest.approx(twin.vector_to_go(), abs=1e-9)
        assert observation[:, env.layout.slices["vector_to_go"]] == pytest.approx(
            twin.vector_to_go(), abs=1e-6
        )
    if isinstance(latency, PerEpisode):
        assert (np.ptp(used, axis=0) == 0).all()
    if isinstance(latency, PerStep):
        assert (np.ptp(used, axis=0) > 0).any()


def test_what_is_observed_at_the_switch():
    env = make(2, latency=0.1, knowledge=ALL, observe_switch=True)
    still = make(2, latency=0.0, period=0.1, knowledge=ALL)
    env.reset(seed=0), still.reset(seed=0)
    rng = np.random.default_rng(0)
    first = random_actions(rng, 2)
    observation, *_, info = env.step(first)
    switch = info["observation_switch"]
    # Nothing was in flight before the first switch: 0.1 s of holding still.
    expected, *_ = still.step(np.zeros((2, 7)))
    assert (switch["image"] == expected["image"]).all()
    columns = env.layout.slices
    assert switch["state"][:, columns["previous_action"]] == pytest.approx(first, abs=1e-6)
    assert switch["state"][:, columns["selection_time"]] == pytest.approx(1)
    asked = switch["state"][:, columns["vector_to_go"]][:, :4]
    assert asked == pytest.approx(first[:, :4], abs=1e-3)  # nothing of it is done
    assert (observation["image"] != switch["image"]).any()


def test_blocking_charges_the_time_to_think():
    fast, slow = make(4, mode="blocking", latency=0.0), make(4, mode="blocking", latency=0.2)
    quick, lasting = play(fast, 30), play(slow, 30)
    assert (quick["success"] == 1).all()
    assert (lasting["success"] == 1).all()
    assert lasting["duration_s"].mean() > quick["duration_s"].mean() + 1.0


@pytest.mark.parametrize("mode", ["concurrent", "blocking"])
def test_measures_of_the_scripted_policy(mode):
    found = play(make(8, mode=mode, observation="state"), 30)
    assert found["success"].mean() >= 0.95
    assert found["duration_s"] - found["policy_duration_s"] == pytest.approx(0.1)
    low, high = {"blocking": (0.9, 1.0), "concurrent": (0.35, 0.6)}[mode]
    assert low <= found["completion"].mean() <= high
    assert (found["completion_until_switch"] > found["completion"] - 0.02).all()
    assert ((found["jerk"] > 1) & (found["jerk"] < 200)).all()


@pytest.mark.parametrize("turns", [[5] * 15, [5, 5, 3] * 5, [5, 1] * 8])
def test_jerk_of_known_motions(turns):
    """A cubic in time has a constant third derivative, a parabola none, however turns are cut."""
    times = np.concatenate([[0], np.cumsum(turns)[:-1]]) * TICK_S
    n = len(turns)
    for cubic, square in ((2.0, 0.0), (0.0, 1.0)):
        wanted = np.tile([0.5, 0.0, 0.1, 0.0], (n, 1))
        wanted[:, 0] += cubic * times**3 + square * times**2
        joints = kinematics.joints_at(wanted)
        for _ in range(60):  # to the last digits: third differences are sensitive
            joints = kinematics.track(joints, wanted, np.full(n, 0.05))
        measures = Measures(1)
        trail = [(np.array([k]), row[None]) for k, row in zip(turns, joints, strict=True)]
        one = np.ones(1, int)
        decision = Decision(0 * one, 75 * one, [], trail)
        measures.add(decision, np.zeros((1, 4)), np.ones(1, bool))
        found = measures.report(np.ones(1, bool), np.zeros((1, 4)))
        assert found["jerk"][0] == pytest.approx(6 * cubic, rel=0.05, abs=0.3)
        seconds = 75 * TICK_S
        assert found["squared_jerk"][0] == pytest.approx(36 * cubic**2 * seconds, rel=0.1, abs=0.1)
        went = cubic * times[-1] ** 3 + square * times[-1] ** 2
        assert found["path_m"][0] == pytest.approx(went, abs=2e-4)


def test_completion_by_hand():
    """Commanded 4 cm along x, then 2 cm along y; done 3 and 1 of it, 4 and 2 in the end."""
    measures = Measures(1)
    one = np.ones(1, int)

    def decide(switch, asked, capture):
        pose = lambda *x: np.array([[*x, 0.0]])  # noqa: E731
        switches = [(one > 0, pose(*switch), pose(*asked))]
        decision = Decision(25 * one, 75 * one, switches, [])
        measures.add(decision, pose(*capture), np.ones(1, bool))
        return measures.report(np.zeros(1, bool), pose(*capture))

    decide((0.5, 0, 0.1), (0.04, 0, 0), (0.53, 0, 0.1))
    decide((0.55, 0, 0.1), (0, 0.02, 0), (0.55, 0.01, 0.1))  # overshot by 1 cm at the switch
    found = decide((0.55, 0.02, 0.1), (0, 0, 0), (0.55, 0.02, 0.1))
    assert found["completion"][0] == pytest.approx(4 / 6)
    assert found["completion_until_switch"][0] == pytest.approx(1.0)
    assert found["duration_s"][0] == pytest.approx(0.9)


def test_completion_by_hand_where_switches_come_as_they_come():
    """None in the first period, two in the second: 4 cm along x, cut off after 1; then 2 along y.

    At the next observation 1 of those 2 is done; then nothing switches, and all of it is done.
    """
    measures, one, pose = Measures(1), np.ones(1, int), np.array([[0.5, 0, 0.1, 0]])
    x, y = np.eye(4)[:2]
    first = (one > 0, pose, 0.04 * x[None])
    second = (one > 0, pose + 0.01 * x, 0.02 * y[None])
    places = (pose, pose + 0.01 * x + 0.01 * y, pose + 0.01 * x + 0.02 * y)
    for switches, place in zip(([], [first, second], []), places, strict=True):
        measures.add(Decision(100 * one, 75 * one, switches, []), place, np.ones(1, bool))
    found = measures.report(np.zeros(1, bool), places[-1])
    assert found["completion"][0] == pytest.approx((1 + 1) / 6)
    assert found["completion_until_switch"][0] == pytest.approx((1 + 2) / 6)


def test_scripted_policies_can_fail_usefully():
    """Data to learn from has successes and failures."""
    noisy = play(make(16, observation="state"), 40, noise=0.15)
    assert 0.2 < noisy["success"].mean() < 0.95
    env = make(16, objects=5, observation="state")
    env.reset(seed=0)
    rng, ends = np.random.default_rng(0), []
    step = np.zeros(16, int)
    for _ in range(40):
        _, _, terminated, truncated, info = env.step(scripted.blind(env.world, step, rng))
        step += 1
        done = terminated | truncated
        ends += info["success"][done].tolist() if done.any() else []
        step[done] = 0
    assert 0.02 < np.mean(ends) < 0.7


# --- Films


def test_an_episode_without_time_can_be_filmed():
    env = make(1, latency=0.0, autoreset_mode=AutoresetMode.DISABLED)
    end = np.zeros((1, 7))
    end[0, actions.TERMINATE] = 1
    episode = grasp_film.play(env, lambda observation, env: end, seed=0)
    assert episode.end_s == 0
    frames = grasp_film.pictures(episode, env, 1)
    assert len(grasp_film.film(episode, frames)) > 1
    assert grasp_film.contact_sheet(episode, frames).shape[2] == 3


def test_watching_leaves_a_film_and_a_picture(tmp_path, monkeypatch, capsys):
    for name, size in (("_WIDTH", 120), ("_HEIGHT", 90), ("_INSET", 32)):
        monkeypatch.setattr(grasp_film, name, size)
    main(["watch", "grasp", "--episodes", "2", "--objects", "1", "--output", str(tmp_path)])
    film = imageio.v3.imread(tmp_path / "grasp-scripted-concurrent.mp4")
    assert film.shape[1:] == (90, 120 + 520, 3)
    rows = [row for row in capsys.readouterr().out.splitlines() if "yes" in row]
    assert len(rows) == 2
    seconds = sum(float(row.split("│")[3]) for row in rows)
    assert len(film) / 25 == pytest.approx(seconds + 2 * 0.5, abs=0.25)  # the ends stay a while
    assert (film[0] != film[20]).any()
    assert imageio.v3.imread(tmp_path / "grasp-scripted-concurrent.png").shape == (270, 480, 3)
    for bad, message in (
        (["--objects", "9"], "a bin holds 1 to 5 objects, got 9"),
        (["--episodes", "0"], "episodes must be a whole number of at least 1"),
        (["--latency", "10s"], "as long as an episode of 6 s"),
        (["--noise", "2"], "noise must be a number from 0 to 1"),
        (["--seed", "-1"], "seed must be a whole number"),
        (["--policy", "scriptd"], "unknown policy 'scriptd': choose from scripted, blind, random"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["watch", "grasp", *bad])
        assert end.value.code == 2
        assert message in capsys.readouterr().err


# --- Long


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["concurrent", "blocking"])
@pytest.mark.parametrize("object_set", ["train", "held_out", "household"])
def test_the_privileged_policy_hardly_ever_fails(mode, object_set):
    env = GraspVectorEnv(
        64, mode=mode, observation="state", object_set=object_set, latency=0.1, scenes=512
    )
    found = [episode.measures["success"] for episode in grasp(env, "privileged", 512)]
    assert len(found) == 512
    assert np.mean(found) >= 0.97


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"objects": 5}, {"task": "conveyor"}], ids=["bin", "belt"])
def test_a_hundred_thousand_random_steps_are_stable_and_memory_is_flat(options):
    env = make(64, image_size=8, **options)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    for step in range(100_000 // 64):
        action = random_actions(rng, 64)
        action[:, actions.TERMINATE] = rng.random(64) < 0.03
        env.step(action)
        assert np.isfinite(env.world.qpos).all()
        assert np.abs(env.world.qvel).max() < 100
        if step == 300:
            before = resident_kb()
    assert resident_kb() - before < 20_000


def test_no_knowledge_column_is_dead_where_decisions_are_pending():
    """But for the terminate command, which ends the episode."""
    env = GraspVectorEnv(
        4, latency="lost:0.1:step:40ms,320ms", period=0.12, knowledge=FEATURES,
        observation="state", scenes=4,
    )  # fmt: skip
    env.reset(seed=0)
    env.action_space.seed(0)
    seen = []
    for _ in range(40):
        action = env.action_space.sample()
        action[:, actions.TERMINATE] = 0
        seen.append(env.step(action)[0])
    alive = [
        i
        for i, name in enumerate(env.columns)
        if i >= len(env.layout.base) and "terminate" not in name
    ]
    assert len(alive) == 6 * 3 + 1 + 5
    assert_columns_alive(np.array(seen)[:, :, alive], tuple(env.columns[i] for i in alive))


def test_a_grasp_that_is_called_off_ends_when_that_arrives():
    """Also later than the period; what was decided before it comes into force on the way."""
    env = GraspVectorEnv(1, latency=0.2, period=0.12, observation="state", scenes=4)
    env.reset(seed=0)
    first, stop = np.zeros((2, 1, actions.SIZE))
    first[0, 0], stop[0, actions.TERMINATE] = 1.0, 1.0
    *_, info = env.step(first)
    assert (info["period_s"][0], info["pending"][0]) == (pytest.approx(0.12), 1)
    assert env.world.flight.in_force[0] == -1
    *_, terminated, _, info = env.step(stop)
    assert terminated[0]
    assert info["period_s"][0] == pytest.approx(0.2)
    assert info["final_info"]["duration_s"][0] == pytest.approx(0.32)
    assert 0 < info["final_info"]["completion"][0] < 1


def test_a_lost_command_ends_nothing():
    env = GraspVectorEnv(1, latency="lost:1:100ms", observation="state", scenes=4)
    env.reset(seed=0)
    stop = np.zeros((1, actions.SIZE))
    stop[0, actions.TERMINATE] = 1.0
    for _ in range(3):
        *_, terminated, _, info = env.step(stop)
        assert not terminated[0]
        assert info["lost"][0]
        assert (info["previous_action"] == 0).all()


# --- What moves: velocity, and frames of earlier captures


def test_the_hand_s_velocity_is_the_slope_of_its_places():
    env = GraspVectorEnv(
        2, 1, observation="state", hand_velocity=True, latency="20ms", period="20ms", scenes=8
    )
    env.reset(seed=0)
    columns = [env.layout.columns.index(name) for name in ("vx", "vy", "vz", "vyaw")]
    action = np.tile([1.0, -0.5, 0.3, 0.4, 0, 0, 0], (2, 1))
    places, speeds = [], []
    for _ in range(18):
        observation, *_ = env.step(action)
        places.append(env.world.pose())
        speeds.append(observation[:, columns] * SCALE)
    # Up to speed, the mean of two velocities, 20 ms apart, is about the slope between.
    slopes = (np.diff(places, axis=0) / 0.02)[-4:]
    between = ((np.array(speeds)[1:] + speeds[:-1]) / 2)[-4:]
    assert np.abs(slopes[..., :3]).max() > 0.1
    np.testing.assert_allclose(between, slopes, rtol=0.05, atol=0.005)


@pytest.mark.parametrize("observation", ["image", "state"])
def test_frames_are_those_of_the_captures_before(observation):
    settings = {"observation": observation, "image_size": 16, "scenes": 8, "max_steps": 3}
    one, two = GraspVectorEnv(2, 1, **settings), GraspVectorEnv(2, 1, frames=2, **settings)

    def parts(env, found):
        if observation == "state":
            return found
        return found["image"]

    size = 3 if observation == "image" else len(one.layout.columns)
    before = first = parts(one, one.reset(seed=3)[0])
    found = parts(two, two.reset(seed=3)[0])
    np.testing.assert_array_equal(found[..., :size], first)
    np.testing.assert_array_equal(found[..., size:], first)  # nothing was before: it is repeated
    rng = np.random.default_rng(0)
    for _ in range(7):  # episodes end after three steps
        action = rng.uniform(-1, 1, (2, 7)) * [1, 1, 1, 1, 0, 0, 0]
        now, _, _, ended, _ = one.step(action)
        then, *_, info = two.step(action)
        now, then = parts(one, now), parts(two, then)
        np.testing.assert_array_equal(then[..., :size], now)
        np.testing.assert_array_equal(then[..., size:], now if ended.all() else before)
        if ended.all():
            last = info["final_obs"][0]
            last = last["image"] if observation == "image" else last
            np.testing.assert_array_equal(last[..., size:], before[0])
        before = now

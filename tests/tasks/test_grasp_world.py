"""The grasping world: MuJoCo's own kinematics, limits kept, time by hand, a policy that grasps."""

import mujoco
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from midstride.tasks.grasp import actions, kinematics, motion, scripted
from midstride.tasks.grasp.model import (
    FINGERTIP_M,
    JOINT_HIGH,
    JOINT_LOW,
    JOINT_SPEED,
    JOINT_TORQUE,
    MAX_OBJECTS,
    ROLLING_DAMPING,
    TICK_S,
    build,
)
from midstride.tasks.grasp.objects import MAX_PARTS, OBJECT_SETS, object_set
from midstride.tasks.grasp.scenes import make_scenes
from midstride.tasks.grasp.world import CONTROL_TICKS, HIGH, LOW, SCALE, World


@pytest.fixture(scope="module")
def scenes():
    return make_scenes(object_set("train"), 32, 3, 3, seed=0, threads=2)


def started(scenes, n=8, set_name="train"):
    world = World(n, object_set(set_name), slots=3, threads=2)
    scenes.start(world, np.arange(n), np.arange(n))
    return world


# --- Objects


@pytest.mark.parametrize("name", OBJECT_SETS)
def test_objects_fit_the_gripper_and_the_bin(name):
    for design in object_set(name):
        x, y, z = design.half_extents
        assert min(x, y) < 0.03, design.name
        assert max(x, y) < 0.06, design.name
        assert 0.005 < z < 0.04, design.name
        assert 1 <= len(design.parts) <= MAX_PARTS


def test_training_and_held_out_objects_differ():
    shapes = [
        {tuple((p.kind, p.size, p.position) for p in design.parts) for design in object_set(name)}
        for name in OBJECT_SETS
    ]
    assert len(shapes[0]) == len(shapes[1]) == 200
    assert not shapes[0] & shapes[1]
    assert object_set("train") == object_set("train")
    with pytest.raises(ValueError, match="unknown object set 'toys': choose from train"):
        object_set("toys")


def test_a_placed_object_has_the_fields_of_a_compiled_one():
    """Objects are copied into running simulations; the copy must be what the compiler makes."""
    designs = object_set("train")  # no two of them have the same mass
    world = World(2, designs, slots=5, threads=1)
    chosen = np.array([[7, 2, 0, 5, 3], [111, 4, 96, 8, 199]])
    world.place_objects(np.arange(2), chosen)
    for i in range(2):
        compiled = build(tuple(designs[k] for k in chosen[i]))
        placed = world.batch.get_model(i)
        for name in mujoco.batch.MODEL_FIELDS:
            # bounding volumes differ, and are not used: the midphase is off
            known = hasattr(compiled, name) and "bvh" not in name
            if known and name.startswith(("body_", "geom_", "dof_")):
                a, b = getattr(compiled, name), getattr(placed, name)
                assert np.allclose(a, b, rtol=1e-9), name


def test_what_rolls_comes_to_rest_as_viscous_friction_has_it():
    """Rolling without slipping: speed falls by e in (m r^2 + I) / damping seconds."""
    rod = next(design for design in object_set("train") if design.name.endswith("rod"))
    radius = rod.half_extents[2]
    model = build((rod,))
    data = mujoco.MjData(model)
    at, dof = model.nq - 7, model.nv - 6
    data.qpos[at:] = [0.5, 0.0, radius, 1, 0, 0, 0]  # its axis along y, far from hand and walls
    mujoco.mj_forward(model, data)
    data.qvel[dof : dof + 6] = [0.1, 0, 0, 0, 0.1 / radius, 0]
    ticks = round(0.1 / TICK_S)
    speeds = []
    for _ in range(3):
        mujoco.mj_step(model, data, ticks)
        speeds.append(data.qvel[dof])
    fall_s = (rod.mass * radius**2 + rod.inertia[1]) / ROLLING_DAMPING
    expected = np.exp(-0.1 / fall_s)
    assert np.allclose(np.divide(speeds[1:], speeds[:-1]), expected, atol=0.03)


# --- Kinematics and motion


def test_forward_kinematics_are_mujocos():
    model = build(object_set("household")[:MAX_OBJECTS])
    data = mujoco.MjData(model)
    joints = np.random.default_rng(0).uniform(JOINT_LOW, JOINT_HIGH, (30, 7))
    tips, rotations, _, _ = kinematics.forward(joints)
    hand = model.body("hand").id
    for q, tip, rotation in zip(joints, tips, rotations, strict=True):
        data.qpos[:7] = q
        mujoco.mj_kinematics(model, data)
        matrix = data.xmat[hand].reshape(3, 3)
        assert rotation == pytest.approx(matrix, abs=1e-12)
        assert tip == pytest.approx(data.xpos[hand] + FINGERTIP_M * matrix[:, 2], abs=1e-12)


def test_inverse_kinematics_reach_the_whole_workspace():
    wanted = np.random.default_rng(0).uniform(LOW, HIGH, (300, 4))
    joints = kinematics.joints_at(wanted)
    assert np.abs(kinematics.difference(kinematics.pose(joints), wanted)).max() < 1e-4
    assert ((joints >= JOINT_LOW) & (joints <= JOINT_HIGH)).all()


@given(seed=st.integers(0, 10_000), switch=st.integers(0, 30))
def test_the_reference_obeys_its_limits_and_keeps_its_velocity(seed, switch):
    rng = np.random.default_rng(seed)
    limits = motion.Limits()
    reference, velocity = rng.uniform(LOW, HIGH, (1, 4)), np.zeros((1, 4))
    goal = np.clip(reference + SCALE * rng.uniform(-1, 1, (1, 4)), LOW, HIGH)
    dt = np.full(1, CONTROL_TICKS * TICK_S)
    for k in range(150):
        if k == switch:  # a new action pre-empts
            goal = np.clip(reference + SCALE * rng.uniform(-1, 1, (1, 4)), LOW, HIGH)
        before = velocity
        reference, velocity = motion.advance(reference, velocity, goal, dt, limits)
        change = (velocity - before)[0]
        assert np.linalg.norm(velocity[0, :3]) <= limits.speed + 1e-9
        assert np.linalg.norm(change[:3]) <= limits.acceleration * dt[0] + 1e-9
        assert abs(velocity[0, 3]) <= limits.yaw_speed + 1e-9
        assert abs(change[3]) <= limits.yaw_acceleration * dt[0] + 1e-9
    assert reference == pytest.approx(goal, abs=1e-4)
    assert velocity == pytest.approx(0, abs=1e-3)


# --- Time


def as_action(displacement, grip):
    """Columns of an action that moves, and opens (+1) or closes (-1) the gripper."""
    action = np.zeros((len(displacement), actions.SIZE))
    action[:, :4] = displacement
    action[:, actions.CLOSE], action[:, actions.OPEN] = grip < 0, grip > 0
    return action


def by_hand(world, action, latency, period):
    """A decision tick by tick: a turn of the controller at the capture, at the switch, and every
    20 ms after each of them. Gives the poses at the switch."""
    n = world.n
    poses = np.zeros((n, 4))
    for now in range(max(period) + 1):
        switching = latency == now
        if switching.any():
            poses[switching] = world.pose()[switching]
            world.switch(switching, action)
        before = now < latency
        turn = np.where(before, now, now - latency) % CONTROL_TICKS == 0
        left = np.where(before, latency, period) - now
        running = now < period
        if (turn & running).any():
            world.control(turn & running, np.minimum(CONTROL_TICKS, left))
        if running.any():
            world.physics(running, 1)
    return poses


@pytest.mark.parametrize(
    ("latency", "period"),
    [
        ([25] * 4, [75] * 4),
        ([0] * 4, [75] * 4),
        ([33] * 4, [61] * 4),
        ([75] * 4, [75] * 4),
        ([7] * 4, [7] * 4),
        ([0, 12, 25, 60], [75, 75, 50, 61]),
    ],
)
def test_a_decision_is_what_stepping_by_hand_gives(scenes, latency, period):
    """Latency and period need not be whole turns of the controller."""
    ours, twin = started(scenes, 4), started(scenes, 4)
    rng = np.random.default_rng(0)
    latency, period = np.array(latency), np.array(period)
    for _ in range(3):
        action = as_action(rng.uniform(-1, 1, (4, 4)), rng.choice([-1.0, 0, 1], 4))
        decision = ours.decide(action, latency, period)
        poses = by_hand(twin, action, latency, period)
        at_switch = np.zeros((4, 4))
        for which, pose, _ in decision.switches:
            at_switch[which] = pose[which]
        assert at_switch == pytest.approx(poses, abs=1e-9)
        assert ours.vector_to_go() == pytest.approx(twin.vector_to_go(), abs=1e-9)
        assert ours.reference == pytest.approx(twin.reference, abs=1e-12)
        assert ours.qpos == pytest.approx(twin.qpos, abs=1e-9)


@pytest.mark.parametrize("latency", [0, 20, 21, 24, 25, 33])
def test_a_new_action_commands_the_joints_from_its_switch_on(scenes, latency):
    """Not from the next turn that would have been: latencies are exact to the tick."""
    world, at = started(scenes, 1), []
    physics, now = world.physics, 0
    before = world.ctrl.copy()

    def watched_physics(which, ticks):
        nonlocal now
        if not at and (world.ctrl[:, 7:] != before[:, 7:]).any():  # of the fingers
            at.append(now)
        now += ticks
        physics(which, ticks)

    world.physics = watched_physics
    one = np.ones(1, int)
    world.decide(as_action(np.array([[1.0, 0, 1, 0]]), np.array([-1.0])), latency * one, 75 * one)
    assert at == [latency]


def test_environments_with_their_own_latencies_do_not_disturb_each_other(scenes):
    latency, period = np.array([0, 12, 25, 60]), np.array([75, 75, 50, 61])
    rng = np.random.default_rng(1)
    action = as_action(rng.uniform(-1, 1, (4, 4)), np.array([0.0, -1, 1, -1]))
    together = started(scenes, 4)
    together.decide(action, latency, period)
    for i in range(4):
        alone = started(scenes, 4)
        only = np.arange(4) == i
        alone.decide(action, latency, period, active=only)
        assert together.qpos[i] == pytest.approx(alone.qpos[i], abs=1e-12)
        assert together.goal[i] == pytest.approx(alone.goal[i], abs=1e-12)


def test_blocking_ends_at_the_goal_and_at_rest(scenes):
    world = started(scenes)
    up = np.tile([0.5, -0.5, 0.5, 0.8], (8, 1))
    decision = world.decide(as_action(up, np.zeros(8)), np.full(8, 25), None)
    assert np.abs(world.vector_to_go()[:, :4] * SCALE).max(axis=0) == pytest.approx(0, abs=0.03)
    assert np.abs(world.qvel[:, :7]).max() < 0.1
    seconds = (decision.period_ticks - 25) * TICK_S
    assert ((seconds > 0.3) & (seconds < 1.1)).all()  # a displacement takes about half a second


def test_blocking_waits_for_the_fingers_and_not_for_ever(scenes, monkeypatch):
    world = started(scenes)
    latency = np.array([0, 1, 2, 3, 4, 5, 25, 33])
    still = np.zeros((8, 4))
    waited = world.decide(as_action(still, np.zeros(8)), latency, None).period_ticks - latency
    closing = world.decide(as_action(still, -np.ones(8)), latency, None).period_ticks - latency
    assert (waited == 25).all()  # nothing to wait for
    assert world.opening().max() < 0.02  # closed on nothing, high above the bin
    assert ((closing > 25) & (closing < 275)).all()
    assert (closing % CONTROL_TICKS == 0).all()  # seen at a turn of the controller
    monkeypatch.setattr(world, "_arrived", lambda: np.zeros(8, bool))
    stuck = world.decide(as_action(still, np.zeros(8)), latency, None).period_ticks - latency
    assert (stuck == 275).all()


@pytest.mark.parametrize(("latency", "period"), [(25, 75), (7, 31), (0, 26), (0, 6), (33, 61)])
def test_limits_of_the_arm_are_kept(scenes, latency, period):
    """At every tick, also where turns of the controller are cut short."""
    world = started(scenes)
    force = world.batch.bind("actuator_force")
    rng = np.random.default_rng(0)
    physics, speeds = world.physics, []

    def watched(which, ticks):
        for _ in range(ticks):
            physics(which, 1)
            speeds.append(np.abs(world.qvel[:, :7]) / JOINT_SPEED)

    world.physics = watched
    for _ in range(1500 // period):
        action = as_action(rng.uniform(-1, 1, (8, 4)), rng.choice([-1.0, 0, 1], 8))
        world.decide(action, np.full(8, latency), np.full(8, period))
        joints = world.qpos[:, :7]
        assert ((joints > JOINT_LOW - 0.01) & (joints < JOINT_HIGH + 0.01)).all()
        assert (np.abs(force[:, :7]) <= JOINT_TORQUE).all()
        assert np.isfinite(world.qpos).all()
    assert np.max(speeds) < 1.02  # the fastest joint may touch its limit


# --- Scenes and scripted policies


def test_scenes_are_settled_and_repeat(scenes):
    assert ((scenes.objects >= 0).sum(axis=1) == 3).all()
    again = make_scenes(object_set("train"), 32, 3, 3, seed=0, threads=1)
    assert (again.state == scenes.state).all()
    world = started(scenes)
    before = world.objects()[:, :3, :3]
    world.physics(np.ones(8, bool), 250)
    assert np.abs(world.objects()[:, :3, :3] - before).max() < 2e-3
    assert np.abs(world.vector_to_go()).max() < 1e-3  # the arm stands still
    for fewest, most in ((0, 3), (2, 1), (1, 6)):
        with pytest.raises(ValueError, match="a bin holds 1 to 5 objects"):
            make_scenes(object_set("train"), 1, fewest, most, seed=0, threads=1)


@pytest.mark.parametrize("blocking", [True, False])
def test_the_privileged_policy_grasps(scenes, blocking):
    world = started(scenes)
    latency, period = np.full(8, 25), None if blocking else np.full(8, 75)
    done = np.zeros(8, bool)
    for _ in range(25):
        action = scripted.privileged(world, latency)
        done |= action[:, actions.TERMINATE] > 0
        world.decide(action, latency, period, active=~done)
        if done.all():
            break
    assert done.all()
    assert world.lifted().any(axis=1).all()
    # what is held does not creep away in five seconds
    world.decide(np.zeros((8, actions.SIZE)), np.zeros(8, int), np.full(8, 50))  # come to rest
    held = world.lifted()
    in_hand = (world.objects()[..., :3] - world.pose()[:, None, :3])[held]
    world.decide(np.zeros((8, actions.SIZE)), np.zeros(8, int), np.full(8, 1250))
    later = (world.objects()[..., :3] - world.pose()[:, None, :3])[held]
    assert np.abs(later - in_hand).max() < 1e-3

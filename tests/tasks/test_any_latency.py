"""Whole environments against the words of the rule: any latency, both thinkers, lost decisions.

`Rule` is a plain list of decisions, walked one tick at a time; it knows nothing of `flight.py`. The
physics beside it is stepped one tick at a time too. States, observations with every knowledge
column, and `info` must be equal to the last bit (sums of rewards: up to the order of adding).
"""

from dataclasses import dataclass

import mujoco
import numpy as np
import pytest
from gymnasium.utils import seeding
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from midstride.knowledge import FEATURES
from midstride.latency import Fixed, Jittered, Lossy, PerEpisode, PerStep, Sampled, Trace
from midstride.tasks.env import TaskVectorEnv
from midstride.tasks.grasp import actions as columns
from midstride.tasks.grasp.env import GraspVectorEnv
from midstride.tasks.grasp.world import CONTROL_TICKS, World
from midstride.tasks.settings import make_task
from tests.helpers import TASK_NAMES

TICK_S, GRASP_TICK_S = 0.005, 0.004


@dataclass
class Decision:
    number: int
    capture: int
    latency: int
    lost: bool
    action: np.ndarray  # its columns


class Rule:
    """What is in force, tick by tick."""

    def __init__(self, period, longest, serial, size):
        self.period, self.longest, self.serial, self.size = period, longest, serial, size
        self.now, self.decisions, self.in_force, self.stale = 0, [], None, 0

    def decide(self, action, latency, lost):
        """An observation is taken now."""
        self.decisions.append(Decision(len(self.decisions), self.now, latency, lost, action))
        self.stale = 0

    def arrive(self):
        """Whether something new comes into force at this tick. The newest observation wins."""
        arrived = [d for d in self.waiting() if d.capture + d.latency == self.now]
        if not arrived:
            return False
        newest = arrived[-1]
        self.stale += len([d for d in self.waiting() if d.number < newest.number])
        self.in_force = newest
        return True

    def waiting(self):
        """Decisions that will arrive and are not overtaken; oldest first."""
        last = -1 if self.in_force is None else self.in_force.number
        return [d for d in self.decisions if d.number > last and not d.lost]

    def interval(self):
        """From the last capture to the next one: a multiple of the period."""
        ticks = self.period
        while self.serial and ticks < self.decisions[-1].latency:
            ticks += self.period
        return ticks

    def pending(self):
        """What an agent takes for pending at a capture: it is not told what was lost."""
        if self.serial:
            return []  # it has only one thought at a time, and that is finished
        last = -1 if self.in_force is None else self.in_force.number
        return [
            d for d in self.decisions if d.number > last and d.capture + self.longest > self.now
        ]

    def pending_columns(self):
        """One slot for each capture less than the longest latency ago; oldest first."""
        slots = 0 if self.serial else max(0, -(-self.longest // self.period) - 1)
        rows = np.zeros((slots, self.size), np.float32)
        for d in self.pending():
            ago = len(self.decisions) - d.number
            if ago <= slots:
                rows[-ago] = d.action
        return rows.ravel()

    def previous(self):
        return np.zeros(self.size) if self.in_force is None else self.in_force.action

    @property
    def newest_in_force(self):
        return self.in_force is not None and self.in_force is self.decisions[-1]

    def measured(self):
        return 0 if self.in_force is None else self.in_force.latency


@st.composite
def latency_models(draw, tick_s, most):
    """A model of every kind, in ticks up to `most`, and the longest latency in ticks."""
    ticks = sorted(draw(st.lists(st.integers(0, most), min_size=1, max_size=4)))
    times_s = tuple(t * tick_s for t in ticks)
    low_s, high_s = times_s[0], times_s[-1]
    kind = draw(st.sampled_from(["fixed", "episode", "step", "jitter", "sampled", "trace"]))
    if kind == "fixed":
        model, longest = Fixed(high_s), ticks[-1]
    elif kind == "jitter":
        model, longest = Jittered(high_s, low_s), ticks[-1] + ticks[0]
    elif kind == "sampled":
        model = Sampled(lambda rng, n: rng.exponential(most * tick_s / 2, n), low_s, high_s)
        longest = ticks[-1]
    else:
        kinds = {"episode": PerEpisode, "step": PerStep, "trace": Trace}
        model, longest = kinds[kind](times_s), ticks[-1]
    share = draw(st.sampled_from([None, 0.0, 0.3, 0.8]))
    return (model if share is None else Lossy(model, share)), longest


class TaskReference:
    """One environment of a task, with MuJoCo's own step."""

    def __init__(self, env, i, rule):
        self.task, self.rule = env.task, rule
        self.data = mujoco.MjData(env.task.model)
        self.data.qpos[:], self.data.qvel[:] = env.plant.qpos[i], env.plant.qvel[i]
        self.data.ctrl[:] = self.data.qpos[env.task.controlled.qpos]
        self.moves, self.measured = [], 0

    def step(self, limit):
        """To the next capture: how far; latency, and rewards before and after the switch."""
        newest, interval = self.rule.decisions[-1], self.rule.interval()
        ticks = min(interval, limit - self.rule.now)
        newest_in_force, qpos, qvel = [], [], []
        for _ in range(ticks):
            self._follow()
            mujoco.mj_step(self.task.model, self.data)
            newest_in_force.append(self.rule.newest_in_force)
            qpos.append(self.data.qpos.copy())
            qvel.append(self.data.qvel.copy())
            self.rule.now += 1
        self._follow()
        paid = self.task.reward(np.array(qpos), np.array(qvel)) * self.task.reward_per_s * TICK_S
        rewards = paid[~np.array(newest_in_force)].sum(), paid[newest_in_force].sum()
        latency, self.measured = newest.latency, self.rule.measured()
        if latency <= interval:  # the end of the episode may cut it off
            latency = min(latency, ticks)
            self.measured = self.measured if newest.lost else latency
        return ticks, (latency, *rewards)

    def _follow(self):
        if self.rule.arrive():
            c = self.task.controlled
            move = self.moves[self.rule.in_force.number]
            self.data.ctrl[:] = np.clip(self.data.qpos[c.qpos] + move * c.scale, c.low, c.high)

    def observation(self):
        c, longest = self.task.controlled, self.rule.longest
        to_go = self.data.ctrl - self.data.qpos[c.qpos]
        to_go = np.where(c.wraps, (to_go + np.pi) % (2 * np.pi) - np.pi, to_go) / c.scale
        time = self.measured * TICK_S / (longest * TICK_S) if longest else 0.0
        base = self.task.observe(self.data.qpos, self.data.qvel)
        known = [base, self.rule.previous(), self.rule.pending_columns(), [time], to_go]
        return np.concatenate(known).astype(np.float32)


@pytest.mark.parametrize("name", TASK_NAMES)
@given(
    data=st.data(),
    serial=st.booleans(),
    discrete=st.booleans(),
    period=st.integers(1, 9),
    unit=st.sampled_from([1, 1, 1, 43]),  # long periods: episodes end
    seed=st.integers(0, 99),
)
@settings(max_examples=30, deadline=None)
def test_tasks(name, data, serial, discrete, period, unit, seed):
    model, longest = data.draw(latency_models(unit * TICK_S, 40))
    period, longest = period * unit, longest * unit
    assume(longest * TICK_S < make_task(name).time_limit_s)
    env = TaskVectorEnv(
        name, 2, 1, latency=model, period=period * TICK_S, knowledge=FEATURES,
        thinker="serial" if serial else "pipelined", actions=5 if discrete else "continuous",
    )  # fmt: skip
    observation, _ = env.reset(seed=seed)
    env.action_space.seed(seed)

    def begin(i):
        return TaskReference(env, i, Rule(period, longest, serial, len(env.layout.action)))

    ours = [begin(0), begin(1)]
    for _ in range(9):
        action = env.action_space.sample()
        latency, _, lost = env._schedule.coming()
        observation, reward, _, truncated, info = env.step(action)
        last = info.get("final_obs", observation)
        for i, one in enumerate(ours):
            columns = np.eye(5)[action[i]] if discrete else action[i].astype(float)
            one.rule.decide(columns, int(latency[i]), bool(lost[i]))
            one.moves.append(env.task.displacements(5)[action[i]] if discrete else columns)
            ticks, expected = one.step(round(env.task.time_limit_s / TICK_S))
            check(info, i, one.rule, ticks, expected, TICK_S)
            assert reward[i] == info["reward_before_switch"][i] + info["reward_after_switch"][i]
            assert last[i].tolist() == one.observation().tolist()
            if truncated[i]:
                ours[i] = begin(i)
                assert observation[i].tolist() == ours[i].observation().tolist()
            else:
                assert info["pending"][i] == len(one.rule.pending())
                assert (env.plant.qpos[i] == one.data.qpos).all()
                assert (env.plant.qvel[i] == one.data.qvel).all()


def check(info, i, rule, ticks, expected, tick_s):
    """`info` of environment i; `expected`: latency in ticks, rewards before and after."""
    latency, before, after = expected
    assert info["reward_before_switch"][i] == pytest.approx(before, rel=1e-12, abs=1e-12)
    assert info["reward_after_switch"][i] == pytest.approx(after, rel=1e-12, abs=1e-12)
    assert info["latency_s"][i] == latency * tick_s
    assert info["period_s"][i] == ticks * tick_s
    assert info["stale"][i] == rule.stale
    assert info["lost"][i] == rule.decisions[-1].lost


class GraspReference:
    """One bin of a world whose controller has its turns by hand."""

    def __init__(self, world, i, rule):
        self.world, self.i, self.rule = world, i, rule
        self.which = np.arange(world.n) == i

    def step(self):
        newest = self.rule.decisions[-1]
        ends = newest.action[columns.TERMINATE] > 0.5 and not newest.lost
        ticks = newest.latency if ends else self.rule.interval()
        end, since = self.rule.now + ticks, self.rule.now
        while True:
            if self.rule.arrive():
                self.world.switch(self.which, np.tile(self.rule.in_force.action, (2, 1)))
                since = self.rule.now
            if self.rule.now == end:
                return ends, ticks
            if (self.rule.now - since) % CONTROL_TICKS == 0:
                coming = [d.capture + d.latency for d in self.rule.waiting()]
                ahead = min([*coming, end]) - self.rule.now
                self.world.control(self.which, np.full(2, min(CONTROL_TICKS, ahead)))
            self.world.physics(self.which, 1)
            self.rule.now += 1

    def known(self):
        """The knowledge columns."""
        rule = self.rule
        time = rule.measured() * GRASP_TICK_S / (rule.longest * GRASP_TICK_S) if rule.longest else 0
        to_go = self.world.vector_to_go()[self.i]
        return np.concatenate([rule.previous(), rule.pending_columns(), [time], to_go])


@given(data=st.data(), serial=st.booleans(), period=st.integers(5, 40), seed=st.integers(0, 9))
@settings(max_examples=15, deadline=None)
def test_grasping(data, serial, period, seed):
    model, longest = data.draw(latency_models(GRASP_TICK_S, 100))
    assume(longest < 5 * period)
    env = GraspVectorEnv(
        2, 1, latency=model, period=period * GRASP_TICK_S, knowledge=FEATURES, scenes=4,
        thinker="serial" if serial else "pipelined", observation="state", max_steps=5,
        step_penalty=0.01,
    )  # fmt: skip
    env.reset(seed=seed)
    twin = World(2, env.world.designs, 1, 1)
    chosen = np.array([seeding.np_random(seed + i)[0].integers(4, size=2) for i in range(2)])
    env.scenes.start(twin, np.arange(2), chosen[:, 0], hands=chosen[:, 1])
    ours = [GraspReference(twin, i, Rule(period, longest, serial, columns.SIZE)) for i in range(2)]
    rng = np.random.default_rng(seed)
    for k in range(5):
        action = rng.uniform(columns.LOW, columns.HIGH, (2, columns.SIZE))
        action[:, columns.TERMINATE] = rng.random(2) < 0.1
        latency, _, lost = env._schedule.coming()
        observation, *_, info = env.step(action)
        last = info.get("final_obs", observation)
        for i, one in enumerate(ours):
            if one is None:
                continue  # its episode is over
            one.rule.decide(action[i], int(latency[i]), bool(lost[i]))
            ends, ticks = one.step()
            paid = float(twin.lifted()[i].any() and (ends or k == 4))
            share = latency[i] / max(ticks, 1) if one.rule.newest_in_force else 1.0
            at_switch = ends or not one.rule.newest_in_force
            before, after = (paid, 0.0) if at_switch else (0.0, paid)
            expected = latency[i], before - 0.01 * share, after - 0.01 * (1 - share)
            check(info, i, one.rule, ticks, expected, GRASP_TICK_S)
            known = last[i][-len(one.known()) :]
            assert known.tolist() == one.known().astype(np.float32).tolist()
            if ends or k == 4:
                ours[i] = None
                continue
            assert info["pending"][i] == len(one.rule.pending())
            assert (env.world.qpos[i] == twin.qpos[i]).all()

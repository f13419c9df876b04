"""What a record tells of a world with latency, against that world itself.

Frozen row i lasts from i H to (i + 1) H. With m = ceil(t_AS / H) its capture lies m H - t_AS after
the beginning of the row. So a concurrent episode that begins there, holds until its first switch
(at m H) and then decides d_0, d_1, ... is the frozen episode that holds for m rows and then does
d_0, d_1, ...: capture k is of row k, and decision k switches where row m + k begins. Both are run,
and compared to the last bit.
"""

from functools import cache

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from midstride import Concurrent, Fixed, Jittered, Lossy, PerEpisode, PerStep, Timing, Trace
from midstride.envs.actions import ActionCode, at_rest
from midstride.envs.dm_control import DMControlEnv
from midstride.envs.inside import InsideSteps
from midstride.knowledge import Layout
from midstride.learn.hindsight import hindsight, mixed, ticks_within
from midstride.learn.record import Record, joined

KNOWLEDGE = ("previous_action", "pending_actions", "selection_time")
PHYSICS = ("InvertedDoublePendulum-v5", "Hopper-v5", "HalfCheetah-v5", "dmc:walker/walk")
STEPS = {"CartPole-v1": 0.02, "Pendulum-v1": 0.05}  # how long a step of the others lasts


@cache
def bare(name):
    if name.startswith("dmc:"):
        pytest.importorskip("dm_control")
        return DMControlEnv(*name.removeprefix("dmc:").split("/"))
    return gymnasium.make(name)


def wrapped(name, latency_ticks, own_steps=1, **options):
    """The environment at a latency in ticks, with a period of so many steps of its own."""
    env = bare(name)
    if name in STEPS:
        tick_s = STEPS[name]
        options |= {"step_s": tick_s, "period": own_steps * tick_s}
    else:
        tick_s = env.unwrapped.model.opt.timestep
    return Concurrent(env, latency_ticks * tick_s, **options)


def frozen(env, actions, seed, within=()):
    """The record of an episode without latency in which `actions` are done; None: held."""
    if within:
        env.look_within(within)
    rows = []
    observation, _ = env.reset(seed=seed)
    for action in actions:
        done = at_rest(env.action_space) if action is None else action
        after, _, terminated, truncated, info = env.step(done)
        if round(info["period_s"] / env.timing.tick_s) < env.timing.shortest_period_ticks:
            break  # it ended inside of the step
        seen = [info["within"][tick] for tick in within]
        rows.append((observation, done, after, terminated, truncated, action is None, *seen))
        observation = after
        if terminated or truncated:
            break
    if not rows:
        return None
    parts = [np.asarray(part) for part in zip(*rows, strict=True)]
    return Record(*parts[:6], within=dict(zip(within, parts[6:], strict=True)))


def lived(env, actions, seed, begin=0):
    """The same actions decided with latency, from `begin` held ticks after the reset on.

    What was observed at each capture, at the switch of each decision by its number, and whether the
    last step ended by a termination.
    """
    first, _ = env.reset(seed=seed)
    base = env.layout.slices["base"]
    if begin:
        first[base] = hold_for(env, begin)
    observed, switches = [first], {}
    terminated = False
    for action in actions:
        observation, _, terminated, truncated, info = env.step(action)
        observed.append(observation)
        switches |= dict(info["switches"])
        if terminated or truncated:
            break
    return observed, switches, terminated


def hold_for(env, ticks):
    """Let time pass before the episode, by the environment's own means; what it observes then."""
    inner = env.unwrapped
    if isinstance(env._way, InsideSteps):
        inner._step_mujoco_simulation(np.zeros(inner.model.nu), ticks)
        return inner._get_obs()
    for _ in range(ticks):
        observation, *_ = env.env.step(at_rest(env.action_space))
    return observation


def drawn(space, count, seed):
    space.seed(seed)
    return [space.sample() for _ in range(count)]


def both(name, latency, steps, seed, own_steps=1):
    """A frozen and a concurrent episode of the same actions and switches."""
    env = wrapped(name, latency, own_steps, knowledge=KNOWLEDGE, observe_switch=True)
    period = env.timing.shortest_period_ticks
    m = -(-latency // period)
    actions = drawn(env.action_space, steps, seed)
    seen = lived(env, actions, seed, m * period - latency)
    calm = wrapped(name, 0, own_steps)
    record = frozen(calm, [None] * m + actions[: steps - m], seed, ticks_within(env.timing))
    return env, record, seen


def told(env, record):
    code = ActionCode(env.action_space)
    return mixed(record, code, env.layout, env.timing, np.random.default_rng(0))


@given(
    name=st.sampled_from([*PHYSICS, *STEPS]),
    behind=st.integers(0, 5),
    steps=st.integers(6, 24),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=120)
def test_whole_steps_are_what_the_environment_gives_at_that_latency(name, behind, steps, seed):
    """Every capture whose decision comes into force, and no other, to the end of the episode."""
    period = wrapped(name, 0).timing.shortest_period_ticks
    env, record, (observed, switches, terminated) = both(name, behind * period, steps, seed)
    assert np.array_equal(record.terminated[-1], terminated)
    if terminated and behind:  # what comes into force as the episode ends is not asked for
        switches.pop(len(record) - behind, None)
    if not switches:  # all were pending when it fell
        with pytest.raises(ValueError, match="no episode of the record lasts the"):
            told(env, record)
        return
    found = told(env, record)
    assert found.rows.tolist() == sorted(switches)
    assert np.array_equal(found.inputs, np.array([observed[k] for k in found.rows]))
    assert found.inputs.dtype == observed[0].dtype
    assert np.array_equal(found.observation_switch, np.array([switches[k] for k in found.rows]))


@given(data=st.data(), name=st.sampled_from([*PHYSICS, *STEPS]), seed=st.integers(0, 10**6))
@settings(max_examples=120)
def test_any_tick_is_what_the_environment_gives_at_that_latency(data, name, seed):
    """As above, for latencies that are no whole steps.

    Captures lie inside of rows, and so an episode may fall at other instants: compared is what
    both have.
    """
    own_steps = data.draw(st.integers(2, 4)) if name in STEPS else 1
    period = wrapped(name, 0, own_steps).timing.shortest_period_ticks
    latency = data.draw(st.integers(1, 4 * period).filter(lambda ticks: ticks % period))
    env, record, (observed, switches, _) = both(name, latency, 14, seed, own_steps)
    ended = record is None or len(record) < 14 or record.terminated[-1] or len(observed) < 15
    whole = None
    if ended:
        m = -(-latency // period)
        whole = min(0 if record is None else len(record), len(observed) - 1) - m
        if whole < 1:
            return
    found = told(env, record)
    rows = found.rows[:whole].tolist()
    assert rows == sorted(switches)[:whole]
    assert np.array_equal(found.inputs[:whole], np.array([observed[k] for k in rows]))
    assert np.array_equal(found.observation_switch[:whole], np.array([switches[k] for k in rows]))


@pytest.mark.parametrize("name", ["HalfCheetah-v5", "Pendulum-v1"])
def test_several_latencies_have_one_layout(name):
    """Pending actions stand where the longest latency has them, selection time on its scale."""
    timing = wrapped(name, 0).timing
    tick_s, period = timing.tick_s, timing.shortest_period_ticks
    choices = [0, period, 2 * period, 4 * period]
    model = PerEpisode(tuple(tick_s * ticks for ticks in choices))
    options = {"step_s": STEPS[name]} if name in STEPS else {}
    env = Concurrent(bare(name), model, KNOWLEDGE, observe_switch=True, **options)
    assert env.layout.pending_slots == 3
    met = set()
    for seed in range(12):
        actions = drawn(env.action_space, 10, seed)
        observed, switches, _ = lived(env, actions, seed)
        env.reset(seed=seed)
        latency = round(env.step(actions[0])[4]["latency_s"] / tick_s)
        m = latency // period
        record = frozen(wrapped(name, 0), [None] * m + actions[: 10 - m], seed)
        found = hindsight(
            record,
            ActionCode(env.action_space),
            env.layout,
            period,
            latency,
            latency / (4 * period),
        )
        assert found.rows.tolist() == sorted(switches)
        assert np.array_equal(found.inputs, np.array([observed[k] for k in found.rows]))
        assert np.array_equal(found.observation_switch, [switches[k] for k in found.rows])
        met.add(latency)
    assert met == set(choices)


# --- By hand --------------------------------------------------------------------------------------


def counted(steps, terminated=False, truncated=False, held=0, first=0.0, actions=None):
    """An episode that observes the time: row i goes from i to i + 1, half of it at i + 0.5."""
    at = first + np.arange(steps, dtype=float)[:, None]
    end = np.zeros(steps, bool)
    end[-1] = True
    return Record(
        at,
        at / 10 if actions is None else actions,
        at + 1,
        end & terminated,
        end & truncated,
        np.arange(steps) < held,
        within={1: at + 0.5},
    )


def layout(slots=0, actions=1, features=KNOWLEDGE):
    names = tuple(map(str, range(actions)))
    return Layout(("time",), names, None, features, pending_slots=slots)


UNIT = ActionCode(spaces.Box(-1.0, 1.0, (1,), np.float64))


def test_columns_by_hand():
    """Two ticks to a period, a latency of 5 ticks: captured half-way through row i, m = 3."""
    found = hindsight(counted(6, held=1), UNIT, layout(3), 2, 5, 0.5)
    # time | in force | three ago, two ago, one ago | measured
    assert found.inputs == pytest.approx(
        np.array(
            [
                [0.5, 0.0, 0.0, 0.1, 0.2, 0.0],  # nothing is in force, and nothing was measured
                [1.5, 0.1, 0.0, 0.2, 0.3, 0.5],
                [2.5, 0.2, 0.0, 0.3, 0.4, 0.5],
                [3.5, 0.3, 0.0, 0.4, 0.5, 0.5],
            ]
        ),
        abs=1e-15,
    )
    assert found.observation_switch.ravel().tolist() == [3, 4, 5, 6]
    assert found.rows.tolist() == [0, 1, 2, 3]
    assert len(found) == 4


def test_without_latency_the_action_before_is_in_force():
    record = joined([counted(3, held=1, truncated=True), counted(2, first=7.0, terminated=True)])
    found = hindsight(record, UNIT, layout(), 2, 0, np.arange(5) / 10)
    assert found.inputs[:, :2] == pytest.approx(
        np.array([[0, 0], [1, 0], [2, 0.1], [7, 0], [8, 0.7]])
    )
    assert found.inputs[:, 2].tolist() == [0, 0, 0.2, 0, 0.4]  # 0 where nothing was in force
    assert found.observation_switch.ravel().tolist() == [0, 1, 2, 7, 8]


@pytest.mark.parametrize(("m", "kept"), [(1, [0, 1, 2]), (2, [0, 1]), (3, [0])])
def test_a_fall_while_decisions_are_pending(m, kept):
    """Of four steps, the last a fall: what would come into force there or later is left out."""
    assert hindsight(counted(4, terminated=True), UNIT, layout(2), 1, m).rows.tolist() == kept


@pytest.mark.parametrize(("m", "kept"), [(1, [0, 1, 2, 3]), (2, [0, 1, 2]), (4, [0])])
def test_a_time_limit_is_a_state_like_others(m, kept):
    found = hindsight(counted(4, truncated=True), UNIT, layout(3), 1, m)
    assert found.rows.tolist() == kept
    assert found.observation_switch[-1] == 4


def test_no_row_reaches_into_the_next_episode():
    record = joined(
        [counted(3, terminated=True), counted(2, first=20), counted(3, True, first=30.0)]
    )
    found = hindsight(record, UNIT, layout(1), 1, 2)
    assert found.inputs[:, 0].tolist() == [0, 20, 30]
    assert found.observation_switch.ravel().tolist() == [2, 22, 32]
    with pytest.raises(ValueError, match=r"lasts the 4 steps of the latency \(the longest has 3\)"):
        hindsight(record, UNIT, layout(3), 1, 4)


def test_choices_are_one_hot_and_nothing_is_no_choice():
    code = ActionCode(spaces.Discrete(3))
    record = counted(4, truncated=True, held=1, actions=np.array([0, 2, 1, 0]))
    found = hindsight(record, code, layout(1, 3), 1, 2)
    assert found.inputs[:, 1:4].tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert found.inputs[:, 4:7].tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]


def test_whole_numbers_that_are_observed_do_not_round_actions():
    at, no = np.arange(3)[:, None], np.zeros(3, bool)
    whole = Record(at, at / 10, at + 1, no, no)
    found = hindsight(whole, UNIT, layout(features=("previous_action",)), 1, 1)
    assert found.inputs[:, 1].tolist() == pytest.approx([0, 0.1, 0.2])
    assert found.inputs.dtype == np.float32  # as Concurrent gives them


@pytest.mark.parametrize(
    ("latency", "within"),
    [
        (Fixed(0.0), ()),
        (Fixed(0.04), ()),
        (Fixed(0.03), (1,)),
        (Fixed(0.05), (3,)),
        (Lossy(0.03, 0.5), (1,)),
        (PerStep((0.03, 0.05)), (1, 3)),  # and 40 ms, which may come of rounding: whole steps
        (Jittered(0.04, 0.04), (1, 2, 3)),
        (Trace((0.011, 0.019), "up"), (2,)),
    ],
)
def test_ticks_within(latency, within):
    """Four ticks of 10 ms: a latency of k is captured -k modulo 4 after a row's beginning."""
    assert ticks_within(Timing(latency, period_s=0.04, tick_s=0.01)) == within


def test_what_was_not_recorded_is_said():
    with pytest.raises(ValueError, match="does not hold what was observed 2 ticks into a step"):
        hindsight(counted(4), UNIT, layout(), 3, 1)
    for more in ({"features": ("vector_to_go",), "controlled": ("x",)}, {"stack_actions": 1}):
        with pytest.raises(ValueError, match="leave out vector_to_go and stacking"):
            hindsight(
                counted(4), UNIT, Layout(("t",), ("0",), **({"controlled": None} | more)), 1, 1
            )


# --- Latencies that vary --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "latency", [PerStep((0.0, 0.01, 0.02, 0.04)), PerEpisode((0.0, 0.01, 0.02, 0.04))]
)
def test_each_step_has_a_latency_of_those_that_occur(latency):
    """Whatever is drawn for a row, its columns are those of that latency alone."""
    timing = Timing(latency, period_s=0.02, tick_s=0.01)
    record, columns = counted(6400), layout(1)
    found = mixed(record, UNIT, columns, timing, np.random.default_rng(0))
    assert 6390 <= len(found) == len(set(found.rows)) <= 6400
    ticks = np.empty(len(found), int)
    for latency_ticks in (0, 1, 2, 4):
        alone = hindsight(record, UNIT, columns, 2, latency_ticks, 9.0)
        at = np.searchsorted(alone.rows, found.rows)
        at = np.minimum(at, len(alone) - 1)
        same = (alone.inputs[at, :3] == found.inputs[:, :3]).all(axis=1)
        same &= (alone.observation_switch[at] == found.observation_switch).all(axis=1)
        ticks[same] = latency_ticks
        assert 0.15 < same.mean() < 0.35
    measured = found.inputs[:, 3]
    assert set(measured) == {0.0, 0.25, 0.5, 1.0}
    if isinstance(latency, PerEpisode):  # what is measured is what it is
        assert (measured[1:] == ticks[1:] / 4).all()
    else:  # what is measured is of the decision in force, which tells nothing of this one
        assert abs(np.corrcoef(measured, ticks)[0, 1]) < 0.15


def test_what_is_measured_is_of_the_decision_in_force():
    """A trace of two latencies by turns: at 10 ms (m = 1) the one before had 20 ms, and so on."""
    timing = Timing(Trace((0.01, 0.02), start="first"), period_s=0.01, tick_s=0.01)
    found = mixed(counted(64), UNIT, layout(1), timing, np.random.default_rng(0))
    at_10ms = found.observation_switch.ravel() == found.inputs[:, 0] + 1
    assert 31 <= at_10ms.sum() <= 33
    assert (found.inputs[at_10ms, 3] == 1.0).all()  # 20 ms, of the capture before
    assert (found.inputs[~at_10ms, 3] == 1.0).all()  # 20 ms, of two captures before

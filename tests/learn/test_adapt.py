"""Adapting, where the answer is known: a linear plant, and a pole on a cart."""

import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import midstride
from midstride import Concurrent, Fixed, Jittered, Lossy, PerEpisode, PerStep, Timing
from midstride.envs.wrapped import WrappedSettings
from midstride.learn.adapt import adapt, padded
from midstride.learn.adapted import Adapted, AdaptSettings, Stage
from midstride.learn.collect import record_frozen, visit
from midstride.learn.record import Record
from midstride.measure.curve import Returns
from midstride.measure.margin import MarginSettings
from midstride.policies import load, save_policy
from midstride.policies.q import QPolicy
from midstride.tasks.registry import settings_of

A, B = np.array([[1.0, 0.1], [0.6, 1.0]]), np.array([0.0, 0.5])
K = np.array([14.0, 3.2])  # both poles of A - B K at 0.2: two steps late it is unstable
BOX = spaces.Box(-1.0, 1.0, (1,), np.float64)


class Plant(gymnasium.Env):
    """x' = A x + B u in steps of 50 ms, for at most 60 of them; falls if x_0 is far from 0."""

    dt = 0.05
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space: spaces.Space = BOX

    def __init__(self, limit=60):
        self.limit = limit

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.steps = self.np_random.uniform(-0.02, 0.02, 2), 0
        return self.x.copy(), {}

    def step(self, action):
        self.x = A @ self.x + B * float(np.ravel(action)[0])
        self.steps += 1
        fell = bool(abs(self.x[0]) > 0.3)
        return self.x.copy(), 1.0, fell, self.steps >= self.limit and not fell, {}


def feedback(x):
    return np.clip([-K @ x], -1, 1)


QUICK = AdaptSettings(
    steps=2500, noise=(0.0, 0.1, 0.3), rounds=1, round_steps=500, episodes=4, hidden=(32, 32),
    updates=1500,
)  # fmt: skip


def quick(**changed):
    return AdaptSettings(**{**QUICK.to_dict(), **changed})


@pytest.fixture(scope="module")
def cured():
    """Two steps late."""
    return adapt(feedback, Plant, 0.1, settings=QUICK)


def test_a_loop_that_is_unstable_with_latency_becomes_stable(cured):
    assert cured.frozen.each == (60.0,) * 4
    assert cured.as_it_is.mean < 30  # it falls
    assert cured.adapted.each == (60.0,) * 4
    assert cured.took
    assert cured.needed
    assert cured.verdict.startswith("It took: at ")
    assert "100% of what it has without latency" in cured.verdict
    assert cured.knowledge == ("previous_action", "pending_actions")
    assert (cured.steps_frozen, cured.steps_latency) == (2500, 0)  # data alone was enough


def test_the_student_does_what_the_policy_would_do_at_the_switch(cured):
    """K x(t + 2), which follows from x(t) and both actions in flight by hand."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-0.04, 0.04, (300, 2))
    flight = rng.uniform(-0.4, 0.4, (300, 2))
    at_switch = (x @ A.T + flight[:, :1] * B) @ A.T + flight[:, 1:] * B
    wanted = np.clip(-at_switch @ K, -1, 1)
    done = cured.policy(np.concatenate([x, flight], axis=1))[:, 0]
    assert np.sqrt(np.mean((done - wanted) ** 2)) < 0.08
    assert np.sqrt(np.mean((np.clip(-x @ K, -1, 1) - wanted) ** 2)) > 0.4  # as the policy was
    assert cured.stages[0].held_out < 0.08
    assert cured.stages[0].visited < 0.05


def test_one_student_for_several_latencies_says_what_it_needs_and_margins_give_it(tmp_path):
    found = adapt(feedback, Plant, "episode:0,50ms,100ms", settings=quick(steps=4000))
    save_policy(found.policy, tmp_path)
    student = load(tmp_path)
    knowledge = ["previous_action", "pending_actions", "selection_time"]
    assert student.description["knowledge"] == knowledge
    assert student.description["latency"] == "episode:0.0,0.05,0.1"
    own = [f"observation:{i}" for i in range(2)]
    in_flight = ["previous_action:0", "pending_action:1:0", "selection_time"]
    assert student.description["columns"] == own + in_flight
    settings = MarginSettings(episodes=4, longest="100ms")
    assert midstride.margin(student, Plant, settings).delay_s == pytest.approx(0.1)
    assert midstride.margin(feedback, Plant, settings).delay_s == pytest.approx(0.05)


def test_the_same_seed_gives_the_same_student(cured):
    again = adapt(feedback, Plant, 0.1, settings=QUICK)
    other = adapt(feedback, Plant, 0.1, settings=quick(seed=1, episodes=2, rounds=0))
    assert again.stages == cured.stages
    for name, weights in cured.policy.weights.items():
        assert np.array_equal(again.policy.weights[name], weights)
    name = "actor.mean.weight"
    assert not np.array_equal(other.policy.weights[name], cured.policy.weights[name])


def test_choices():
    """CartPole under a switching line that cannot wait for two steps."""

    def push(observation):
        position, velocity, angle, spin = observation
        return int(0.01 * position + 0.02 * velocity + angle + 0.05 * spin > 0)

    found = adapt(
        push, lambda: gymnasium.make("CartPole-v1", max_episode_steps=100), "40ms",
        settings=quick(step="20ms", steps=3000, rounds=2, round_steps=1500),
    )  # fmt: skip
    assert found.frozen.mean == 100
    assert found.kept(found.as_it_is) < 0.5
    assert found.took
    assert isinstance(found.policy, QPolicy)
    assert found.policy(np.zeros(8)) in (0, 1)


def test_a_latency_inside_of_steps():
    """A period of two steps of the plant's own, a latency of one and a half periods."""
    calm = np.array([9.0, 2.2])

    def slow(x):
        return np.clip([-calm @ x], -1, 1)

    found = adapt(slow, Plant, 0.15, settings=quick(period="100ms", episodes=2, rounds=0))
    rng = np.random.default_rng(1)
    x, flight = rng.uniform(-0.03, 0.03, (200, 2)), rng.uniform(-0.3, 0.3, (200, 2))
    first = x @ A.T + flight[:, :1] * B  # one step of what is in force, two of what is pending
    second = first @ A.T + flight[:, 1:] * B
    at_switch = second @ A.T + flight[:, 1:] * B
    wanted = np.clip(-at_switch @ calm, -1, 1)
    done = found.policy(np.concatenate([x, flight], axis=1))[:, 0]
    assert np.sqrt(np.mean((done - wanted) ** 2)) < 0.12


def test_rounds_help_where_the_data_are_narrow():
    """Data of the path alone say nothing of what is beside it; where the student goes does."""
    narrow = quick(noise=(0.0,), steps=600, rounds=2, round_steps=1500, share=1.0)
    found = adapt(feedback, Plant, 0.15, settings=narrow)
    assert len(found.stages) > 1
    assert found.stages[0].returns.mean < 60
    assert found.stages[found.best].returns.mean == 60
    assert found.stages[-1].visited < found.stages[0].visited
    assert found.stages[-1].pairs > found.stages[0].pairs
    assert found.steps_latency == 1500 * (len(found.stages) - 1)


def test_data_of_ones_own():
    """The same steps as arrays, in place of the world."""
    env = Concurrent(Plant())
    policy = midstride.as_policy(feedback)
    record = record_frozen(env, policy, 2500, (0.0, 0.1, 0.3), 2, np.random.default_rng(0))
    found = adapt(feedback, Plant, 0.1, record, quick(rounds=0))
    assert found.took
    assert found.steps_frozen == 2500


def test_pad_waits_for_the_longest_up_to_the_next_step():
    timing = Timing(Fixed(0.0), period_s=0.04, tick_s=0.01)
    assert padded(Jittered(0.03, 0.02), timing) == Fixed(0.08)
    assert padded(Fixed(0.04), timing) == Fixed(0.04)
    with pytest.raises(ValueError, match="lost decision cannot be waited for"):
        padded(Lossy(0.041, 0.5), timing)
    brief = quick(pad=True, steps=600, rounds=0, episodes=2)
    found = adapt(feedback, Plant, PerStep((0.0, 0.1)), settings=brief)
    assert found.latency == Fixed(0.1)
    assert "selection_time" not in found.knowledge


# --- Verdicts -------------------------------------------------------------------------------------


def adapted(frozen, as_it_is, *students, latency=Fixed(0.05), floor=0.0):  # noqa: B008
    stages = tuple(Stage(10, 0.1, 0.2, Returns((mean, mean))) for mean in students)
    return Adapted(
        policy=None, knowledge=(), latency=latency, frozen=Returns((frozen, frozen)),
        as_it_is=Returns((as_it_is, as_it_is)), adapted=Returns((max(students), max(students))),
        stages=stages, best=int(np.argmax(students)),
        floor=floor, share=0.9, steps_frozen=0, steps_latency=0, seconds=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("found", "took", "needed", "says"),
    [
        (adapted(100.0, 20.0, 95.0), True, True, r"It took: .* keeps 95% .*\(20% as it was\)"),
        (adapted(100.0, 95.0, 99.0), True, False, "Not needed: .* keeps 95% .* adapted 99%"),
        (adapted(100.0, 20.0, 50.0), False, True, "did not take: .* errs by 0.2 .*--rounds"),
        (adapted(100.0, 20.0, 50.0, 70.0), False, True, "keeps 70% .*more steps, more rounds"),
        (
            adapted(100.0, 20.0, 50.0, latency=PerStep((0.0, 0.05))),
            False, True, "may come sooner or later: let decisions wait for the longest.*--pad",
        ),
        (adapted(-10.0, -60.0, -12.0, floor=-110.0), True, True, "keeps 98% .*50% as it was"),
        (adapted(-10.0, -60.0, -30.0, floor=-110.0), False, True, "keeps 80%"),
    ],
)  # fmt: skip
def test_verdicts(found, took, needed, says):
    assert (found.took, found.needed) == (took, needed)
    assert re.search(says, found.verdict)


def test_a_student_that_learned_nothing_is_said_not_to_take():
    """From data of some other world."""
    found = adapt(feedback, Plant, 0.1, frozen_steps(900), quick(rounds=0, episodes=2))
    assert found.verdict.startswith("It did not take: ")
    assert "--rounds" in found.verdict


def test_where_enough_is_kept_nothing_is_needed():
    found = adapt(feedback, Plant, 0.05, settings=quick(share=0.2, rounds=0, episodes=2))
    assert not found.needed
    assert found.verdict.startswith("Not needed: the policy as it is keeps ")


def test_of_several_latencies_the_worst_counts():
    """Two steps late the plant falls, and without latency it stands."""
    late = PerEpisode((0.0, 0.1))
    found = adapt(feedback, Plant, late, settings=quick(rounds=0, episodes=4, updates=2))
    assert found.as_it_is.latency == Fixed(0.1)
    assert found.kept(found.as_it_is) < 0.5
    assert "the worst of them" in found.verdict


class Lottery(Plant):
    """Pays what the seed of the episode says, in its first step."""

    def reset(self, *, seed=None, options=None):
        found = super().reset(seed=seed)
        self.prize = float(self.np_random.uniform())
        return found

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward + self.prize * (self.steps == 1), *rest


def test_who_chooses_a_student_does_not_judge_it():
    """The verdict's episodes are those of the policy; a student is chosen by others."""
    found = adapt(feedback, Lottery, 0.1, settings=quick(rounds=0))

    def prizes(returns):
        return np.round(np.mod(returns.each, 1), 9).tolist()

    assert prizes(found.adapted) == prizes(found.as_it_is) == prizes(found.frozen)
    assert len(set(prizes(found.frozen))) == 4
    assert not set(prizes(found.stages[0].returns)) & set(prizes(found.frozen))


def test_a_fall_before_the_first_decision_is_said():
    with pytest.raises(ValueError, match="episodes end before the first decision arrives"):
        adapt(feedback, Plant, 2.6, settings=quick(rounds=0, episodes=2, steps=8000, updates=2))


# --- What cannot be adapted -----------------------------------------------------------------------


class Remembers:
    """Acts by what it saw before, too."""

    def __init__(self):
        self.sum = np.zeros(2)

    def reset(self):
        self.sum = np.zeros(2)

    def __call__(self, x):
        self.sum = self.sum + x
        return feedback(self.sum)


def recurrent():
    sizes = {"cell.weight_ih": (16, 2), "cell.weight_hh": (16, 4), "cell.bias": (16,),
             "head.advantage.weight": (3, 4), "head.advantage.bias": (3,)}  # fmt: skip
    weights = {name: np.zeros(shape, np.float32) for name, shape in sizes.items()}
    return QPolicy(weights, {"kind": "q", "actions": [[-1.0], [0.0], [1.0]]})


def with_actions(space):
    return type("Other", (Plant,), {"action_space": space})


def swing(observation):
    return np.clip(-observation[2:], -2, 2)


class Costs(Plant):
    """Pays best for doing nothing."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, -float(np.abs(action[0])), *rest


class Steers(Plant):
    """Pays for being near 0, from the first step."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, 1 - 100 * float(observation[0]) ** 2, *rest


NOISE = np.random.default_rng(0)
DICT = spaces.Dict({"push": BOX})
WRONG = {
    "recurrent": ((recurrent(), Plant, 0.1), "this policy has a memory"),
    "a memory": ((Remembers(), Plant, 0.1), "does not do the same twice"),
    "stochastic": (
        (lambda x: feedback(x + NOISE.normal(size=2)), Plant, 0.1),
        "does not do the same twice for the same observation .* give its deterministic action",
    ),
    "no bounds": (
        (feedback, with_actions(spaces.Box(-np.inf, np.inf, (1,))), 0.1), "continuous ones with b"
    ),
    "images of actions": ((feedback, with_actions(spaces.Box(-1, 1, (2, 2))), 0.1), "flat cont"),
    "choices from 1": ((feedback, with_actions(spaces.Discrete(3, start=1)), 0.1), "from 0"),
    "dicts": ((feedback, with_actions(DICT), 0.1), "adapt knows discrete actions .* not Dict"),
    "ours": ((feedback, settings_of("cartpole")(task="cartpole"), 0.1), "and cartpole is ours"),
    "serial": (
        (swing, WrappedSettings(task="gym:Pendulum-v1", thinker="serial", step="50ms"), 0.1),
        "take thinker pipelined",
    ),
    "knows already": (
        (feedback, WrappedSettings(task="gym:Pendulum-v1", step="50ms",
                                   knowledge=("previous_action",)), 0.1),
        "observes more than the environment does itself",
    ),
    "no function": ((feedback, Plant(), 0.1), "make_env must be a function"),
    "no time": ((feedback, lambda: gymnasium.make("CartPole-v1"), 0.1), "how long a step lasts"),
    "longer than episodes": ((feedback, lambda: Steers(3), 0.2), "lasts the 4 steps .* has 3"),
    "longer than the limit": (
        (swing, lambda: gymnasium.make("Pendulum-v1", max_episode_steps=3), 0.2),
        "a latency of 200 ms is as long as an episode, which lasts 150 ms at most",
    ),
    "off the grid": ((feedback, Plant, 0.07), "latency of 70 ms is not a whole number"),
    "nothing to keep": ((feedback, Costs, 0.1), "there is nothing to keep"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_what_cannot_be_adapted_is_said_in_a_sentence(kind):
    arguments, sentence = WRONG[kind]
    with pytest.raises(ValueError, match=sentence) as caught:
        adapt(*arguments, settings=quick(episodes=2, steps=300, updates=1, rounds=0))
    assert "\n" not in str(caught.value)


def frozen_steps(count, length=50, columns=2, size=1, scale=0.5, same=False):
    """Episodes of whatever, in order."""
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(count + 1, columns))
    action = np.full((count, size), 0.25) if same else rng.uniform(-scale, scale, (count, size))
    ends = np.arange(1, count + 1) % length == 0
    return Record(seen[:-1], action, seen[1:], np.zeros(count, bool), ends)


DATA = {
    "another environment": (frozen_steps(900, columns=3), r"observations of shape \(3,\), the env"),
    "other actions": (frozen_steps(900, size=2), r"actions of shape \(2,\), the environment of"),
    "scaled": (frozen_steps(900, scale=20.0), "the environment does not take: give them as"),
    "too little": (frozen_steps(150), r"only \d+ steps of the data go on to their switch"),
    "hardly anything": (frozen_steps(1), "no episode of the record lasts|only 0|empty"),
    "too short": (frozen_steps(900, length=1), "no episode of the record lasts the 2 steps"),
    "one action": (frozen_steps(900, same=True), "always have the same action in flight"),
    "no record": (object(), "this is no replay buffer"),
    "no file": ("nowhere.safetensors", "nowhere.safetensors"),
}


@pytest.mark.parametrize("kind", DATA)
def test_data_that_do_not_serve_are_refused_in_a_sentence(kind):
    data, sentence = DATA[kind]
    with pytest.raises(ValueError, match=sentence) as caught:
        adapt(feedback, Plant, 0.1, data, quick(episodes=2, updates=1, rounds=0))
    assert "\n" not in str(caught.value)


def test_ticks_that_the_data_do_not_hold_are_said():
    brief = quick(period="100ms", episodes=2, updates=1, rounds=0)
    with pytest.raises(ValueError, match="1 ticks into a step, which this latency needs"):
        adapt(feedback, Plant, 0.05, frozen_steps(900), brief)


# --- Recording ------------------------------------------------------------------------------------


def test_recorded_steps_are_those_of_the_world():
    """Held steps only at the beginning, all levels of noise alike, each row one step of A and B."""
    policy = midstride.as_policy(feedback)
    record = record_frozen(
        Concurrent(Plant()), policy, 3000, (0.0, 0.5), 3, np.random.default_rng(0)
    )
    assert len(record) == 3000
    np.testing.assert_allclose(
        record.observation @ A.T + record.action * B, record.observation_next, atol=1e-12
    )
    assert record.held[record.age >= 3].sum() == 0
    begins = record.held[record.age == 0]
    assert 0.3 < begins.mean() < 0.7
    assert (record.action[record.held] == 0).all()
    exact = np.array([feedback(x) for x in record.observation])
    noisy = (record.action != exact)[~record.held].any(axis=1)
    assert 0.35 < noisy.mean() < 0.65
    assert record.truncated[-1] or record.terminated[-1]


def test_an_episode_that_ends_inside_of_a_period_is_recorded_up_to_its_last_whole_one():
    env = Concurrent(Plant(limit=7), period=0.15)
    env.look_within([1, 2])
    policy = midstride.as_policy(feedback)
    record = record_frozen(env, policy, 20, (0.0,), 0, np.random.default_rng(0))
    assert record.longest == 2
    assert record.truncated.tolist() == [False, True] * 10
    first = record.observation @ A.T + record.action * B
    np.testing.assert_allclose(record.within[1], first, atol=1e-12)
    with pytest.raises(ValueError, match="none of 100 episodes lasts a whole period"):
        record_frozen(
            Concurrent(Plant(limit=2), period=0.15), policy, 20, (0.0,), 0, np.random.default_rng(0)
        )


def test_what_is_held_is_what_the_environment_holds():
    env = Concurrent(Plant(), hold=[0.4])
    policy = midstride.as_policy(feedback)
    record = record_frozen(env, policy, 300, (0.0,), 3, np.random.default_rng(0))
    assert record.held.any()
    assert (record.action[record.held] == 0.4).all()


def test_visits_pair_each_capture_with_its_own_switch():
    """By hand: with 100 ms the switch is two steps of A and B after the capture."""
    knowledge = ("previous_action", "pending_actions")
    env = Concurrent(Plant(), 0.1, knowledge, observe_switch=True)
    student = midstride.as_policy(lambda row: feedback(row[:2]))
    found = visit(env, student, 400, (0.0, 0.1), np.random.default_rng(0)).instants
    x, flight = found.inputs[:, :2], found.inputs[:, 2:]
    at_switch = (x @ A.T + flight[:, :1] * B) @ A.T + flight[:, 1:] * B
    np.testing.assert_allclose(found.observation_switch, at_switch, atol=1e-12)
    assert (np.abs(found.observation_switch[:, 0]) <= 0.3).all()  # none after a fall
    assert 300 < len(found) < 400

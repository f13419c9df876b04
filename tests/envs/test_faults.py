"""Environments that fail: one sentence that says whose fault it was, and nothing is lost."""

import json

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from attacks import environments
from attacks.environments import FAULTS, Faulty, left_in, run, task
from attacks.environments import train as train_by_command
from midstride.disk.runs import Run, read_metrics
from midstride.envs.concurrent import Concurrent
from midstride.envs.faults import Fault, Guarded, closed_after
from midstride.envs.vector import interact
from midstride.finite import is_finite
from midstride.learn.agents import Training
from midstride.learn.train import train
from midstride.measure.evaluate import evaluate
from midstride.tasks.registry import settings_of
from tests.helpers import FakeEnvs, flat_envs

TINY = {
    "num_envs": 2, "hidden": (8,), "batch_size": 8, "learning_starts": 50, "replay_size": 1000,
    "evaluation_episodes": 1, "checkpoint_every": 40, "latency": "20ms",
}  # fmt: skip
AT = environments.AT


def walk(fault: str, steps: int = AT + 30) -> None:
    """Interact with environments that have a fault, then close them."""
    envs = settings_of(task(fault))(task=task(fault), latency="20ms").make(2)
    zeros = np.zeros((2, 1), np.float32)
    with closed_after(envs):
        for count, _ in enumerate(interact(envs, lambda o: (zeros, {}), 0, lambda which: None)):
            if count == steps:
                break


SAYS = {
    "NanReward": "environment 0 of 2 gave the reward nan in its step 60: a reward must be",
    "InfiniteReward": "gave the reward -inf in its step 60",
    "HugeReward": r"gave the reward 5e\+299 in its step 60",
    "NanObservation": "observed nan in column observation:1 in its step 60: an observation must",
    "ShortObservation": r"the observation of its step 60 has shape \(3,\): its space says \(4,\)",
    "TextObservation": "the observation of its step 60 is of type <U1: its space says float64",
    "RaggedObservation": "has rows of several lengths",
    "StepRaises": "StepRaises-v0, environment 0: its step 60 failed: KeyError: 'joint'",
    "StepRaisesLines": "RuntimeError: the first line the second line",
    "StepExits": "its step 60 failed: SystemExit: 0",
    "LaterResetRaises": "its reset after step 60 failed: ConnectionError: the simulator does not",
    "NanReset": "observed nan in column observation:1 when it was reset after its step 60",
    "CannotBeMade": "cannot be made: FileNotFoundError: no such model",
    "CloseRaises": "its close failed: OSError: the simulator is gone",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_one_sentence(fault):
    with pytest.raises(Fault, match=SAYS.get(fault)) as found:
        walk(fault)
    assert "\n" not in str(found.value)
    assert "environment" in str(found.value)


@pytest.mark.parametrize("fault", ["NanReward", "NanObservation", "StepExits"])
def test_a_training_saves_what_it_learned_until_the_fault_and_can_go_on(fault, tmp_path):
    """Issue 18: one NaN, and the run ended with a NaN policy and exit code 0."""
    code, said = train_by_command(fault, tmp_path)
    assert code == 2
    assert said.startswith("midstride: ")
    assert said.count("\n") == 1
    assert "after 118 steps" in said
    assert left_in(tmp_path / "run") == (118, True)
    assert not (tmp_path / "run" / "policy.safetensors").exists()
    config = Training.from_dict(Run.open(tmp_path / "run").settings, trust=True)
    longer = config.with_(steps=220)  # an environment without the fault in its first 51 steps
    with pytest.raises(ValueError, match="steps 400 and not 220"):
        train(longer, tmp_path / "run", resume=True)
    with pytest.raises(Fault, match="after 236 steps"):
        train(config, tmp_path / "run", resume=True)
    assert left_in(tmp_path / "run") == (236, True)


@pytest.mark.parametrize("fault", ["CannotBeMade", "ResetRaises", "CloseRaises"])
def test_a_fault_before_the_first_step_leaves_nothing_to_resume(fault, tmp_path):
    code, said = train_by_command(fault, tmp_path)
    assert (code, said.count("\n")) == (2, 1)
    assert left_in(tmp_path / "run") == (0, True)


def test_a_fault_in_an_evaluation_says_so_and_no_metrics_are_lost(tmp_path):
    config = Training.of(task("StepRaises"), **TINY, steps=400, evaluate_every=20)

    def made(self, render_mode=None, observe_switch=False):
        """Environments of the training are sound, those of evaluations fail at their 2nd step."""
        sound = made.count < 2
        made.count += 1
        return Concurrent(Faulty("StepRaises", at=10**9 if sound else 2))

    made.count = 0
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("midstride.envs.wrapped.WrappedSettings.make_one", made)
        with pytest.raises(ValueError, match=r"in the evaluation after .*: .* step 2 failed"):
            train(config, tmp_path / "run")
    evaluated = [line["steps"] for line in read_metrics(tmp_path / "run")]
    saved = Run.open(tmp_path / "run").load_checkpoint()
    assert saved is None or saved[1]["steps"] <= max(evaluated, default=0)


def test_metrics_and_results_are_strict_json(tmp_path):
    run_ = Run(tmp_path, {}, "hash")
    with pytest.raises(ValueError, match="JSON"):
        run_.log(steps=1, loss=float("nan"))
    assert not (tmp_path / "metrics.jsonl").exists()
    with pytest.raises(ValueError, match="JSON"):
        run_.finish({"mean_return": float("inf")})
    run_.metrics.clear()
    run_.log(steps=1, loss=0.5)
    json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=pytest.fail)


def test_an_evaluation_that_meets_a_fault_says_so():
    class Still:
        observation_size = 4

        def __call__(self, observations):
            return np.zeros((len(observations), 1), np.float32)

        def reset(self, which=None):
            pass

    # It falls over and starts anew long before its fault: many episodes.
    envs = settings_of(task("NanObservation"))(task=task("NanObservation"), latency="20ms").make(2)
    with pytest.raises(Fault, match="observed nan"):
        evaluate(Still(), envs, 500)


class Dreams(FakeEnvs):
    """Observes an image and a state, wrongly at some steps: what `wrong` makes of them."""

    metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012

    def __init__(self, wrong):
        whole = flat_envs(3, 2)
        super().__init__(spaces.Box(-1, 1, (3,)), whole.single_action_space, 2, layout=whole.layout)
        self._wrong, self._steps = wrong, 0

    def _observe(self):
        seen = {"image": np.zeros((2, 4, 4, 3), np.uint8), "state": np.zeros((2, 3), np.float32),
                "depth": np.zeros((2, 4, 4), np.float32)}  # fmt: skip
        return self._wrong(seen, self._steps)

    def reset(self, *, seed=None, options=None):
        return self._observe(), {}

    def step(self, actions):
        self._steps += 1
        no, zeros = np.zeros(2, bool), np.zeros(2)
        info = dict.fromkeys(("reward_before_switch", "reward_after_switch"), zeros)
        return self._observe(), zeros, no, no, {**info, "latency_s": zeros, "period_s": zeros}


@pytest.mark.parametrize(
    ("part", "place", "says"),
    [
        ("state", (1, 2), "environment 1 of 2 observed nan in column 2 in its step 3"),
        ("depth", (0, 3, 1), r"environment 0 of 2 observed nan at depth\[3, 1\] in its step 3"),
    ],
)
def test_parts_of_a_dictionary_are_looked_at_too(part, place, says):
    def wrong(seen, steps):
        if steps == 3:
            seen[part][place] = np.nan
        return seen

    steps = interact(Dreams(wrong), lambda o: (np.zeros(2), {}), 0, lambda which: None)
    for _ in range(2):
        next(steps)
    with pytest.raises(Fault, match=says):  # the step with it is not given to anybody
        next(steps)


def test_a_guard_leaves_a_sound_environment_as_it_is():
    bare, guarded = (gymnasium.make("InvertedPendulum-v5") for _ in range(2))
    guarded = Guarded(guarded, "gym:InvertedPendulum-v5", 0)
    for env in (bare, guarded):
        env.reset(seed=3)
    for action in np.linspace(-1, 1, 5):
        steps = [env.step(np.array([action], np.float32)) for env in (bare, guarded)]
        np.testing.assert_array_equal(steps[0][0], steps[1][0])
        assert steps[0][1:4] == steps[1][1:4]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_finite_is_what_numpy_says_of_float32(dtype):
    for value in (0.0, -1.5, 6e4, 1e20, -3e38, 3.5e38, -1e300, np.nan, np.inf, -np.inf):
        with np.errstate(over="ignore"):
            array = np.full((3, 2), 7, dtype)
            array[2, 1] = value
            expected = np.isfinite(array.astype(np.float32)).all()
        assert is_finite(array) == expected, value
        assert is_finite(array[:, ::-1]) == expected
    assert is_finite(np.full(4, 255, np.uint8))
    assert is_finite(np.zeros(0))


@pytest.mark.slow
def test_all_of_them_by_the_command():
    counts = run(0)
    assert counts == {
        "tried": len(FAULTS), "sentences": len(FAULTS), "tracebacks": 0, "lost": 0, "not_finite": 0,
    }  # fmt: skip

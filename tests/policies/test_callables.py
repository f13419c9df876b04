"""Functions, objects and programs as policies."""

import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
from gymnasium import spaces

import midstride
from midstride.policies import QPolicy, as_policy, load
from midstride.policies.fit import fit

SEEN = spaces.Box(-np.inf, np.inf, (3,), np.float32)
FORCE = spaces.Box(-1, 1, (2,), np.float32)
ROWS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)


def feedback(observation):
    """Written for one observation: it would fail on a batch."""
    x, y, z = observation
    return [float(x) + y, float(z)]


def test_a_function_of_one_observation_acts_on_batches():
    policy = as_policy(feedback)
    expected = np.stack([ROWS[:, 0] + ROWS[:, 1], ROWS[:, 2]], axis=1)
    np.testing.assert_allclose(policy(ROWS), expected, rtol=1e-6)
    np.testing.assert_allclose(policy(ROWS[0]), expected[0], rtol=1e-6)
    assert policy.observation_size is None
    assert policy.description == {"kind": "callable", "name": "feedback"}


def test_a_function_of_batches():
    policy = as_policy(lambda rows: rows[:, :2] * 2, batched=True)
    np.testing.assert_array_equal(policy(ROWS), ROWS[:, :2] * 2)
    np.testing.assert_array_equal(policy(ROWS[3]), ROWS[3, :2] * 2)


class Counter:
    """Its action is how often it was asked in this episode."""

    def __init__(self):
        self.asked = 0

    def reset(self):
        self.asked = 0

    def __call__(self, observation):
        self.asked += 1
        return [self.asked, observation[0]]


def test_each_environment_of_a_batch_has_its_own_memory():
    policy = as_policy(Counter())
    policy.reset()
    for k in (1, 2):
        np.testing.assert_array_equal(policy(ROWS)[:, 0], [k] * 5)
    policy.reset(np.array([False, True, False, False, True]))
    np.testing.assert_array_equal(policy(ROWS)[:, 0], [3, 1, 3, 3, 1])
    policy.reset()
    np.testing.assert_array_equal(policy(ROWS)[:, 0], [1] * 5)
    assert policy(ROWS[0])[0] == 1  # a single one is another world


def test_what_cannot_be_copied_says_so():
    counter = Counter()
    counter.lock = threading.Lock()
    with pytest.raises(ValueError, match=r"cannot be copied for each environment \(TypeError\)"):
        as_policy(counter)(ROWS)


def test_pictures_and_states_by_rows():
    policy = as_policy(lambda seen: seen["state"][:1] + seen["image"].sum())
    batch = {"state": ROWS, "image": np.ones((5, 2, 2))}
    np.testing.assert_allclose(policy(batch), ROWS[:, :1] + 4)
    one = {"state": ROWS[0], "image": np.ones((2, 2))}
    np.testing.assert_allclose(policy(one), ROWS[0, :1] + 4)


def test_policies_stay_what_they_are():
    ours = QPolicy({"head.advantage.weight": np.zeros((2, 3))}, {"kind": "q"})
    assert as_policy(ours) is ours
    again = as_policy(feedback)
    assert as_policy(again) is again
    for wrong in (3, "sac", None, np.zeros(3)):
        with pytest.raises(ValueError, match="a policy is called with an observation, got"):
            as_policy(wrong)


class Recurrent:
    """Predicts as the models of sb3-contrib do: with a state, and a mask of episodes begun."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        n = len(observation)
        state = np.zeros(n) if state is None else state
        if episode_start is not None:
            state = np.where(episode_start, 0, state)
        return np.stack([state, state], axis=1), state + 1


def test_models_that_predict_remember():
    policy = as_policy(Recurrent())
    for k in (0, 1, 2):
        np.testing.assert_array_equal(policy(ROWS)[:, 0], [k] * 5)
    policy.reset(np.array([True, False, False, False, False]))
    np.testing.assert_array_equal(policy(ROWS)[:, 0], [0, 3, 3, 3, 3])
    np.testing.assert_array_equal(policy(ROWS)[:, 0], [1, 4, 4, 4, 4])
    policy.reset()
    np.testing.assert_array_equal(policy(ROWS)[:, 0], [0] * 5)


def test_a_model_of_stable_baselines3_is_a_policy(tmp_path):
    from tests.policies.test_sb3 import model_of

    model = model_of("PPO")
    model.save(tmp_path / "model.zip")
    policy = as_policy(model)
    np.testing.assert_allclose(policy(ROWS), load(tmp_path / "model.zip")(ROWS), atol=1e-6)
    np.testing.assert_allclose(policy(ROWS[0]), policy(ROWS)[0], atol=1e-6)


# --- Fitting -------------------------------------------------------------------------------------


def test_the_first_action_is_looked_at():
    fitted = fit(feedback, SEEN, FORCE)
    assert fitted(ROWS).shape == (5, 2)
    assert fitted(ROWS[0]).shape == (2,)
    with pytest.raises(ValueError, match=r"gives shape \(5, 3\) for 5 observations"):
        fit(lambda seen: seen, SEEN, FORCE)(ROWS)
    with pytest.raises(ValueError, match=r"gives shape \(3,\) for one observation, the env.* Box"):
        fit(lambda seen: seen, SEEN, FORCE)(ROWS[0])
    with pytest.raises(
        ValueError, match=r"environment observes: ZeroDivisionError: division by zero"
    ):
        fit(lambda seen: 1 / 0, SEEN, FORCE)(ROWS)
    with pytest.raises(ValueError, match="not all finite numbers"):
        fit(lambda seen: [np.nan, 0], SEEN, FORCE)(ROWS)
    with pytest.raises(ValueError, match="not all finite numbers"):
        fit(lambda seen: ["left", "right"], SEEN, FORCE)(ROWS)


def test_fitted_to_pictures_and_dictionaries_by_rows():
    """What one observation is, is the space's to say."""
    picture = spaces.Box(0, 255, (4, 4), np.uint8)
    brightness = fit(lambda seen: [seen.mean(), seen.max()], picture, FORCE)
    batch = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    np.testing.assert_allclose(brightness(batch)[:, 1], [15, 31, 47])
    np.testing.assert_allclose(brightness(batch[1]), [23.5, 31])
    both = spaces.Dict({"eye": picture, "arm": SEEN})
    policy = fit(lambda seen: seen["arm"][:2] + seen["eye"].mean(), both, FORCE)
    seen = {"eye": batch, "arm": ROWS[:3]}
    expected = ROWS[:3, :2] + batch.mean(axis=(1, 2))[:, None]
    np.testing.assert_allclose(policy(seen), expected, rtol=1e-6)
    one = {name: part[2] for name, part in seen.items()}
    np.testing.assert_allclose(policy(one), expected[2], rtol=1e-6)
    with pytest.raises(ValueError, match=r"observes 3 columns, the environment gives Dict\('arm'"):
        fit(QPolicy({"head.advantage.weight": np.zeros((2, 3))}, {"kind": "q"}), both, FORCE)


def test_choices_are_whole_numbers_in_range():
    choice = spaces.Discrete(2)
    assert fit(lambda seen: 1, SEEN, choice)(ROWS).tolist() == [1] * 5
    assert fit(lambda seen: np.int64(1), SEEN, choice)(ROWS[0]) == 1
    for wrong in (2, -1, 0.5):
        with pytest.raises(ValueError, match=f"first action is {wrong}, .* takes Discrete"):
            fit(lambda seen, wrong=wrong: wrong, SEEN, choice)(ROWS)


def test_a_zip_is_compared_with_the_environment_before_it_acts():
    from tests.policies.test_sb3 import FIXTURES

    sac, ppo = load(FIXTURES / "sac.zip"), load(FIXTURES / "ppo.zip")
    bounds = spaces.Box(np.float32([-1, -0.25]), np.float32([2, 0.75]))
    assert fit(sac, SEEN, bounds) is sac
    assert fit(ppo, SEEN, spaces.Discrete(4)) is ppo
    with pytest.raises(ValueError, match=r"observes 3 columns, the environment gives \(4,\)"):
        fit(sac, spaces.Box(-1, 1, (4,)), bounds)
    with pytest.raises(ValueError, match=r"other bounds \(high \[2.0, 0.75\]\) than .*\(\[2.0, 1"):
        fit(sac, SEEN, spaces.Box(np.float32([-1, -0.25]), np.float32([2, 1])))
    with pytest.raises(ValueError, match=r"trained to give a Box of shape \(2,\), .* Discrete\(4"):
        fit(sac, SEEN, spaces.Discrete(4))
    for space in (spaces.Discrete(5), bounds, spaces.MultiDiscrete([4, 4])):
        with pytest.raises(ValueError, match=r"trained to give Discrete\(4\), the environment"):
            fit(ppo, SEEN, space)


# --- Programs: only with trust --------------------------------------------------------------------

MODULE = """
from pathlib import Path
Path("ran").touch()
def half(observation):
    return observation[:2] / 2
class Twice:
    batched = True
    def __call__(self, rows):
        return rows[:, :2] * 2
broken = 3
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    (tmp_path / "a_module.py").write_text(MODULE)
    yield tmp_path / "ran"
    sys.modules.pop("a_module", None)


def test_a_module_is_imported_only_with_trust(module):
    with pytest.raises(
        ValueError, match="runs its code: if you trust who wrote a_module:half, say"
    ):
        load("a_module:half")
    assert not module.exists()
    policy = load("a_module:half", trust=True)
    assert module.exists()
    np.testing.assert_array_equal(policy(ROWS), ROWS[:, :2] / 2)
    np.testing.assert_array_equal(load("a_module:Twice", trust=True)(ROWS), ROWS[:, :2] * 2)
    with pytest.raises(ValueError, match="has no attribute 'nothing'"):
        load("a_module:nothing", trust=True)
    with pytest.raises(ValueError, match="a policy is called with an observation, got int"):
        load("a_module:broken", trust=True)
    with pytest.raises(ValueError, match="cannot be made: ModuleNotFoundError: No module named"):
        load("no_module:half", trust=True)


def test_torchscript_only_with_trust(tmp_path):
    torch = pytest.importorskip("torch")

    class Network(torch.nn.Module):
        def forward(self, rows):
            return torch.tanh(rows[:, :2] * 3), rows

    traced = torch.jit.trace(Network(), torch.zeros(1, 3))
    traced.save(str(tmp_path / "policy.pt"))
    with pytest.raises(ValueError, match="a TorchScript file is a program: if you trust who"):
        load(tmp_path / "policy.pt")
    policy = fit(load(tmp_path / "policy.pt", trust=True), SEEN, FORCE)
    np.testing.assert_allclose(policy(ROWS), np.tanh(ROWS[:, :2] * 3), atol=1e-6)
    np.testing.assert_allclose(policy(ROWS[0]), np.tanh(ROWS[0, :2] * 3), atol=1e-6)
    again = pickle.loads(pickle.dumps(policy))  # as another process gets it
    np.testing.assert_array_equal(again(ROWS), policy(ROWS))
    chosen = fit(load(tmp_path / "policy.pt", trust=True), SEEN, spaces.Discrete(2))
    np.testing.assert_array_equal(chosen(ROWS), ROWS[:, :2].argmax(axis=1))
    with pytest.raises(ValueError, match=r"gives shape \(2,\) for one observation, .* Discrete"):
        fit(policy, SEEN, spaces.Discrete(3))
    torch.save({"w": torch.zeros(2)}, tmp_path / "state.pt")
    with pytest.raises(ValueError, match=r"no TorchScript program; if it is a state dict \(Clean"):
        load(tmp_path / "state.pt", trust=True)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("policy.pkl", "is a pickle, which could run code: write a module"),
        ("agent.cleanrl_model", "holds weights without the program that they belong to"),
        ("model.pth", "holds weights without the program that they belong to"),
        ("model.safetensors", "holds weights without the program that they belong to"),
        ("policy.txt", "is no policy that is known here: give the folder of a finished run"),
    ],
)
def test_other_files_say_how(tmp_path, name, sentence):
    (tmp_path / name).write_bytes(b"\x80\x04.")
    with pytest.raises(ValueError, match=sentence):
        load(tmp_path / name, trust=True)


def test_a_folder_of_lerobot_says_how(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"LeRobot, Hugging Face\): write a module"):
        load(tmp_path)


def test_what_is_not_there():
    with pytest.raises(ValueError, match=r"there is no nowhere.zip: give the folder of a finished"):
        load("nowhere.zip")
    with pytest.raises(ValueError, match="nowhere holds no trained policy"):
        load("nowhere")


def test_a_zip_needs_no_learning_framework():
    """Neither PyTorch nor a simulator is imported to read and run one."""
    from tests.policies.test_sb3 import FIXTURES

    code = (
        "import sys, numpy, midstride; "
        f"policy = midstride.load({str(FIXTURES / 'sac.zip')!r}); policy(numpy.zeros(3)); "
        "print(sorted({'torch', 'jax', 'mujoco', 'gymnasium', 'onnxruntime'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "torch" not in found.stdout
    assert "jax" not in found.stdout
    assert "mujoco" not in found.stdout


def test_public_names():
    assert midstride.as_policy is as_policy
    assert midstride.load is load


def test_a_model_that_saw_observations_normalised_sees_them_so():
    class Normal:
        def normalize_obs(self, observation):
            return (observation - 2.0) / 4.0

    class Model:
        def get_vec_normalize_env(self):
            return Normal()

        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return np.asarray(observation)[..., :1], None

    policy = as_policy(Model())
    assert policy(np.array([6.0, 0.0])).tolist() == [1.0]
    assert policy(np.array([[6.0, 0.0], [2.0, 0.0]])).tolist() == [[1.0], [0.0]]

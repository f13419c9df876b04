"""Zips of Stable-Baselines3: the same actions as its own `predict`, without it."""

import io
import json
import zipfile
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from midstride.policies import load
from midstride.policies.network import ACTIVATIONS

FIXTURES = Path(__file__).parent / "fixtures"
SEEN = spaces.Box(-5, 5, (3,), np.float32)
BOUNDED = spaces.Box(np.array([-1, -0.3], np.float32), np.array([2, 0.7], np.float32))
CHOICE = spaces.Discrete(4)


@pytest.mark.parametrize("name", ["ppo", "sac", "dqn"])
def test_zips_that_stable_baselines3_wrote_act_as_they_did_there(name):
    told = json.loads((FIXTURES / "actions.json").read_text())[name]
    observations, actions = np.float32(told["observations"]), np.array(told["actions"])
    policy = load(FIXTURES / f"{name}.zip")
    assert policy.observation_size == 3
    found = policy(observations)
    np.testing.assert_allclose(found, actions, rtol=1e-6, atol=1e-6)
    assert len(np.unique(actions, axis=0)) > 2  # not all the same
    for observation, action in zip(observations, actions, strict=True):
        np.testing.assert_allclose(policy(observation), action, rtol=1e-6, atol=1e-6)
    policy.reset()
    np.testing.assert_array_equal(policy(observations), found)


class Spaces(gymnasium.Env):
    """Nothing but spaces: enough to make a model."""

    def __init__(self, action, seen=SEEN):
        self.observation_space, self.action_space = seen, action


def model_of(algorithm, action=BOUNDED, seen=SEEN, **options):
    """A model whose weights are random and not small."""
    sb3 = pytest.importorskip("stable_baselines3")
    torch = pytest.importorskip("torch")
    torch.set_num_threads(1)
    if algorithm in ("SAC", "TD3", "DDPG", "DQN"):
        options["buffer_size"] = 2
    env = Spaces(action, seen)
    model = getattr(sb3, algorithm)("MlpPolicy", env, seed=0, device="cpu", **options)
    with torch.no_grad():
        for weights in model.policy.parameters():
            weights.normal_(0, 0.3)
    return model


def assert_same_actions(model, path, seen=SEEN):
    model.save(path)
    policy = load(path)
    rng = np.random.default_rng(0)
    observations = rng.normal(0, 1.5, (64, *seen.shape)).astype(np.float32)
    actions, _ = model.predict(observations, deterministic=True)
    found = policy(observations)
    assert found.dtype == (
        np.int8 if isinstance(model.action_space, spaces.MultiBinary) else actions.dtype
    )
    assert len(np.unique(actions.reshape(64, -1), axis=0)) > 1
    np.testing.assert_allclose(found, actions, rtol=1e-6, atol=1e-6)
    single, _ = model.predict(observations[0], deterministic=True)
    np.testing.assert_allclose(policy(observations[0]), single, rtol=1e-6, atol=1e-6)
    return policy


MODELS = {
    "ppo": {"algorithm": "PPO"},
    "ppo discrete": {"algorithm": "PPO", "action": CHOICE},
    "a2c": {"algorithm": "A2C"},
    "a2c discrete": {"algorithm": "A2C", "action": CHOICE},
    "sac": {"algorithm": "SAC", "policy_kwargs": {"net_arch": [16, 8]}},
    "td3": {"algorithm": "TD3", "policy_kwargs": {"net_arch": [16, 8]}},
    "ddpg": {"algorithm": "DDPG", "policy_kwargs": {"net_arch": [16, 8]}},
    "dqn": {"algorithm": "DQN", "action": CHOICE},
    "apart": {"algorithm": "PPO", "policy_kwargs": {"net_arch": {"pi": [7, 5, 3], "vf": [4]}}},
    "linear ppo": {"algorithm": "PPO", "policy_kwargs": {"net_arch": []}},
    "linear sac": {"algorithm": "SAC", "policy_kwargs": {"net_arch": []}},
    "linear td3": {"algorithm": "TD3", "policy_kwargs": {"net_arch": []}},
    "linear dqn": {"algorithm": "DQN", "action": CHOICE, "policy_kwargs": {"net_arch": []}},
    "one layer": {"algorithm": "SAC", "policy_kwargs": {"net_arch": {"pi": [3], "qf": [5, 5]}}},
    "exploring by state": {"algorithm": "PPO", "use_sde": True},
    "squashed": {"algorithm": "A2C", "use_sde": True, "policy_kwargs": {"squash_output": True}},
    "sac by state": {
        "algorithm": "SAC", "use_sde": True, "policy_kwargs": {"net_arch": [6], "clip_mean": 0.5},
    },
    "sac by state, not clipped": {
        "algorithm": "SAC", "use_sde": True, "policy_kwargs": {"net_arch": [6], "clip_mean": 0.0},
    },
    "multi-discrete": {"algorithm": "PPO", "action": spaces.MultiDiscrete([2, 5, 3])},
    "multi-binary": {"algorithm": "PPO", "action": spaces.MultiBinary(4)},
    "of a matrix": {"algorithm": "PPO", "action": spaces.Box(-1, 3, (2, 3), np.float32)},
    "wide": {"algorithm": "SAC", "action": spaces.Box(-1e3, 1e4, (1,), np.float32),
             "policy_kwargs": {"net_arch": [6]}},
    "tiny": {"algorithm": "TD3", "action": spaces.Box(-1e-7, 3e-7, (1,), np.float32),
             "policy_kwargs": {"net_arch": [6]}},
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_every_algorithm_acts_as_its_own_predict(tmp_path, name):
    assert_same_actions(model_of(**MODELS[name]), tmp_path / "model.zip")


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "Identity"])
def test_activation_functions(tmp_path, name):
    torch = pytest.importorskip("torch")
    options = {"activation_fn": getattr(torch.nn, name), "net_arch": [12, 9]}
    assert_same_actions(model_of("SAC", policy_kwargs=options), tmp_path / "model.zip")


def test_observations_of_a_matrix_are_flattened(tmp_path):
    seen = spaces.Box(-1, 1, (2, 3), np.float32)
    policy = assert_same_actions(model_of("PPO", seen=seen), tmp_path / "model.zip", seen)
    assert policy.observation_size == 6


def test_what_is_said_of_it(tmp_path):
    model = model_of("TD3", policy_kwargs={"net_arch": [16, 8]})
    model.save(tmp_path / "model.zip")
    assert load(tmp_path / "model.zip").description == {
        "kind": "sb3",
        "algorithm": "TD3 or DDPG",
        "activation": "ReLU",
        "layers": [3, 16, 8, 2],
        "observation_shape": [3],
        "action": {"kind": "box", "shape": [2], "low": [-1, -0.3], "high": [2, 0.7]},
    }


def test_models_that_are_not_read_say_why(tmp_path):
    torch = pytest.importorskip("torch")
    sb3 = pytest.importorskip("stable_baselines3")

    class Own(torch.nn.Tanh):
        """A class of the user's."""

    model_of("PPO", policy_kwargs={"activation_fn": Own}).save(tmp_path / "own.zip")
    with pytest.raises(ValueError, match=r"no layer of PyTorch: say which .*activation='Tanh'"):
        load(tmp_path / "own.zip")
    assert load(tmp_path / "own.zip", activation="Tanh").observation_size == 3
    with pytest.raises(ValueError, match="'Sine' is not one of ReLU, Tanh"):
        load(tmp_path / "own.zip", activation="Sine")

    image = spaces.Box(0, 255, (3, 36, 36), np.uint8)
    sb3.PPO("CnnPolicy", Spaces(CHOICE, image), device="cpu").save(tmp_path / "cnn.zip")
    with pytest.raises(ValueError, match=r"extracts features .* export it to ONNX"):
        load(tmp_path / "cnn.zip")
    model_of("PPO", seen=spaces.Discrete(3)).save(tmp_path / "discrete.zip")
    with pytest.raises(ValueError, match="observes a Discrete space"):
        load(tmp_path / "discrete.zip")
    dictionary = spaces.Dict({"a": SEEN, "b": SEEN})
    model = sb3.PPO("MultiInputPolicy", Spaces(CHOICE, dictionary), device="cpu")
    model.save(tmp_path / "dictionary.zip")
    with pytest.raises(ValueError, match="observes a Dict space"):
        load(tmp_path / "dictionary.zip")
    model.policy.save(tmp_path / "policy.zip")
    with pytest.raises(ValueError, match=r"no policy.pth: give a zip that model.save"):
        load(tmp_path / "policy.zip")


# --- Zips that were changed ----------------------------------------------------------------------


def changed(path, name="sac", **members):
    """A zip of the fixtures with other members; None leaves one out."""
    content = {}
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        content = {member: archive.read(member) for member in archive.namelist()}
    content |= {{"policy": "policy.pth"}.get(key, key): value for key, value in members.items()}
    with zipfile.ZipFile(path, "w") as archive:
        for member, value in content.items():
            if value is not None:
                archive.writestr(member, value)
    return path


def data_with(name="sac", **changes):
    """The data of a fixture with other values; a dotted name goes inside, None takes away."""
    with zipfile.ZipFile(FIXTURES / f"{name}.zip") as archive:
        data = json.loads(archive.read("data"))
    for key, value in changes.items():
        *path, last = key.split("__")
        inner = data
        for part in path:
            inner = inner[part]
        inner.pop(last) if value is None else inner.update({last: value})
    return json.dumps(data)


def test_pickles_are_not_needed(tmp_path):
    """The words beside them are enough."""
    with zipfile.ZipFile(FIXTURES / "sac.zip") as archive:
        data = json.loads(archive.read("data"))
    kept = {name: data[name] for name in ("observation_space", "action_space", "policy_kwargs")}
    for value in kept.values():
        value.pop(":serialized:", None)
    others = {"pytorch_variables.pth": None, "actor.optimizer.pth": None, "system_info.txt": None}
    path = changed(tmp_path / "words.zip", data=json.dumps(kept), **others)
    observations = np.float32([[1, 2, 3], [0, 0, 1]])
    np.testing.assert_array_equal(
        load(path)(observations), load(FIXTURES / "sac.zip")(observations)
    )


WRONG = {
    "no weights": ({"policy": None}, "no policy.pth"),
    "no data": ({"data": None}, "it has no data"),
    "data that is no JSON": ({"data": "{"}, "its data is no JSON"),
    "data of another kind": ({"data": "[1]"}, "its data holds no names and values"),
    "deep data": ({"data": "[" * 100_000}, "its data is no JSON"),
    "a giant number": ({"data": '{"a": ' + "9" * 10_000 + "}"}, "its data is no JSON"),
    "a deep value": (
        {"data": data_with(action_space__low=json.loads("[" * 400 + "]" * 400))}, "the low ends"
    ),
    "no spaces": ({"data": "{}"}, "does not say what its action_space is"),
    "no bounds": ({"data": data_with(action_space__low=None)}, "what the low ends of its actions"),
    "bounds cut short": (
        {"data": data_with(action_space__high="[2. ... 3.]" * 2)}, "what the high ends"
    ),
    "bounds that are no numbers": ({"data": data_with(action_space__low="[nan 0]")}, "the low"),
    "no shape": ({"data": data_with(action_space___shape=None)}, "what shape a space has"),
    "another shape": ({"data": data_with(action_space___shape=[3])}, "its network 2 outputs"),
    "a shape of words": ({"data": data_with(action_space___shape=["2"])}, "what shape a space"),
    "another size": (
        {"data": data_with(observation_space___shape=[5])}, "its network takes 3 columns"
    ),
    "no Box": ({"data": data_with(**{"action_space__:type:": "<class 'Box'>"})}, "action_space"),
    "a strange space": (
        {"data": data_with(**{"action_space__:type:": "<class 'gymnasium.spaces.text.Text'>"})},
        "its actions are a Text space",
    ),
    "weights that are no zip": ({"policy": b"PK"}, "it is no readable zip file"),
    "weights of nothing": ({"policy": b""}, "it is no readable zip file"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_a_file_does_not_say_is_one_sentence(tmp_path, name):
    members, sentence = WRONG[name]
    path = changed(tmp_path / "wrong.zip", **members)
    with pytest.raises(ValueError, match=r"cannot be read as a policy") as caught:
        load(path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_discrete_head_needs_discrete_actions(tmp_path):
    path = changed(tmp_path / "wrong.zip", "dqn", data=data_with("ppo"))
    with pytest.raises(ValueError, match="its network 3 outputs"):
        load(path)


def test_other_observations_are_refused():
    policy = load(FIXTURES / "ppo.zip")
    for shape in ((4,), (2, 4), (2, 2, 3), ()):
        with pytest.raises(ValueError, match=r"observes shape \(3,\), got"):
            policy(np.zeros(shape))


def test_a_torch_file_as_torch_writes_it_is_read_as_torch_reads_it(tmp_path):
    """Views, other kinds of numbers, shared storages: as torch itself loads them."""
    torch = pytest.importorskip("torch")
    from midstride.policies.torch_file import StateDict

    base = torch.arange(24, dtype=torch.float32)
    state = {
        "view": base.reshape(4, 6)[1:3, ::2],
        "transposed": base.reshape(4, 6).T,
        "double": torch.linspace(0, 1, 5, dtype=torch.float64),
        "half": torch.linspace(0, 1, 5).half(),
        "whole": torch.arange(5),
        "scalar": torch.tensor(2.5),
        "parameter": torch.nn.Parameter(torch.ones(2, 2)),
    }
    torch.save(state, file := io.BytesIO())
    read = StateDict(file.getvalue())
    assert set(read) == set(state)
    for name, tensor in state.items():
        np.testing.assert_array_equal(read.array(name), tensor.detach().float().numpy())

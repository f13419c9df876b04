"""Observations normalised from plain arrays."""

import json
import pickle

import numpy as np
import pytest
from safetensors.numpy import save_file

from midstride.policies import load
from midstride.policies.normalize import Normalization, NormalizedPolicy, read_normalization
from tests.policies.test_sb3 import FIXTURES, model_of
from tests.policies.test_strangers import Payload, bomb

STATS = {
    "mean": np.array([1.0, -2.0, 0.5]),
    "var": np.array([4.0, 0.25, 0.0]),
    "epsilon": np.array(1e-2),
    "clip": np.array(1.5),
}
ROWS = np.random.default_rng(0).normal(0, 3, (20, 3))


def written(path, stats):
    if path.suffix == ".npz":
        np.savez(path, **stats)
    elif path.suffix == ".safetensors":
        save_file({name: np.atleast_1d(value) for name, value in stats.items()}, path)
    else:
        path.write_text(json.dumps({name: value.tolist() for name, value in stats.items()}))
    return path


@pytest.mark.parametrize("name", ["stats.npz", "stats.safetensors", "stats.json"])
def test_three_kinds_of_files(tmp_path, name):
    path = written(tmp_path / name, STATS)
    expected = np.clip((ROWS - [1, -2, 0.5]) / np.sqrt([4.01, 0.26, 0.01]), -1.5, 1.5)
    np.testing.assert_allclose(read_normalization(path)(ROWS), expected, rtol=1e-6)
    policy, plain = load(FIXTURES / "sac.zip", normalize=path), load(FIXTURES / "sac.zip")
    np.testing.assert_array_equal(policy(ROWS), plain(expected.astype(np.float32)))
    np.testing.assert_allclose(policy(ROWS[0]), policy(ROWS)[0], atol=1e-6)
    assert policy.description["normalized"]
    assert policy.observation_size == 3
    with pytest.raises(ValueError, match=r"observes 3 columns, got shape \(2, 4\)"):
        policy(np.zeros((2, 4)))


def test_the_lines_that_the_error_gives_write_what_vecnormalize_does(tmp_path, monkeypatch):
    pytest.importorskip("stable_baselines3")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    monkeypatch.chdir(tmp_path)
    venv = DummyVecEnv([lambda: model_of("PPO").get_env().envs[0].unwrapped])
    normalized = VecNormalize(venv, clip_obs=2.0)
    normalized.obs_rms.update(ROWS)
    normalized.save("vecnormalize.pkl")
    with pytest.raises(ValueError, match="it is a pickle") as caught:
        read_normalization("vecnormalize.pkl")
    first, second = str(caught.value).split("`")[1::2]
    exec(first + "\nimport numpy\n" + second, {"VecNormalize": VecNormalize, "venv": venv})
    found = read_normalization("stats.npz")
    np.testing.assert_allclose(found(ROWS), normalized.normalize_obs(ROWS), rtol=1e-6)


def test_pickles_are_refused_whatever_they_are_called(tmp_path):
    canary = tmp_path / "canary"
    for name in ("stats.pkl", "stats.npz", "stats.json"):
        (tmp_path / name).write_bytes(pickle.dumps(Payload(canary)))
        with pytest.raises(ValueError, match=r"it is a pickle, which could run code: write its"):
            read_normalization(tmp_path / name)
    np.savez(tmp_path / "stats.npz", mean=np.array([Payload(canary)], object), var=np.ones(1))
    with pytest.raises(ValueError, match="its mean is no plain array of numbers"):
        read_normalization(tmp_path / "stats.npz")
    assert not canary.exists()


def test_a_bomb(tmp_path):
    (tmp_path / "stats.npz").write_bytes(bomb(17, "mean.npy"))
    with pytest.raises(ValueError, match=r"its mean.npy is larger than 16 MiB"):
        read_normalization(tmp_path / "stats.npz")


WRONG = {
    "var missing": ({"mean": np.ones(3)}, "it has no var: it needs mean and var"),
    "mean missing": ({"var": np.ones(3)}, "it has no mean"),
    "lengths": ({"mean": np.ones(3), "var": np.ones(2)}, "of the same length"),
    "a matrix": ({"mean": np.ones((2, 2)), "var": np.ones((2, 2))}, "one row of numbers each"),
    "nothing": ({"mean": np.ones(0), "var": np.ones(0)}, "one row of numbers each"),
    "not finite": ({"mean": np.array([np.nan]), "var": np.ones(1)}, "must be finite"),
    "negative": ({"mean": np.ones(1), "var": -np.ones(1)}, "var at least 0"),
    "no spread": (
        {"mean": np.ones(1), "var": np.zeros(1), "epsilon": np.array(0.0)}, "above 0"
    ),
    "clip": ({"mean": np.ones(1), "var": np.ones(1), "clip": np.array(0.0)}, "clip above 0"),
    "epsilons": ({"mean": np.ones(1), "var": np.ones(1), "epsilon": np.ones(2)}, "one number"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("ending", ["npz", "json"])
def test_wrong_numbers_are_one_sentence(tmp_path, name, ending):
    stats, sentence = WRONG[name]
    path = written(tmp_path / f"stats.{ending}", stats)
    with pytest.raises(ValueError, match=r"the normalisation in .* cannot be read") as caught:
        read_normalization(path)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("stats.json", b"{", "it is no JSON"),
        ("stats.json", b"[" * 100_000, "it is no JSON"),
        ("stats.json", b"[]", "it holds no names and values"),
        ("stats.json", b'{"mean": ["a"], "var": [1]}', "its mean must be numbers"),
        ("stats.json", b'{"mean": [[1], [1, 2]], "var": [1]}', "its mean must be numbers"),
        ("stats.json", b'{"mean": null, "var": [1]}', "one row of numbers each"),
        ("stats.npz", b"", "no readable zip file"),
        ("stats.safetensors", b"12345678", "it is damaged"),
        ("stats.txt", b"", "must be a .npz, .safetensors or .json file"),
    ],
)
def test_wrong_files_are_one_sentence(tmp_path, name, content, sentence):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=r"the normalisation in .* cannot be read") as caught:
        read_normalization(tmp_path / name)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there():
    with pytest.raises(ValueError, match="it is no regular file"):
        read_normalization("nowhere.npz")


def test_it_must_fit_the_policy():
    two = Normalization(np.zeros(2), np.ones(2))
    with pytest.raises(ValueError, match="observes 3 columns, its normalisation has 2"):
        NormalizedPolicy(load(FIXTURES / "sac.zip"), two)

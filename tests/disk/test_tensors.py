"""Checksums of checkpoints and policies: every flipped bit is noticed."""

import numpy as np
import pytest
from safetensors.numpy import save

import midstride
from midstride.disk.tensors import Unsealed, digest, read_tensors, sealed, write_tensors
from midstride.policies import save_policy
from midstride.policies.q import QPolicy

ARRAYS = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([True, False])}


def policy(seed=0, actions=(0.0, 1.0)):
    rng = np.random.default_rng(seed)
    weights = {
        "head.advantage.weight": rng.normal(size=(2, 3)).astype(np.float32),
        "head.advantage.bias": np.zeros(2, np.float32),
    }
    return QPolicy(weights, {"kind": "q", "actions": list(actions), "columns": ["x", "y", "z"]})


def test_what_was_written_is_read(tmp_path):
    write_tensors(tmp_path / "a", ARRAYS, {"about": '{"é": "\\""}'})
    arrays, about = read_tensors(tmp_path / "a")
    assert about == {"about": '{"é": "\\""}'}
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


def test_flipped_bits_are_noticed(tmp_path):
    data = sealed(ARRAYS, {"about": "{}"})
    for bit in range(0, 8 * len(data), 2):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / "a").write_bytes(flipped)
        with pytest.raises(ValueError, match=str(tmp_path / "a")):
            read_tensors(tmp_path / "a")


def test_every_cut_is_noticed(tmp_path):
    data = sealed(ARRAYS, {})
    for length in range(len(data)):
        (tmp_path / "a").write_bytes(data[:length])
        with pytest.raises(ValueError, match=str(tmp_path / "a")):
            read_tensors(tmp_path / "a")


def test_a_file_without_a_checksum_is_read_only_if_asked(tmp_path):
    (tmp_path / "a").write_bytes(save(ARRAYS))
    with pytest.raises(Unsealed, match="has no checksum"):
        read_tensors(tmp_path / "a")
    assert read_tensors(tmp_path / "a", needs_checksum=False)[0].keys() == ARRAYS.keys()


def test_flipped_bits_of_a_policy_are_noticed(tmp_path):
    save_policy(policy(), tmp_path)
    for name in ("policy.safetensors", "policy.json"):
        data = (tmp_path / name).read_bytes()
        for bit in np.random.default_rng(0).integers(8 * len(data), size=500).tolist():
            flipped = bytearray(data)
            flipped[bit // 8] ^= 1 << bit % 8
            (tmp_path / name).write_bytes(flipped)
            with pytest.raises(ValueError, match="cannot be read"):
                midstride.load(tmp_path)
        (tmp_path / name).write_bytes(data)
    assert midstride.load(tmp_path).description == policy().description


def test_weights_and_description_belong_together(tmp_path):
    save_policy(policy(0, (0.0, 1.0)), tmp_path / "a")
    save_policy(policy(1, (0.0, 2.0)), tmp_path / "b")
    (tmp_path / "a" / "policy.json").write_bytes((tmp_path / "b" / "policy.json").read_bytes())
    with pytest.raises(ValueError, match="are of different policies"):
        midstride.load(tmp_path / "a")


def test_policies_of_before_are_read(tmp_path):
    old = policy()
    save_policy(old, tmp_path)
    text = (tmp_path / "policy.json").read_text()
    (tmp_path / "policy.json").write_text(text.replace(',\n  "sealed": true', ""))
    (tmp_path / "policy.safetensors").write_bytes(save(old.weights))
    again = midstride.load(tmp_path)
    assert again(np.ones(3)) == old(np.ones(3))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head.advantage.weight": np.full((2, 3), np.nan, np.float32)}, "not finite"),
        ({"head.advantage.weight": np.zeros((3, 3), np.float32)}, "it does not act"),
        ({"head.advantage.weight": np.zeros((2, 3, 1), np.float32)}, "is not what a weight"),
        ({"head.advantage.bias": np.zeros(2)}, "is not what a weight or a bias is"),
        ({"other": np.zeros(2, np.float32)}, "is not what a weight or a bias is"),
    ],
)
def test_weights_that_do_not_act_are_refused(tmp_path, change, message):
    good = policy()
    save_policy(good, tmp_path)
    about = {"description": digest((tmp_path / "policy.json").read_bytes())}
    write_tensors(tmp_path / "policy.safetensors", {**good.weights, **change}, about)
    with pytest.raises(ValueError, match=message):
        midstride.load(tmp_path)


def test_a_policy_that_describes_other_actions_is_refused(tmp_path):
    save_policy(policy(actions=(0.0, 1.0, 2.0)), tmp_path)
    with pytest.raises(ValueError, match="chooses between 2 actions, and describes 3"):
        midstride.load(tmp_path)


def test_a_file_of_holes_is_not_read(tmp_path):
    """A terabyte of nothing takes no room on disk; it must take none in memory, and no time."""
    save_policy(policy(), tmp_path)
    with (tmp_path / "policy.safetensors").open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(
        ValueError, match=r"policy\.safetensors is too large: 1,099,511,627,776 bytes"
    ):
        midstride.load(tmp_path)
    with pytest.raises(ValueError, match="is too large"):
        read_tensors(tmp_path / "policy.safetensors")

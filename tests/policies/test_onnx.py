"""Policies in ONNX files."""

import os
import pickle

import numpy as np
import pytest
from gymnasium import spaces

from midstride.extras import MissingExtra
from midstride.policies import load
from midstride.policies.fit import fit

pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")
FLOAT, INT, DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64, onnx.TensorProto.DOUBLE
SEEN = spaces.Box(-np.inf, np.inf, (3,), np.float32)
RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(3, 4)).astype(np.float32)
ROWS = RNG.normal(size=(7, 3)).astype(np.float32)


def saved(path, nodes, given=("n", 3), kind=FLOAT, out=FLOAT, weights=WEIGHTS, further=()):
    """A file whose nodes make `action` from `observation` and the weights `w`."""
    helper = onnx.helper
    initial = [onnx.numpy_helper.from_array(weights, "w")]
    inputs = [helper.make_tensor_value_info("observation", kind, given), *further]
    outputs = [helper.make_tensor_value_info("action", out, None)]
    graph = helper.make_graph(nodes, "policy", inputs, outputs, initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def node(kind, *inputs, out="action", **attributes):
    return onnx.helper.make_node(kind, list(inputs), [out], **attributes)


LINEAR = (node("MatMul", "observation", "w"),)


@pytest.mark.parametrize("given", [("n", 3), (None, 3), (1, 3), (3,)])
def test_one_observation_and_batches(tmp_path, given):
    """Whatever the first axis of the input is: free, of length 1, or not there."""
    policy = load(saved(tmp_path / "policy.onnx", LINEAR, given))
    assert policy.observation_size == 3
    np.testing.assert_allclose(policy(ROWS), ROWS @ WEIGHTS, rtol=1e-5)
    np.testing.assert_allclose(policy(ROWS[0]), ROWS[0] @ WEIGHTS, rtol=1e-5)
    with pytest.raises(ValueError, match=r"observes 3 columns, got shape \(2, 4\)"):
        policy(np.zeros((2, 4)))


def test_what_outputs_mean_depends_on_the_actions(tmp_path):
    policy = load(saved(tmp_path / "policy.onnx", LINEAR))
    outputs = ROWS @ WEIGHTS
    box = spaces.Box(-0.5, np.float32([0.5, 1, 1.5, 2]))
    in_box = fit(policy, SEEN, box)
    np.testing.assert_allclose(in_box(ROWS), np.clip(outputs, box.low, box.high), rtol=1e-5)
    assert in_box(ROWS[0]).shape == (4,)
    again = pickle.loads(pickle.dumps(in_box))  # as another process gets it
    np.testing.assert_array_equal(again(ROWS), in_box(ROWS))
    chosen = fit(policy, SEEN, spaces.Discrete(4, start=2))
    np.testing.assert_array_equal(chosen(ROWS), outputs.argmax(axis=1) + 2)
    assert chosen(ROWS[0]) == outputs[0].argmax() + 2
    several = fit(policy, SEEN, spaces.MultiDiscrete([1, 3]))
    np.testing.assert_array_equal(several(ROWS)[:, 1], outputs[:, 1:].argmax(axis=1))
    assert several(ROWS[0]).shape == (2,)
    for space in (spaces.Discrete(3), spaces.Box(-1, 1, (3,)), spaces.MultiDiscrete([2, 3])):
        with pytest.raises(ValueError, match=r"gives shape \(4,\) for one observation, the env"):
            fit(policy, SEEN, space)
    with pytest.raises(ValueError, match=r"observes 3 columns, the environment gives \(5,\)"):
        fit(policy, spaces.Box(-1, 1, (5,)), box)


def test_whole_numbers_are_actions_already(tmp_path):
    nodes = (
        node("MatMul", "observation", "w", out="q"),
        node("ArgMax", "q", axis=1, keepdims=0),
    )
    policy = fit(load(saved(tmp_path / "policy.onnx", nodes, out=INT)), SEEN, spaces.Discrete(4))
    np.testing.assert_array_equal(policy(ROWS), (ROWS @ WEIGHTS).argmax(axis=1))
    assert isinstance(policy(ROWS[0]), int)
    few = fit(policy.policy, SEEN, spaces.Discrete(1))
    with pytest.raises(ValueError, match=r"first action is \d, the environment takes Discrete\(1"):
        few(ROWS[(ROWS @ WEIGHTS).argmax(axis=1) > 0])


def test_doubles(tmp_path):
    weights = WEIGHTS.astype(np.float64)
    path = saved(tmp_path / "policy.onnx", LINEAR, kind=DOUBLE, out=DOUBLE, weights=weights)
    np.testing.assert_allclose(load(path)(ROWS), ROWS @ weights, rtol=1e-12)


def test_it_equals_the_model_that_it_was_exported_from(tmp_path):
    """By the way that Stable-Baselines3's documentation gives, written out by hand."""
    torch = pytest.importorskip("torch")
    from tests.policies.test_sb3 import BOUNDED, model_of

    model = model_of("PPO", policy_kwargs={"net_arch": [8]})
    weights = {k: v.detach().numpy() for k, v in model.policy.state_dict().items()}
    first, second = "mlp_extractor.policy_net.0", "action_net"
    initial = {
        "w": weights[f"{first}.weight"].T.copy(), "b": weights[f"{first}.bias"],
        "v": weights[f"{second}.weight"].T.copy(), "c": weights[f"{second}.bias"],
    }  # fmt: skip
    nodes = [
        node("Gemm", "observation", "w", "b", out="h"), node("Tanh", "h", out="t"),
        node("Gemm", "t", "v", "c"),
    ]  # fmt: skip
    helper = onnx.helper
    graph = helper.make_graph(
        nodes, "policy",
        [helper.make_tensor_value_info("observation", FLOAT, ("n", 3))],
        [helper.make_tensor_value_info("action", FLOAT, ("n", 2))],
        [onnx.numpy_helper.from_array(value, name) for name, value in initial.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17)]
    model_file = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model_file, tmp_path / "policy.onnx")
    policy = fit(load(tmp_path / "policy.onnx"), SEEN, BOUNDED)
    with torch.no_grad():
        actions, _ = model.predict(ROWS, deterministic=True)
    np.testing.assert_allclose(policy(ROWS), actions, rtol=1e-6, atol=1e-6)


# --- Files that are not policies ------------------------------------------------------------------


def refused(path):
    with pytest.raises(ValueError, match="cannot be read as an ONNX policy") as caught:
        load(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_several_inputs(tmp_path):
    hidden = onnx.helper.make_tensor_value_info("h_in", FLOAT, (1, 4))
    nodes = (node("MatMul", "observation", "w", out="x"), node("Add", "x", "h_in"))
    path = saved(tmp_path / "policy.onnx", nodes, further=[hidden])
    assert "2 inputs (observation, h_in), a policy has one" in refused(path)


def test_inputs_that_are_no_observations(tmp_path):
    nodes = (node("Identity", "observation"),)
    path = saved(tmp_path / "image.onnx", nodes, (1, 3, 8, 8))
    assert "not rows of numbers" in refused(path)
    assert "batches of 5 only" in refused(saved(tmp_path / "five.onnx", LINEAR, (5, 3)))


@pytest.mark.parametrize("content", [b"", b"\x08", b"not a model", os.urandom(200)])
def test_files_that_are_no_models(tmp_path, content):
    (tmp_path / "policy.onnx").write_bytes(content)
    refused(tmp_path / "policy.onnx")


def test_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "policy.onnx")
    assert "it is no file" in refused(tmp_path / "policy.onnx")


def test_weights_that_lie_elsewhere_are_not_fetched(tmp_path):
    """A file may keep weights in files beside it, and only there."""
    secret = tmp_path / "secret"
    secret.write_bytes(np.ones((3, 4), np.float32).tobytes())
    (tmp_path / "folder").mkdir()
    model = onnx.load(saved(tmp_path / "folder" / "policy.onnx", LINEAR))
    beside = tmp_path / "folder" / "beside"
    beside.write_bytes(secret.read_bytes())
    for location in ("beside", "../secret", str(secret)):
        tensor = model.graph.initializer[0]
        del tensor.external_data[:]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        entry = tensor.external_data.add()
        entry.key, entry.value = "location", location
        path = tmp_path / "folder" / "split.onnx"
        path.write_bytes(model.SerializeToString())
        if location == "beside":
            np.testing.assert_allclose(load(path)(np.ones(3)), 3)
        else:
            assert "xternal data" in refused(path)


def test_a_file_that_takes_for_ever_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr("midstride.policies.onnx._LONGEST_TRIAL_S", 0.3)
    helper = onnx.helper
    body = helper.make_graph(
        [node("Identity", "go", out="on"), node("Identity", "x", out="y")],
        "body",
        [
            helper.make_tensor_value_info("i", INT, ()),
            helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, ()),
            helper.make_tensor_value_info("x", FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", onnx.TensorProto.BOOL, ()),
            helper.make_tensor_value_info("y", FLOAT, None),
        ],
    )
    nodes = (
        node("Constant", out="many", value_int=2**62),
        node("ReduceSum", "observation", out="sum", keepdims=0),
        node("Equal", "sum", "sum", out="true"),
        node("Loop", "many", "true", "observation", body=body),
    )
    assert "cannot act" in refused(saved(tmp_path / "policy.onnx", nodes))


def test_a_missing_runtime_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    (tmp_path / "policy.onnx").write_bytes(b"")
    with pytest.raises(MissingExtra, match=r"needs onnxruntime: pip install 'midstride\[onnx\]'"):
        load(tmp_path / "policy.onnx")

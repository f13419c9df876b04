"""Policies of Stable-Baselines3, from the zip that `model.save` writes, without running it.

Two members are read. `policy.pth` has the weights; the network is built anew from their names and
shapes. `data` is JSON; beside pickles, which stay text to us, it says in words what the activation
function is and what actions are. Actions are those of `model.predict(..., deterministic=True)`.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.finite import check_finite
from midstride.policies.archive import Archive, read_file
from midstride.policies.network import ACTIVATIONS, Network
from midstride.policies.torch_file import StateDict

_MIB = 2**20
_LARGEST_DATA, _LARGEST_WEIGHTS = 8 * _MIB, 256 * _MIB
_MOST_ACTIONS = 10_000
_NUMBER = re.compile(r"[-+]?(?:inf|nan|\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?)")
Array = NDArray[np.float32]


class Sb3Policy:
    """A policy of Stable-Baselines3 in NumPy: `policy(observation) -> action`, or for a batch."""

    def __init__(self, network: Network, head: Head, description: dict[str, Any]) -> None:
        self.description = description
        self._network, self._head = network, head
        self._shape = tuple(description["observation_shape"])

    @property
    def observation_size(self) -> int:
        return self._network.inputs

    def reset(self, which: NDArray[np.bool_] | None = None) -> None:
        """There is nothing to forget."""

    def __call__(self, observation: Any) -> Any:
        """The action for an observation, or one for each of a batch (n, columns)."""
        given = np.asarray(observation, np.float32)
        single = given.shape == self._shape
        if not single and given.shape[1:] != self._shape:
            raise ValueError(f"this policy observes shape {self._shape}, got {given.shape}")
        check_finite(given)
        found = self._head(self._network(given.reshape(-1, self._network.inputs)))
        if not single:
            return found
        return int(found[0]) if found.ndim == 1 and found.dtype.kind == "i" else found[0]


@dataclass(frozen=True)
class Head:
    """What the numbers of the last layer mean."""

    action: dict[str, Any]  # of `description`
    squash: bool = False  # by tanh, then from [-1, 1] to the bounds; else cut at the bounds
    most: float = math.inf  # of the last layer's numbers, before they are squashed

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        low, high = (np.array(self.action[name], np.float32) for name in ("low", "high"))
        return low, high

    def __call__(self, x: Array) -> NDArray[Any]:
        """(n, outputs) -> actions (n, ...)"""
        action = self.action
        if action["kind"] == "discrete":
            return x.argmax(axis=1)
        if action["kind"] == "multi_discrete":
            parts = np.split(x, np.cumsum(action["choices"])[:-1], axis=1)
            return np.stack([part.argmax(axis=1) for part in parts], axis=1)
        if action["kind"] == "multi_binary":  # the mode of a Bernoulli distribution, rounded
            return (x > 0).astype(np.int8)
        low, high = self.bounds
        x = x.reshape(-1, *low.shape)
        if not self.squash:
            return np.clip(x, low, high)
        x = np.tanh(np.clip(x, -self.most, self.most))
        return np.asarray(low + (0.5 * (x + 1.0) * (high - low)), np.float32)


def read_sb3(path: Path, activation: str | None = None) -> Sb3Policy:
    """The policy in a zip of PPO, A2C, SAC, TD3, DDPG or DQN with an `MlpPolicy`.

    activation: the name that PyTorch has for the activation function, where the file has none
    """
    try:
        archive = Archive(read_file(path))
        if "policy.pth" not in archive.names:
            raise ValueError("it has no policy.pth: give a zip that model.save of it wrote")
        data = _data(archive)
        weights = StateDict(archive.read("policy.pth", _LARGEST_WEIGHTS))
        return _policy(weights, data, activation)
    except ValueError as error:
        raise ValueError(
            f"{path} cannot be read as a policy of Stable-Baselines3: {error}"
        ) from None


def _data(archive: Archive) -> dict[str, Any]:
    content = archive.read("data", _LARGEST_DATA)
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("its data is no JSON") from None
    if not isinstance(found, dict):
        raise ValueError("its data holds no names and values")
    return found


def _policy(weights: StateDict, data: dict[str, Any], activation: str | None) -> Sb3Policy:
    family, between, last = _family(weights)
    options = data.get("policy_kwargs")
    options = options if isinstance(options, dict) else {}
    named = activation or _activation(options, "Tanh" if family == "PPO or A2C" else "ReLU")
    if named not in ACTIVATIONS:
        raise ValueError(
            f"its activation function {named[:60]!r} is not one of {', '.join(ACTIVATIONS)}"
        )
    network = _network(weights, between, last, named)
    action = _action(data, network.outputs)
    shape = _observation_shape(data, network.inputs)
    description = {
        "kind": "sb3",
        "algorithm": family,
        "activation": named,
        "layers": [network.inputs, *(len(bias) for _, bias in network.layers)],
        "observation_shape": list(shape),
        "action": action,
    }
    return Sb3Policy(network, _head(family, weights, data, options, action), description)


def _family(weights: StateDict) -> tuple[str, str, str]:
    """Which algorithms make such weights, and what the layers of their network are called.

    The names of a list of layers, with the number of each to come, and of one more after them.
    """
    for name in weights:
        for part, what in _NOT_READ.items():
            if part in name:
                raise ValueError(f"it has {what} ({name[:80]}): export it to ONNX instead")
    if "action_net.weight" in weights:
        return "PPO or A2C", "mlp_extractor.policy_net", "action_net"
    if "actor.mu.weight" in weights:
        return "SAC", "actor.latent_pi", "actor.mu"
    if "actor.mu.0.weight" in weights and "actor.log_std" in weights:
        return "SAC", "actor.latent_pi", "actor.mu.0"  # mu is followed by a clip
    if "actor.mu.0.weight" in weights:
        return "TD3 or DDPG", "actor.mu", ""
    if "q_net.q_net.0.weight" in weights:
        return "DQN", "q_net.q_net", ""
    raise ValueError("its weights are none of an MlpPolicy of PPO, A2C, SAC, TD3, DDPG or DQN")


_NOT_READ = {
    "features_extractor.": "a network that extracts features before the policy",
    "lstm": "a recurrent network",
    "quantile_net": "a network of quantiles",
    "running_mean": "batch normalisation",
    "shared_net": "layers that policy and value share",
}


def _network(weights: StateDict, between: str, last: str, activation: str) -> Network:
    """The layers between.0, between.2, ... and `last`, whose shapes must follow one another."""
    pattern = re.compile(re.escape(between) + r"\.(\d+)\.(?:weight|bias)")
    inside = [name for name in weights if name.startswith(f"{between}.")]
    numbers = sorted({int(found[1][:9]) for name in inside if (found := pattern.fullmatch(name))})
    names = [f"{between}.{number}" for number in numbers]
    expected = {f"{name}.{part}" for name in names for part in ("weight", "bias")}
    if set(inside) != expected or numbers != list(range(0, 2 * len(numbers), 2)):
        raise ValueError(f"the layers of {between} are not linear ones with activations between")
    layers: list[tuple[Array, Array]] = []
    for name in [*names, last] if last else names:
        matrix, bias = (weights.array(f"{name}.{part}") for part in ("weight", "bias"))
        inputs = layers[-1][0].shape[0] if layers else matrix.shape[-1]
        if matrix.ndim != 2 or bias.shape != matrix.shape[:1] or matrix.shape[1] != inputs:
            raise ValueError(f"the shapes of {name} do not follow those of the layer before it")
        layers.append((matrix, bias))
    return Network(tuple(layers), activation)


def _activation(options: dict[str, Any], default: str) -> str:
    """The activation function by PyTorch's name, from the words that describe it."""
    if "activation_fn" not in options:
        return default
    text = _words(options["activation_fn"])
    found = re.fullmatch(r"<class 'torch\.nn\.modules\.[a-z]+\.(\w+)'>", text)
    if found is None:
        raise ValueError(
            f"its activation function is {text[:60]!r}, which is no layer of PyTorch: say "
            "which it is, load(..., activation='Tanh')"
        )
    return found[1]


def _head(
    family: str,
    weights: StateDict,
    data: dict[str, Any],
    options: dict[str, Any],
    action: dict[str, Any],
) -> Head:
    if family == "SAC" and "actor.mu.0.weight" in weights:
        most = options.get("clip_mean", 2.0)
        if not isinstance(most, (int, float)) or not most > 0:
            raise ValueError(f"its clip_mean must be a number above 0, got {_words(most)[:60]!r}")
        return Head(action, squash=True, most=float(most))
    if family == "PPO or A2C":
        # Squashing is an option of state-dependent exploration alone.
        squash = options.get("squash_output") is True and data.get("use_sde") is True
        return Head(action, squash=squash and action["kind"] == "box")
    if family == "TD3 or DDPG" or family == "SAC":
        if action["kind"] != "box":
            raise ValueError(f"it is of {family} but its actions are not continuous")
        return Head(action, squash=True)
    if action["kind"] != "discrete":
        raise ValueError(f"it is of {family} but its actions are not discrete")
    return Head(action)


# --- Spaces, from words --------------------------------------------------------------------------


def _space(data: dict[str, Any], name: str) -> tuple[str, dict[str, Any]]:
    """The kind of a space, such as Box, and what is said of it."""
    said = data.get(name)
    kind = _words(said.get(":type:")) if isinstance(said, dict) else ""
    found = re.fullmatch(r"<class 'gym(?:nasium)?\.spaces\.\w+\.(\w+)'>", kind)
    if found is None or not isinstance(said, dict):
        raise ValueError(f"its data does not say what its {name} is")
    return found[1], said


def _shape(said: dict[str, Any]) -> tuple[int, ...]:
    shape = said.get("_shape", said.get("shape"))
    if not isinstance(shape, list) or not all(isinstance(n, int) and n > 0 for n in shape):
        raise ValueError("its data does not say what shape a space has")
    return tuple(shape)


def _observation_shape(data: dict[str, Any], inputs: int) -> tuple[int, ...]:
    kind, said = _space(data, "observation_space")
    if kind != "Box":
        raise ValueError(f"it observes a {kind} space, only Box is read: export it to ONNX instead")
    shape = _shape(said)
    if said.get("dtype") == "uint8" and len(shape) == 3:
        raise ValueError("it observes images: export it to ONNX instead")
    if math.prod(shape) != inputs:
        raise ValueError(f"it observes {shape} but its network takes {inputs} columns")
    return shape


def _action(data: dict[str, Any], outputs: int) -> dict[str, Any]:
    """What an action is, as `description` holds it; the network must have outputs for it."""
    kind, said = _space(data, "action_space")
    if kind == "Box":
        shape = _shape(said)
        if math.prod(shape) != outputs:
            raise ValueError(f"its actions have shape {shape}, its network {outputs} outputs")
        bounds = {name: _numbers(said.get(name), shape, name) for name in ("low", "high")}
        return {"kind": "box", "shape": list(shape), **bounds}
    if kind == "Discrete":
        choices = _wholes(said.get("n"))
        if choices != [outputs]:
            raise ValueError(
                f"it has {_words(said.get('n'))[:20]} actions, its network {outputs} outputs"
            )
        return {"kind": "discrete", "choices": outputs}
    if kind == "MultiDiscrete":
        choices = _wholes(said.get("nvec"))
        if not choices or sum(choices) != outputs or min(choices) < 1 or len(_shape(said)) != 1:
            raise ValueError(f"its choices do not add up to its network's {outputs} outputs")
        return {"kind": "multi_discrete", "choices": choices}
    if kind == "MultiBinary" and _wholes(said.get("n")) == [outputs]:
        return {"kind": "multi_binary", "choices": outputs}
    raise ValueError(f"its actions are a {kind} space, which is not read: export it to ONNX")


def _numbers(text: Any, shape: tuple[int, ...], name: str) -> Any:
    """An array that was printed, as nested lists."""
    found = [float(number) for number in _NUMBER.findall(_words(text))]
    if len(found) != math.prod(shape) or any(map(math.isnan, found)):
        raise ValueError(f"its data does not say what the {name} ends of its actions are")
    return np.array(found).reshape(shape).tolist()


def _wholes(text: Any) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,9}", _words(text))]


def _words(value: Any) -> str:
    """What a file says in words, or nothing."""
    return str(value)[: 40 * _MOST_ACTIONS] if isinstance(value, (str, int, float)) else ""

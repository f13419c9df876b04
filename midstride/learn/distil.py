"""A network that is taught what to do by what somebody else would have done: supervised learning.

Continuous actions: mean squared distance in [-1, 1], after the tanh. Discrete ones: cross-entropy.
Inputs are normalised by their mean and deviation. Adam, cosine decay to 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.finite import is_finite
from midstride.learn.agent import configure_jax, named_arrays
from midstride.learn.normal import Normaliser
from midstride.policies.actor import CLIP, ActorPolicy
from midstride.policies.q import QPolicy
from midstride.settings import Range, Settings

Array = NDArray[Any]
_CHUNK = 500  # updates that are compiled as one
OnUpdate = Callable[[int], None]  # told how many updates were made


@dataclass(frozen=True)
class FitSettings(Settings):
    """How a student is taught."""

    kind: ClassVar[str] = "setting of the student"

    hidden: tuple[int, ...] = (256, 256)
    """sizes of the student's hidden layers"""
    updates: Annotated[int, Range(1, 10**9)] = 20_000
    """gradient steps"""
    batch_size: Annotated[int, Range(1, 10**6)] = 256
    """pairs that each of them learns from"""
    learning_rate: Annotated[float, Range(1e-12, 1e3)] = 1e-3
    """step size of Adam at the start; it falls to 0 as a cosine"""
    seed: Annotated[int, Range(0, 2**31)] = 0
    """starts everything random"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(size < 1 for size in self.hidden):
            raise ValueError(f"hidden layers need at least 1 unit, got {self.hidden}")


class Student(eqx.Module):
    """Actions before the tanh, or a number for each choice; unbatched, as Equinox has it."""

    layers: list[eqx.nn.Linear]
    mean: eqx.nn.Linear

    def __init__(self, columns: int, hidden: tuple[int, ...], outputs: int, key: Any) -> None:
        sizes = (columns, *hidden)
        keys = jax.random.split(key, len(sizes))
        self.layers = [
            eqx.nn.Linear(sizes[i], sizes[i + 1], key=keys[i]) for i in range(len(hidden))
        ]
        self.mean = eqx.nn.Linear(sizes[-1], outputs, key=keys[-1])

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return self.mean(x)


def distil(
    inputs: Array,
    wanted: Array,
    space: Any,
    settings: FitSettings,
    on_update: OnUpdate = lambda updates: None,
) -> ActorPolicy | QPolicy:
    """A policy that does in `inputs` (n, columns) what is `wanted` there, (n, ...) actions."""
    check_actions(space)
    configure_jax()
    discrete = isinstance(space, spaces.Discrete)
    normal = Normaliser(inputs.shape[1])
    normal.add(inputs)
    mean, scale = normal.mean_and_scale()
    scale[np.ptp(inputs, axis=0) == 0] = (
        0.0  # nothing is known of what a column does that was still
    )
    x = np.clip((inputs - mean) * scale, -CLIP, CLIP).astype(np.float32)
    y = _labels(wanted, space)
    outputs = int(space.n) if discrete else y.shape[1]
    key = jax.random.key(settings.seed)
    student = Student(inputs.shape[1], settings.hidden, outputs, key)
    taught = _taught(student, x, y, settings, on_update)
    weights = {name: np.array(array) for name, array in named_arrays(taught).items()}
    if not all(is_finite(array) for array in weights.values()):
        raise ValueError(
            f"teaching went wrong: a weight is no finite number after {settings.updates:,} "
            f"updates; try a smaller learning_rate than {settings.learning_rate:g}"
        )
    if discrete:
        return _chooser(weights, mean, scale)
    named = {f"actor.{name}": array for name, array in weights.items()}
    bounds = {"low": space.low.ravel().tolist(), "high": space.high.ravel().tolist()}
    return ActorPolicy(
        {**named, "normal.mean": mean, "normal.scale": scale}, {"kind": "actor", **bounds}
    )


def errors(policy: Any, inputs: Array, wanted: Array, space: Any) -> Array:
    """(n,) how far the policy is from what is wanted.

    Of continuous actions the root of the mean square over their dimensions, in units of half their
    range; of discrete ones 1 where it is another.
    """
    done = np.concatenate([np.asarray(policy(part)) for part in _batches(inputs)])
    if isinstance(space, spaces.Discrete):
        return (done.reshape(-1) != np.asarray(wanted).reshape(-1)).astype(float)
    apart = _labels(done, space) - _labels(wanted, space)
    return np.asarray(np.sqrt((apart**2).mean(axis=1)))


def labels_of(policy: Any, observations: Array) -> Array:
    """What a policy does in observations (n, columns)."""
    return np.concatenate([np.asarray(policy(part)) for part in _batches(observations)])


def check_actions(space: Any) -> None:
    """An error unless actions are discrete, or continuous with bounds."""
    flat = isinstance(space, spaces.Box) and len(space.shape) == 1 and space.is_bounded()
    if not flat and not (isinstance(space, spaces.Discrete) and space.start == 0):
        raise ValueError(
            "adapt knows discrete actions that count from 0, and flat continuous ones with bounds, "
            f"not {space}"
        )


@partial(jax.jit, static_argnums=2)
def _rows(keys: Any, count: Any, size: int) -> Any:
    """(keys, size) random rows out of `count`."""
    return jax.vmap(lambda key: jax.random.randint(key, (size,), 0, count))(keys)


def _taught(
    student: Student, x: Array, y: Array, settings: FitSettings, on_update: OnUpdate
) -> Any:
    """The student after all updates."""
    is_choice = y.ndim == 1
    optimiser = optax.adam(optax.cosine_decay_schedule(settings.learning_rate, settings.updates))
    arrays, static = eqx.partition(student, eqx.is_array)

    def loss(arrays: Any, inputs: Any, wanted: Any) -> Any:
        out = jax.vmap(eqx.combine(arrays, static))(inputs)
        if is_choice:
            return optax.softmax_cross_entropy_with_integer_labels(out, wanted).mean()
        return ((jnp.tanh(out) - wanted) ** 2).mean()

    @jax.jit
    def several(carried: Any, batches: Any) -> Any:
        # Batches, not the data and rows of them: it is compiled once, however much data there are.
        def one(carried: Any, batch: Any) -> tuple[Any, Any]:
            arrays, moments = carried
            gradient = jax.grad(loss)(arrays, *batch)
            change, moments = optimiser.update(gradient, moments)
            return (optax.apply_updates(arrays, change), moments), None

        return jax.lax.scan(one, carried, batches)[0]

    carried = arrays, optimiser.init(arrays)
    key = jax.random.key(settings.seed + 1)
    made = 0
    while made < settings.updates:
        count = min(_CHUNK, settings.updates - made)
        keys = jax.random.split(key, count + 1)
        rows = np.asarray(_rows(keys[1:], len(x), settings.batch_size))
        key, carried = keys[0], several(carried, (x[rows], y[rows]))
        made += count
        jax.block_until_ready(carried)
        on_update(made)
    return eqx.combine(carried[0], static)


def _labels(actions: Array, space: Any) -> Array:
    """Actions as the network gives them: in [-1, 1], or the number of the choice."""
    if isinstance(space, spaces.Discrete):
        return np.asarray(actions).reshape(-1).astype(np.int32)
    low, high = space.low.ravel(), space.high.ravel()
    flat = np.asarray(actions, np.float32).reshape(len(actions), -1)
    return np.asarray(np.clip((flat - low) / (high - low) * 2 - 1, -1, 1), np.float32)


def _chooser(weights: dict[str, Array], mean: Array, scale: Array) -> QPolicy:
    """The student as a policy over choices; the first layer takes over the normalisation."""
    named = {
        f"head.{name.replace('mean.', 'advantage.')}": np.array(array)
        for name, array in weights.items()
    }
    first = "head.layers.0" if "head.layers.0.weight" in named else "head.advantage"
    named[f"{first}.weight"] = named[f"{first}.weight"] * scale
    named[f"{first}.bias"] = named[f"{first}.bias"] - named[f"{first}.weight"] @ mean
    return QPolicy(named, {"kind": "q"})


def _batches(rows: Array, size: int = 4096) -> list[Array]:
    return [rows[k : k + size] for k in range(0, len(rows), size)]

"""Adapt: a policy of a frozen world, made fit for a latency by supervised learning.

    student(observation at capture, actions in flight) -> the frozen policy's action at the switch

The state of the switch is in the record of the frozen world (`record.py`), and what is right there
the policy itself says: no reward, no new algorithm. Where the student goes astray, rounds in the
world with latency help (DAgger; DIDA, Liotet et al., 2022): the student acts, the frozen policy
says what would have been right at each switch, and all of it is learned from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces
from jax import Array
from numpy.typing import NDArray

from midstride.learn.agent import named_arrays
from midstride.learn.record import Hindsight
from midstride.learn.sac import linear_layers
from midstride.policies import ActorPolicy, QPolicy
from midstride.policies.actor import CLIP
from midstride.settings import Range, Settings

Rows = NDArray[np.float32]
OnProgress = Callable[[int], None]  # is told how many updates are done
_AT_ONCE = 500  # updates that are dispatched together
_LEAST_DEVIATION = 1e-3


@dataclass(frozen=True)
class FitSettings(Settings):
    """How a student is fitted."""

    kind: ClassVar[str] = "setting of the adaptation"

    updates: Annotated[int, Range(1, 10**8)] = 20_000
    """gradient steps; more fit the data better, and take longer"""
    hidden: tuple[int, ...] = (256, 256)
    """sizes of the student's hidden layers"""
    learning_rate: Annotated[float, Range(1e-12, 1e3)] = 1e-3
    """step size of Adam at the start; it falls to 0 along a cosine"""
    batch_size: Annotated[int, Range(1, 10**6)] = 256
    """decisions that each update learns from"""
    seed: Annotated[int, Range(0, 2**31)] = 0
    """starts everything random"""


class Student(eqx.Module):
    """Hidden layers with ReLU, then a number per action dimension or choice; unbatched."""

    layers: list[eqx.nn.Linear]
    mean: eqx.nn.Linear

    def __init__(self, columns: int, hidden: tuple[int, ...], outputs: int, key: Array) -> None:
        keys = jax.random.split(key, len(hidden) + 1)
        self.layers = linear_layers(columns, hidden, keys[1:])
        self.mean = eqx.nn.Linear((columns, *hidden)[-1], outputs, key=keys[0])

    def __call__(self, x: Array) -> Array:
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return self.mean(x)


def inputs_of(found: Hindsight, longest: int | None = None) -> Rows:
    """What `Concurrent` observes with previous_action and pending_actions, in its order.

    longest: of several delays, in control steps: selection time is observed too, as a share of it
    """
    parts = [found.observation_capture, found.in_flight.reshape(len(found.in_flight), -1)]
    if longest is not None:
        parts.append(found.delay[:, None] / longest)
    return np.concatenate(parts, axis=1).astype(np.float32)


def fit(
    inputs: Rows,
    wanted: NDArray[Any],
    space: spaces.Box | spaces.Discrete,
    settings: FitSettings,
    on_progress: OnProgress = lambda updates: None,
) -> ActorPolicy | QPolicy:
    """A student that does on `inputs` (m, columns) what is `wanted` (m, ...) in the action space.

    Continuous actions are fitted by squares, in [-1, 1]; discrete ones by cross-entropy.
    """
    discrete = isinstance(space, spaces.Discrete)
    if discrete:
        assert isinstance(space, spaces.Discrete)
        goal, outputs = np.asarray(wanted, np.int64) - int(space.start), int(space.n)
    else:
        low, high = space.low.ravel(), space.high.ravel()
        goal = np.asarray(
            (wanted.reshape(len(wanted), -1) - low) / (high - low) * 2 - 1, np.float32
        )
        outputs = goal.shape[1]
    mean = inputs.mean(axis=0)
    scale = 1 / (inputs.std(axis=0) + _LEAST_DEVIATION)
    x = np.clip((inputs - mean) * scale, -CLIP, CLIP)
    student = Student(x.shape[1], settings.hidden, outputs, jax.random.key(settings.seed))
    student = _fitted(student, jnp.asarray(x), jnp.asarray(goal), discrete, settings, on_progress)
    named = {name: np.array(array) for name, array in named_arrays(student).items()}
    if discrete:
        return _chooser(named, mean, scale, int(space.start), outputs)
    weights = {f"actor.{name}": array for name, array in named.items()}
    return ActorPolicy(
        {**weights, "normal.mean": mean, "normal.scale": scale},
        {"kind": "actor", "low": low.tolist(), "high": high.tolist()},
    )


def _fitted(
    student: Student, x: Any, goal: Any, discrete: bool, settings: FitSettings, told: OnProgress
) -> Student:
    arrays, static = eqx.partition(student, eqx.is_array)
    schedule = optax.cosine_decay_schedule(settings.learning_rate, settings.updates)
    optimiser = optax.adam(schedule)

    def loss(arrays: Any, rows: Any) -> Any:
        outputs = jax.vmap(eqx.combine(arrays, static))(x[rows])
        if discrete:
            each = optax.softmax_cross_entropy_with_integer_labels(outputs, goal[rows])
        else:
            each = ((jnp.tanh(outputs) - goal[rows]) ** 2).mean(axis=1)
        return each.mean()

    @jax.jit
    def updated(arrays: Any, state: Any, rows: Any) -> Any:
        def one(carry: Any, rows: Any) -> tuple[Any, None]:
            arrays, state = carry
            change, state = optimiser.update(jax.grad(loss)(arrays, rows), state)
            return (optax.apply_updates(arrays, change), state), None

        return jax.lax.scan(one, (arrays, state), rows)[0]

    rng, state = np.random.default_rng(settings.seed), optimiser.init(arrays)
    for done in range(0, settings.updates, _AT_ONCE):
        count = min(_AT_ONCE, settings.updates - done)
        rows = rng.integers(len(x), size=(count, settings.batch_size))
        arrays, state = updated(arrays, state, rows)
        told(done + count)
    return eqx.combine(arrays, static)


def _chooser(named: dict[str, Any], mean: Rows, scale: Rows, start: int, choices: int) -> QPolicy:
    """A student of discrete actions, with the normalisation folded into its first layer."""
    names = {"mean.weight": "head.advantage.weight", "mean.bias": "head.advantage.bias"}
    weights = {names.get(name, f"head.{name}"): array for name, array in named.items()}
    first = "head.layers.0" if "head.layers.0.weight" in weights else "head.advantage"
    weight = weights[f"{first}.weight"] * scale
    weights[f"{first}.bias"] = weights[f"{first}.bias"] - weight @ mean
    weights[f"{first}.weight"] = weight
    numbers = None if start == 0 else list(range(start, start + choices))
    return QPolicy(weights, {"kind": "q", "actions": numbers})

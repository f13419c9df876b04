"""QT-Opt: a decision, and an update, against an ordinary convolution network of the same output."""

from __future__ import annotations

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.figures import Figure, rates
from midstride.learn.agent import configure_jax
from midstride.learn.agent_settings import RunSettings
from midstride.learn.critic import IMAGE_FEATURES, Critic
from midstride.learn.qtopt import QTOpt, QTOptSettings
from midstride.tasks.grasp.settings import GraspSettings

ENVIRONMENT = GraspSettings(image_size=64, knowledge=("vector_to_go",), scenes=8)
SETTINGS = QTOptSettings(acting_rounds=2)
DECISIONS, UPDATES, REPEATS = 20, 4, 7
_CHANNELS = (32, 64, 96, 128)  # of the ordinary network: 3x3, stride 2


class Convolutions(Critic):
    """The critic with four ordinary convolutions instead of patches."""

    convolutions: list[eqx.nn.Conv2d]

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        keys = jax.random.split(jax.random.key(9), len(_CHANNELS))
        sizes = (3, *_CHANNELS)
        self.convolutions = [
            eqx.nn.Conv2d(i, o, 3, stride=2, padding=1, key=key)
            for i, o, key in zip(sizes, sizes[1:], keys, strict=False)
        ]
        side = ENVIRONMENT.image_size // 2 ** len(_CHANNELS)
        flat = eqx.nn.Linear(side * side * _CHANNELS[-1], IMAGE_FEATURES, key=keys[0])
        self.patches, self.image = [], [flat, self.image[1]]

    def encode(self, state: Any, image: Any) -> Any:
        features, _ = super().encode(state, None)
        x = image.astype(jnp.float32).transpose(0, 3, 1, 2) / 128 - 1
        for layer in self.convolutions:
            x = jax.nn.relu(jax.vmap(layer)(x))
        x = jax.nn.relu(jax.vmap(self.image[0])(x.reshape(len(x), -1)))
        assert self.auxiliary is not None
        return features + jax.vmap(self.image[1])(x), jax.vmap(self.auxiliary)(x)


class ConvolutionQTOpt(QTOpt):
    critic = Convolutions


def make_agent(kind: type[QTOpt]) -> QTOpt:
    run, rng = RunSettings(num_envs=1), np.random.default_rng(0)
    return kind(SETTINGS, run, ENVIRONMENT.make(1), rng)


def run() -> list[Figure]:
    configure_jax()
    ours, ordinary = (make_agent(kind) for kind in (QTOpt, ConvolutionQTOpt))
    rng = np.random.default_rng(0)
    size, n = ENVIRONMENT.image_size, SETTINGS.batch_size
    batch: dict[str, Any] = {
        "state_capture": rng.random((n, 7), np.float32),
        "image_capture": rng.integers(0, 256, (n, size, size, 3), dtype=np.uint8),
        "action": rng.uniform(-1, 1, (n, 7)).astype(np.float32),
        "auxiliary": rng.random((n, 7), np.float32),
        "label": rng.random(n, np.float32),
    }
    seen = {name: batch[f"{name}_capture"][0] for name in ("image", "state")}
    works: dict[str, Any] = {
        "decision": (lambda: [ours.policy(seen) for _ in range(DECISIONS)], DECISIONS),
        "decision, convolutions": (_decisions(ordinary, seen), DECISIONS),
        "update": (_updates(ours, batch), UPDATES),
        "update, convolutions in XLA": (_updates(ordinary, batch), UPDATES),
        **_in_torch(batch),
    }
    ms = {name: 1000 / rate for name, rate in rates(works, REPEATS).items()}
    table = Table(f"{size}x{size} images, CEM 64 x 2, batch of {n}, one core", "milliseconds")
    for name, value in ms.items():
        table.add_row(name, f"{value:.1f}")
    Console().print(table)
    peer, fastest = min(
        ((name, value) for name, value in ms.items() if name.startswith("update, ")),
        key=lambda item: item[1],
    )
    return [
        Figure(
            "qtopt/decision-ms",
            ms["decision"],
            "ms",
            f"batch 1; with four convolutions, compiled: {ms['decision, convolutions']:.1f} ms",
            limit=3.0,
        ),
        Figure(
            "qtopt/update-vs-conv",
            fastest / ms["update"],
            "x",
            f"{peer.removeprefix('update, ')}: {fastest:.0f} ms, ours {ms['update']:.0f} ms",
        ),
    ]


def _updates(agent: QTOpt, batch: dict[str, Any]) -> Any:
    """Updates on labelled transitions, one call each: a compiled loop slows convolutions down."""
    fit = jax.jit(agent.fit)

    def some() -> None:
        for _ in range(UPDATES):
            jax.block_until_ready(fit(agent.state, batch, jax.random.key(0)))

    return some


def _decisions(agent: QTOpt, seen: dict[str, Any]) -> Any:
    """Decisions with the ordinary network, compiled: it has no NumPy policy."""
    from midstride.learn import cem

    network = agent.network(agent.state["online"])

    @jax.jit
    def decide(state: Any, image: Any, key: Any) -> Any:
        features, _ = network.encode(state[None], image[None])
        return cem.maximise(
            lambda tried: network.score(features[:, None], tried), key, 1, agent.space, agent.search
        )[0]

    def some() -> None:
        for k in range(DECISIONS):
            jax.block_until_ready(decide(seen["state"], seen["image"], jax.random.key(k)))

    return some


def _in_torch(batch: dict[str, Any]) -> dict[str, Any]:
    """Updates of the ordinary network in PyTorch."""
    try:
        import torch
    except ImportError as error:
        print(f"PyTorch is missing ({error}): pip install -e '.[bench]'")
        return {}
    torch.set_num_threads(1)
    sizes = (3, *_CHANNELS)
    side = ENVIRONMENT.image_size // 2 ** len(_CHANNELS)
    layers: list[Any] = []
    for i, o in itertools.pairwise(sizes):
        layers += [torch.nn.Conv2d(i, o, 3, stride=2, padding=1), torch.nn.ReLU()]
    flat = torch.nn.Linear(side * side * sizes[-1], IMAGE_FEATURES)
    trunk = torch.nn.Sequential(*layers, torch.nn.Flatten(), flat, torch.nn.ReLU())
    hidden = SETTINGS.hidden_size
    vectors = torch.nn.Linear(14, hidden)
    onto = torch.nn.Linear(IMAGE_FEATURES, hidden)
    head = torch.nn.Sequential(
        torch.nn.ReLU(), torch.nn.Linear(hidden, hidden), torch.nn.ReLU(),
        torch.nn.Linear(hidden, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1),
    )  # fmt: skip
    modules = torch.nn.ModuleList([trunk, vectors, onto, head])
    optimiser = torch.optim.Adam(modules.parameters(), SETTINGS.learning_rate)
    pictures = torch.from_numpy(batch["image_capture"].transpose(0, 3, 1, 2).copy())
    numbers = torch.from_numpy(np.concatenate([batch["state_capture"], batch["action"]], axis=1))
    labels = torch.from_numpy(batch["label"])[:, None]

    def some() -> None:
        for _ in range(UPDATES):
            optimiser.zero_grad()
            seen = trunk(pictures.float() / 128 - 1)
            logits = head(onto(seen) + vectors(numbers))
            torch.nn.functional.binary_cross_entropy_with_logits(logits, labels).backward()
            optimiser.step()

    return {"update, convolutions in PyTorch": (some, UPDATES)}

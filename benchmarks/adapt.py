"""Adapting a policy of Stable-Baselines3: seconds from the frozen policy to one that copes."""

from __future__ import annotations

import time
from pathlib import Path

import gymnasium

from benchmarks.figures import Figure
from midstride.learn.adapt import adapt
from midstride.learn.adapted import AdaptSettings
from midstride.policies import load

POLICY = Path("results/margins/policies/sac-inverted-double-pendulum.zip")
SETTINGS = AdaptSettings(steps=10_000, updates=5_000, episodes=8)


def run() -> list[Figure]:
    pieces: dict[str, float] = {}
    last = time.perf_counter()

    def tell(what: str, done: int, of: int) -> None:
        """Time goes to what was under way."""
        nonlocal last
        now = time.perf_counter()
        pieces[what] = pieces.get(what, 0.0) + now - last
        last = now

    policy = load(POLICY)
    for _ in range(2):  # the first compiles
        pieces.clear()
        last = time.perf_counter()
        found = adapt(
            policy,
            lambda: gymnasium.make("InvertedDoublePendulum-v5"),
            0.05,
            settings=SETTINGS,
            on_progress=tell,
        )
    about = (
        f"SAC of Stable-Baselines3, InvertedDoublePendulum-v5 at 50 ms: "
        f"{found.kept(found.as_it_is):.0%} kept as it is, {found.kept(found.adapted):.0%} adapted"
    )
    teaching = sum(value for name, value in pieces.items() if "teaching" in name)
    return [
        Figure("adapt/seconds", found.seconds, "s", about),
        Figure("adapt/share-teaching", teaching / found.seconds, "", "of these seconds"),
    ]

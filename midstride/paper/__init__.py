"""The paper's results, one file each."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from midstride.settings import Settings, check_name

EXPERIMENTS = {
    "theory": "midstride.paper.theory",
    "awareness": "midstride.paper.awareness",
    "latencies": "midstride.paper.latencies",
    "figure2a": "midstride.paper.figure2a",
    "figure2b": "midstride.paper.figure2b",
    "figure2a-shared": "midstride.paper.figure2a_shared",
    "figure2b-steps": "midstride.paper.figure2b_steps",
    "scripted": "midstride.paper.scripted",
    "table1": "midstride.paper.table1",
    "table2": "midstride.paper.table2",
    "grasp-latencies": "midstride.paper.grasp_latencies",
    "grasp-ablation": "midstride.paper.grasp_ablation",
    "margins": "midstride.paper.margins",
    "agents": "midstride.paper.agents",
    "adapt": "midstride.paper.adapt",
    "adapt-data": "midstride.paper.adapt_data",
    "noise": "midstride.paper.noise",
    "regimes": "midstride.paper.regimes",
    "claims": "midstride.paper.claims",
    "baselines": "midstride.paper.baselines",
    "dynamic": "midstride.paper.dynamic",
    "bounce": "midstride.paper.bounce",
    "spread": "midstride.paper.spread",
    "balance": "midstride.paper.balance",
    "conveyor": "midstride.paper.conveyor",
    "conveyor-script": "midstride.paper.conveyor_script",
}


def experiment(name: str) -> tuple[type[Settings], Callable[[Any, Any], None], str]:
    """The options of an experiment, what makes it (options, console), and what it is."""
    check_name(name, tuple(EXPERIMENTS), "experiment")
    module = import_module(EXPERIMENTS[name])
    return module.Options, module.reproduce, (module.__doc__ or "").strip()

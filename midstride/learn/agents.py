"""The agents by name, and a training as a whole: environment, agent and run.

Any agent that fits an environment's spaces trains on it: no task selects an algorithm, no algorithm
knows a task.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from midstride.envs.learnable import Environment
from midstride.learn.agent import Agent
from midstride.learn.agent_settings import AgentSettings, RunSettings
from midstride.learn.baselines.bpql import BPQL
from midstride.learn.baselines.dau import DAU
from midstride.learn.baselines.dcac import DCAC
from midstride.learn.baselines.predict import Predict
from midstride.learn.baselines.rsac import RSAC
from midstride.learn.baselines.rtac import RTAC
from midstride.learn.baselines.rtac_substep import SubstepRTAC
from midstride.learn.dqn import DQN
from midstride.learn.drqn import DRQN
from midstride.learn.ppo import PPO
from midstride.learn.qtopt import QTOpt
from midstride.learn.sac import SAC
from midstride.settings import Settings, check_name, shown, types_of
from midstride.tasks.registry import environment_from, settings_of

AGENTS: dict[str, type[Agent]] = {
    "dqn": DQN,
    "drqn": DRQN,
    "qtopt": QTOpt,
    "sac": SAC,
    "ppo": PPO,
    "rtac": RTAC,
    "rtac_substep": SubstepRTAC,
    "dcac": DCAC,
    "bpql": BPQL,
    "predict": Predict,
    "rsac": RSAC,
    "dau": DAU,
}


def agent_called(name: Any) -> type[Agent]:
    if not isinstance(name, str) or name not in AGENTS:
        raise ValueError(f"unknown agent {shown(repr(name))}: choose from {', '.join(AGENTS)}")
    return AGENTS[name]


def add_agent(name: str, agent: type[Agent]) -> None:
    """An agent of the user's own, trained by its name as ours are (examples/own_agent.py)."""
    own = agent.Settings.__dataclass_fields__["agent"].default
    if name != own:
        raise ValueError(f"the settings of {agent.__name__} are of an agent {own!r}, not {name!r}")
    if AGENTS.get(name, agent).__qualname__ != agent.__qualname__:
        raise ValueError(f"there is an agent {name!r} already: give yours another name")
    AGENTS[name] = agent


@dataclass(frozen=True)
class Training:
    """Everything that is needed to repeat a training."""

    environment: Environment
    agent: AgentSettings
    run: RunSettings

    @classmethod
    def of(cls, task: str, agent: str = "dqn", **values: Any) -> Training:
        """From settings of all three by name, the others at their defaults."""
        kinds = (settings_of(task), agent_called(agent).Settings, RunSettings)
        given: list[dict[str, Any]] = [{"task": task}, {"agent": agent}, {}]
        known = [tuple(types_of(kind)) for kind in kinds]
        for name, value in values.items():
            check_name(name, [n for names in known for n in names], f"setting of {task} or {agent}")
            next(g for g, names in zip(given, known, strict=True) if name in names)[name] = value
        run = replace(agent_called(agent).run_defaults, **given[2])
        return cls(kinds[0](**given[0]), kinds[1](**given[1]), run)

    @classmethod
    def from_dict(
        cls, values: Mapping[str, Any], folder: Path | None = None, trust: bool = False
    ) -> Training:
        """From what `to_dict` gave, and a file held; see `tasks.registry.from_file`."""
        parts: dict[str, Any] = {}
        for name in ("environment", "agent", "run"):
            parts[name] = values.get(name)
            if not isinstance(parts[name], dict):
                raise ValueError(
                    f"a training has settings of environment, agent and run: {name} is missing"
                )
        agent = agent_called(parts["agent"].get("agent"))
        return cls(
            environment_from(parts["environment"], folder, trust),
            agent.Settings.from_dict(parts["agent"]),
            RunSettings.from_dict(parts["run"]),
        )

    def to_dict(self) -> dict[str, Any]:
        return {name: part.to_dict() for name, part in self.parts.items()}

    def with_(self, **values: Any) -> Training:
        """The same with other values of some settings, whichever part they are of."""
        parts: dict[str, Any] = dict(self.parts)
        for name, value in values.items():
            owner = next((key for key, part in parts.items() if name in types_of(type(part))), None)
            if owner is None:
                raise ValueError(f"{self.environment.task} and {self.agent.agent} have no {name}")
            parts[owner] = replace(parts[owner], **{name: value})
        return Training(**parts)

    @property
    def parts(self) -> dict[str, Settings]:
        return {"environment": self.environment, "agent": self.agent, "run": self.run}

    def __getitem__(self, name: str) -> Any:
        """A setting by its name, whichever part it is of."""
        every = {
            key: value for part in self.parts.values() for key, value in part.to_dict().items()
        }
        return every[name]

    @property
    def lived(self) -> Environment:
        """The environment that steps are taken in, which is judged at its own latency."""
        latency = self.agent.lived_at
        return self.environment if latency is None else self.environment.lived_at(latency)

    @property
    def hash(self) -> str:
        """Short name: equal trainings have equal hashes."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def label(self) -> str:
        """A name for a run, from what sets it apart."""
        knows = "+".join(self.environment.knowledge) or "none"
        lived = "" if self.agent.lived_at is None else f"-lived_at_{self.agent.lived_at}"
        text = f"{self.environment.label}-{self.agent.agent}-knows_{knows}{lived}"
        return "".join(c if c.isalnum() or c in "-+._" else "_" for c in text)

    def check(self) -> None:
        """An error in one sentence if it cannot be trained: for before anything starts."""
        envs = self.lived.small().make(1)
        agent_called(self.agent.agent).check(self.agent, envs)
        envs.close()

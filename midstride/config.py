"""One run's configuration: everything that is needed to repeat it.

Each field's text is what `midstride train --help` says. A configuration is checked as a whole
before anything starts, saved with its result, and read back only if every key is known.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Literal

import tyro

from midstride.knowledge import check_features
from midstride.timing import parse_latency, parse_s


@dataclass(frozen=True)
class Config:
    task: Annotated[str, tyro.conf.Positional] = "cartpole"
    """pointmass, cartpole, pendulum, gym:ID (a Gymnasium MuJoCo environment) or dmc:DOMAIN/TASK"""

    # --- The clock
    latency: str = "0"
    """from an observation to the switch to the action chosen on it: 25ms, or episode:0,5ms,25ms
    (drawn at each reset), step:0,5ms,25ms (at each step), trace:latencies.csv (measured)"""
    execution: str | None = None
    """how long a new action has run at the next observation; or give"""
    period: str | None = None
    """from one observation to the next (default: the task's own)"""

    # --- What is observed, what can be done
    knowledge: tuple[str, ...] = ()
    """what the agent knows of the action in flight: any of previous_action, selection_time,
    vector_to_go"""
    stack_observations: int = 0
    """previous observations that are observed too, 0 to 4"""
    stack_actions: int = 0
    """previous actions that are observed too, 0 to 4"""
    actions: int = 5
    """discrete displacements, 3 to 8; of gym: and dmc: tasks, levels of each action dimension"""

    # --- How long, how many
    steps: int = 100_000
    """environment steps"""
    num_envs: int = 16
    """environments stepped together"""
    seed: int = 0
    """of everything random; one seed repeats exactly on one machine"""

    # --- The agent
    agent: Literal["dqn", "drqn"] = "dqn"
    """dqn: feed-forward; drqn: recurrent (an LSTM)"""
    hidden: tuple[int, ...] = (128, 128)
    """sizes of the hidden layers"""
    lstm_size: int = 64
    """drqn: size of the recurrent state"""
    segment: int = 10
    """drqn: steps of a training segment that are learned from"""
    burn_in: int = 5
    """drqn: steps before them that only warm up the recurrent state"""
    dueling: bool = False
    """separate heads for the value of a state and the advantage of an action"""
    double: bool = True
    """choose the next action by the online network, value it by the target network"""

    # --- Learning
    target: Literal["full_period", "concurrent"] = "full_period"
    """full_period: Algorithm 1; concurrent: the reward before the switch + gamma^(t_AS/H) max Q at
    the switch"""
    gamma: float = 0.99
    """discount per period"""
    n_step: int = 1
    """rewards summed before the bootstrap (full_period only)"""
    learning_rate: float = 1e-3
    """of Adam, at the start"""
    learning_rate_end: float = 0.0
    """part of it that is left in the end; it falls linearly"""
    batch_size: int = 256
    """transitions per update (drqn: in segments)"""
    update_every: int = 4
    """environment steps per update"""
    learning_starts: int = 2_000
    """environment steps before the first update"""
    replay_size: int = 200_000
    """transitions kept"""
    prioritised: bool = False
    """dqn: sample transitions in proportion to their last error"""
    target_tau: float = 0.005
    """how much of the online network enters the target network at each update (Polyak)"""
    target_every: int = 0
    """if above 0, copy the online network every so many updates instead"""
    max_grad_norm: float = 10.0
    """gradients are clipped to this norm"""
    reward_scale: float | None = None
    """factor on rewards in learning (default: the largest reward of a period becomes 1)"""

    # --- Exploration
    epsilon_start: float = 1.0
    """share of random actions at the start"""
    epsilon_end: float = 0.05
    """share of random actions in the end"""
    epsilon_fraction: float = 0.3
    """part of training over which it falls"""

    # --- Watching
    evaluate_every: int = 10_000
    """environment steps between evaluations of the greedy policy"""
    evaluation_episodes: int = 16
    """episodes of each evaluation; the last one has four times as many"""
    checkpoint_every: int = 20_000
    """environment steps between checkpoints"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "knowledge", check_features(self.knowledge))
        object.__setattr__(self, "hidden", tuple(self.hidden))
        parse_latency(self.latency)
        for name in ("execution", "period"):
            if getattr(self, name) is not None:
                parse_s(getattr(self, name))
        for field in fields(self):
            choices = {"agent": ("dqn", "drqn"), "target": ("full_period", "concurrent")}
            value = getattr(self, field.name)
            if field.name in choices and value not in choices[field.name]:
                raise ValueError(
                    f"{field.name} must be one of {', '.join(choices[field.name])}, got {value!r}"
                )
            low = _AT_LEAST.get(field.name)
            if low is not None and not value >= low:
                raise ValueError(f"{field.name} must be at least {low}, got {value}")
            if field.name in _SHARES and not 0 <= value <= 1:
                raise ValueError(f"{field.name} must be from 0 to 1, got {value}")
        if any(size < 1 for size in self.hidden):
            raise ValueError(f"hidden layers need at least 1 unit, got {self.hidden}")
        if not self.gamma < 1:
            raise ValueError(f"gamma must be below 1, got {self.gamma}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0, got {self.learning_rate}")
        if self.target == "concurrent" and self.n_step != 1:
            raise ValueError("the concurrent target has its bootstrap at the switch: use n_step 1")
        if self.agent == "drqn" and (self.n_step != 1 or self.prioritised):
            raise ValueError("drqn learns from segments: n_step and prioritised are for dqn")
        if self.replay_size < self.learning_starts:
            raise ValueError("replay_size must be at least learning_starts")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """A configuration from saved values; an error for keys that it does not know."""
        known = {field.name for field in fields(cls)}
        unknown = sorted(set(values) - known)
        if unknown:
            raise ValueError(f"unknown configuration {', '.join(unknown)}")
        tuples = {k: tuple(v) for k, v in values.items() if isinstance(v, list)}
        return cls(**{**values, **tuples})

    @property
    def hash(self) -> str:
        """Short name of the configuration: equal configurations have equal hashes."""
        text = json.dumps(self.to_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


_AT_LEAST: dict[str, float] = {
    "steps": 1,
    "num_envs": 1,
    "seed": 0,
    "lstm_size": 1,
    "segment": 1,
    "burn_in": 0,
    "gamma": 0,
    "n_step": 1,
    "batch_size": 1,
    "update_every": 1,
    "learning_starts": 1,
    "replay_size": 1,
    "target_every": 0,
    "max_grad_norm": 0,
    "evaluate_every": 1,
    "evaluation_episodes": 1,
    "checkpoint_every": 1,
}
_SHARES = ("target_tau", "learning_rate_end", "epsilon_start", "epsilon_end", "epsilon_fraction")

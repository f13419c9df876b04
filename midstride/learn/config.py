"""One run's configuration: everything that is needed to repeat it.

Each field's text is what `midstride train --help` says. A configuration is checked as a whole
before anything starts, saved with its result, and read back only if every key is known.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Any, Literal, TypeVar

import tyro

from midstride.knowledge import check_features
from midstride.tasks.grasp.objects import OBJECT_SETS
from midstride.timing import parse_latency, parse_s


@dataclass(frozen=True)
class RunConfig:
    """What every training has; the subclasses add what theirs needs."""

    task: Annotated[str, tyro.conf.Positional] = "cartpole"
    """pointmass, cartpole, pendulum, grasp, gym:ID (a Gymnasium MuJoCo environment) or
    dmc:DOMAIN/TASK"""

    # --- The clock
    latency: str = "0"
    """from an observation to the switch to the action chosen on it: 25ms, or episode:0,5ms,25ms
    (drawn at each reset), step:0,5ms,25ms (at each step), trace:latencies.csv (measured)"""
    execution: str | None = None
    """how long a new action has run at the next observation; or give"""
    period: str | None = None
    """from one observation to the next (default: the task's own)"""

    # --- What is observed
    knowledge: tuple[str, ...] = ()
    """what the agent knows of the action in flight: any of previous_action, selection_time,
    vector_to_go"""

    # --- How long, how many
    steps: int = 100_000
    """environment steps"""
    num_envs: int = 16
    """environments stepped together"""
    seed: int = 0
    """of everything random; one seed repeats exactly on one machine"""

    # --- Learning
    target: Literal["full_period", "concurrent"] = "full_period"
    """full_period: Algorithm 1; concurrent: the reward before the switch + gamma^(t_AS/H) max Q at
    the switch"""
    gamma: float = 0.99
    """discount per period"""
    learning_rate: float = 1e-3
    """of Adam, at the start"""
    learning_rate_end: float = 0.0
    """part of it that is left in the end; it falls linearly"""
    batch_size: int = 256
    """transitions per update (drqn: in segments)"""
    update_every: int = 4
    """environment steps per update"""
    replay_size: int = 200_000
    """transitions kept"""
    target_tau: float = 0.005
    """how much of the online network enters the target network at each update (Polyak)"""
    max_grad_norm: float = 10.0
    """gradients are clipped to this norm"""

    # --- Watching
    evaluate_every: int = 10_000
    """environment steps between evaluations of the greedy policy"""
    evaluation_episodes: int = 16
    """episodes of each evaluation; the last one has four times as many"""
    checkpoint_every: int = 20_000
    """environment steps between checkpoints"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "knowledge", check_features(self.knowledge))
        parse_latency(self.latency)
        for name in ("execution", "period"):
            if getattr(self, name) is not None:
                parse_s(getattr(self, name))
        for field in fields(self):
            value = getattr(self, field.name)
            choices = _CHOICES.get(field.name)
            if choices is not None and value not in choices:
                raise ValueError(f"{field.name} must be one of {', '.join(choices)}, got {value!r}")
            low = _AT_LEAST.get(field.name)
            if low is not None and not value >= low:
                raise ValueError(f"{field.name} must be at least {low}, got {value}")
            if field.name in _SHARES and not 0 <= value <= 1:
                raise ValueError(f"{field.name} must be from 0 to 1, got {value}")
        if not self.gamma < 1:
            raise ValueError(f"gamma must be below 1, got {self.gamma}")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate must be above 0, got {self.learning_rate}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def hash(self) -> str:
        """Short name of the configuration: equal configurations have equal hashes.

        Options that came later count only where they are used: a run keeps its name.
        """
        later = {field.name: field.default for field in fields(self) if field.name in _LATER}
        values = {k: v for k, v in self.to_dict().items() if k not in later or v != later[k]}
        text = json.dumps(values, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Config(RunConfig):
    """Of DQN and recurrent DQN."""

    # --- What is observed, what can be done
    stack_observations: int = 0
    """previous observations that are observed too, 0 to 4"""
    stack_actions: int = 0
    """previous actions that are observed too, 0 to 4"""
    actions: int = 5
    """discrete displacements, 3 to 8; of gym: and dmc: tasks, levels of each action dimension"""

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
    n_step: int = 1
    """rewards summed before the bootstrap (full_period only)"""
    learning_starts: int = 2_000
    """environment steps before the first update"""
    prioritised: bool = False
    """dqn: sample transitions in proportion to their last error"""
    target_every: int = 0
    """if above 0, copy the online network every so many updates instead of averaging"""
    reward_scale: float | None = None
    """factor on rewards in learning (default: the largest reward of a period becomes 1)"""

    # --- Exploration
    epsilon_start: float = 1.0
    """share of random actions at the start"""
    epsilon_end: float = 0.05
    """share of random actions in the end"""
    epsilon_fraction: float = 0.3
    """part of training over which it falls"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task == "grasp":
            raise ValueError("grasp has options of its own: write midstride train grasp --...")
        object.__setattr__(self, "hidden", tuple(self.hidden))
        if any(size < 1 for size in self.hidden):
            raise ValueError(f"hidden layers need at least 1 unit, got {self.hidden}")
        if self.target == "concurrent" and self.n_step != 1:
            raise ValueError("the concurrent target has its bootstrap at the switch: use n_step 1")
        if self.agent == "drqn" and (self.n_step != 1 or self.prioritised):
            raise ValueError("drqn learns from segments: n_step and prioritised are for dqn")
        if self.replay_size < self.learning_starts:
            raise ValueError("replay_size must be at least learning_starts")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """A configuration from saved values; an error for keys that it does not know."""
        return _from_dict(cls, values)


@dataclass(frozen=True)
class GraspConfig(RunConfig):
    """Of QT-Opt on grasping."""

    task: Annotated[str, tyro.conf.Positional] = "grasp"
    """grasp"""

    # --- The clock
    latency: str = "100ms"
    """from an observation to the switch to the action chosen on it: 100ms, or episode:0,100ms
    (drawn at each reset), step:0,100ms (at each step), trace:latencies.csv (measured)"""
    mode: Literal["concurrent", "blocking"] = "concurrent"
    """concurrent: the arm moves on while the policy thinks; blocking: every action runs to rest"""

    # --- The world
    observation: Literal["image", "state"] = "image"
    """image: pixels, gripper opening and height; state: where everything is"""
    image_size: int = 64
    """of the square image, in pixels; a multiple of 16"""
    camera: Literal["fixed", "following"] = "fixed"
    """fixed, or following: in the same place, turned to what is under the hand, and closer"""
    objects: int = 1
    """in the bin, 1 to 5; from images, several need --camera following"""
    object_set: Literal["train", "held_out", "household"] = "train"
    """objects to learn with"""
    evaluation_set: Literal["train", "held_out", "household"] = "held_out"
    """objects to evaluate with"""
    scenes: int = 1024
    """settled scenes that episodes start from"""
    step_penalty: float = 0.0
    """taken off the reward at every step; the paper: 0.01"""
    max_steps: int = 20
    """of an episode"""

    # --- The agent
    agent: Literal["qtopt"] = "qtopt"
    """qtopt"""
    hidden_size: int = 128
    """of the layers on image features, state and action together"""
    samples: int = 64
    """actions that each round of the cross-entropy method draws"""
    rounds: int = 2
    """of the cross-entropy method, for labels"""
    acting_rounds: int = 3
    """of the cross-entropy method, for acting"""

    # --- How long, how many
    steps: int = 48_000
    """environment steps, the scripted ones not counted"""
    num_envs: int = 64
    """environments stepped together"""

    # --- Learning
    gamma: float = 0.95
    """discount per second: the same for blocking and concurrent control, whose steps differ"""
    learning_rate: float = 6e-4
    """of Adam, at the start"""
    learning_rate_end: float = 1.0
    """part of it that is left in the end; it falls linearly"""
    batch_size: int = 64
    """transitions per update"""
    target_tau: float = 0.01
    """how much of the online network enters the averaged target network at each update"""
    target_lag: int = 500
    """updates after which the second target network is copied from the first"""
    acting_tau: float = 0.0005
    """how much of the online network enters the one that is evaluated and kept, at each update"""
    averaged: bool = True
    """act on averaged weights; otherwise act, evaluate and keep the newest"""
    label_reuse: int = 2
    """times that a Bellman label is learned from before it is forgotten"""
    replay_size: int = 48_000
    """transitions of its own kept"""

    # --- Before the first step of its own
    scripted_steps: int = 12_000
    """transitions of noisy scripted policies"""
    scripted_share: float = 0.25
    """of every batch, in all of training"""
    auxiliary_updates: int = 2_000
    """updates of the auxiliary head alone, on them (image only)"""
    offline_updates: int = 1_200
    """updates on them before acting"""

    # --- What is ours and not the paper's
    auxiliary_weight: float = 1.0
    """of the loss of a head that predicts simulator state from the image, in training only"""
    shift: int = 2
    """images are shifted at random by up to so many pixels, in updates only"""
    colour: float = 0.0
    """images are tinted at random by up to this share, in updates only"""

    # --- Exploration
    epsilon: float = 0.1
    """share of random displacements, and of random commands"""
    sigma: float = 0.15
    """deviation of the noise on displacements"""

    # --- Watching
    evaluate_every: int = 8_000
    """environment steps between evaluations of the greedy policy"""
    evaluation_episodes: int = 80
    """episodes of each evaluation; the last one has four times as many"""
    checkpoint_every: int = 16_000
    """environment steps between checkpoints"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task != "grasp":
            raise ValueError(f"qtopt is for the task grasp, got {self.task!r}")
        if self.observation == "image" and self.image_size % 16:
            raise ValueError(f"image_size must be a multiple of 16, got {self.image_size}")
        if self.mode == "blocking" and self.target == "concurrent":
            raise ValueError("the concurrent target is for concurrent control")
        if self.step_penalty > MOST_PENALTY:
            raise ValueError(
                f"step_penalty must be at most {MOST_PENALTY}, got {self.step_penalty}: QT-Opt's "
                "values lie above -0.25"
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GraspConfig:
        """A configuration from saved values; an error for keys that it does not know."""
        return _from_dict(cls, values)


MOST_PENALTY = 0.1  # who terminates pays it once or twice: nothing is worth less than -0.2
AnyConfig = Config | GraspConfig
_C = TypeVar("_C", Config, GraspConfig)


def config_from_dict(values: Mapping[str, Any]) -> AnyConfig:
    """The configuration of whatever was trained."""
    kind = GraspConfig if values.get("task") == "grasp" else Config
    return kind.from_dict(values)


def _from_dict(kind: type[_C], values: Mapping[str, Any]) -> _C:
    known = {field.name for field in fields(kind)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"unknown configuration {', '.join(unknown)}")
    tuples = {k: tuple(v) for k, v in values.items() if isinstance(v, list)}
    return kind(**{**values, **tuples})


_CHOICES: dict[str, tuple[str, ...]] = {
    "agent": ("dqn", "drqn", "qtopt"),
    "target": ("full_period", "concurrent"),
    "mode": ("concurrent", "blocking"),
    "observation": ("image", "state"),
    "camera": ("fixed", "following"),
    "object_set": OBJECT_SETS,
    "evaluation_set": OBJECT_SETS,
}
_LATER = ("camera",)  # options that runs from before know nothing of
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
    "image_size": 16,
    "objects": 1,
    "scenes": 1,
    "max_steps": 1,
    "hidden_size": 1,
    "samples": 6,
    "rounds": 1,
    "acting_rounds": 1,
    "target_lag": 1,
    "label_reuse": 1,
    "scripted_steps": 1,
    "auxiliary_updates": 0,
    "offline_updates": 0,
    "auxiliary_weight": 0,
    "shift": 0,
    "sigma": 0,
}
_SHARES = (
    "target_tau", "learning_rate_end", "epsilon_start", "epsilon_end", "epsilon_fraction",
    "acting_tau", "epsilon", "step_penalty", "colour", "scripted_share",
)  # fmt: skip

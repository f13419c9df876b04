"""What a training loop asks of any agent: act, remember what came of it, draw batches.

`DiscreteLearner` is for DQN and recurrent DQN, `GraspLearner` for QT-Opt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.agents import AGENTS, QTOpt
from midstride.cem import ActionSpace
from midstride.config import AnyConfig, Config, GraspConfig
from midstride.grasping import GraspVectorEnv
from midstride.loop import interact
from midstride.make import Envs, make_envs, reward_scale
from midstride.replay import Experience, Replay
from midstride.tasks.grasp import actions as action_columns
from midstride.tasks.grasp import scripted

# Of gripper and terminate: nothing, close, open, end the episode; and how often each is tried.
SETTINGS = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1.0]])
_TRIED = np.array([0.4, 0.28, 0.28, 0.04])


class DiscreteLearner:
    """Epsilon-greedy, from a replay of single steps."""

    def __init__(self, config: Config, envs: Envs, rng: np.random.Generator) -> None:
        self.config, self.envs, self.rng = config, envs, rng
        (columns,) = envs.single_observation_space.shape
        self.actions = int(envs.single_action_space.n)
        self.agent = AGENTS[config.agent](config, columns, self.actions)
        lstm_size = self.agent.policy.lstm_size
        self.replay = Replay(config.replay_size, config.num_envs, columns, lstm_size)
        self._scale = reward_scale(config, envs)
        self._recurrent_state: tuple[NDArray[Any], ...] = ()

    def prepare(self) -> None:
        """It starts from nothing."""

    def epsilon(self, steps: int) -> float:
        c = self.config
        over = max(1.0, c.epsilon_fraction * c.steps)
        return max(
            c.epsilon_end, c.epsilon_start - (c.epsilon_start - c.epsilon_end) * steps / over
        )

    def act(self, observation: Any, epsilon: float) -> NDArray[Any]:
        policy, n = self.agent.policy, len(observation)
        if policy.is_recurrent:
            self._recurrent_state = tuple(part.copy() for part in policy.state(n))
        greedy = policy(observation)
        explore = self.rng.random(n) < epsilon
        return np.where(explore, self.rng.integers(self.actions, size=n), greedy)

    def remember(self, step: dict[str, Any]) -> None:
        step["reward_before"] = step["reward_before"] * self._scale
        step["reward_after"] = step["reward_after"] * self._scale
        if self._recurrent_state:
            step["h"], step["c"] = self._recurrent_state
        self.replay.add(step)

    def ready(self, steps: int) -> bool:
        c, replay = self.config, self.replay
        span = c.burn_in + c.segment if c.agent == "drqn" else c.n_step
        return steps >= c.learning_starts and min(replay.added, replay.length) >= span

    def batches(self, updates: int) -> dict[str, NDArray[Any]]:
        return self.agent.sample(self.replay, self.rng, updates)


class GraspLearner:
    """QT-Opt: scripted data first, then its own, in one replay."""

    def __init__(self, config: GraspConfig, envs: GraspVectorEnv, rng: np.random.Generator) -> None:
        self.config, self.envs, self.rng = config, envs, rng
        self.sees = config.observation == "image"
        space = ActionSpace(action_columns.LOW[:4], action_columns.HIGH[:4], SETTINGS)
        self.agent = QTOpt(config, envs.layout.slices, space, envs.privileged_weights)
        self.replay = self._new_replay(config.replay_size)
        self.scripted = self._new_replay(config.scripted_steps)
        # One seed, one set of scripted data, whatever the row: the same for a resumed run.
        add_scripted(self.scripted, config, np.random.default_rng([config.seed, 1]))
        self._auxiliary: Any = None

    def _new_replay(self, capacity: int) -> Experience:
        size, envs = self.config.image_size, self.envs
        observed: dict[str, Any] = {"state": ((len(envs.columns),), np.float32)}
        if self.sees:
            observed["image"] = ((size, size, 3), np.uint8)
        fields = {
            **observed,
            "action": ((action_columns.SIZE,), np.float32),
            "reward": ((), np.float32),
            "period_s": ((), np.float32),
        }
        if self.sees:
            fields["auxiliary"] = (envs.privileged_weights.shape, np.float32)
        if self.config.target == "concurrent":
            fields |= {f"switch_{name}": kind for name, kind in observed.items()}
            fields |= dict.fromkeys(("reward_before", "latency_s"), ((), np.float32))
        n, longest = self.config.num_envs, self.config.episode_steps
        return Experience(capacity, n, fields, list(observed), longest)

    def prepare(self) -> None:
        """The auxiliary head, and updates, before the first action of its own."""
        config = self.config
        self.agent.learn_auxiliary(self.scripted, self.rng, config.auxiliary_updates)
        at_once = max(1, config.num_envs // config.update_every)
        for _ in range(config.offline_updates // at_once):
            self.agent.dispatch(self.batches(at_once))
            self.agent.sync(leave=1)

    def epsilon(self, steps: int) -> float:
        return self.config.epsilon

    def act(self, observation: Any, epsilon: float) -> NDArray[Any]:
        if self.sees:
            self._auxiliary = self.envs.privileged()
        action = self.agent.policy(observation)
        return explored(action, self.config.sigma, epsilon, self.rng)

    def remember(self, step: dict[str, Any]) -> None:
        self.replay.add(as_experience(step, self._auxiliary))

    def ready(self, steps: int) -> bool:
        return True

    def batches(self, updates: int) -> dict[str, NDArray[Any]]:
        share = self.config.scripted_share if len(self.replay) else 1.0
        sources = [(self.scripted, share), (self.replay, 1 - share)]
        return self.agent.sample_experience([s for s in sources if s[1] > 0], self.rng, updates)


Learner = DiscreteLearner | GraspLearner


def make_learner(config: AnyConfig, envs: Envs, rng: np.random.Generator) -> Learner:
    if isinstance(config, GraspConfig):
        return GraspLearner(config, envs, rng)
    return DiscreteLearner(config, envs, rng)


def explored(
    action: NDArray[np.floating], sigma: float, epsilon: float, rng: np.random.Generator
) -> NDArray[np.float32]:
    """Actions (n, 7) with noise on displacements, and now and then something else altogether."""
    n = len(action)
    tried = np.clip(action, action_columns.LOW, action_columns.HIGH).astype(np.float32)
    tried[:, :4] = np.clip(tried[:, :4] + sigma * rng.standard_normal((n, 4)), -1, 1)
    anywhere = rng.random(n) < epsilon
    tried[anywhere, :4] = rng.uniform(-1, 1, (int(anywhere.sum()), 4))
    anything = rng.random(n) < epsilon
    tried[anything, 4:] = SETTINGS[rng.choice(len(SETTINGS), int(anything.sum()), p=_TRIED)]
    return tried


def as_experience(step: dict[str, Any], auxiliary: Any) -> dict[str, Any]:
    """A step of `interact` as fields of an `Experience`."""
    found = {
        name: step[name]
        for name in ("action", "reward", "reward_before", "period_s", "latency_s", "done",
                     "terminated")
    }  # fmt: skip
    for prefix, name in (
        ("", "observation"),
        ("next_", "next_observation"),
        ("switch_", "observation_at_switch"),
    ):
        seen = step[name] if isinstance(step[name], dict) else {"state": step[name]}
        found |= {f"{prefix}{part}": array for part, array in seen.items()}
    if auxiliary is not None:
        found["auxiliary"] = auxiliary
    return found


# --- Scripted data -------------------------------------------------------------------------------


def add_scripted(replay: Experience, config: GraspConfig, rng: np.random.Generator) -> None:
    """Fill a replay with what noisy scripted policies live through.

    Three in four environments follow the privileged policy, each with noise of its own size; one
    in four is blind, and shaken too. Now and then a command is random. Terminate is tried often
    where nothing is lifted: that it does not pay there must be learned everywhere.
    """
    n = config.num_envs
    envs = make_envs(replace(config, seed=config.seed + 7919), n)
    noise = np.linspace(0.02, 0.4, n)[rng.permutation(n)]
    blind = np.arange(n) % 4 == 3
    no_terminate = _TRIED[:3] / _TRIED[:3].sum()
    auxiliary: Any = None

    def act(observation: Any) -> NDArray[Any]:
        nonlocal auxiliary
        auxiliary = envs.privileged()
        action = scripted.privileged(envs.world, envs.next_latency_ticks(), noise, rng)
        unseeing = scripted.blind(envs.world, envs.steps_taken, rng)
        unseeing[:, :4] += noise[:, None] * rng.standard_normal((n, 4))
        action[blind] = unseeing[blind]
        anything = rng.random(n) < 0.08
        action[anything, 4:] = SETTINGS[rng.choice(3, int(anything.sum()), p=no_terminate)]
        too_early = (rng.random(n) < 0.04) & ~envs.world.lifted().any(axis=1)
        action[too_early, 4:] = SETTINGS[3]
        return np.clip(action, action_columns.LOW, action_columns.HIGH)

    seed = int(rng.integers(2**31))
    for count, step in enumerate(interact(envs, act, seed, lambda which: None), start=1):
        replay.add(as_experience(step, auxiliary if config.observation == "image" else None))
        if count * n >= config.scripted_steps:
            break
    replay.cut()
    envs.close()

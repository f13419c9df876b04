"""What a training loop asks of any agent: act, remember what came of it, draw batches.

`DiscreteLearner` is for DQN and recurrent DQN, `GraspLearner` for QT-Opt.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from midstride.learn.agents import AGENTS, QTOpt
from midstride.learn.cem import ActionSpace
from midstride.learn.config import AnyConfig, Config, GraspConfig
from midstride.learn.replay import Replay
from midstride.learn.scripted_data import (
    SETTINGS,
    TRIED,
    as_experience,
    new_experience,
    scripted_data,
)
from midstride.tasks.grasp import actions as action_columns
from midstride.tasks.grasp.env import GraspVectorEnv
from midstride.tasks.make import Envs, reward_scale


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
    """QT-Opt: scripted data first, then its own beside it."""

    def __init__(
        self,
        config: GraspConfig,
        envs: GraspVectorEnv,
        rng: np.random.Generator,
        scripted: Path | None,
    ) -> None:
        """scripted: folder where scripted data is kept."""
        self.config, self.envs, self.rng = config, envs, rng
        self.sees = config.observation == "image"
        space = ActionSpace(action_columns.LOW[:4], action_columns.HIGH[:4], SETTINGS)
        self.agent = QTOpt(config, envs.layout.slices, space, envs.privileged_weights)
        self.replay = new_experience(config, envs, config.replay_size)
        self.scripted = scripted_data(config, envs, scripted)
        self._auxiliary: Any = None

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


def make_learner(
    config: AnyConfig, envs: Envs, rng: np.random.Generator, scripted: Path | None = None
) -> Learner:
    if isinstance(config, GraspConfig):
        return GraspLearner(config, envs, rng, scripted)
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
    tried[anything, 4:] = SETTINGS[rng.choice(len(SETTINGS), int(anything.sum()), p=TRIED)]
    return tried

"""The learning agents, by name."""

from midstride.learn.agent import Agent, configure_jax
from midstride.learn.dqn import DQN
from midstride.learn.drqn import DRQN
from midstride.learn.qtopt import QTOpt

AGENTS = {"dqn": DQN, "drqn": DRQN}

__all__ = ["AGENTS", "DQN", "DRQN", "Agent", "QTOpt", "configure_jax"]

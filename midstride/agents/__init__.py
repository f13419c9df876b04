"""The learning agents, by name."""

from midstride.agents.agent import Agent, configure_jax
from midstride.agents.dqn import DQN
from midstride.agents.drqn import DRQN
from midstride.agents.qtopt import QTOpt

AGENTS = {"dqn": DQN, "drqn": DRQN}

__all__ = ["AGENTS", "DQN", "DRQN", "Agent", "QTOpt", "configure_jax"]

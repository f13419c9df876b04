"""Losses and weights that are no numbers stop a training; what was good before stays."""

import jax.numpy as jnp
import numpy as np
import pytest

from midstride.disk.runs import Run
from midstride.learn.agents import agent_called
from midstride.learn.train import train
from midstride.learn.trainer import Trainer
from midstride.policies import save_policy
from tests.learn.test_watching import AGENTS, training


def poisoned(monkeypatch, kind, at: int) -> list[int]:
    """One reward of the `at`-th dispatch is NaN; how many updates each dispatch made."""
    own, made = kind.dispatch, []

    def dispatch(self, batches, lap=None):
        made.append(int(self.state["updates"]))
        if len(made) == at:
            if "transitions" in batches:
                place = self.row.places["reward_after_switch"]
                batches["transitions"][..., place] = np.nan
            else:
                batches["reward_after_switch"] = np.full_like(
                    batches["reward_after_switch"], np.nan
                )
        own(self, batches, lap)

    monkeypatch.setattr(kind, "dispatch", dispatch)
    return made


@pytest.mark.parametrize("name", AGENTS)
def test_a_loss_that_is_no_number_stops_and_the_last_good_checkpoint_stays(
    name, tmp_path, monkeypatch
):
    at = 6 if name == "ppo" else 60  # whose dispatches are of whole rollouts
    made = poisoned(monkeypatch, agent_called(AGENTS[name][0]), at)
    with pytest.raises(ValueError, match=r"the loss of \w+ became nan at update ") as found:
        train(training(name, checkpoint_every=40), tmp_path / "run")
    assert f"at update {made[at - 1] + 1:,}:" in str(found.value)
    saved = Run.open(tmp_path / "run").load_checkpoint()
    assert saved is not None
    assert all(np.isfinite(a).all() for a in saved[0].values() if a.dtype.kind == "f")
    assert len(made) <= at + 1  # at once, but for the one that was under way
    assert not (tmp_path / "run" / "policy.safetensors").exists()
    assert not (tmp_path / "run" / "result.json").exists()


def test_rewards_too_large_for_the_network_are_said(tmp_path):
    with (
        np.errstate(over="ignore"),
        pytest.raises(ValueError, match=r"became (inf|nan) at update 1: rewards or observations"),
    ):
        train(training("dqn", reward_scale=1e39), tmp_path / "run")
    assert not list((tmp_path / "run").glob("checkpoint/*"))


@pytest.mark.parametrize("which", ["online", "target"])
def test_weights_that_are_no_numbers_are_never_written(which, tmp_path):
    config = training("dqn")
    trainer, run = Trainer.create(config), Run(tmp_path, config.to_dict(), config.hash)
    trainer.agent.state[which] = trainer.agent.state[which].at[3].set(jnp.inf)
    with pytest.raises(ValueError, match="a weight of the network is no finite number"):
        trainer.save(run)
    policy = trainer.agent.policy_of(trainer.agent.state[which])
    with pytest.raises(ValueError, match=r"the policy is not saved: head\.\S+ is not of finite"):
        save_policy(policy, tmp_path)
    assert not any(tmp_path.rglob("*.safetensors"))


@pytest.mark.parametrize("name", ["dqn", "drqn", "qtopt"])
def test_a_policy_given_what_is_no_number_says_so(name):
    policy = Trainer.create(training(name)).agent.averaged_policy()
    observation = np.zeros((3, policy.observation_size), np.float32)
    policy(observation)
    observation[1, 2] = np.nan
    with pytest.raises(ValueError, match="column 2 of observation 1 is nan: no action was chosen"):
        policy(observation)
    with pytest.raises(ValueError, match="column 2 is nan"):
        policy(observation[1])

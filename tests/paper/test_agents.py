"""SAC and PPO beside peers: verdicts by intervals, peers trained once, words for a missing one."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy.stats import ttest_ind

from midstride.learn.agents import Training
from midstride.measure.statistics import difference_of
from midstride.paper import agents
from midstride.paper.peers import check_peer, peer_result, train_peer
from midstride.sweep.spec import expand, read_spec
from tests.paper.test_experiments import markdown, pretend_to_train

QUIET = Console(quiet=True)


@pytest.mark.parametrize("sizes", [(5, 5), (3, 8)])
def test_the_interval_of_a_difference_is_scipys(sizes):
    rng = np.random.default_rng(0)
    first, second = rng.normal(1, 3, sizes[0]), rng.normal(0, 0.5, sizes[1])
    low, high = ttest_ind(first, second, equal_var=False).confidence_interval()
    found = difference_of(first, second)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert difference_of(np.ones(3), np.zeros(3)).half == 0


def test_the_table_says_where_ours_learns_as_well():
    near, far = [1.0, 2.0, 3.0, 4.0, 5.0], [11.0, 12.0, 13.0, 14.0, 15.0]
    names = ("same", "above", "below")
    rows = agents.table_rows(
        dict(zip(names, (near, far, near), strict=True)),
        dict(zip(names, (near[::-1], near, far), strict=True)),
        dict.fromkeys(names, "sac"),
        dict.fromkeys(names, 1000),
    )
    assert [row["ours learns"] for row in rows] == ["as well", "better", "worse"]


def test_every_arm_has_a_peer_that_can_be_told_the_same():
    for trial in expand(read_spec("agents"), 1):
        agent = trial.training.agent
        assert agent.learning_rate_end == 1.0  # peers have a constant one
        assert trial.training.run.num_envs == 1
        assert trial.training.environment.latency in (0, "0")


def test_ours_and_the_peers_are_compared_and_nothing_is_trained_twice(tmp_path, monkeypatch):
    pretend_to_train(monkeypatch, lambda training: 0.5)
    trained = []

    def pretend(pairs, workers, console):
        for training, place in pairs:
            if peer_result(training, place) is None:
                trained.append(place)
                place.mkdir(parents=True)
                mean = 0.5 + 0.1 * training.run.seed
                found = {"hash": training.hash, "mean_return": mean, "returns": [mean]}
                (place / "result.json").write_text(json.dumps(found))

    monkeypatch.setattr(agents, "train_peers", pretend)
    monkeypatch.setattr(agents, "check_peer", lambda agent: None)
    for _ in range(2):
        options = agents.Options(
            seeds=3, arms=("sac-hopper",), output=str(tmp_path / "out"), runs=str(tmp_path / "runs")
        )
        agents.reproduce(options, QUIET)
    assert len(trained) == 3
    (row,) = markdown(tmp_path / "out" / "table.md").values()
    assert row[-1] == "as well"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "table.md", "returns.csv", "curves.csv", "sac-hopper.png", "config.json",
    }  # fmt: skip


def test_a_missing_peer_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "sbx", None)
    with pytest.raises(ValueError, match=r"needs sbx .*: pip install sbx-rl"):
        check_peer("sac")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "package", "few"),
    [
        ("ppo", "stable_baselines3", {"rollout": 128, "steps": 256, "epochs": 2}),
        ("sac", "sbx", {"steps": 150, "learning_starts": 100, "hidden": (16,)}),
    ],
)
def test_peers_train_with_our_settings(agent, package, few, tmp_path):
    pytest.importorskip(package)
    training = Training.of(
        "gym:InvertedPendulum-v5", agent, num_envs=1, evaluation_episodes=1, **few
    )
    found = train_peer(training, Path(tmp_path))
    assert len(found["returns"]) == 4
    assert peer_result(training, Path(tmp_path)) == found
    assert peer_result(training.with_(seed=1), Path(tmp_path)) is None

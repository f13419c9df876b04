"""The experiment on noise: its environment costs what theory says, and its files are made."""

import json

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from rich.console import Console

from midstride import Concurrent
from midstride.paper import noise
from midstride.paper.noise import (
    START,
    STEP_S,
    STEPS,
    STRONGEST,
    Options,
    Rod,
    predicted,
    reproduce,
    rod,
)
from midstride.theory.linear import as_it_is, best, cost


def costs(world, rule, k, episodes=60):
    """Of episodes in the environment, where the rule decides k steps ahead."""
    knowledge = ("previous_action", "pending_actions")[: min(k, 2)]
    env = Concurrent(Rod(world), k * STEP_S, knowledge)
    found = []
    for seed in range(episodes):
        seen, over, total = env.reset(seed=seed)[0], False, 0.0
        while not over:
            known = np.concatenate([seen[:2], seen[2:] * STRONGEST])  # there in half ranges
            seen, reward, terminated, truncated, _ = env.step(rule @ known)
            total, over = total - float(reward), terminated or truncated
        found.append(total)
    return np.array(found)


@pytest.mark.parametrize(("rule", "k"), [(as_it_is, 0), (best, 1), (best, 2)])
def test_the_rod_costs_what_theory_says(rule, k):
    """Knowledge stands in the order in which a rule takes it: in force first, then pending."""
    world = rod(0.05, 0.004)
    acts = rule(world, k)
    found = costs(world, acts, k)
    expected = cost(world, acts, k, STEPS, START)
    assert abs(found.mean() - expected) < 5 * found.std() / np.sqrt(len(found))


def test_the_rod_is_an_environment():
    check_env(Rod(rod(0.05, 0.01)), skip_render_check=True)


def test_a_fall_costs_the_steps_that_are_left():
    env = Rod(rod(0, 0))
    env.reset(seed=0)
    env._x = np.array([0.99, 1.0])
    _, reward, terminated, truncated, _ = env.step(np.zeros(1))
    assert (terminated, truncated) == (True, False)
    assert reward == pytest.approx(-(0.99**2 + 0.1) - (STEPS - 1))


def test_predictions_say_what_was_expected():
    """Chance in the dynamics misleads from two steps on; more noise in the record makes it less."""
    one, two, lively = (predicted(0.05, 0, e, k) for e, k in ((0.5, 1), (0.5, 2), (1.0, 2)))
    assert one.data_alone == pytest.approx(one.best)
    assert two.data_alone > 1.1 * two.best
    assert two.data_alone > lively.data_alone > two.best
    assert two.best < two.rounds < 1.05 * two.best
    sure = predicted(0, 0, 0.5, 3)
    assert sure.data_alone == pytest.approx(sure.best)


def test_files_are_made_and_nothing_is_made_twice(tmp_path, monkeypatch):
    taught = []

    def student(asked):
        taught.append(asked)
        return {"frozen": 0.2, "as_it_is": 1.0, "data_alone": 0.5, "rounds": 0.4, "seconds": 1.0}

    monkeypatch.setattr(noise, "measured", student)
    options = Options(seeds=2, output=str(tmp_path))
    reproduce(options, Console(quiet=True))
    assert len(taught) == 2 * len(noise.CASES)
    reproduce(options, Console(quiet=True))
    assert len(taught) == 2 * len(noise.CASES)
    table = (tmp_path / "table.md").read_text()
    assert "0.17 -> 0.2" in table
    assert "falls -> 0.5 ± 0" in table
    assert (tmp_path / "noise.png").exists()
    assert json.loads((tmp_path / "config.json").read_text())["config"]["seeds"] == 2


@pytest.mark.slow
def test_a_student_costs_what_was_predicted():
    asked = {"push": 0.05, "blur": 0.0, "tried": 0.5, "late": 2, "seed": 0}
    found = noise.measured({**asked, "episodes": 50, "updates": 5_000})
    said = predicted(0.05, 0.0, 0.5, 2)
    assert found["rounds"] == pytest.approx(said.rounds, rel=0.25)
    assert found["data_alone"] > found["rounds"]

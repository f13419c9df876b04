"""Necessity and sufficiency of concurrent knowledge on the turntable."""

import csv
import itertools

import numpy as np
import pytest
from rich.console import Console

from midstride.paper import experiment, theory
from midstride.paper.theory import RANDOM_LATENCIES, cases, delayed_blocking_value, explain
from midstride.paper.theory import measure as measure_row
from midstride.theory.knowledge import KNOWLEDGE, best_with, blocking_value, turntable
from midstride.theory.tabular import (
    ConcurrentMDP,
    as_probabilities,
    capture_value,
    evaluate_policy,
    solve_concurrent,
)

PERIOD, GAMMA = 3, 0.9


def concurrent(latency: int, slip: float = 0.0) -> ConcurrentMDP:
    return ConcurrentMDP(turntable(slip), PERIOD, GAMMA, (latency,))


def optimum(mdp: ConcurrentMDP) -> float:
    return float(capture_value(mdp, solve_concurrent(mdp))[:, 0].mean())


def test_blocking_by_hand():
    """From cell 0 stay; from cell k turn k periods, one cell back each, passing cell 0 on the way.

    Facing cell 0 for a whole period pays 1 + g + g^2 with g = gamma^(1/3). A period of turning from
    cell k > 0 faces cells k, k+1, k+2: cell 0 once, 4 - k ticks in, unless k = 1 (cells 1, 2, 3).
    """
    g = GAMMA ** (1 / 3)
    facing = (1 + g + g**2) / (1 - GAMMA)
    one = GAMMA * facing
    two = g**2 + GAMMA * one  # cells 2, 3, 0
    three = g + GAMMA * two  # cells 3, 0, 1
    assert blocking_value(concurrent(0)) == pytest.approx((facing + one + two + three) / 4)


@pytest.mark.parametrize("slip", [0.0, 0.3])
@pytest.mark.parametrize("latency", range(PERIOD + 1))
def test_the_search_with_knowledge_finds_what_value_iteration_finds(latency, slip):
    mdp = concurrent(latency, slip)
    for kind in ("previous action", "previous action and t_AS"):
        assert best_with(mdp, KNOWLEDGE[kind]).value == pytest.approx(optimum(mdp), abs=1e-8)


@pytest.mark.parametrize("latency", range(PERIOD + 1))
def test_the_search_without_knowledge_equals_plain_evaluation(latency):
    mdp = concurrent(latency, slip=0.3)
    values = []
    for table in itertools.product(range(2), repeat=4):
        policy = np.broadcast_to(np.array(table)[None, :, None], (1, 4, 2))
        values.append(evaluate_policy(mdp, as_probabilities(policy, 2))[:, 0].mean())
    answer = best_with(mdp, KNOWLEDGE["nothing"])
    assert answer.value == pytest.approx(max(values))
    assert answer.policies == 16


def test_knowledge_is_sufficient():
    for latency in range(PERIOD + 1):
        mdp = concurrent(latency)
        assert optimum(mdp) == pytest.approx(delayed_blocking_value(mdp), abs=1e-8)


@pytest.mark.parametrize("latency", range(1, PERIOD + 1))
def test_knowledge_is_necessary(latency):
    """No memoryless policy, randomised ones included, reaches what knowledge reaches.

    At the start nothing is in flight and every state occurs, so an optimal policy must play an
    optimal action of (s, nothing in flight) in every s. Those are unique here: a memoryless policy
    has no choice left, and that one falls short.
    """
    mdp = concurrent(latency)
    q = solve_concurrent(mdp)[0][:, 0]  # (states, actions), nothing in flight
    assert (np.abs(q[:, 0] - q[:, 1]) > 1e-3).all()
    forced = np.broadcast_to(q.argmax(axis=1)[None, :, None], (1, 4, 2))
    value = evaluate_policy(mdp, as_probabilities(forced, 2))[:, 0].mean()
    assert value < optimum(mdp) - 1
    # and a grid over all randomised memoryless policies, for good measure
    turn = np.array(list(itertools.product(np.linspace(0, 1, 9), repeat=4)))
    policies = np.stack([1 - turn, turn], axis=-1)[:, None, :, None]
    policies = np.broadcast_to(policies, (len(turn), 1, 4, 2, 2))
    assert evaluate_policy(mdp, policies)[..., 0].mean(axis=-1).max() < optimum(mdp) - 1


def test_more_knowledge_is_never_worse():
    for slip, latencies in itertools.product((0.0, 0.3), ((2,), RANDOM_LATENCIES)):
        p = tuple(np.full(len(latencies), 1 / len(latencies)))
        mdp = ConcurrentMDP(turntable(slip), PERIOD, GAMMA, latencies, p)
        values = {kind: best_with(mdp, see).value for kind, see in KNOWLEDGE.items()}
        assert values["nothing"] <= values["previous observation"] + 1e-9
        assert values["nothing"] <= values["previous action"] + 1e-9
        assert values["previous action"] <= values["previous action and t_AS"] + 1e-9
        assert values["previous action and t_AS"] <= delayed_blocking_value(mdp) + 1e-8


def test_varying_latency_makes_t_as_worth_knowing():
    mdp = ConcurrentMDP(turntable(), PERIOD, GAMMA, RANDOM_LATENCIES, (0.5, 0.5))
    known, unknown = (
        best_with(mdp, KNOWLEDGE[kind]).value
        for kind in ("previous action and t_AS", "previous action")
    )
    assert known > unknown + 0.5
    assert known == pytest.approx(optimum(mdp), abs=1e-8)


def test_too_many_policies_is_an_error():
    mdp = ConcurrentMDP(turntable(cells=30), 29, GAMMA, (3,))
    with pytest.raises(ValueError, match=r"30 observations make .* take a smaller world"):
        best_with(mdp, KNOWLEDGE["nothing"])


def test_reproduce_theory(tmp_path, capsys, monkeypatch):
    few = [case for case in cases() if case[1] in ("0/3", "3/3") or case[0] == 0]
    monkeypatch.setattr(theory, "cases", lambda: few)
    options, reproduce, description = experiment("theory")
    assert description.startswith("Theory: which knowledge is necessary and sufficient")
    reproduce(options.from_dict({"output": str(tmp_path)}), Console())
    out = capsys.readouterr().out
    assert "knowledge is necessary" in " ".join(out.split())
    with (tmp_path / "table.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == len(few)
    full = next(row for row in table if row["slip"] == "0.0" and row["latency"] == "3/3")
    assert float(full["nothing"]) < 0.8 * float(full["previous action"])
    assert (tmp_path / "values.png").read_bytes().startswith(b"\x89PNG")
    assert '"gamma": 0.9' in (tmp_path / "config.json").read_text()


def test_the_explanation_is_in_the_tables_numbers():
    wanted = [case for case in cases() if case[1] in ("3/3", "1/3 or 3/3")]
    rows = [measure_row(*case) for case in wanted if case[0] == 0 or case[1] == "3/3"]
    text = explain(rows)
    assert f"{rows[0].values['nothing']:.1f} of {rows[0].values['blocking']:.1f}" in text

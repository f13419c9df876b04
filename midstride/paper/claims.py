"""Claims: every claim of the paper, numbered, with what came of it here, from results/ alone.

Makes nothing but claims.md: what other experiments left in their folders is read, and held against
what the paper says. A claim whose experiment has not been run is not tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.console import Console

from midstride.disk.read import Missing, read_csv
from midstride.measure.statistics import (
    Array,
    compare,
    difference_of,
    recovers,
)
from midstride.paper.claim import Claim, few, interval_text, text_of
from midstride.paper.claims_of_grasping import (
    household_claim,
    spread_claim,
    table1_claims,
    table2_claim,
)
from midstride.paper.study import read_groups, show_table
from midstride.report.decided import sensitivity
from midstride.settings import Settings
from midstride.sweep.disk import MOST_ROWS, read_about, read_table
from midstride.theory.tabular import ConcurrentMDP, TickMDP, to_capture

NOT_TESTED = "not tested"
_WORLDS = 200  # random ones, for the lemmas
Returns = dict[str, Array]  # arm -> of each draw
WITHIN = 0.1  # of blocking control's return: what "recovers" allows (awareness)


@dataclass(frozen=True)
class Options(Settings):
    """Options of the experiment."""

    kind: ClassVar[str] = "option"

    results: str = "results"
    """folder of the results; claims.md is written into it"""


def reproduce(options: Options, console: Console) -> None:
    """Write claims.md."""
    results = Path(options.results)
    rows = [
        {
            "#": str(number),
            "claim": claim.text,
            "here": claim.verdict,
            "95 % interval": claim.interval,
            "folder": f"[{claim.folder}]({claim.folder})" if claim.folder else "",
            "in a sentence": claim.sentence,
        }
        for number, claim in enumerate(claims(results), start=1)
    ]
    show_table("The paper's claims", rows, results / "claims.md", console, numbers=False)


def claims(results: Path) -> Iterator[Claim]:
    """All of them, in the paper's order."""
    for make in _CLAIMS:
        try:
            yield from make(results)
        except Missing:
            yield Claim(text_of(make), NOT_TESTED)


# --- Theory ---------------------------------------------------------------------------------------


def _contraction(results: Path) -> Iterator[Claim]:
    """The concurrent Bellman operators are contractions (lemmas)"""
    worst = max(contraction(np.random.default_rng(k)) for k in range(_WORLDS))
    yield Claim(
        text_of(_contraction),
        "reproduced" if worst <= 1 + 1e-9 else "contradicted",
        "exact",
        "theory",
        f"Of gamma^(t_AS/H), at most {worst:.3f} in {_WORLDS} random worlds, computed here; in "
        "continuous time, and that the bound is attained, by tests/theory.",
    )


def contraction(rng: np.random.Generator) -> float:
    """Of a random world: how much nearer two tables come, over what the lemma allows."""
    transitions = rng.dirichlet(np.full(4, 0.5), size=(3, 4))
    period = int(rng.integers(1, 6))
    latency = int(rng.integers(0, period + 1))
    world = TickMDP(list(transitions), rng.normal(size=(4, 3)))
    mdp = ConcurrentMDP(world, period, float(rng.uniform(0.3, 0.99)), (latency,), (1.0,))
    one, other = rng.normal(size=(2, *mdp.switch_shape))
    gap = np.abs(to_capture(mdp, one) - to_capture(mdp, other)).max()
    return float(gap / (mdp.gamma ** (latency / period) * np.abs(one - other).max()))


def _sufficiency(results: Path) -> Iterator[Claim]:
    """Previous action and t_AS are sufficient to recover blocking performance (question 1)"""
    lines = read_csv(results / "theory" / "table.csv", ("slip", "latency", "nothing"), MOST_ROWS)
    full = [line for line in lines if line["latency"] == "3/3"]
    known, after = "previous action and t_AS", "blocking after the first latency"
    lost = {float(one["slip"]): float(one[after]) - float(one[known]) for one in full}
    slip = max(lost)
    so = "reproduced, with a condition" if lost[0.0] < 1e-6 else "contradicted"
    sentence = (
        f"The best policy that knows them loses {abs(lost[0.0]):.1f} after the first latency where "
        f"nothing is random, and {lost[slip]:.1f} where the world slips ({slip:g}): that no "
        "knowledge recovers."
    )
    yield Claim(text_of(_sufficiency), so, "exact", "theory", sentence)
    for folder, task in (("awareness", "Cartpole"), ("awareness-pendulum", "Pendulum")):
        yield from _recovery(results, folder, task)


def _recovery(results: Path, folder: str, task: str) -> Iterator[Claim]:
    returns = _means(results / folder)
    blocking = returns["blocking"]
    for arm in ("previous action + t_AS", "vector-to-go"):
        found = difference_of(returns[arm], blocking)
        so = recovers(found, WITHIN * float(np.mean(blocking)))
        verdict = {"yes": "reproduced", "no": "contradicted"}.get(so, "not shown")
        share = np.mean(returns[arm]) / np.mean(blocking)
        sentence = f"DQN, {len(blocking)} trainings: {share:.2f} of blocking; the margin is 10 %."
        yield Claim(
            f"the same, learned: {arm} recovers blocking on {task} at 50 ms",
            few(verdict, len(blocking)), interval_text(found), folder, sentence,
        )  # fmt: skip


def _necessity(results: Path) -> Iterator[Claim]:
    """Concurrent knowledge is necessary to recover blocking performance (question 1)"""
    returns = _means(results / "awareness")
    found = difference_of(returns["unaware"], returns["blocking"])
    late = "blocking, run at 50 ms"
    mixed = read_groups(
        results / "latencies" / "returns.csv", "return", ("kind", "latency_s")
    )["unaware", "0.05"]  # fmt: skip
    share = np.mean([np.mean(one) for one in mixed]) / np.mean(returns["blocking"])
    sentence = (
        f"An agent that learns at 50 ms unaware ends at {_share(returns, 'unaware'):.2f} of "
        f"blocking, one that learns unaware on mixed latencies at {share:.2f}, and the frozen "
        f"world's policy, run late, at {_share(returns, late):.2f}: a limit of one way to learn, "
        "not of what can be known. For the best policy of the turntable it is necessary, exactly."
    )
    text = text_of(_necessity)
    yield Claim(text, "in part", interval_text(found), "awareness", sentence)


# --- Figure 2 -------------------------------------------------------------------------------------


def _figure2a(results: Path) -> Iterator[Claim]:
    """All representations of concurrent knowledge increase performance over none (Figure 2a)"""
    folder, returns, design = _sweep(results, "figure2a", "figure2a-shared")
    actions = "previous actions + t_AS" if folder == "figure2a" else "previous action + t_AS"
    pairs = [
        (f"{net}, {kind}", f"{net}, unconditioned")
        for net in ("FNN", "LSTM")
        for kind in ("vector-to-go", actions)
    ]
    clearest = [(f"{net}, vector-to-go", f"{net}, {actions}") for net in ("FNN", "LSTM")]
    found = compare([*pairs, *clearest], returns)
    shown = sum(one.verdict == "more" for one in found[:4])
    reading = "" if folder == "figure2a" else " The faithful reading has not been run yet."
    sentence = f"{shown} of 4 differences are shown (Holm), in {len(returns[pairs[0][0]])} draws."
    text = text_of(_figure2a)
    widest = "; ".join(interval_text(one.difference) for one in found[:4])
    verdict = "reproduced" if shown == 4 else "in part" if shown else "not shown"
    yield Claim(text, verdict, widest, folder, sentence + reading)
    words = {one.verdict for one in found[4:]}
    verdict = (
        "contradicted" if "less" in words else "reproduced" if "more" in words else "not shown"
    )
    yield Claim(
        'The "clearest difference stems from including VTG" (Figure 2a)', verdict,
        "; ".join(interval_text(one.difference) for one in found[4:]), folder,
        f"Vector-to-go against previous actions + t_AS, FNN and LSTM.{reading}",
    )  # fmt: skip
    lstm = compare([("LSTM, unconditioned", "FNN, unconditioned")], returns)[0]
    late = _memory(results)
    yield Claim(
        "LSTM and feed-forward networks are compared: memory in place of knowledge (Figure 2a)",
        {"more": "LSTM is better", "less": "LSTM is worse"}.get(lstm.verdict, "not shown"),
        interval_text(lstm.difference), folder, f"LSTM against FNN, both unconditioned.{late}",
    )  # fmt: skip
    yield _sensitive(folder, returns, design, "Cartpole")


def _memory(results: Path) -> str:
    try:
        returns = _means(results / "awareness-drqn")
    except Missing:
        return ""
    share = _share(returns, "unaware")
    return f" At 50 ms, isolated, an unaware LSTM reaches {share:.2f} of its blocking twin."


def _sensitive(folder: str, returns: Returns, design: dict[str, Any], task: str) -> Claim:
    text = f'"VTG is the least hyperparameter-sensitive representation" ({task})'
    shares, compared = sensitivity(design, returns)
    lines = [line for line in compared[1:] if "vector-to-go" in line[0]]
    if not lines:
        return Claim(
            text, NOT_TESTED, "", folder, "The sweep has no controls to tell who fails by."
        )
    words = [line[-1] for line in lines]
    so = "reproduced" if all(w == "less sensitive" for w in words) else "not shown"
    so = "contradicted" if "more sensitive" in words else so
    intervals = "; ".join(line[2] for line in lines)
    return Claim(text, so, intervals, folder, f"By the share of {shares[0][1]}.")


def _figure2b(results: Path) -> Iterator[Claim]:
    """Frame-stacking helps nominally (Figure 2b)"""
    folder, returns, design = _sweep(results, "figure2b", "figure2b-steps")
    stacks = ("stacked observations", "stacked actions", "stacked actions and observations")
    pairs = [*((s, "nothing") for s in stacks), *(("vector-to-go", s) for s in stacks)]
    pairs.append(("vector-to-go", "nothing"))
    found = {(one.arm, one.other): one for one in compare(pairs, returns)}
    reading = (
        "" if folder == "figure2b" else " The sweep in simulated seconds has not been run yet."
    )
    helps = [s for s in stacks if found[s, "nothing"].verdict == "more"]
    text = text_of(_figure2b)
    yield Claim(
        text, "reproduced" if helps else "not shown",
        "; ".join(interval_text(found[s, "nothing"].difference) for s in stacks), folder,
        f"Against nothing: stacks of observations, of actions, of both; shown of "
        f"{', '.join(helps) or 'none'}.{reading}",
    )  # fmt: skip
    words = {s: found["vector-to-go", s].verdict for s in stacks}
    verdict = "reproduced" if set(words.values()) == {"more"} else "not shown"
    verdict = "contradicted" if "less" in words.values() else verdict
    mine = found["vector-to-go", "nothing"]
    yield Claim(
        '"The majority of the performance increase results from utilizing information from VTG" '
        "(Figure 2b)", verdict,
        "; ".join(interval_text(found["vector-to-go", s].difference) for s in stacks), folder,
        "Vector-to-go against each stack; against nothing "
        f"{interval_text(mine.difference)}.{reading}",
    )  # fmt: skip
    yield _sensitive(folder, returns, design, "Pendulum")


def _per_episode(results: Path) -> Iterator[Claim]:
    """t_AS may be drawn at every episode: one policy for all latencies"""
    groups = read_groups(results / "latencies" / "returns.csv", "return", ("kind", "latency_s"))
    arm = "previous action + t_AS"
    at = {key: [float(np.mean(one)) for one in groups[arm, key]] for key in ("0.0", "0.05")}
    found = difference_of(at["0.05"], at["0.0"])
    so = recovers(found, WITHIN * float(np.mean(at["0.0"])))
    verdict = {"yes": "reproduced", "no": "contradicted"}.get(so, "not shown")
    text = text_of(_per_episode)
    yield Claim(
        text, few(verdict, len(at["0.0"])), interval_text(found), "latencies",
        f"One policy that knows keeps {np.mean(at['0.05']) / np.mean(at['0.0']):.2f} of its return "
        "from 0 to 50 ms; the margin is 10 %.",
    )  # fmt: skip


_CLAIMS: tuple[Callable[[Path], Iterator[Claim]], ...] = (
    _contraction, _sufficiency, _necessity, _figure2a, _figure2b, _per_episode,
    table1_claims, household_claim, table2_claim, spread_claim,
)  # fmt: skip


# --- What they share ------------------------------------------------------------------------------


def _means(folder: Path) -> dict[str, list[float]]:
    """arm -> the mean return of each training."""
    groups = read_groups(folder / "returns.csv", "return")
    return {kind: [float(np.mean(one)) for one in found] for (kind,), found in groups.items()}


def _share(returns: dict[str, list[float]], arm: str) -> float:
    return float(np.mean(returns[arm]) / np.mean(returns["blocking"]))


def _sweep(results: Path, first: str, second: str) -> tuple[str, Returns, dict[str, Any]]:
    """The folder of a figure (the earlier reading if there is no other), returns and design."""
    folder = first if (results / first / "table.csv").exists() else second
    if not (results / folder / "table.csv").exists():
        raise Missing(f"{results / folder} is missing")
    by_arm: dict[str, dict[int, float]] = {}
    for row in read_table(results / folder):
        if row["status"] == "done":
            by_arm.setdefault(row["arm"], {})[int(row["draw"])] = float(row["mean_return"])
    draws = sorted(set.intersection(*(set(one) for one in by_arm.values())))
    returns = {arm: np.array([one[i] for i in draws]) for arm, one in by_arm.items()}
    return folder, returns, read_about(results / folder)["design"]

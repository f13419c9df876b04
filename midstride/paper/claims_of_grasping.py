"""What came of the paper's claims about grasping: Table 1, household objects, Table 2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from midstride.disk.read import Missing, read_csv
from midstride.measure.statistics import difference_of, recovers
from midstride.paper import spread, table2
from midstride.paper.claim import Claim, few, interval_text, text_of
from midstride.paper.table1_report import EPISODES, HOUSEHOLD, Rows, read_episodes, verdicts
from midstride.sweep.disk import MOST_ROWS


def table1_claims(results: Path) -> Iterator[Claim]:
    """Table 1: vector-to-go recovers blocking control's success, faster"""
    rows = read_episodes(results / "table1" / EPISODES)
    found = {one.claim: one for one in verdicts(rows)}
    scripted = _clock(results)
    for claim, text, sentence in (
        ("5: vector-to-go: recovers blocking control's success",
         "VTG recovers the blocking baseline's success (Table 1)",
         "From images; from poses see table1-state. Rows 6 and 7 are in its claims.md."),
        ("unaware has less success than blocking control",
         "The unconditioned baseline suffers in concurrent mode (Table 1)",
         _failures(rows)),
        ("vector-to-go is faster than blocking control",
         "Concurrent knowledge models are faster, by 31.3 % (Table 1)",
         f"{_faster(rows)}{scripted}"),
        ("concurrent control completes less of its actions",
         "Concurrent mode has significantly lower action completion (Table 1)", ""),
        ("vector-to-go completes more than unaware",
         "Knowledge has higher completion than none (Table 1)", ""),
        ("vector-to-go has less jerk than unaware",
         "Trajectories are smoother than unaware (question 3): RMS jerk", ""),
        ("the same, squared, over an episode: unaware",
         "the same: squared jerk over an episode", ""),
        ("vector-to-go has less jerk than blocking control",
         "Trajectories are smoother than blocking (question 3): RMS jerk",
         _rougher(rows)),
        ("the same, squared, over an episode: blocking",
         "the same: squared jerk over an episode", ""),
    ):  # fmt: skip
        one = found[claim]
        yield Claim(text, few(one.so, one.trainings), one.found, "table1", sentence)


def _failures(rows: Rows) -> str:
    cut = sum(
        1 - won
        for one in rows["4"]
        for won, seconds in zip(one["success"], one["duration_s"], strict=True)
        if seconds > 6 - 1e-6
    )
    failed = sum(1 - won for one in rows["4"] for won in one["success"])
    return f"{cut:.0f} of its {failed:.0f} failures run out of decisions, after 6 s."


def _faster(rows: Rows) -> str:
    mine, other = (np.mean([np.mean(one["duration_s"]) for one in rows[row]]) for row in ("5", "2"))
    return f"By {1 - mine / other:.0%}, thinking time counted in both."


def _rougher(rows: Rows) -> str:
    mine, other = (np.mean([np.mean(one["jerk"]) for one in rows[row]]) for row in ("5", "2"))
    return f"{mine / other - 1:+.0%}."


def _clock(results: Path) -> str:
    """What the clock alone gives to a policy that learns nothing."""
    try:
        lines = read_csv(results / "scripted" / "episodes.csv", ("mode", "policy"), MOST_ROWS)
    except Missing:
        return ""
    means = {
        mode: np.mean(
            [
                float(line["duration_s"])
                for line in lines
                if (line["mode"], line["policy"], line["objects"])
                == (mode, "privileged", "held_out")
            ]
        )
        for mode in ("blocking", "concurrent")
    }
    share = 1 - means["concurrent"] / means["blocking"]
    return f" A scripted policy, which learns nothing, gains {share:.0%} from the clock alone."


def household_claim(results: Path) -> Iterator[Claim]:
    """Household objects are grasped as procedural ones are"""
    rows, others = (read_episodes(results / "table1" / name) for name in (EPISODES, HOUSEHOLD))
    mine, other = (
        [float(np.mean(one["success"])) for one in group["5"]] for group in (others, rows)
    )
    found = difference_of(mine, other).scaled(100)
    verdict = {"yes": "reproduced", "no": "contradicted"}.get(recovers(found, 3.0), "not shown")
    text = text_of(household_claim)
    sentence = "Row 5, household objects against held-out procedural ones, in simulation."
    yield Claim(text, few(verdict, len(mine)), f"{interval_text(found)} points", "table1", sentence)


def table2_claim(results: Path) -> Iterator[Claim]:
    """The concurrent model is 49 % faster on a real robot, at comparable success (Table 2)"""
    folder = "table2/wall"
    rows = table2.read_grasps(results / folder / table2.GRASPS)
    mine, other = rows[table2.CONCURRENT], rows[table2.BLOCKING]
    answers = [line["came"] for line in table2.verdicts(rows)]
    shorter, within = answers[0], answers[2]
    verdict = (
        "reproduced" if shorter == within == "yes"
        else "contradicted" if "no" in (shorter, within)
        else "not shown"
    )  # fmt: skip
    success, seconds = (
        difference_of(table2.means(mine, name), table2.means(other, name))
        for name in ("success", "policy_duration_s")
    )
    share = -seconds.value / float(np.mean(table2.means(other, "policy_duration_s")))
    sentence = (
        "Not a real robot: a simulated arm in a process of its own, on the wall clock, with "
        f"another body than that of training. At least 49 % shorter: {shorter} (by {share:.0%}); "
        f"success within 2 points: {within}."
    )
    text = f"{interval_text(seconds)} s; {interval_text(success.scaled(100))} points"
    yield Claim(text_of(table2_claim), few(verdict, len(mine)), text, folder, sentence)


def spread_claim(results: Path) -> Iterator[Claim]:
    """Episode generation, Bellman updates and fitting are distributed and asynchronous"""
    rows = spread.read_means(results / "spread", "success")
    local, ray = rows[spread.LOCAL], rows[spread.SPREAD]
    found = difference_of(ray, local).scaled(100)
    is_same = found.low <= 0 <= found.high
    sentence = (
        "Row 5 of Table 1 on Ray's processes against one process, with as many steps and updates; "
        "on one machine."
    )
    yield Claim(
        text_of(spread_claim), few("not shown to differ" if is_same else "contradicted", len(ray)),
        f"{interval_text(found)} points", "spread", sentence,
    )  # fmt: skip

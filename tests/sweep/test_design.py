"""What a specification decides beforehand: strata, budget, controls, comparisons."""

import numpy as np
import pytest

from midstride.report import decided
from midstride.sweep.spec import expand, parse_spec, read_spec

SOURCE = """
simulated_s = 100
[common]
task = "pointmass"
num_envs = 4
[[strata]]
latency = "25ms"
execution = "25ms"
[[strata]]
latency = "episode:0,50ms"
execution = "50ms"
[arms.plain]
[arms.knows]
knowledge = ["vector_to_go"]
[controls.blocking]
[[compare]]
arm = "knows"
other = "plain"
[[compare]]
arm = "knows"
other = "blocking, run at the latency"
"""


def test_every_trial_sees_as_much_of_the_world():
    trials = {(t.arm, t.draw): t.training for t in expand(parse_spec(SOURCE, "s"), 4)}
    assert trials["plain", 0].run.steps == 2000
    # Half of the episodes have periods of 50 ms, half of 100: 20 and 10 steps a second.
    assert trials["knows", 1].run.steps == 1500
    assert trials["knows", 1].run.evaluate_every == 300
    assert [trials["plain", i]["latency"] for i in range(4)] == ["25ms", "episode:0,50ms"] * 2


def test_controls_live_in_the_frozen_world_at_the_period_of_the_draw():
    trials = {(t.arm, t.draw): t.training for t in expand(parse_spec(SOURCE, "s"), 2)}
    control = trials["blocking", 0].environment
    assert (control.latency, control.execution, control.period) == ("0", None, "50ms")
    assert trials["blocking", 0].run.seed == trials["plain", 0].run.seed
    assert trials["blocking", 1].environment.period == "75ms"  # the mean of 50 and 100
    assert trials["blocking", 1].run.steps == 1336  # 100 s of 75 ms, in rounds of 4


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (("simulated_s = 100", "simulated_s = 0"), "simulated_s must be a number from 1"),
        (("num_envs = 4", "num_envs = 4\nsteps = 5"), "steps follow from simulated_s"),
        (('other = "plain"', 'other = "plane"'), "there is no arm plane: choose from plain; knows"),
        (('latency = "25ms"', 'latency = "step:0,25ms"'), "fixed or drawn per episode"),
        (('latency = "25ms"', 'lateness = "25ms"'), r"\[\[strata\]\]: unknown setting lateness"),
        (('other = "plain"', 'other = "plain"\nexpected = "much"'), "expected must be one of more"),
    ],
)
def test_what_does_not_fit_is_told(change, error):
    with pytest.raises(ValueError, match=error):
        expand(parse_spec(SOURCE.replace(*change, 1), "s"), 1)


def test_combinations_have_no_strata():
    with pytest.raises(ValueError, match="give --trials N"):
        expand(parse_spec(SOURCE, "s"), None)


@pytest.mark.parametrize("name", ["figure2a", "figure2b"])
def test_the_figures_are_balanced_and_their_arms_are_what_the_paper_says(name):
    spec = read_spec(name)
    trials = expand(spec, 36)
    drawn = [t for t in trials if t.arm == next(iter(spec.arms))]
    fixed = [t for t in drawn if not t.training["latency"].startswith("episode")]
    assert len(fixed) == (18 if name == "figure2a" else 36)
    pairs = {(t.training["latency"], t.training["execution"]) for t in fixed}
    assert len(pairs) == 16
    for trial in trials:
        t = trial.training
        knows = t["stack_actions"] > 0 or bool(t["knowledge"])
        nothing = ("unconditioned", "nothing", "blocking", "stacked observations")
        assert (
            knows != trial.arm.endswith(nothing) or trial.arm == "stacked actions and observations"
        )
        if "vector-to-go" in trial.arm:
            assert t["stack_actions"] == 0
        if "previous actions" in trial.arm:
            assert 1 <= t["stack_actions"] <= 4
            assert t["knowledge"] == ("selection_time",)
    by_draw = {}
    for trial in trials:
        kept = (trial.training["learning_rate"], trial.training["hidden"], trial.training.run.seed)
        assert by_draw.setdefault(trial.draw, kept) == kept  # pairs


# --- What came of it

DESIGN = {
    "controls": ["blocking"],
    "fails_below": 0.5,
    "compare": [
        {"arm": "knows", "other": "plain", "expected": "more"},
        {"arm": "plain", "other": "blocking", "expected": "more"},
        {"arm": "knows", "other": "blocking", "expected": "more"},
    ],
}


def test_comparisons_are_held_against_what_was_expected():
    rng = np.random.default_rng(0)
    base = rng.normal(500, 100, 30)
    returns = {
        "plain": base - 100 + rng.normal(0, 20, 30),
        "knows": base + rng.normal(0, 20, 30),
        "blocking": base + rng.normal(0, 20, 30),
    }
    heading, *lines = decided.claims(DESIGN, returns)
    assert [line[heading.index("so")] for line in lines] == [
        "as expected", "the opposite", "not shown",
    ]  # fmt: skip
    difference = lines[0][2]
    assert difference.startswith("+")
    shown = float(lines[2][heading.index("could have been shown")])
    # sqrt(2) 20 / sqrt(30) times t of 0.05 / 6 two-sided and of 0.8, about 2.54 + 0.85
    assert shown == pytest.approx(28.3 / np.sqrt(30) * 3.4, rel=0.3)


def test_a_draw_fails_below_half_of_what_controls_reach():
    returns = {
        "plain": np.array([100.0] * 12 + [600.0] * 8),
        "knows": np.array([600.0] * 19 + [100.0]),
        "blocking": np.array([800.0] * 20),
    }
    shares, compared = decided.sensitivity(DESIGN, returns)
    assert shares[0][1] == "draws that fail (below 400)"
    assert {line[0]: line[1].split()[0] for line in shares[1:]} == {
        "plain": "60%", "knows": "5%", "blocking": "0%",
    }  # fmt: skip
    assert [line[-1] for line in compared[1:]] == ["less sensitive", "more sensitive", "not shown"]


def test_controls_belong_to_the_stratum_of_their_draw():
    rows = [
        {"arm": arm, "draw": str(i), "status": "done", "mean_return": str(value + i),
         "latency": "0" if arm == "blocking" else ("5ms", "25ms")[i % 2], "execution": "0"}
        for arm, value in (("plain", 100), ("blocking", 200))
        for i in range(4)
    ]  # fmt: skip
    lines, _ = decided.strata(rows, DESIGN, [0, 1, 2, 3])
    assert lines[1:3] == [["latency 5ms", "2", "101", "201"], ["latency 25ms", "2", "102", "202"]]


def test_comparisons_are_told_for_each_stratum_alone():
    """Where pooling would tell of a mean that no latency has."""
    values = {"plain": (100, 110, 90, 0, 20, 10), "knows": (110, 121, 99, 500, 520, 510)}
    rows = [
        {"arm": arm, "draw": str(i), "status": "done", "mean_return": str(value),
         "latency": ("5ms", "25ms")[i // 3]}
        for arm, each in values.items()
        for i, value in enumerate(each)
    ]  # fmt: skip
    design = {"compare": [{"arm": "knows", "other": "plain", "expected": "more"}]}
    _, apart = decided.strata(rows, design, range(6))
    # 10, 11 and 9: Student's t of 2 degrees of freedom, 4.303 x 1 / sqrt(3)
    assert apart[1:] == [
        ["latency 5ms", "knows", "plain", "+10 [+7.52, +12]"],
        ["latency 25ms", "knows", "plain", "+500 [+500, +500]"],
    ]

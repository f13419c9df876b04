"""What results/ tells is what its files say: tables and claims are made again, and compared."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from midstride.paper import experiment
from midstride.paper.claims import claims, contraction
from midstride.report.page import write_report

RESULTS = Path(__file__).parents[2] / "results"
QUIET = Console(quiet=True)
THREE = "table1-rows-2-4-5-7-camera_following-3-objects"
SHOWN = {
    "awareness": "awareness", "awareness-pendulum": "awareness", "awareness-drqn": "awareness",
    "latencies": "latencies", "grasp-latencies-state": "grasp-latencies", "regimes": "regimes",
    "regimes-pendulum": "regimes", "grasp-ablation": "grasp-ablation", "table1": "table1",
    "table1-state": "table1", THREE: "table1",
}  # fmt: skip


@pytest.mark.parametrize("folder", SHOWN)
def test_tables_are_what_the_episodes_beside_them_say(folder, tmp_path, monkeypatch):
    for path in RESULTS.joinpath(folder).glob("*.*"):
        if path.suffix in (".csv", ".json"):
            shutil.copyfile(path, tmp_path / path.name)
    for module in ("awareness", "latencies", "regimes", "grasp_latencies", "table1_report"):
        monkeypatch.setattr(f"midstride.paper.{module}.save_figure", lambda *given: None)
    before = (tmp_path / "config.json").read_bytes()
    kind, make, _ = experiment(SHOWN[folder])
    make(kind(show=True, output=str(tmp_path)), QUIET)
    assert (tmp_path / "config.json").read_bytes() == before
    made = {path.name: path.read_text() for path in tmp_path.glob("*.md")}
    assert made
    for name, text in made.items():
        assert (RESULTS / folder / name).read_text() == text, name


@pytest.mark.parametrize("folder", ["figure2a-shared", "figure2b-steps"])
def test_sweeps_are_what_their_tables_say(folder, tmp_path, monkeypatch):
    for name in ("table.csv", "sweep.json"):
        shutil.copyfile(RESULTS / folder / name, tmp_path / name)
    monkeypatch.setattr("midstride.report.page.save_figure", lambda *given: None)
    monkeypatch.setattr("midstride.report.page.image", lambda *given: "")
    write_report(tmp_path, QUIET)
    for name in ("arms.csv", "pairs.csv", "strata.md"):
        assert (RESULTS / folder / name).read_text() == (tmp_path / name).read_text()


def test_every_claim_is_what_results_say(tmp_path):
    lines = (RESULTS / "claims.md").read_text().splitlines()[2:]
    found = list(claims(RESULTS))
    assert len(lines) == len(found) >= 20
    for number, (line, claim) in enumerate(zip(lines, found, strict=True), start=1):
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        assert cells[:4] == [str(number), claim.text, claim.verdict, claim.interval]
        assert claim.sentence in line
        assert not claim.folder or (RESULTS / claim.folder).is_dir()


def test_claims_without_results_are_not_tested(tmp_path):
    found = {claim.text: claim.verdict for claim in claims(tmp_path)}
    lemma, *others = found.values()
    assert lemma == "reproduced"  # needs no files
    assert set(others) == {"not tested"}


def test_a_result_that_changes_changes_its_claim(tmp_path):
    """The unaware rows of Table 1 made to succeed: the loss is not there any more."""
    (tmp_path / "table1").mkdir()
    text = (RESULTS / "table1" / "episodes.csv").read_text().splitlines()
    lines = [re.sub(r"^(4,\d+,\d+),[01],", r"\1,1,", line) for line in text]
    (tmp_path / "table1" / "episodes.csv").write_text("\n".join(lines) + "\n")
    found = {claim.text: claim for claim in claims(tmp_path)}
    claim = found["The unconditioned baseline suffers in concurrent mode (Table 1)"]
    assert claim.interval.startswith("+2.8 points")
    assert claim.verdict.startswith("not shown")


def test_contraction_is_at_most_what_the_lemma_says():
    assert max(contraction(np.random.default_rng(k)) for k in range(50)) <= 1 + 1e-9

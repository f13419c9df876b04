"""A name is text everywhere: on the screen, in plots, in tables, in pages, as a folder."""

import csv
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure
from rich.console import Console

from midstride.cli import main
from midstride.learn.train import Progress
from midstride.paper.study import show_table
from midstride.report.curves import picture_of, plot_curves
from midstride.report.film import titled
from midstride.report.page import write_report
from midstride.scale.jobs import Event, Job
from midstride.scale.show import train_all
from midstride.scale.words import plain, printable
from midstride.sweep.disk import TABLE, neutral, original, read_table, write_csv
from midstride.sweep.spec import slug

NASTY = (
    "[/x]", "[red]", "[link=file:///]", r"$\frac$", "$x^2$ and $", r"\$1",
    "<script>alert(1)</script>",
    "{task.description}", ":smile:", "\x1b[2J\x1b]0;title\x07", "a\nb", "_hidden", "\U0001f916" * 3,
    "=cmd|' /C calc'!A0", "@SUM(1)", "+1+1", "-x", "long" * 200, "\u202egnp.exe", "a|b", "\\",
)  # fmt: skip


def screen():
    return Console(file=io.StringIO(), width=4000, force_terminal=True, color_system=None)


@pytest.mark.parametrize("name", NASTY)
def test_on_the_screen_a_name_is_what_it_is(name, tmp_path):
    shown = printable(name)
    assert "\x1b" not in shown
    assert "\n" not in shown
    console = screen()
    console.print(plain(name))
    assert shown in console.file.getvalue()
    console = screen()
    show_table(name, [{"row": name, name: "1"}], tmp_path / "table.md", console)
    assert console.file.getvalue().count(shown) >= 3
    table = (tmp_path / "table.md").read_text()
    assert len(table.splitlines()) == 3
    assert "<script" not in table
    assert "\x1b" not in table


@pytest.mark.parametrize("name", NASTY)
def test_a_training_of_any_name_is_shown(name, tmp_path):
    class Training:
        class run:
            steps = 10

    def engine(jobs):
        yield Event(0, "started")
        yield Event(0, "progress", Progress(5, 10))
        yield Event(0, "error", name)

    console = screen()
    with pytest.raises(RuntimeError, match="failed"):
        train_all([Job(name, Training, tmp_path)], console, engine)
    assert printable(name) in console.file.getvalue()


@pytest.mark.parametrize("name", NASTY)
def test_in_plots_a_name_is_no_mathematics_and_not_left_out(name, tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"steps": 10, "evaluation": 1.0}\n')
    figure = plot_curves({name: [tmp_path]}, name, column="evaluation")
    assert picture_of(figure).startswith(b"\x89PNG")
    (legend,) = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    text = Figure().text(0, 0, legend)
    assert not text._preprocess_math(legend)[1]
    drawn = text._preprocess_math(legend)[0].strip()
    assert printable(name).startswith(drawn.rstrip("\u2026"))
    titled(np.zeros((1, 40, 200, 3), np.uint8), name)


def test_a_report_of_any_names(tmp_path):
    heading = ["arm", "draw", "status", "mean_return", "low", "high", "$set$", "reason"]
    lines = [
        [arm, draw, "done", -1.5 + k + draw, "", "", f"=v{draw}", ""]
        for k, arm in enumerate(NASTY) for draw in range(3)
    ]  # fmt: skip
    write_csv(tmp_path / TABLE, heading, lines)
    about = {"name": NASTY[6], "swept": ["$set$"], "specification": "</pre><script>", "hash": ""}
    (tmp_path / "sweep.json").write_text(json.dumps(about))
    console = screen()
    write_report(tmp_path, console)
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    for name in NASTY:
        assert printable(name) in console.file.getvalue()
    for path in tmp_path.glob("*.csv"):
        with path.open(newline="") as file:
            cells = [cell for line in csv.reader(file) for cell in line]
        assert not [cell for cell in cells if cell[:1] in "=@" and cell]
        assert not [cell for cell in cells if cell[:1] in "+-" and cell and not _is_number(cell)]
    rows = read_table(tmp_path)
    assert [row["arm"] for row in rows][::3] == list(NASTY)
    assert rows[1]["$set$"] == "=v1"
    assert float(rows[0]["mean_return"]) == -1.5


def _is_number(cell):
    try:
        float(cell)
    except ValueError:
        return False
    return True


@given(st.text(alphabet="=+-@' \t\r\n1e.ax\uff1d", max_size=6) | st.text(max_size=20))
def test_cells_are_read_back_as_they_were(cell):
    neutralised = str(neutral(cell))
    assert original(neutralised) == cell
    first = neutralised.lstrip()[:1]
    assert first not in ("=", "@", "\uff1d") or neutralised[0] == "'"
    assert first not in ("+", "-") or _is_number(neutralised)
    if _is_number(cell):
        assert neutralised == cell


def test_a_long_name_is_a_short_folder():
    long = {slug("arm" * 200), slug("arm" * 200 + "!"), slug("arm" * 201)}
    assert len(long) == 3
    assert max(map(len, long)) < 120
    assert slug("Knows it, 25ms") == "knows-it-25ms"


def test_an_error_does_not_command_the_terminal(capsys):
    with pytest.raises(SystemExit) as end:
        main(["evaluate", "\x1b[2J[/x]$\\frac$"])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert "\x1b" not in said
    assert "[/x]" in said
    assert said.count("\n") == 1

"""Trainings on the screen: a bar each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table

from midstride.learn.train import Progress
from midstride.scale.jobs import Engine, Job
from midstride.scale.local import run_jobs
from midstride.scale.words import format_return, plain, printable

if TYPE_CHECKING:
    from midstride.scale.distributed import ScaleProgress


def progress_bars(console: Console) -> Bars:
    """Bars with what one wants to know of a training."""
    return Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[status]}", markup=False),
        TimeRemainingColumn(compact=True),
        console=console,
    )


def status(progress: Progress) -> str:
    """How a training is doing, in a line."""
    return (
        f"{progress.steps:>7,} steps {progress.steps_per_second:>5,.0f}/s "
        f"return {format_return(progress.mean_return):>4} eps {progress.epsilon:.2f}"
    )


def train_all(
    jobs: Sequence[Job], console: Console, engine: Engine = run_jobs
) -> list[dict[str, Any]]:
    """Train every job, with a bar each; results in order.

    A failed job raises, after the others have finished.
    """
    results: dict[int, dict[str, Any]] = {}
    errors: dict[int, str] = {}
    with progress_bars(console) as bars:
        ids = [
            bars.add_task(printable(job.name), total=job.training.run.steps, status="waiting")
            for job in jobs
        ]
        for i, kind, content in engine(jobs):
            if kind == "started":
                bars.update(ids[i], status="starting")
            elif kind == "progress":
                bars.update(ids[i], completed=content.steps, status=status(content))
            elif kind == "result":
                results[i] = content
                numbers = (content["mean_return"], *content["interval"])
                mean, low, high = (format_return(number) for number in numbers)
                text = f"return {mean} [{low}, {high}]"
                bars.update(ids[i], completed=content["steps"], status=text)
            else:
                errors[i] = content
                bars.update(ids[i], status=f"failed: {printable(content)}")
    for i, error in errors.items():
        raise RuntimeError(f"{jobs[i].name} failed: {error}")
    return [results[i] for i in range(len(jobs))]


@contextmanager
def live_table(console: Console, name: str) -> Iterator[Callable[[ScaleProgress], None]]:
    """A table of a training on many machines, as it goes; yields what is told of its progress."""
    live = Live(console=console, refresh_per_second=2)

    def show(progress: ScaleProgress) -> None:
        live.start()  # not before there is something to show
        live.update(spread_table(name, progress))

    try:
        yield show
    finally:
        live.stop()


def spread_table(name: str, progress: ScaleProgress) -> Table:
    """How a training on many machines is doing: who is there, how fast, how far behind."""
    f, table = progress.figures, Table("", "", title=plain(name), show_header=False)
    left = progress.total - progress.steps
    rate = progress.steps_per_second
    there = ", ".join(f"{role} {ready}/{count}" for role, (ready, count) in progress.roles.items())
    rows = {
        "phase": progress.phase,
        "steps": f"{progress.steps:,} of {progress.total:,}",
        "time left": f"{left / rate / 60:.0f} min" if rate > 0 else "-",
        "return": format_return(progress.mean_return),
        "rates": f"{f['transitions_per_s']:,.0f} transitions/s, {f['labels_per_s']:,.0f} labels/s, "
        f"{f['updates_per_s']:,.1f} updates/s",
        "replay ratio": f"{f['replay_ratio']:.3f} updates per transition",
        "staleness": f"policy {f.get('policy_staleness', 0):.0f}, labels "
        f"{f.get('label_staleness', 0):.0f} updates (at most "
        f"{f.get('policy_staleness_max', 0):.0f}, {f.get('label_staleness_max', 0):.0f})",
        "queues": f"{f['steps_on_the_way']:.0f} steps on the way, {f['rounds_waiting']:.0f} calls "
        f"to keep; blocks: {f['blocks_sampled']:.0f} to label, {f['blocks_labelling']:.0f} being "
        f"labelled, {f['blocks_labelled']:.0f} to fit",
        "fitters": f"{f['fitters_in_step']:.0f} in step, {f['fitters_busy']:.0f} busy; went back "
        f"{f['times_gone_back']:.0f} times to what was kept",
        "there": there,
        "lost": f"{f['actors_lost']:.0f} actors, {f['actors_replaced']:.0f} replaced, "
        f"{f['transitions_forgotten']:.0f} transitions forgotten, {f['updates_forgone']:.0f} "
        "updates forgone",
    }
    for title, text in rows.items():
        table.add_row(title, plain(text))
    return table

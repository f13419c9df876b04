"""See what latency does to learning, and what knowledge repairs.

Three trainings on Cartpole: with the world frozen while the policy thinks (blocking), with
50 ms of latency and no idea of it, and with the same latency and vector-to-go. The policy of
the frozen world is also run at 50 ms, as it is. Leaves runs, curves.png and video.mp4 in the
output folder. Interrupted, the same command goes on where it was.

example:
  midstride demo --steps 80_000
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.table import Table

from midstride.cli import show
from midstride.cli.arguments import Group, Syntax, read
from midstride.scale.words import saved
from midstride.settings import Range, Settings

if TYPE_CHECKING:
    from midstride.scale.jobs import Job

FROZEN, AS_IT_IS = "frozen world", "the same policy, run at 50 ms"
UNAWARE, AWARE = "learned at 50 ms, unaware", "learned at 50 ms, vector-to-go"
TRAININGS: dict[str, dict[str, Any]] = {
    FROZEN: {"period": "50ms"},
    UNAWARE: {"latency": "50ms", "execution": "0"},
    AWARE: {"latency": "50ms", "execution": "0", "knowledge": ("vector_to_go",)},
}
_FILM_S, _FILM_SEED = 10, 2_000_000
_HARDLY = 0.9  # of a return: who keeps so much has hardly lost
_CLEARLY = 0.1  # of the frozen world's return: a gain below is not called one


@dataclass(frozen=True)
class Options(Settings):
    """How long, and where to."""

    steps: Annotated[int, Range(1, 10**12)] = 80_000
    """environment steps of each training"""
    seed: Annotated[int, Range(0, 2**31)] = 0
    """seed of all three trainings"""
    output: Path = Path("demo")
    """folder for runs, curves and video"""


def command(args: Sequence[str], console: Console) -> None:
    syntax = Syntax("demo", "demo [options]", __doc__ or "", (Group("options", Options),))
    run(read(Options, syntax, args), console)


def run(options: Options, console: Console) -> None:
    """Train the three; show returns, curves, and the policies side by side."""
    from midstride.report.curves import plot_curves, save_figure
    from midstride.scale.show import train_all

    jobs = _jobs(options)
    console.print(
        f"Cartpole swing-up, {options.steps:,} steps each. The world is frozen while the policy "
        "thinks, or moves on for 50 ms, which the policy may know about or not."
    )
    if any((job.folder / "config.json").exists() for job in jobs):
        console.print("These trainings were started before: finished ones are taken as they are.")
    with show.going_on("the same command goes on where it was"):
        results = train_all(jobs, console)
    returns: dict[str, Sequence[float]] = {
        job.name: result["returns"] for job, result in zip(jobs, results, strict=True)
    }
    returns[AS_IT_IS] = _run_as_it_is(jobs[0], len(returns[FROZEN]))
    console.print(table(returns))
    console.print(conclusion({name: sum(r) / len(r) for name, r in returns.items()}))
    groups = {job.name: [job.folder] for job in jobs}
    save_figure(options.output / "curves.png", plot_curves(groups, "Cartpole swing-up"))
    _film(jobs, returns, options.output / "video.mp4")
    console.print(saved(options.output, "/curves.png, video.mp4"))


def _jobs(options: Options) -> list[Job]:
    from midstride.learn.agents import Training
    from midstride.scale.jobs import Job

    folder = options.output / f"{options.steps}-{options.seed}"
    return [
        Job(
            name,
            Training.of("cartpole", "dqn", steps=options.steps, seed=options.seed, **settings),
            folder / str(i),
            unfinished="resume",
        )
        for i, (name, settings) in enumerate(TRAININGS.items())
    ]


def _run_as_it_is(job: Job, episodes: int) -> list[float]:
    """Returns of a policy of the frozen world in one that does not wait for it."""
    from midstride.measure.evaluate import evaluate_in
    from midstride.policies import load

    moving = job.training.with_(latency="50ms").environment
    return [episode.total for episode in evaluate_in(load(job.folder), moving, episodes)]


def table(returns: Mapping[str, Sequence[float]]) -> Table:
    """Returns of each, and what share of the frozen world's they are."""
    found = Table(title="Return of the policies (of 1000)")
    for heading in ("policy", "return", "95 % interval", "of frozen"):
        found.add_column(heading, justify="left" if heading == "policy" else "right")
    means = {name: sum(values) / len(values) for name, values in returns.items()}
    for name in (FROZEN, AS_IT_IS, UNAWARE, AWARE):
        cells = show.summary(returns[name], is_share=False)
        found.add_row(name, *cells, _percent(means[name], means[FROZEN]))
    return found


def conclusion(means: Mapping[str, float]) -> str:
    """What the measured returns say, in a few sentences."""
    frozen = means[FROZEN]
    if frozen <= 0:
        return "Nothing was learned in the frozen world: give more --steps."
    kept = means[AS_IT_IS] / frozen
    loses = "loses nothing" if kept >= 1 else "hardly loses" if kept >= _HARDLY else "loses"
    first = (
        f"Run at 50 ms as it is, the policy of the frozen world {loses} by it: it has "
        f"{_percent(means[AS_IT_IS], frozen)} of its return."
    )
    second = (
        f"Learning at 50 ms reaches {_percent(means[UNAWARE], frozen)} without knowing what is in "
        f"flight, and {_percent(means[AWARE], frozen)} with vector-to-go: {_gain(means)}."
    )
    return f"{first} {second} One training of each is a sketch: midstride reproduce awareness."


def _gain(means: Mapping[str, float]) -> str:
    """What latency broke, and whether knowledge repaired it."""
    kept, unaware, aware = (means[name] / means[FROZEN] for name in (AS_IT_IS, UNAWARE, AWARE))
    gained = aware - unaware
    if gained > _CLEARLY:
        broken = "it is learning that latency breaks" if kept >= _HARDLY else "latency breaks both"
        return f"here {broken}, and knowledge {'repairs it' if aware >= _HARDLY else 'helps'}"
    if gained < -_CLEARLY:
        return "here knowledge did not help"
    return "here knowledge made no clear difference"


def _percent(value: float, whole: float) -> str:
    return f"{value / whole:.0%}" if whole > 0 else "-"


def _film(jobs: Sequence[Job], returns: Mapping[str, Sequence[float]], path: Path) -> None:
    """The three policies side by side."""
    from midstride.policies import load
    from midstride.report.film import film, save_video, side_by_side, titled

    films, fps = [], 0.0
    for job in jobs:
        environment = job.training.environment
        frames, fps = film(load(job.folder), environment, _FILM_S, _FILM_SEED)
        values = returns[job.name]
        films.append(titled(frames, f"{job.name}: {show.number(sum(values) / len(values))}"))
    save_video(path, side_by_side(films), fps)

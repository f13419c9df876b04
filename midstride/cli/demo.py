"""See what latency does to a policy, and two cures for it.

InvertedDoublePendulum-v5, everybody's own benchmark, with 50 ms of latency, which is one control
step. A policy is trained with SAC in a frozen world; run at the latency as it is, it falls. Adapted
from steps of the frozen world, in seconds, it stands. Two more are trained at the latency: one that
does not know what is in flight, and one that does. Leaves runs, curves.png, adapt.png and video.mp4
in the output folder. Interrupted, the same command goes on where it was.

example:
  midstride demo --steps 10_000
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
    from midstride.learn.adapted import Adapted
    from midstride.scale.jobs import Job

TASK, LATENCY = "gym:InvertedDoublePendulum-v5", "50ms"
FROZEN = "trained in a frozen world, run there"
AS_IT_IS = "the same policy, run at 50 ms"
ADAPTED = "the same policy, adapted"
UNAWARE = "trained at 50 ms, unaware"
KNOWING = "trained at 50 ms, knowing what is in flight"
TRAININGS: dict[str, dict[str, Any]] = {
    FROZEN: {},
    UNAWARE: {"latency": LATENCY},
    KNOWING: {"latency": LATENCY, "knowledge": ("previous_action",)},
}
_FILM_S, _FILM_SEED = 6, 2_000_000
_MOST = 0.9  # of a return: who keeps so much has lost little


@dataclass(frozen=True)
class Options(Settings):
    """How long, and where to."""

    steps: Annotated[int, Range(1, 10**12)] = 10_000
    """environment steps of each training"""
    seed: Annotated[int, Range(0, 2**31)] = 0
    """seed of everything"""
    output: Path = Path("demo")
    """folder for runs, pictures and video"""


def command(args: Sequence[str], console: Console) -> None:
    syntax = Syntax("demo", "demo [options]", __doc__ or "", (Group("options", Options),))
    run(read(Options, syntax, args), console)


def run(options: Options, console: Console) -> None:
    """Train three, adapt one; show returns, curves, and the policies side by side."""
    from midstride.report.curves import plot_curves, save_figure
    from midstride.scale.show import train_all

    jobs = _jobs(options)
    console.print(
        f"A double pendulum on a cart, {options.steps:,} steps of SAC each. The world is frozen "
        "while the policy thinks, or moves on for 50 ms."
    )
    if any((job.folder / "config.json").exists() for job in jobs):
        console.print("These trainings were started before: finished ones are taken as they are.")
    with show.going_on("the same command goes on where it was"):
        results = train_all(jobs, console)
        returns: dict[str, Sequence[float]] = {
            job.name: result["returns"] for job, result in zip(jobs, results, strict=True)
        }
        groups = {job.name: [job.folder] for job in jobs}
        save_figure(options.output / "curves.png", plot_curves(groups, "Double pendulum, SAC"))
        if sum(returns[FROZEN]) <= 0:
            console.print("Nothing was learned in the frozen world: give more --steps.")
            return
        found = _adapt(jobs[0], options, console)
    returns |= {AS_IT_IS: found.as_it_is.each, ADAPTED: found.adapted.each}
    console.print(table(returns))
    means = {name: sum(values) / len(values) for name, values in returns.items()}
    console.print(conclusion(means, found.seconds, found.steps_latency), soft_wrap=True)
    _film(jobs, returns, options.output)
    console.print(saved(options.output, "/curves.png, adapt.png, adapt.html, video.mp4"))


def _jobs(options: Options) -> list[Job]:
    from midstride.learn.agents import Training
    from midstride.scale.jobs import Job

    folder = options.output / f"{options.steps}-{options.seed}"
    every = {"steps": options.steps, "seed": options.seed}
    often = {"evaluate_every": max(1, options.steps // 8)}
    return [
        Job(name, Training.of(TASK, "sac", **every, **often, **settings), folder / str(i),
            unfinished="resume")
        for i, (name, settings) in enumerate(TRAININGS.items())
    ]  # fmt: skip


def _adapt(job: Job, options: Options, console: Console) -> Adapted:
    """The policy of the frozen world, made fit for the latency; its pictures are written."""
    from midstride.cli.adapt import told
    from midstride.learn.adapt import adapt, before_and_after, save_adapted
    from midstride.learn.adapted import AdaptSettings
    from midstride.policies import load
    from midstride.report.adapt import write_adapted

    how = AdaptSettings(steps=10_000, updates=5_000, rounds=3, episodes=8, seed=options.seed)
    policy, environment = load(job.folder), job.training.environment
    with told(console) as tell:
        found = adapt(policy, environment, LATENCY, None, how, tell)
        curves = before_and_after(found, policy, environment, how, tell)
    save_adapted(options.output / "adapted", found)
    summary = {"name": "double pendulum", "about": how.to_dict(), **found.summary()}
    write_adapted(options.output, summary, curves)
    return found


def table(returns: Mapping[str, Sequence[float]]) -> Table:
    """Returns of each, and what share of the frozen world's they are."""
    found = Table(title="Return of the policies (of about 9360)")
    for heading in ("policy", "return", "95 % interval", "of frozen"):
        found.add_column(heading, justify="left" if heading == "policy" else "right")
    means = {name: sum(values) / len(values) for name, values in returns.items()}
    for name in (FROZEN, AS_IT_IS, ADAPTED, UNAWARE, KNOWING):
        cells = show.summary(returns[name], is_share=False)
        found.add_row(name, *cells, f"{means[name] / means[FROZEN]:.0%}")
    return found


def conclusion(means: Mapping[str, float], seconds: float, steps_latency: int) -> str:
    """What the measured returns say, in a few sentences.

    seconds: that it took to adapt; steps_latency: that it took at the latency
    """
    of = {name: mean / means[FROZEN] for name, mean in means.items()}
    falls = "falls" if of[AS_IT_IS] < 0.5 else "loses" if of[AS_IT_IS] < _MOST else "still stands"
    first = f"Run at 50 ms as it is, the policy of the frozen world {falls} ({of[AS_IT_IS]:.0%})."
    cured = "It is cured" if of[ADAPTED] >= _MOST else "It is not cured"
    more = f" and {steps_latency:,} at the latency" if steps_latency else " alone"
    second = (
        f"{cured} by adapting it, {seconds:.0f} s, from steps of the frozen world{more} "
        f"({of[ADAPTED]:.0%})."
    )
    gained = of[KNOWING] - of[UNAWARE]
    word = "helps" if gained > 0.1 else "does not help here" if gained < -0.1 else "hardly matters"
    third = (
        f"Trained at 50 ms, knowing what is in flight {word}: {of[KNOWING]:.0%} with it, "
        f"{of[UNAWARE]:.0%} without."
    )
    return f"{first} {second} {third} One training of each is a sketch: midstride reproduce adapt."


def _film(jobs: Sequence[Job], returns: Mapping[str, Sequence[float]], output: Path) -> None:
    """The policies at the latency, side by side."""
    from midstride.policies import load
    from midstride.report.film import film, save_video, side_by_side, titled

    frozen, unaware, knowing = jobs
    adapted = load(output / "adapted")
    late = unaware.training.environment
    places = {
        AS_IT_IS: (load(frozen.folder), late),
        ADAPTED: (adapted, frozen.training.with_(latency=LATENCY, knowledge=("previous_action",))
                  .environment),
        UNAWARE: (load(unaware.folder), late),
        KNOWING: (load(knowing.folder), knowing.training.environment),
    }  # fmt: skip
    films, fps = [], 0.0
    for name, (policy, environment) in places.items():
        frames, fps = film(policy, environment, _FILM_S, _FILM_SEED)
        values = returns[name]
        films.append(titled(frames, f"{name}: {show.number(sum(values) / len(values))}"))
    save_video(output / "video.mp4", side_by_side(films), fps)

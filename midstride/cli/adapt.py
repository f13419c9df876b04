"""Adapt a policy to the latency of a robot, from what was recorded in a frozen world.

POLICY is whatever `midstride margin` takes: the folder of a run, a .zip of Stable-Baselines3, an
.onnx file or, with --trust, a TorchScript .pt file or module:callable. A student learns to do, from
what is observed at capture and the actions in flight, what POLICY would do when its decision comes
into force. That is known in hindsight from steps of the frozen world: teaching needs no reward,
and no step with latency. Where that is not enough, the student acts with latency for a few rounds,
and is told afterwards what would have been right.

Left behind in --output: the adapted policy, which is a folder that evaluate, margin and watch take;
adapt.json, adapt.png and adapt.html with returns before and after. The exit code is 1 if the cure
did not take.

examples:
  midstride adapt sac.zip --env InvertedDoublePendulum-v5 --latency 50ms
  midstride adapt sac.zip --env HalfCheetah-v5 --latency 100ms --rounds 0 --updates 40000
  midstride adapt ppo.zip --env CartPole-v1 --step 20ms --latency 100ms
  midstride adapt sac.zip --env Hopper-v5 --latency trace:latencies.csv,up --pad
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from midstride.cli import show
from midstride.cli.arguments import Group, Syntax
from midstride.learn.signals import Interrupted, number_of, word
from midstride.scale.words import plain, saved
from midstride.settings import Settings

if TYPE_CHECKING:
    from midstride.learn.adapt import OnProgress
    from midstride.learn.adapted import Adapted, AdaptSettings


@dataclass(frozen=True)
class Options(Settings):
    """Which policy, where, to what."""

    policy: str
    """folder of a finished run, or a policy of others: a .zip of Stable-Baselines3, an .onnx file,
    with --trust a TorchScript .pt file or module:callable"""
    latency: str
    """latency of the robot: 50ms, or episode:0,50ms (drawn at each reset), jitter:50ms,10ms,
    trace:latencies.csv,up (measured)"""
    env: str | None = None
    """environment, in place of a run's own: an ID of Gymnasium (HalfCheetah-v5; module:ID imports
    the module first) or dmc:DOMAIN/TASK"""
    data: Path | None = None
    """steps of the frozen world to learn from, in place of recording some: a .safetensors file with
    observation, action, observation_next, terminated and truncated, or the folder of a run that was
    trained without latency and knowledge"""
    normalize: Path | None = None
    """file with mean and var (and epsilon, clip) of the observations in training, where the policy
    saw them normalised: .npz, .safetensors or .json"""
    trust: bool = False
    """run code that comes with a policy (TorchScript, module:callable) or that the files of a run
    name: only if you trust who wrote it"""
    name: str | None = None
    """what pictures call the policy (default: its file)"""
    output: Path = Path("adapted")
    """folder for the adapted policy, adapt.json, adapt.png and adapt.html"""


def command(args: Sequence[str], console: Console) -> None:
    from midstride.learn.adapted import AdaptSettings

    usage = "adapt POLICY --latency TIME [--env ID] [options]"
    groups = (Group("options", Options), Group("how", AdaptSettings))
    given = Syntax("adapt", usage, __doc__ or "", groups, ("policy",)).read(args)
    if "latency" not in given:
        raise ValueError("adapt to which latency? give --latency 50ms")
    own = {field.name for field in fields(Options)}
    options = Options(**{name: value for name, value in given.items() if name in own})
    how = AdaptSettings(**{name: value for name, value in given.items() if name not in own})
    run(options, how, console)


def run(options: Options, how: AdaptSettings, console: Console) -> None:
    from midstride.cli.evaluate import environment_of
    from midstride.learn.adapt import adapt, before_and_after, save_adapted
    from midstride.policies import load
    from midstride.report.adapt import write_adapted

    _check_output(options)
    policy = load(options.policy, options.trust, normalize=options.normalize)
    given = {n: v for n, v in (("period", how.period), ("step", how.step)) if v is not None}
    environment = environment_of(options.policy, options.env, given, options.trust)
    with told(console) as tell:
        found = adapt(policy, environment, options.latency, options.data, how, tell)
        curves = before_and_after(found, policy, environment, how, tell)
    name = options.name or Path(options.policy).stem
    about = {**how.to_dict(), "policy": Path(options.policy).name, "env": options.env}
    about["data"] = None if options.data is None else options.data.name
    save_adapted(options.output, found)
    write_adapted(options.output, {"name": name, "about": about, **found.summary()}, curves)
    _show(name, found, console)
    _say_range(found, curves, console)
    console.print(saved(options.output, "/adapt.html, adapt.png, adapt.json, policy.safetensors"))
    if found.needed and not found.took:
        sys.exit(1)


def _check_output(options: Options) -> None:
    """An error if something else would be written over, or cannot be."""
    from midstride.disk.runs import CONFIG
    from midstride.policies import WEIGHTS
    from midstride.report.adapt import RECORD

    output = options.output
    if output.exists() and not output.is_dir():
        raise ValueError(f"{output} is a file: give a folder to write into")
    is_run = (output / CONFIG).exists() or (output / WEIGHTS).exists()
    is_same = output.exists() and output.resolve() == Path(options.policy).resolve()
    if is_same or (is_run and not (output / RECORD).exists()):
        raise ValueError(f"{output} holds a policy already: give another --output")
    parent = next((folder for folder in output.parents if folder.exists()), None)
    if parent is not None and not parent.is_dir():
        raise ValueError(f"{parent} is a file: give a folder to write into")


@contextmanager
def told(console: Console) -> Iterator[OnProgress]:
    """A bar for what is under way."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        TimeElapsedColumn(),
    )
    under_way: dict[str, Any] = {}
    with Progress(*columns, console=console) as bars:

        def tell(what: str, done: int, of: int) -> None:
            if what not in under_way or bars.tasks[under_way[what]].finished:
                under_way[what] = bars.add_task(what, total=of)
            bars.update(under_way[what], completed=done, total=of)

        try:
            yield tell
        except KeyboardInterrupt as stop:
            number = number_of(stop)
            raise Interrupted(f"{word(number)}; nothing was written", number) from None


def _say_range(found: Adapted, curves: Any, console: Console) -> None:
    """Over which latencies it keeps enough, before and after."""
    from midstride.measure.curve import kept_around
    from midstride.report.adapt import stands

    bar = found.summary()["bar"]
    before, after = (
        kept_around(curve, bar, at)
        for curve, at in zip(curves, (0.0, found.longest_s), strict=True)
    )
    said = f"Of the latencies tried, it stood {stands(before)}; adapted it stands {stands(after)}."
    console.print(said, soft_wrap=True)
    if found.took and after is not None and after[0] == after[1]:
        console.print(
            "That is one latency and no other: if yours varies, adapt to several "
            f"(--latency episode:{','.join(f'{1e3 * at.latency_s:g}ms' for at in curves[1][:6])}), "
            "or let decisions wait for the longest (--pad).",
            soft_wrap=True,
        )


def _show(name: str, found: Adapted, console: Console) -> None:
    table = Table("", "return", "95 % interval", "kept")
    table.title = plain(name, "table.title")
    at = plain(found.at)
    for words, returns in (
        ("without latency", found.frozen),
        (f"at {at}, as it is", found.as_it_is),
        (f"at {at}, adapted", found.adapted),
    ):
        mean, interval = show.summary(returns.each, is_share=False)
        table.add_row(words, mean, interval, f"{found.kept(returns):.0%}")
    console.print(table)
    stage = found.stages[found.best]
    unit = "of all choices" if found.chooses else "of half an action's range"
    console.print(
        f"Its errors: {stage.held_out:.2g} {unit} in steps that it was not taught, "
        f"{stage.visited:.2g} where it goes itself.",
        soft_wrap=True,
    )
    console.print(plain(found.verdict, "bold" if found.took else "red"), soft_wrap=True)

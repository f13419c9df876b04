"""Find how much latency, jitter and loss a policy stands.

POLICY is the folder of a finished run, a .zip of Stable-Baselines3, an .onnx file or, with
--trust, a TorchScript .pt file or module:callable. It plays in its own environment or in --env, at
latency 0 and at more and more of it, always from the same seeds. Its delay margin is the longest
latency up to which it keeps a share (90 %) of what it has at latency 0, found by a search that
spends episodes where they matter, with a 95 % interval. What it takes to decide on this machine
stands beside it. Left behind in --output: margin.json, margin.png and margin.html.

With --require, the exit code is 1 if the lower end of the margin's interval is below it: for CI.

examples:
  midstride margin ppo.zip --env InvertedPendulum-v5
  midstride margin runs/aware --latency trace:latencies.csv,up --require 50ms
  midstride margin dqn.zip --env CartPole-v1 --step 20ms --margins delay
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from midstride.cli import show
from midstride.cli.arguments import Group, Syntax
from midstride.learn.signals import Interrupted, number_of, word
from midstride.scale.words import plain, saved
from midstride.seconds import Time, as_seconds, check_time_s, format_s
from midstride.settings import Range, Settings

if TYPE_CHECKING:
    from midstride.measure.margin import Margin, MarginSettings


@dataclass(frozen=True)
class Options(Settings):
    """Whose margin, and where."""

    policy: str
    """folder of a finished run, or a policy of others: a .zip of Stable-Baselines3, an .onnx file,
    with --trust a TorchScript .pt file or module:callable"""
    env: str | None = None
    """environment to play in, in place of a run's own: an ID of Gymnasium (InvertedPendulum-v5;
    module:ID imports the module first), dmc:DOMAIN/TASK or one of our tasks"""
    require: Time | None = None
    """exit with 1 if the lower end of the delay margin's 95 % interval is below this latency"""
    normalize: Path | None = None
    """file with mean and var (and epsilon, clip) of the observations in training, where the policy
    saw them normalised: .npz, .safetensors or .json"""
    trust: bool = False
    """run code that comes with a policy (TorchScript, module:callable) or that the files of a run
    name (a task gym:module:ID imports the module): only if you trust who
    wrote it"""
    jobs: Annotated[int, Range(1, 256)] = 2
    """processes that play episodes side by side; the numbers do not depend on it"""
    name: str | None = None
    """what pictures call the policy (default: its file)"""
    output: Path = Path("margin")
    """folder for margin.json, margin.png and margin.html"""


def command(args: Sequence[str], console: Console) -> None:
    from midstride.measure.margin import MarginSettings

    usage = "margin POLICY [--env ID] [options]"
    groups = (Group("options", Options), Group("what is asked", MarginSettings))
    syntax = Syntax("margin", usage, __doc__ or "", groups, ("policy",))
    given = syntax.read(args)
    own = {field.name for field in fields(Options)}
    options = Options(**{name: value for name, value in given.items() if name in own})
    asked = MarginSettings(**{name: value for name, value in given.items() if name not in own})
    run(options, asked, console)


def run(options: Options, asked: MarginSettings, console: Console) -> None:
    from midstride.report.margin import write_margin

    required_s = as_seconds(options.require)
    if required_s is not None:
        check_time_s(required_s, "the required latency")
    if options.output.exists() and not options.output.is_dir():
        raise ValueError(f"{options.output} is a file: give a folder to write into")
    options.output.mkdir(parents=True, exist_ok=True)  # an error now, if it cannot be
    found = _found(options, asked, required_s, console)
    name = options.name or Path(options.policy).stem
    about = {**asked.to_dict(), "policy": options.policy, "env": options.env}
    write_margin(options.output, found, name, about)
    _show(name, found, console)
    console.print(saved(options.output, "/margin.html, margin.png, margin.json"))
    if required_s is not None:
        _require(found, required_s, console)


def _found(
    options: Options, asked: MarginSettings, required_s: float | None, console: Console
) -> Margin:
    """The margin, with what is known so far on the screen."""
    from midstride.cli.evaluate import environment_of
    from midstride.measure.finding import PERIODS
    from midstride.measure.margin import margin, place_of
    from midstride.measure.play import Loads
    from midstride.policies import load

    arguments: dict[str, Any] = {
        "source": options.policy, "trust": options.trust, "normalize": options.normalize,
    }  # fmt: skip
    environment = environment_of(options.policy, options.env, trust=options.trust)
    if required_s is not None and asked.longest is None:
        timing = place_of(environment, asked).timing()
        if required_s > PERIODS * timing.longest_period_s:  # what is required is tried
            ticks = math.ceil(required_s / timing.tick_s - 1e-6)
            asked = replace(asked, longest=ticks * timing.tick_s)
    known = "nothing yet"
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        one = bars.add_task("starting")

        def tell(text: str, episodes: int) -> None:
            nonlocal known
            known = f"{episodes} episodes, {text}"
            bars.update(one, description=known)

        try:
            return margin(Loads(load, arguments), environment, asked, options.jobs, tell)
        except KeyboardInterrupt as stop:
            number = number_of(stop)
            raise Interrupted(f"{word(number)}; known so far: {known}", number) from None


def _show(name: str, found: Margin, console: Console) -> None:
    from midstride.report.margin import share_text, spoken, verdict

    table = Table("latency", found.measure, "95 % interval", "kept", "episodes")
    table.title = plain(name, "table.title")
    rows = [(format_s(point.at), point) for point in found.curve]
    for text, point in [*rows, *found.under.items()]:
        interval = f"{show.number(point.low)} to {show.number(point.high)}"
        kept = share_text(point.kept)
        table.add_row(plain(text), show.number(point.mean), interval, kept, str(point.episodes))
    console.print(table)
    mean = format_s(found.at_s)
    if found.jitter is not None:
        console.print(f"At {mean} it stands jitter of ± {spoken(found.jitter, format_s)}.")
    if found.loss is not None:
        console.print(f"At {mean} it stands the loss of {spoken(found.loss, share_text)}.")
    console.print(plain(f"{name} {verdict(found)}.", "bold"), soft_wrap=True)


def _require(found: Margin, required_s: float, console: Console) -> None:
    """For CI: exit code 1 if what it surely stands is less than what is required."""
    surely, required = format_s(found.delay.low), format_s(required_s)
    if found.delay.low + 1e-9 < required_s:
        console.print(plain(f"Required {required}, surely stands only {surely}.", "red"))
        sys.exit(1)
    console.print(plain(f"Required {required}, surely stands {surely}.", "green"))

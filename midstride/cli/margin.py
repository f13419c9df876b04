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

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from midstride.cli import show
from midstride.cli.arguments import Group, Syntax
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
    found = _found(options, asked, console)
    name = options.name or Path(options.policy).stem
    about = {**asked.to_dict(), "policy": options.policy, "env": options.env}
    write_margin(options.output, found, name, about)
    _show(name, found, console)
    console.print(f"Saved: [bold]{options.output}[/bold]/margin.html, margin.png, margin.json")
    if required_s is not None:
        _require(found, required_s, console)


def _found(options: Options, asked: MarginSettings, console: Console) -> Margin:
    """The margin, with what is known so far on the screen."""
    from midstride.cli.evaluate import environment_of
    from midstride.measure.margin import margin
    from midstride.measure.play import Loads
    from midstride.policies import load

    arguments: dict[str, Any] = {
        "source": options.policy, "trust": options.trust, "normalize": options.normalize,
    }  # fmt: skip
    environment = environment_of(options.policy, options.env, trust=options.trust)
    known = "nothing yet"
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        one = bars.add_task("starting")

        def tell(text: str, episodes: int) -> None:
            nonlocal known
            known = f"{episodes} episodes, {text}"
            bars.update(one, description=known)

        try:
            return margin(Loads(load, arguments), environment, asked, options.jobs, tell)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"interrupted; known so far: {known}") from None


def _show(name: str, found: Margin, console: Console) -> None:
    from midstride.report.margin import share_text, spoken, verdict

    table = Table("latency", found.measure, "95 % interval", "kept", "episodes", title=name)
    rows = [(format_s(point.at), point) for point in found.curve]
    for text, point in [*rows, *found.under.items()]:
        interval = f"{show.number(point.low)} to {show.number(point.high)}"
        kept = share_text(point.kept)
        table.add_row(text, show.number(point.mean), interval, kept, str(point.episodes))
    console.print(table)
    mean = format_s(found.at_s)
    if found.jitter is not None:
        console.print(f"At {mean} it stands jitter of ± {spoken(found.jitter, format_s)}.")
    if found.loss is not None:
        console.print(f"At {mean} it stands the loss of {spoken(found.loss, share_text)}.")
    console.print(f"[bold]{name} {verdict(found)}.[/bold]")


def _require(found: Margin, required_s: float, console: Console) -> None:
    """For CI: exit code 1 if what it surely stands is less than what is required."""
    surely = format_s(found.delay.low)
    if found.delay.low + 1e-9 < required_s:
        console.print(f"[red]Required {format_s(required_s)}, surely stands only {surely}.[/red]")
        sys.exit(1)
    console.print(f"[green]Required {format_s(required_s)}, surely stands {surely}.[/green]")

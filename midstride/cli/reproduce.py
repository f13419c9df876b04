"""Make one of the paper's results again.

Tables, plots and the configuration go to results/NAME; trainings are kept in runs, so that the
same command, interrupted, goes on where it was. Every experiment has options of its own:
midstride reproduce NAME --help.

examples:
  midstride reproduce theory
  midstride reproduce awareness --set task=pendulum --seeds 8
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from midstride.cli import show
from midstride.cli.arguments import Group, Syntax, asks_for_help, leading_words, listed
from midstride.settings import check_name

USAGE = "reproduce NAME [options of NAME]"


def command(args: Sequence[str], console: Console) -> None:
    from midstride.paper import EXPERIMENTS, experiment

    names = leading_words(args)[:1]
    if not names and asks_for_help(args):
        print(Syntax("reproduce", USAGE, __doc__ or "", ()).parser().format_help())
        lines = {name: experiment(name)[2].partition("\n")[0] for name in EXPERIMENTS}
        print(f"experiments:\n{listed(lines)}")
        return
    if not names:
        named = next((word for word in args if word in EXPERIMENTS), "NAME")
        raise ValueError(
            f"reproduce needs an experiment before its options: write midstride "
            f"reproduce {named} ... (NAME is one of {', '.join(EXPERIMENTS)})"
        )
    name = names[0]
    check_name(name, tuple(EXPERIMENTS), "experiment")
    kind, reproduce, text = experiment(name)
    groups = (Group("options", kind),)
    syntax = Syntax(f"reproduce {name}", f"reproduce {name} [options]", text, groups)
    options = kind(**syntax.read(args[1:]))
    with show.going_on("the same command goes on where it was"):
        reproduce(options, console)

"""The command line. Bad input ends with one sentence and exit code 2, never a traceback."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import ModuleType

from midstride.cli import (
    adapt,
    calibrate,
    demo,
    describe,
    evaluate,
    latency,
    margin,
    report,
    reproduce,
    robot,
    run,
    sweep,
    train,
    watch,
)
from midstride.cli.arguments import listed
from midstride.extras import MissingExtra, needed_by
from midstride.learn.signals import number_of, raised_signals, word
from midstride.scale.words import printable
from midstride.settings import check_name

# A command is a file with a text that teaches it, and a function `command(args, console)`. What
# takes long to import, it imports when it runs.
COMMANDS: dict[str, ModuleType] = {
    "demo": demo,
    "train": train,
    "evaluate": evaluate,
    "margin": margin,
    "adapt": adapt,
    "robot": robot,
    "run": run,
    "calibrate": calibrate,
    "sweep": sweep,
    "report": report,
    "reproduce": reproduce,
    "latency": latency,
    "describe": describe,
    "watch": watch,
}


def main(args: Sequence[str] | None = None) -> None:
    """Entry point of the `midstride` command."""
    try:
        with needed_by("this command"), raised_signals():
            _run(list(sys.argv[1:] if args is None else args))
    except KeyboardInterrupt as stop:
        print(f"midstride: {printable(str(stop)) or word(number_of(stop))}", file=sys.stderr)
        sys.exit(128 + number_of(stop))
    except (ValueError, OSError, RuntimeError, MemoryError, MissingExtra) as error:
        print(f"midstride: {_sentence(error)}", file=sys.stderr)
        sys.exit(2)


def _run(args: list[str]) -> None:
    if not args or args[0] in ("--help", "-h", "help"):
        print(_help())
        return
    if args[0] == "--version":
        from midstride import __version__

        print(f"midstride {__version__}")
        return
    from rich.console import Console

    check_name(args[0], tuple(COMMANDS), "command")
    COMMANDS[args[0]].command(args[1:], Console(markup=False, emoji=False))


def _help() -> str:
    """What `midstride --help` prints."""
    commands = {name: _first_line(module) for name, module in COMMANDS.items()}
    options = {"--help": "show this", "--version": "show the version"}
    return (
        "usage: midstride COMMAND [options]\n\n"
        "Reinforcement learning for machines that think while they move.\n\n"
        f"commands:\n{listed(commands)}\n\n"
        f"options:\n{listed(options)}\n\n"
        "midstride COMMAND --help says what a command does, what it leaves, and how to write it.\n"
        "Times are seconds (0.025) or have a unit (25ms)."
    )


def _first_line(module: ModuleType) -> str:
    return (module.__doc__ or "").partition("\n")[0].rstrip(".")


def _sentence(error: BaseException) -> str:
    """An error on one line."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return printable(f"{error.filename}: {error.strerror}")
    text = printable(" ".join(str(error).split()))
    if isinstance(error, MemoryError):
        return f"there is not enough memory: {text}".removesuffix(": ")
    return text or type(error).__name__

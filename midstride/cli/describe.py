"""Show an environment: its timing, actions, and every column of its observation.

It also says which agents fit. TASK is one of ours, gym:ID or dmc:DOMAIN/TASK. Nothing is
written.

examples:
  midstride describe cartpole --latency episode:0,25ms --knowledge vector_to_go
  midstride describe gym:HalfCheetah-v5 --latency 10ms --knowledge previous_action
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from midstride.cli import show
from midstride.cli.arguments import Group, Syntax, asks_for_help, leading_words
from midstride.scale.words import plain, saved

if TYPE_CHECKING:
    from midstride.envs.learnable import Environment, LearnableEnvs

USAGE = "describe TASK [options of its environment]"


def command(args: Sequence[str], console: Console) -> None:
    from midstride.tasks.registry import NAMES, settings_of

    known = f"{', '.join(NAMES)}, gym:ID or dmc:DOMAIN/TASK"
    words = leading_words(args)[:1]
    if not words and asks_for_help(args):
        print(Syntax("describe", USAGE, __doc__ or "", ()).parser().format_help())
        print(f"TASK is {known}. Its options are listed by midstride describe TASK --help.")
        return
    if not words:
        raise ValueError(f"describe needs a task first: {known}")
    task, kind = words[0], settings_of(words[0])
    groups = (Group(f"environment ({task})", kind),)
    syntax = Syntax(f"describe {task}", USAGE, __doc__ or "", groups, read_before=("task",))
    run(kind(**{"task": task, **syntax.read(args[1:])}), console)


def run(environment: Environment, console: Console) -> None:
    envs = show.small(environment)
    console.print(saved(environment.task, f": {_timing(environment, envs)}", what=""))
    console.print(plain(f"Actions: {_actions(envs)}"))
    console.print(_observation(envs))
    console.print(_agents(envs), highlight=False, markup=False)
    envs.close()


def _timing(environment: Environment, envs: LearnableEnvs) -> str:
    from midstride.seconds import format_s

    timing = envs.timing
    low, high = (format_s(ticks * timing.tick_s) for ticks in timing.latency_bounds_ticks)
    latency = low if low == high else f"{low} to {high}"
    if environment.to_dict().get("mode") == "blocking":
        rhythm = "an observation when each action has come to rest"
    elif timing.period_s is not None:
        rhythm = f"an observation every {format_s(timing.period_s)}"
    else:
        rhythm = f"an observation {format_s(timing.execution_s or 0.0)} after each switch"
        rhythm += ", at rest until the next" if timing.mode == "hold" else ""
    if timing.pending_slots:
        rhythm += f" (at most {timing.pending_slots} decisions pending at it)"
    elif timing.period_s is not None and timing.latency_high_s > timing.period_s:
        rhythm += ", once the last thought is finished"
    steps = envs.hints.longest_episode
    episodes = "" if steps is None else f", episodes of at most {steps} steps"
    return f"latency {latency}, {rhythm}, ticks of {format_s(timing.tick_s)}{episodes}"


def _actions(envs: LearnableEnvs) -> str:
    space = envs.single_action_space
    names = envs.layout.action
    count = getattr(space, "n", None)
    if count is not None:
        return f"{count} discrete ones"
    if not hasattr(space, "low"):
        return str(space)
    columns: dict[str, list[str]] = {}
    for name, low, high in zip(names, space.low.ravel(), space.high.ravel(), strict=True):
        columns.setdefault(f"from {low:g} to {high:g}", []).append(name)
    parts = [f"{', '.join(some)} {bounds}" for bounds, some in columns.items()]
    count = f"{len(names)} continuous column{'s' if len(names) > 1 else ''}"
    return f"{count}: {'; '.join(parts)}"


def _observation(envs: LearnableEnvs) -> Table:
    table = Table("column", "name", "part", title="observation")
    for name, space in _pictures(envs).items():
        shown = str(space)  # of a Tuple or a Dict
        if space.shape is not None:
            shown = f"{' x '.join(map(str, space.shape))} {space.dtype}"
        table.add_row("", plain(name), plain(shown))
    number = 0
    for block, names in envs.layout.blocks.items():
        for name in names:
            table.add_row(str(number), plain(name), plain(block.replace("_", " ")))
            number += 1
    return table


def _pictures(envs: LearnableEnvs) -> dict[str, Any]:
    """What is observed beside the columns."""
    space = envs.single_observation_space
    parts = getattr(space, "spaces", None)
    if isinstance(parts, dict):
        return {name: part for name, part in parts.items() if name != "state"}
    return {} if envs.layout.columns else {"observation": space}


def _agents(envs: LearnableEnvs) -> str:
    """Which agents fit, and why others do not."""
    try:
        from midstride.learn.agents import AGENTS
    except ModuleNotFoundError as missing:
        return f"Agents need {missing.name}: pip install 'midstride[train]'"
    fitting, others = [], []
    for name, agent in AGENTS.items():
        try:
            agent.check(agent.Settings(agent=name), envs)
        except ValueError as error:
            others.append(f"{name} does not: {error}.")
        else:
            fitting.append(name)
    return "\n".join([f"Agents that fit as they are: {', '.join(fitting) or 'none'}.", *others])

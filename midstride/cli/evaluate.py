"""Evaluate policies, whoever trained them, at any latency.

Each policy plays whole episodes in the environment that it was trained for, once for each
latency that is asked for (default: its own). A policy of others does not say what its
environment is: name it with --env; the latency is 0 unless you ask for another. A row has the
mean return, or the share of episodes that succeed where the environment measures that, with a
95 % interval over episodes. Nothing is written.

examples:
  midstride evaluate runs/aware --latency 0 25ms 50ms
  midstride evaluate runs/aware runs/unaware --episodes 256
  midstride evaluate ppo.zip --env InvertedPendulum-v5 --latency 0 20ms
  midstride evaluate dqn.zip --env CartPole-v1 --step 20ms --latency 0 40ms
  midstride evaluate policy.onnx --env HalfCheetah-v5 --normalize stats.npz
  midstride evaluate my_module:policy --trust --env gym:my_module:MyRobot-v0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console
from rich.table import Column, Table

from midstride.cli import show
from midstride.cli.arguments import Group, Syntax, read
from midstride.scale.words import plain
from midstride.seconds import Time
from midstride.settings import Range, Settings

if TYPE_CHECKING:
    from midstride.envs.learnable import Environment
    from midstride.policies import Policy


@dataclass(frozen=True)
class Options(Settings):
    """What to evaluate, and where."""

    policy: tuple[str, ...]
    """folders of finished runs, or policies of others: a .zip of Stable-Baselines3, an .onnx file,
    with --trust a TorchScript .pt file or module:callable"""
    env: str | None = None
    """environment to play in, in place of a run's own: an ID of Gymnasium (InvertedPendulum-v5;
    module:ID imports the module first), dmc:DOMAIN/TASK or one of our tasks"""
    period: Time | None = None
    """with --env: time between two decisions, where that is not the environment's own"""
    step: Time | None = None
    """with --env: how long a step of the environment lasts, where it does not say it"""
    thinker: str | None = None
    """with --env: pipelined or serial, where a latency is longer than the period"""
    hold: tuple[float, ...] | None = None
    """with --env: the action before the first decision of an episode arrives"""
    normalize: Path | None = None
    """file with mean and var (and epsilon, clip) of the observations in training, where the policy
    saw them normalised: .npz, .safetensors or .json"""
    latency: tuple[str, ...] = ()
    """a row for each: 25ms, episode:0,25ms (drawn at each reset), step:0,25ms (at each step),
    trace:latencies.csv (default: as trained)"""
    episodes: Annotated[int, Range(1)] = 64
    """episodes in each row"""
    seed: Annotated[int, Range(0)] = 1_000_000
    """seed of the first environment; the others count up from it"""
    trust: bool = False
    """run code that comes with a policy (TorchScript, module:callable) or that the files of a run
    name (a task gym:module:ID imports the module): it can do anything"""

    def given(self) -> dict[str, Any]:
        """Settings of the environment that were given beside its name."""
        every = {name: getattr(self, name) for name in ("period", "step", "thinker", "hold")}
        return {name: value for name, value in every.items() if value is not None}


def command(args: Sequence[str], console: Console) -> None:
    usage = "evaluate POLICY... [options]"
    syntax = Syntax("evaluate", usage, __doc__ or "", (Group("options", Options),), ("policy",))
    run(read(Options, syntax, args), console)


def run(options: Options, console: Console) -> None:
    from midstride.latency_text import latency_name
    from midstride.policies import load
    from midstride.policies.fit import fit

    found = []
    for source in options.policy:  # reject what does not fit before anything runs
        environment = environment_of(source, options.env, options.given(), options.trust)
        rows = {latency: at(environment, latency) for latency in options.latency}
        rows = rows or {latency_name(environment.latency): environment}
        policy: Policy = load(source, options.trust, normalize=options.normalize)
        for row in rows.values():
            envs = show.small(row)
            fit(policy, envs.single_observation_space, envs.single_action_space)
            envs.close()
        found.append((source, policy, rows))
    for source, policy, rows in found:
        console.print(_evaluated(source, policy, rows, options, console))


def at(environment: Environment, latency: str) -> Environment:
    """The environment at another latency, measured on the scale that the policy knows."""
    from midstride.latency_text import read_latency
    from midstride.measure.play import at_latency

    changed: dict[str, Any] = {"latency": latency}
    replace(environment, **changed)  # an error in its own words
    return at_latency(environment, read_latency(latency))


def environment_of(
    source: str,
    env: str | None = None,
    given: Mapping[str, Any] | None = None,
    trust: bool = False,
) -> Environment:
    """The environment that `env` names, with settings given, or that of a run, from its record."""
    from midstride.policies.sources import is_foreign
    from midstride.tasks.registry import NAMES, environment_from, environment_of

    if env is not None:
        is_named = env in NAMES or env.startswith(("gym:", "dmc:"))
        # It was typed: what it names is the user's.
        values = {"task": env if is_named else f"gym:{env}", **(given or {})}
        return environment_from(values, trust=True)
    if given:
        raise ValueError(f"--{next(iter(given))} is of an environment that is named: give --env ID")
    if is_foreign(source):
        raise ValueError(f"{source} does not say what its environment is: give it, --env ID")
    return environment_of(Path(source), trust)


def _evaluated(
    source: str,
    policy: Policy,
    rows: dict[str, Environment],
    options: Options,
    console: Console,
) -> Table:
    from midstride.measure.evaluate import evaluate_in

    success = show.success_of(next(iter(rows.values())))
    title = f"{source}: {options.episodes} episodes"
    table = Table("latency", Column(plain(success or "return")), "95 % interval", "episode")
    table.title = plain(title, "table.title")
    with show.bar(console, "evaluating", len(rows) * options.episodes) as update:
        for k, (latency, environment) in enumerate(rows.items()):

            def on_episode(finished: int, before: int = k * options.episodes) -> None:
                update(before + finished)

            found = evaluate_in(
                policy, environment, options.episodes, options.seed, on_episode=on_episode
            )
            values = [e.measures[success] if success else e.total for e in found]
            seconds = sum(episode.seconds for episode in found) / len(found)
            cells = show.summary(values, is_share=success is not None)
            table.add_row(plain(latency), *cells, f"{seconds:.1f} s")
        update(len(rows) * options.episodes)
    return table

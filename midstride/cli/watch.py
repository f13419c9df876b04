"""Film a policy: a trained one, or ones that grasp or catch by a script.

RUN is the folder of a finished run; its policy is filmed in the environment that it is
evaluated in. With grasp instead, a policy that nobody trained moves an arm over a bin of
objects; beside the arm are what its camera sees and a timeline of thought and action. Leaves
an MP4 of all episodes, and for grasping a contact sheet (PNG) of the first, in the output
folder. With catch, three robots side by side are thrown the same balls, beyond the reach of
one that rests while it thinks: that one, one that does not know what is in flight, and one
that knows.

examples:
  midstride watch runs/aware
  midstride watch grasp --mode blocking --objects 5
  midstride watch catch --trained runs/dynamic/trials
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from midstride.cli.arguments import Group, Syntax, asks_for_help, leading_words
from midstride.scale.words import saved
from midstride.settings import Range, Settings, types_of

if TYPE_CHECKING:
    from midstride.envs.learnable import Environment
    from midstride.tasks.grasp.env import GraspVectorEnv
    from midstride.tasks.grasp.settings import GraspSettings
    from midstride.tasks.settings import TaskSettings

USAGE = "\n       midstride ".join(
    ("watch RUN [options]", "watch grasp [options]", "watch catch [options]")
)
SCRIPTED = ("scripted", "blind", "random")


@dataclass(frozen=True)
class Options(Settings):
    """How much, and where to."""

    episodes: Annotated[int, Range(1)] = 3
    """how many episodes"""
    seed: Annotated[int, Range(0)] = 0
    """seed of the first; the others count up from it"""
    output: Path = Path("watch")
    """folder for the film and the picture"""
    trust: bool = False
    """believe the files of the run: a task gym:module:ID in them imports the module, which can do
    anything"""


@dataclass(frozen=True)
class GraspOptions(Options):
    """Who grasps."""

    policy: str = "scripted"
    """scripted: knows where the objects are; blind: goes down at random places; random; or the
    folder of a trained run, which brings its own environment"""
    noise: Annotated[float, Range(0, 1)] = 0.0
    """scripted: how much its displacements are shaken, 0 to 1"""


@dataclass(frozen=True)
class CatchOptions(Options):
    """Who catches."""

    episodes: Annotated[int, Range(1)] = 2
    """how many throws, one after another"""
    trained: Path | None = None
    """folder with the trainings of midstride reproduce dynamic (default: catchers by a script)"""


def command(args: Sequence[str], console: Console) -> None:
    words = leading_words(args)[:1]
    if words == ["catch"]:
        groups = (Group("options", CatchOptions),)
        syntax = Syntax("watch catch", USAGE, __doc__ or "", groups)
        film_catch(CatchOptions(**syntax.read(args[1:])), console)
        return
    if words == ["grasp"]:
        _grasp(args[1:], console)
        return
    groups = (Group("options", Options),)
    if not words and not asks_for_help(args):
        raise ValueError("watch needs the folder of a finished run, grasp or catch")
    syntax = Syntax(" ".join(["watch", *words]), USAGE, __doc__ or "", groups)
    run(Path(*words), Options(**syntax.read(args[1:] if words else args)), console)


def run(folder: Path, options: Options, console: Console) -> None:
    """Film a trained policy."""
    from midstride.tasks.registry import environment_of

    environment = environment_of(folder, options.trust)  # an error now, if it is not a run
    from midstride.report.film import film_run

    path = options.output / f"{folder.resolve().name}.mp4"
    if not film_run(folder, path, options.episodes, options.seed, console, environment):
        raise ValueError(f"{folder} could not be filmed")
    console.print(saved(path))


def _grasp(args: Sequence[str], console: Console) -> None:
    """Film a policy that nobody trained, in a world that the options describe."""
    from midstride.tasks.grasp.settings import GraspSettings

    usual = GraspSettings(objects=3, scenes=64)
    groups = (Group("environment (grasp)", GraspSettings, usual), Group("options", GraspOptions))
    syntax = Syntax("watch grasp", USAGE, __doc__ or "", groups, read_before=("task",))
    given = syntax.read(args)
    ours = {name: given.pop(name) for name in types_of(GraspOptions) if name in given}
    options = GraspOptions(**ours)
    if options.policy in SCRIPTED:
        environment = GraspSettings(**{"objects": 3, "scenes": 64, **given})
        film_scripted(environment, options, console)
        return
    folder = Path(options.policy)
    if not (folder / "config.json").exists():
        raise ValueError(
            f"unknown policy {options.policy!r}: choose from {', '.join(SCRIPTED)}, or give the "
            "folder of a finished run"
        )
    if given:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ValueError(f"a trained run brings its own environment: leave out {names}")
    run(folder, options, console)


def film_scripted(environment: GraspSettings, options: GraspOptions, console: Console) -> None:
    """Episodes of a policy that looks into the world, or looks at nothing."""
    from midstride.report.film import film_grasp
    from midstride.tasks.grasp.env import GraspVectorEnv

    envs = GraspVectorEnv(1, 1, settings=environment)
    choose = chooser(options.policy, options.noise, np.random.default_rng(options.seed))
    path = options.output / f"grasp-{options.policy}-{environment.mode}.mp4"
    film_grasp(envs, choose, path, options.episodes, options.seed, console)
    console.print(saved(path, f", {path.with_suffix('.png').name}"))


def chooser(policy: str, noise: float, rng: np.random.Generator) -> Any:
    """What a policy that nobody trained does on an observation, in an environment."""
    from midstride.tasks.grasp import actions, scripted

    def choose(observation: Any, env: GraspVectorEnv) -> NDArray[np.floating]:
        if policy == "scripted":
            return scripted.privileged(env.world, env.next_latency_ticks(), noise, rng)
        if policy == "blind":
            return scripted.blind(env.world, env.steps_taken, rng)
        drawn = rng.uniform(actions.LOW, actions.HIGH, (1, actions.SIZE))
        drawn[:, actions.TERMINATE] = 0
        return drawn

    return choose


CATCHERS: dict[str, tuple[str, str]] = {  # what is shown, its mode, by the folder of its trainings
    "hold-100-ms": ("hold: rests while it thinks", "hold"),
    "unaware-100-ms": ("unaware of what is in flight", "concurrent"),
    "knowing-what-is-in-flight-100-ms": ("knows what is in flight", "concurrent"),
}
_UNAWARE = "unaware-100-ms"
_MOST_THROWS = 100  # half of them are beyond the reach of hold


def film_catch(options: CatchOptions, console: Console) -> None:
    """Throws beyond the reach of hold, caught or not by three robots side by side."""
    from midstride.report import catch_film
    from midstride.report.film import save_image, save_video

    by = "script" if options.trained is None else "DQN"
    robots = [
        (f"{title} ({by})", *_catcher(options, arm, mode))
        for arm, (title, mode) in CATCHERS.items()
    ]
    films: list[Any] = []
    for seed in range(options.seed, options.seed + _MOST_THROWS * options.episodes):
        throws = [catch_film.play(envs, choose, seed, title) for title, envs, choose in robots]
        if throws[0].beyond_hold:
            shot = [
                (throw, catch_film.pictures(throw, envs))
                for throw, (_, envs, _) in zip(throws, robots, strict=True)
            ]
            films.append(catch_film.film(shot))
        if len(films) == options.episodes:
            break
    path = options.output / "catch.mp4"
    save_video(path, np.concatenate(films), catch_film.FPS)
    save_image(path.with_suffix(".png"), films[0][-1])
    console.print(saved(path, f", {path.with_suffix('.png').name}"))


def _catcher(options: CatchOptions, arm: str, mode: str) -> tuple[Any, Any]:
    """An environment at 100 ms of latency, and who acts in it."""
    from midstride.tasks.catch_scripted import to_the_ball
    from midstride.tasks.env import TaskVectorEnv
    from midstride.tasks.settings import TaskSettings

    if options.trained is None:
        settings = TaskSettings.from_dict(
            {"task": "catch", "latency": "100ms", "actions": "continuous", "mode": mode}
        )
        return (
            TaskVectorEnv(settings, 1, 1, "Disabled"),
            lambda observation, envs: to_the_ball(envs, knows=arm != _UNAWARE),
        )
    from midstride.policies import load
    from midstride.tasks.registry import environment_of

    folder = next(iter(sorted((options.trained / arm).glob("*/config.json"))), None)
    if folder is None:
        raise ValueError(
            f"{options.trained / arm} has no training: run midstride reproduce dynamic"
        )
    policy = load(folder.parent)
    environment = _checked(environment_of(folder.parent, options.trust), folder.parent, arm, mode)
    return (
        TaskVectorEnv(environment, 1, 1, "Disabled"),
        lambda observation, envs: policy(observation),
    )


def _checked(environment: Environment, folder: Path, arm: str, mode: str) -> TaskSettings:
    """The environment of a training; an error if it is not what the title over its film says."""
    from midstride.tasks.settings import TaskSettings

    wanted = f"{folder} is no training of {arm} of midstride reproduce dynamic"
    if not isinstance(environment, TaskSettings) or environment.task != "catch":
        raise ValueError(f"{wanted}: its task is {environment.task}, and not catch")
    timing = environment.timing()
    found = (environment.mode, round(1000 * timing.latency_high_s), bool(environment.knowledge))
    knows = "knowing" in arm
    if found != (mode, 100, knows) or timing.latency_bounds_ticks[0] != round(0.1 / timing.tick_s):
        raise ValueError(
            f"{wanted}: it has mode {found[0]}, latency {environment.latency} and "
            f"{'some' if found[2] else 'no'} knowledge, and not {mode}, 100ms and "
            f"{'some' if knows else 'none'}"
        )
    return environment

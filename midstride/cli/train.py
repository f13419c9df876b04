"""Train an agent in an environment.

The folder runs/NAME then holds everything about the run: config.json (every setting),
metrics.jsonl, result.json, the policy (load it with midstride.load), a checkpoint, curve.png
and video.mp4 (with --engine ray also machines.png). Ctrl-C, SIGTERM and SIGHUP save a
checkpoint, and --resume goes on from it, also with more steps than before.

examples:
  midstride train cartpole --latency 50ms --execution 0 --knowledge vector_to_go --name aware
  midstride train --resume aware --steps 200_000
  midstride train grasp qtopt --engine ray --collectors 8 --updaters 4 --fitters 2 --address auto
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.console import Console
from rich.table import Column, Table

from midstride.cli import show
from midstride.cli.arguments import Group, Syntax, asks_for_help, leading_words, listed, texts_of
from midstride.learn.signals import Interrupted, number_of, word
from midstride.scale.plan import ScaleSettings
from midstride.scale.words import plain, printable, saved
from midstride.settings import Range, Settings, types_of

if TYPE_CHECKING:
    from midstride.learn.agents import Training

USAGE = "train TASK [AGENT] [options]\n       midstride train --resume NAME [options]"
Scale = ScaleSettings | None  # None: in this process
VIDEO_SEED = 2_000_000
_RUNS = Path("runs")


@dataclass(frozen=True)
class Options(Settings):
    """What to do with a training, beside what it is."""

    name: str | None = None
    """name of the run (default: made from task, agent, latency and knowledge)"""
    runs: Path = _RUNS
    """folder that holds the runs"""
    seeds: Annotated[int, Range(1)] = 1
    """train this many, counting up from --seed, side by side on the cores"""
    resume: bool | str = False
    """go on with the run of this name, or of the name that these options make; a finished run is
    not run again, unless --steps is more"""
    video: bool = True
    """film the final policy"""
    tensorboard: bool = False
    """write the metrics for TensorBoard too (needs midstride[tensorboard])"""
    engine: Literal["local", "ray"] = "local"
    """local: in this process; ray: one training of qtopt, sac or dqn spread over a Ray cluster
    (needs midstride[ray]; docs/scale.md)"""
    address: str | None = None
    """address of the Ray cluster, HOST:PORT or auto (default: one is started on this machine)"""
    trust: bool = False
    """--resume: believe the files of the run; a task gym:module:ID in them imports the module,
    which can do anything"""

    @property
    def resumed(self) -> Path | None:
        """The folder that --resume names: a name in `runs`, or a path."""
        if isinstance(self.resume, bool):
            return None
        in_runs, path = self.runs / self.resume, Path(self.resume)
        return path if path.is_dir() and not in_runs.is_dir() else in_runs


def command(args: Sequence[str], console: Console) -> None:
    words = leading_words(args)[:2]
    if not words and asks_for_help(args):
        print(overview())
        return
    if words:
        training, options, scale = new(words, args[len(words) :])
    else:
        training, options, scale = resumed(args)
    run(training, options, scale, console)


def new(words: Sequence[str], args: Sequence[str]) -> tuple[Training, Options, Scale]:
    """A training of a task and an agent that are named."""
    from midstride.learn.agents import Training
    from midstride.tasks.registry import settings_of

    task = words[0]
    agent = words[1] if len(words) > 1 else settings_of(task).recommended_agent
    of_training, options, scale = _read(task, agent, args)
    return Training.of(task, agent, **of_training), options, scale


def resumed(args: Sequence[str]) -> tuple[Training, Options, Scale]:
    """The training of a run folder, and what is asked to be different."""
    from midstride.disk.read import in_file
    from midstride.disk.runs import CONFIG, read_record
    from midstride.learn.agents import Training
    from midstride.tasks.registry import NAMES

    options = _glance(args)
    folder = options.resumed
    if folder is None:
        raise ValueError(
            f"train needs a task first ({', '.join(NAMES)}, gym:ID or dmc:DOMAIN/TASK), "
            "or --resume and the name of a run"
        )
    first = _first_of(folder, options)
    record = read_record(first)
    with in_file(first / CONFIG):
        before = Training.from_dict(record, first, options.trust)
    of_training, options, scale = _read(before.environment.task, before.agent.agent, args)
    return before.with_(**of_training), options, scale


def _glance(args: Sequence[str]) -> Options:
    """What says where the run is, before it is known which other options there are."""
    parser = Syntax("train", USAGE, "", (Group("options", Options),)).parser()
    given: argparse.Namespace = parser.parse_known_args(list(args))[0]
    values: dict[str, Any] = {
        name: getattr(given, name) for name in ("resume", "trust") if hasattr(given, name)
    }
    if hasattr(given, "runs"):
        values["runs"] = Path(given.runs)
    if hasattr(given, "seeds"):
        values["seeds"] = int(given.seeds) if given.seeds.isdecimal() else 1
    return Options(**values)


def _first_of(folder: Path, options: Options) -> Path:
    """The folder with the settings; with several seeds it is inside."""
    several = sorted(folder.glob("seed*/config.json"))
    if (folder / "config.json").exists() or not several:
        return folder
    if options.seeds == 1:
        raise ValueError(f"{folder} holds runs of several seeds: say how many with --seeds")
    return min(several, key=lambda path: (len(path.parent.name), path)).parent


def _read(task: str, agent: str, args: Sequence[str]) -> tuple[dict[str, Any], Options, Scale]:
    """The settings of the training, and the others."""
    from midstride.learn.agent_settings import RunSettings
    from midstride.learn.agents import agent_called
    from midstride.tasks.registry import settings_of

    kind = agent_called(agent)
    syntax = Syntax(
        f"train {task} {agent}",
        USAGE,
        __doc__ or "",
        (
            Group(f"environment ({task})", settings_of(task)),
            Group(f"agent ({agent})", kind.Settings),
            Group("run", RunSettings, kind.run_defaults),
            Group("options", Options),
            Group("many machines (--engine ray)", ScaleSettings),
        ),
        read_before=("task", "agent"),
    )
    values = syntax.read(args)
    ours = {name: values.pop(name) for name in types_of(Options) if name in values}
    scale = {name: values.pop(name) for name in types_of(ScaleSettings) if name in values}
    options = Options(**ours)
    if options.engine == "local":
        _check_local(options, scale)
        return values, options, None
    if options.seeds > 1:
        raise ValueError(
            "--engine ray spreads one training over machines: leave out --seeds, or train whole "
            "ones side by side with midstride sweep --engine ray"
        )
    return values, options, ScaleSettings(**scale)


def _check_local(options: Options, scale: dict[str, Any]) -> None:
    given = [*scale, *(["address"] if options.address is not None else [])]
    if given:
        option = f"--{given[0].replace('_', '-')}"
        raise ValueError(f"{option} is for a training on many machines: add --engine ray")


def overview() -> str:
    """What `midstride train --help` says before it knows a task."""
    from midstride.learn.agents import AGENTS
    from midstride.tasks.registry import NAMES, settings_of

    agents = {
        name: texts_of(kind.Settings)["agent"].removeprefix(f"{name}: ")
        for name, kind in AGENTS.items()
    }
    tasks = {name: f"recommended agent: {settings_of(name).recommended_agent}" for name in NAMES}
    tasks["gym:ID"] = "a Gymnasium environment; gym:module:ID imports your module first"
    tasks["dmc:DOMAIN/TASK"] = "a task of DeepMind Control (needs midstride[dmc])"
    shown = {"task", "agent"}
    options = Syntax("train", USAGE, __doc__ or "", (Group("options", Options),), (), tuple(shown))
    return (
        f"{options.parser().format_help()}\n"
        f"tasks:\n{listed(tasks)}\n\n"
        f"agents (any that fits the environment's actions and observations):\n{listed(agents)}\n\n"
        "The options of an environment, an agent and the run are listed by, for example,\n"
        "  midstride train cartpole dqn --help"
    )


# --- Training ------------------------------------------------------------------------------------


def run(training: Training, options: Options, scale: Scale, console: Console) -> None:
    """Train one seed with a bar, or several side by side; then show, plot and film them."""
    training.check()
    resume = options.resume is not False
    folder = options.resumed or options.runs / (options.name or training.label)
    folders = [folder]
    if options.seeds > 1:
        folders = [folder / f"seed{training.run.seed + k}" for k in range(options.seeds)]
    if options.resumed and not any((each / "config.json").exists() for each in folders):
        raise ValueError(f"there is no run to go on with in {' or '.join(map(str, folders))}")
    try:
        if scale is not None:
            results = [_train_spread(training, folder, resume, options, scale, console)]
        elif options.seeds == 1:
            results = [_train_one(training, folder, resume, options.tensorboard, console)]
        else:
            results = _train_several(training, folders, resume, options.tensorboard, console)
    except KeyboardInterrupt as stop:
        said = _how_to_go_on(stop, folder, folders, options, scale)
        raise Interrupted(said, number_of(stop)) from None
    success = show.success_of(training.environment)
    console.print(_table(dict(zip(folders, results, strict=True)), success))
    parts = sorted(results[0].get("split_s", {}).items(), key=lambda item: -item[1])
    spent = [f"{name} {seconds:.0f} s" for name, seconds in parts if seconds >= 0.5]
    if spent:
        console.print(f"Time: {', '.join(spent)}")
    made = _pictures(training, folder, folders, options.video, console)
    if scale is not None:
        made.append(_picture_of_machines(folder))
    console.print(
        saved(folder, f" ({', '.join(made)}); policy = midstride.load({str(folders[0])!r})")
    )


def _how_to_go_on(
    stop: KeyboardInterrupt,
    folder: Path,
    folders: Sequence[Path],
    options: Options,
    scale: Scale,
) -> str:
    """What is told at an interrupt; a single training has said what it saved."""
    from midstride.disk.runs import checkpoints_in, read_result

    said, what = str(stop), word(number_of(stop))
    if not said and not any(checkpoints_in(each) or read_result(each) for each in folders):
        return f"{what} before there was anything to save"
    where = folder.name if folder.parent == _RUNS else str(folder)
    seeds = f" --seeds {options.seeds}" if options.seeds > 1 else ""
    engine = "" if scale is None else f" --engine ray --collectors {scale.collectors}"
    said = said or f"{what}: what was under way is saved in {folder}"
    return f"{said}; go on with: midstride train --resume {where}{seeds}{engine}"


def _train_one(
    training: Training, folder: Path, resume: bool, tensorboard: bool, console: Console
) -> dict[str, Any]:
    from midstride.learn.train import Progress, train
    from midstride.scale.show import progress_bars, status

    with progress_bars(console) as bars:
        bar = bars.add_task(printable(folder.name), total=training.run.steps, status="starting")

        def on_progress(progress: Progress) -> None:
            bars.update(bar, completed=progress.steps, status=status(progress))

        return train(training, folder, resume, on_progress, tensorboard, keep_checkpoint=True)


def _train_spread(
    training: Training,
    folder: Path,
    resume: bool,
    options: Options,
    scale: ScaleSettings,
    console: Console,
) -> dict[str, Any]:
    from midstride.scale.distributed import train_on_ray
    from midstride.scale.show import live_table

    with live_table(console, folder.name) as show_progress:
        return train_on_ray(
            training,
            folder,
            scale,
            options.address,
            resume,
            show_progress,
            options.tensorboard,
            keep_checkpoint=True,
        )


def _train_several(
    training: Training, folders: Sequence[Path], resume: bool, tensorboard: bool, console: Console
) -> list[dict[str, Any]]:
    from midstride.scale.jobs import Job
    from midstride.scale.show import train_all

    jobs = [
        Job(
            f"seed {training.run.seed + k}",
            training.with_(seed=training.run.seed + k),
            folder,
            unfinished="resume" if resume else "refuse",
            tensorboard=tensorboard,
            keep_checkpoint=True,
        )
        for k, folder in enumerate(folders)
    ]
    return train_all(jobs, console)


def _table(results: dict[Path, dict[str, Any]], success: str | None) -> Table:
    table = Table("run", Column(plain(success or "return")), "95 % interval", "steps", "seconds")
    for folder, result in results.items():
        values = result["measures"][success] if success else result["returns"]
        mean, spread = show.summary(values, is_share=success is not None)
        numbers = (mean, spread, f"{result['steps']:,}", f"{result['seconds']:.0f}")
        table.add_row(plain(folder.name), *numbers)
    return table


def _picture_of_machines(folder: Path) -> str:
    """Draw how the roles of a training on many machines did; the name of the picture."""
    from midstride.report.curves import save_figure
    from midstride.report.machines import plot_machines

    save_figure(folder / "machines.png", plot_machines(folder))
    return "machines.png"


def _pictures(
    training: Training, folder: Path, folders: Sequence[Path], video: bool, console: Console
) -> list[str]:
    """Draw the learning curve, and film the policy if it can be filmed; what was made."""
    from midstride.report.curves import plot_curves, save_figure

    success = show.success_of(training.environment)
    curves = plot_curves({folder.name: folders}, column=success or "evaluation")
    save_figure(folder / "curve.png", curves)
    if not video:
        return ["curve.png"]
    from midstride.report.film import film_run

    path = folder / "video.mp4"
    filmed = film_run(folders[0], path, 4, VIDEO_SEED, console, training.environment)
    return ["curve.png", "video.mp4"] if filmed else ["curve.png"]

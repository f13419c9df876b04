"""The command line. Bad input ends with one sentence and exit code 2, never a traceback."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.table import Table

import midstride
from midstride.extras import MissingExtra, needed_by
from midstride.learn.config import Config, GraspConfig
from midstride.timing import format_s, parse_latency, parse_s

GRASP_EXPERIMENTS = ("table1", "grasp-latencies", "grasp-ablation")
Experiment = Literal[
    "theory", "awareness", "latencies", "figure2a", "figure2b", "scripted", "table1",
    "grasp-latencies", "grasp-ablation",
]  # fmt: skip


def train(
    config: tyro.conf.OmitArgPrefixes[Config],
    name: str | None = None,
    runs: Path = Path("runs"),
    seeds: int = 1,
    resume: bool = False,
    video: bool = True,
    tensorboard: bool = False,
) -> None:
    """Train an agent, and leave a folder with everything about it.

    The folder holds config.json, metrics.jsonl, checkpoints, result.json, the policy (load it with
    midstride.load), curve.png and a video. Ctrl-C saves a checkpoint; --resume goes on from it.
    Grasping has options of its own: midstride train grasp --help.

    Args:
        name: of the run (default: made from task, agent, latency and knowledge)
        runs: folder that holds the runs
        seeds: train this many, counting up from --seed, side by side on the cores
        resume: go on with the run of this name; finished runs are not run again
        video: film the final policy
        tensorboard: write the metrics for TensorBoard too (needs midstride[tensorboard]; then
            tensorboard --logdir runs)
    """
    from midstride.paper import studio

    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    studio.train_and_show(
        config,
        runs / (name or studio.name_of(config)),
        seeds,
        resume,
        video,
        tensorboard,
        Console(),
    )


def train_grasp(
    config: tyro.conf.OmitArgPrefixes[GraspConfig],
    row: int | None = None,
    name: str | None = None,
    runs: Path = Path("runs"),
    seeds: int = 1,
    resume: bool = False,
    video: bool = True,
    tensorboard: bool = False,
) -> None:
    """Train QT-Opt to grasp, and leave a folder with everything about it.

    The folder holds config.json, metrics.jsonl, checkpoints, result.json, the policy (load it with
    midstride.load), curve.png and a video. Ctrl-C saves a checkpoint; --resume goes on from it.

    Args:
        row: of the paper's Table 1, 1 to 7: sets mode, step penalty and knowledge
        name: of the run (default: made from mode, latency and knowledge)
        runs: folder that holds the runs
        seeds: train this many, counting up from --seed, side by side on the cores
        resume: go on with the run of this name; finished runs are not run again
        video: film the final policy
        tensorboard: write the metrics for TensorBoard too (needs midstride[tensorboard])
    """
    from midstride.paper import studio
    from midstride.paper.table1 import check_rows_decide, row_config

    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    if row is not None:
        check_rows_decide(config)
        config = row_config(config, row)
        name = name or f"grasp-row{row}"
    folder = runs / (name or studio.name_of(config))
    studio.train_and_show(config, folder, seeds, resume, video, tensorboard, Console())


def evaluate(
    run: Annotated[Path, tyro.conf.Positional],
    latency: tuple[str, ...] = (),
    episodes: int = 64,
    seed: int = 1_000_000,
) -> None:
    """Evaluate a trained policy: returns with bootstrap intervals, at any latency.

    Args:
        run: folder of a finished run
        latency: one row for each (25ms, episode:0,25ms ...; default: as trained)
        episodes: in each row
        seed: of the first environment; the others count up from it
    """
    from midstride.paper import studio

    if episodes < 1 or seed < 0:
        raise ValueError("episodes must be at least 1 and seed at least 0")
    studio.evaluate_and_show(run, latency, episodes, seed, Console())


def demo(steps: int = 80_000, seed: int = 0, output: Path = Path("demo")) -> None:
    """See that latency breaks a policy, and that knowing what is in flight heals it.

    Three trainings on Cartpole: with the world waiting (blocking), with 50 ms of latency and no
    idea of it, and with the same latency and vector-to-go. Bars, a table, curves.png and video.mp4.
    Interrupted, it goes on where it was.

    Args:
        steps: environment steps of each training
        seed: of all three
        output: folder for runs, table, curves and video
    """
    from midstride.paper import studio

    studio.demo(steps, seed, output, Console())


def latency(
    latencies: tuple[str, ...] = ("0", "10ms", "20ms", "30ms", "40ms", "50ms", "60ms"),
    period: str = "60ms",
    episodes: int = 64,
    seed: int = 0,
    output: Path = Path("latency"),
) -> None:
    """See what latency does to a controller that nobody trained. Under a minute.

    A hand-written swing-up and balance controller runs on Cartpole at each latency, once on what
    it observed and once on what it knows about the action in flight.

    Args:
        latencies: from an observation to the switch to the action chosen on it (25ms, 0.025)
        period: from one observation to the next
        episodes: at each latency
        seed: of the first episode; the others count up from it
        output: folder for the picture
    """
    from midstride.paper import controller

    if episodes < 2:
        raise ValueError(f"episodes must be at least 2, for an interval, got {episodes}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    if not latencies:
        raise ValueError("give at least one latency")
    latencies_s = [parse_s(text) for text in latencies]
    controller.compare(latencies_s, parse_s(period), episodes, seed, output, Console())


def describe(
    task: Annotated[str, tyro.conf.Positional],
    latency: str = "0",
    execution: str | None = None,
    period: str | None = None,
    knowledge: tuple[str, ...] = (),
    actions: str = "5",
    stack_observations: int = 0,
    stack_actions: int = 0,
    tick: str = "5ms",
) -> None:
    """Show an environment: its timing, its actions, and every column of its observation.

    Args:
        task: pointmass, cartpole or pendulum
        latency: 25ms, or episode:0,5ms,25ms or step:0,5ms,25ms or trace:latencies.csv
        execution: how long a new action has run at the next observation; or
        period: from one observation to the next (default: the task's own)
        knowledge: any of previous_action, selection_time, vector_to_go
        actions: discrete displacements, 3 to 8, or 'continuous'
        stack_observations: how many previous observations are observed too, 0 to 4
        stack_actions: how many previous actions are observed too, 0 to 4
        tick: physics timestep; every other time is a whole number of ticks
    """
    from midstride.tasks.env import TaskVectorEnv

    if actions != "continuous" and not actions.isdecimal():
        raise ValueError(f"actions must be a whole number or 'continuous', got {actions!r}")
    env = TaskVectorEnv(
        task,
        latency=parse_latency(latency),
        execution=None if execution is None else parse_s(execution),
        period=None if period is None else parse_s(period),
        knowledge=knowledge,
        actions="continuous" if actions == "continuous" else int(actions),
        stack_observations=stack_observations,
        stack_actions=stack_actions,
        tick=parse_s(tick),
    )
    timing = env.timing
    low, high = (format_s(ticks * timing.tick_s) for ticks in timing.latency_bounds_ticks)
    if timing.period_s is not None:
        rhythm = f"an observation every {format_s(timing.period_s)}"
    else:
        rhythm = f"an observation {format_s(timing.execution_s or 0.0)} after each switch"
    console = Console()
    console.print(
        f"[bold]{task}[/bold]: latency {low if low == high else f'{low} to {high}'}, {rhythm}, "
        f"physics ticks of {format_s(timing.tick_s)}, episodes of "
        f"{format_s(env.task.time_limit_s)}, actions {env.single_action_space}"
    )
    table = Table("column", "name", "part", title="observation")
    number = 0
    for block, names in env.layout.blocks.items():
        for name in names:
            table.add_row(str(number), name, block.replace("_", " "))
            number += 1
    console.print(table)


def sweep(
    spec: Annotated[str, tyro.conf.Positional],
    trials: int | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    workers: int | None = None,
    output: Path | None = None,
    retry_failed: bool = False,
) -> None:
    """Train over a space of hyperparameters, in pairs; interrupted, it goes on where it was.

    SPEC is a TOML file (docs/sweeps.md says how to write one), or figure2a or figure2b. The output
    folder holds the run of every trial, table.csv and report.html.

    Args:
        spec: what to sweep: a file, or the name of one that comes with midstride
        trials: random draws in each arm (default: all combinations)
        engine: local: one process per core; ray: tasks on a Ray cluster (needs midstride[ray])
        address: of the Ray cluster, HOST:PORT or auto (default: start one on this machine)
        workers: processes at once (default: one per core)
        output: folder of the sweep (default: sweeps/NAME)
        retry_failed: run failed trials again
    """
    from midstride.report import page
    from midstride.sweep.engine import make_engine, run_sweep
    from midstride.sweep.spec import read_spec

    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    console = Console()
    read = read_spec(spec)
    folder = output or Path("sweeps") / read.name
    run_sweep(read, trials, folder, make_engine(engine, workers, address), console, retry_failed)
    page.write_report(folder, console)


def report(folder: Annotated[Path, tyro.conf.Positional] = Path()) -> None:
    """Make the plots, statistics and the page of a sweep again, from its table alone.

    Args:
        folder: of a sweep: it holds table.csv
    """
    from midstride.report import page

    page.write_report(folder, Console())


def reproduce(
    experiment: Annotated[Experiment, tyro.conf.Positional],
    task: Literal["cartpole", "pendulum", "pointmass"] = "cartpole",
    agent: Literal["dqn", "drqn"] = "dqn",
    seeds: int = 3,
    steps: int = 100_000,
    trials: int = 32,
    episodes: int = 500,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    output: Path | None = None,
    runs: Path = Path("runs"),
) -> None:
    """Make one of the paper's results again. Interrupted, it goes on where it was.

    Args:
        experiment: theory: which knowledge is necessary and sufficient, exactly (seconds);
            awareness: blocking control against 50 ms of latency with and without knowledge;
            latencies: one policy for latencies of 0 to 50 ms, drawn per episode;
            figure2a, figure2b: the paper's sweeps of Cartpole and Pendulum (hours on a laptop);
            scripted: grasping without learning, blocking and concurrent (minutes);
            table1: QT-Opt on grasping, seven rows; grasp-latencies: how the gap depends on
            latency; grasp-ablation: what is ours and not the paper's (hours on a laptop). These
            have options of their own: midstride reproduce table1 --help
        task: of awareness and latencies
        agent: of awareness and latencies
        seeds: of awareness and latencies: trainings of each kind
        steps: of awareness and latencies: environment steps of each training
        trials: of figures: draws of hyperparameters, each trained in every arm
        engine: of figures: local, or ray (needs midstride[ray])
        episodes: of scripted: how many of each kind
        address: of figures: the Ray cluster, HOST:PORT or auto (default: start one here)
        output: folder for table, plot and configuration (default: results/EXPERIMENT...)
        runs: folder for the trainings
    """
    from midstride.paper import experiments, theory

    if experiment in GRASP_EXPERIMENTS:
        raise ValueError(
            f"{experiment} has options of its own: write midstride reproduce {experiment} --..."
        )
    if experiment == "theory":
        theory.reproduce(output or Path("results") / experiment, Console())
        return
    if experiment in ("figure2a", "figure2b"):
        from midstride.sweep.engine import make_engine

        experiments.figure(
            experiment,
            trials,
            make_engine(engine, None, address),
            output or Path("results") / experiment,
            runs / experiment,
            Console(),
        )
        return
    if experiment == "scripted":
        if episodes < 1:
            raise ValueError(f"episodes must be at least 1, got {episodes}")
        experiments.scripted(episodes, output or Path("results") / "grasp-scripted", Console())
        return
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    name = f"{experiment}-{task}-{agent}"
    run = experiments.awareness if experiment == "awareness" else experiments.latencies
    run(
        Config(task=task, agent=agent, steps=steps),
        seeds,
        output or Path("results") / name,
        runs / f"{name}-{steps}",
        Console(),
    )


def reproduce_table1(
    config: tyro.conf.OmitArgPrefixes[GraspConfig],
    seeds: int = 3,
    rows: tuple[int, ...] = (),
    output: Path | None = None,
    runs: Path = Path("runs"),
    video: bool = True,
) -> None:
    """Make the paper's Table 1: QT-Opt grasps in seven ways, blocking and concurrent.

    Hours on a laptop. Every row is trained with every seed, side by side on the cores; killed or
    interrupted, it goes on where it was, and finished trainings are never run again. Writes the
    table beside the paper's numbers (table.md, table.csv, table.png), what differs from row 2
    (comparison.md), episodes.csv, curves.png, cost.md and a video of each row. The options
    below are the same for all rows; mode, step penalty and knowledge are what the rows differ in.

    Args:
        seeds: trainings of each row
        rows: which (default: all seven)
        output: folder for table, plots and videos (default: results/table1...)
        runs: folder for the trainings
        video: film the first seed of each row
    """
    from midstride.paper import table1

    chosen = tuple(sorted(set(rows))) or tuple(table1.ROWS)
    part = "" if chosen == tuple(table1.ROWS) else f"-rows-{'-'.join(map(str, chosen))}"
    folder = _study_folder(f"table1{part}", config, seeds, output)
    table1.table1(config, chosen, seeds, folder, runs / "grasp", video, Console())


def reproduce_grasp_latencies(
    config: tyro.conf.OmitArgPrefixes[GraspConfig],
    latencies: tuple[str, ...] = (),
    seeds: int = 3,
    output: Path | None = None,
    runs: Path = Path("runs"),
) -> None:
    """How the gap of Table 1 depends on latency: rows 4 and 5, trained at each.

    Killed or interrupted, it goes on where it was. Writes table.md, gap.md, latencies.png,
    episodes.csv, curves.png and cost.md.

    Args:
        latencies: to train at, each (default: five from 60ms to 240ms)
        seeds: trainings of each kind
        output: folder for table and plots (default: results/grasp-latencies...)
        runs: folder for the trainings
    """
    from midstride.paper import grasp_studies

    folder = _study_folder("grasp-latencies", config, seeds, output)
    chosen = latencies or grasp_studies.LATENCIES
    grasp_studies.latencies(config, chosen, seeds, folder, runs / "grasp", Console())


def reproduce_grasp_ablation(
    config: tyro.conf.OmitArgPrefixes[GraspConfig],
    seeds: int = 3,
    output: Path | None = None,
    runs: Path = Path("runs"),
) -> None:
    """What is ours and not the paper's, taken away one at a time from row 5 of Table 1.

    Killed or interrupted, it goes on where it was. Writes table.md, difference.md, episodes.csv,
    curves.png and cost.md.

    Args:
        seeds: trainings of each kind
        output: folder for table and plots (default: results/grasp-ablation...)
        runs: folder for the trainings
    """
    from midstride.paper import grasp_studies

    folder = _study_folder("grasp-ablation", config, seeds, output)
    grasp_studies.ablation(config, seeds, folder, runs / "grasp", Console())


def _study_folder(experiment: str, config: GraspConfig, seeds: int, output: Path | None) -> Path:
    from midstride.paper import table1

    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    table1.check_rows_decide(config)
    return output or Path("results") / "-".join([experiment, *table1.unusual(config)])


def watch(
    world: Annotated[Literal["grasp"], tyro.conf.Positional],
    policy: str = "scripted",
    mode: Literal["concurrent", "blocking"] = "concurrent",
    latency: str = "100ms",
    period: str | None = None,
    objects: int = 3,
    object_set: Literal["train", "held_out", "household"] = "train",
    noise: float = 0.0,
    episodes: int = 3,
    seed: int = 0,
    output: Path = Path("watch"),
) -> None:
    """Film a policy: the arm, what its camera sees, and a timeline of thought and action.

    Writes an MP4 of all episodes and a contact sheet (PNG) of the first.

    Args:
        world: grasp: an arm over a bin of objects
        policy: scripted: knows where the objects are; blind: down at random places; random; or the
            folder of a trained run, which brings its own mode, latency and objects
        mode: concurrent: the arm moves on while the policy thinks; blocking: it stands still
        latency: from an observation to the switch to the action chosen on it: 100ms, or
            episode:0,100ms (drawn at each reset), step:0,100ms (at each step), trace:FILE.csv
        period: concurrent: from one observation to the next (default 300ms)
        objects: in the bin, 1 to 5
        object_set: train, held_out (other shapes of the same kinds) or household (mug, banana...)
        noise: scripted: how much its displacements are shaken, 0 to 1
        episodes: how many
        seed: of the first; they count up
        output: folder for the film and the picture
    """
    from midstride.paper import studio

    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    if not 0 <= noise <= 1:
        raise ValueError(f"noise must be from 0 to 1, got {noise}")
    options = {
        "mode": mode,
        "latency": parse_latency(latency),
        "period": None if period is None else parse_s(period),
        "objects": objects,
        "object_set": object_set,
    }
    studio.watch_grasp(options, policy, noise, episodes, seed, output, Console())


def main(args: list[str] | None = None) -> None:
    """Entry point of the `midstride` command."""
    given = list(sys.argv[1:] if args is None else args)
    if given == ["--version"]:
        print(f"midstride {midstride.__version__}")
        return
    reproducing: Any = reproduce
    if given[:1] == ["reproduce"] and given[1:2] and given[1] in GRASP_EXPERIMENTS:
        studies = (reproduce_table1, reproduce_grasp_latencies, reproduce_grasp_ablation)
        reproducing = dict(zip(GRASP_EXPERIMENTS, studies, strict=True))[given[1]]
        given[1] = "grasp"  # the task that its configuration names
    try:
        needed_by("this command")(tyro.extras.subcommand_cli_from_dict)(
            {
                "demo": demo,
                "train": train_grasp if given[:2] == ["train", "grasp"] else train,
                "evaluate": evaluate,
                "sweep": sweep,
                "report": report,
                "reproduce": reproducing,
                "latency": latency,
                "describe": describe,
                "watch": watch,
            },
            prog="midstride",
            description="Reinforcement learning for machines that think while they move.",
            args=given,
        )
    except (ValueError, OSError, RuntimeError, MemoryError, MissingExtra) as error:
        print(f"midstride: {error or 'not enough memory'}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)

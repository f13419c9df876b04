"""What the command line does with trainings: run them, show them, film them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from midstride.disk.runs import read_config
from midstride.envs.vector import available_cores
from midstride.learn.config import AnyConfig, Config, GraspConfig
from midstride.learn.train import Progress, check, train
from midstride.measure.evaluate import EVALUATION_SCENES, evaluate, interval, share_interval
from midstride.policies import load
from midstride.report import grasp_film
from midstride.report.curves import plot_curves, save_figure
from midstride.report.video import film, save_image, save_video, side_by_side, titled
from midstride.scale.local import Job, progress_bars, status, train_all
from midstride.tasks.grasp.env import GraspVectorEnv
from midstride.tasks.make import make_envs
from midstride.timing import parse_latency

VIDEO_SEED = 2_000_000


def name_of(config: AnyConfig) -> str:
    """A name for a run, from what sets it apart."""
    knows = "+".join(config.knowledge) or "none"
    latency = config.latency.replace(":", "_").replace(",", "_").replace("/", "_")
    task = config.task.replace(":", "_").replace("/", "_")
    mode = f"-{config.mode}" if isinstance(config, GraspConfig) else ""
    return f"{task}-{config.agent}{mode}-latency_{latency}-knows_{knows}"


def train_and_show(
    config: AnyConfig,
    folder: Path,
    seeds: int,
    resume: bool,
    video: bool,
    tensorboard: bool,
    console: Console,
) -> None:
    """Train one seed with a bar, or several side by side; then picture and film them."""
    check(config)
    if seeds == 1:
        folders = [folder]
        with progress_bars(console) as bars:
            bar = bars.add_task(folder.name, total=config.steps, status="starting")

            def show(progress: Progress) -> None:
                bars.update(bar, completed=progress.steps, status=status(progress))

            results = [train(config, folder, resume, show, tensorboard)]
    else:
        jobs = [
            Job(
                f"seed {s}",
                replace(config, seed=s),
                folder / f"seed{s}",
                unfinished="resume" if resume else "refuse",
                tensorboard=tensorboard,
            )
            for s in range(config.seed, config.seed + seeds)
        ]
        folders = [job.folder for job in jobs]
        results = train_all(jobs, console)
    console.print(_result_table(dict(zip(folders, results, strict=True))))
    if "split_s" in results[0]:
        parts = sorted(results[0]["split_s"].items(), key=lambda item: -item[1])
        console.print("Time: " + ", ".join(f"{name} {s:.0f} s" for name, s in parts if s >= 0.5))
    column = "success" if isinstance(config, GraspConfig) else "evaluation"
    save_figure(folder / "curve.png", plot_curves({folder.name: folders}, column=column))
    if video and isinstance(config, GraspConfig):
        film_run(folders[0], 4, VIDEO_SEED, folder / "video", console)
    elif video:
        assert isinstance(config, Config)
        frames, fps = film(load(folders[0]), config, seconds=20, seed=VIDEO_SEED)
        save_video(folder / "video.mp4", frames, fps)
    made = "curve.png, video.mp4" if video else "curve.png"
    console.print(f"Saved: [bold]{folder}[/bold] ({made}); policy = midstride.load('{folders[0]}')")


def _result_table(results: dict[Path, dict[str, Any]]) -> Table:
    measured = any("measures" in result for result in results.values())
    table = Table("run", "success" if measured else "return", "95 % interval", "steps", "seconds")
    for folder, result in results.items():
        mean, (low, high), form = result["mean_return"], result["interval"], ".0f"
        if measured:
            grasped = result["measures"]["success"]
            mean, (low, high), form = float(np.mean(grasped)), share_interval(grasped), ".1%"
        table.add_row(
            folder.name,
            f"{mean:{form}}",
            f"{low:{form}} to {high:{form}}",
            f"{result['steps']:,}",
            f"{result['seconds']:.0f}",
        )
    return table


def evaluate_and_show(
    folder: Path, latencies: Sequence[str], episodes: int, seed: int, console: Console
) -> None:
    """A row for each latency: mean return, bootstrap interval, length of an episode."""
    config, policy = read_config(folder), load(folder)
    models = {text: parse_latency(text) for text in latencies or (config.latency,)}
    for model in models.values():
        make_envs(config, 1, model)  # reject what does not fit before anything runs
    measured = isinstance(config, GraspConfig)
    table = Table(
        "latency",
        "success" if measured else "return",
        "95 % interval",
        "episode",
        title=f"{folder}: {episodes} episodes",
    )
    with progress_bars(console) as bars:
        bar = bars.add_task("evaluating", total=len(models) * episodes, status="")
        for i, (text, model) in enumerate(models.items()):

            def show(finished: int, done: int = i * episodes) -> None:
                bars.update(bar, completed=done + finished)

            found = evaluate(policy, config, episodes, model, seed, on_episode=show)
            totals = [e.measures["success"] if measured else e.total for e in found]
            low, high = share_interval(totals) if measured else interval(totals)
            seconds = sum(episode.seconds for episode in found) / len(found)
            mean = sum(totals) / len(totals)
            form = ".1%" if measured else ".1f"
            spread = f"{low:{form}} to {high:{form}}"
            table.add_row(text, f"{mean:{form}}", spread, f"{seconds:.1f} s")
        bars.update(bar, completed=len(models) * episodes)
    console.print(table)


# --- The demo ------------------------------------------------------------------------------------

DEMO = {
    "blocking": Config(period="50ms"),
    "50 ms, unaware": Config(latency="50ms", execution="0"),
    "50 ms, knows vector-to-go": Config(latency="50ms", execution="0", knowledge=("vector_to_go",)),
}


def demo(steps: int, seed: int, output: Path, console: Console) -> None:
    """Train the three, show returns, curves, and the policies side by side."""
    jobs = [
        Job(
            name,
            replace(config, steps=steps, seed=seed),
            output / f"{steps}-{seed}" / str(i),
            unfinished="resume",
        )
        for i, (name, config) in enumerate(DEMO.items())
    ]
    started_before = any((job.folder / "config.json").exists() for job in jobs)
    console.print(
        f"Cartpole swing-up, {steps:,} steps each. The world waits (blocking), or moves on for "
        "50 ms while the policy thinks, which it may know about or not."
    )
    if started_before:
        console.print("These trainings were started before: finished ones are taken as they are.")
    results = train_all(jobs, console)
    table = Table(title="Return of the trained policy (of 1000)")
    for heading in ("agent", "return", "95 % interval", "of blocking"):
        table.add_column(heading, justify="left" if heading == "agent" else "right")
    blocking = results[0]["mean_return"]
    for job, result in zip(jobs, results, strict=True):
        low, high = result["interval"]
        mean = result["mean_return"]
        share = f"{mean / blocking:.0%}"
        table.add_row(job.name, f"{mean:.0f}", f"{low:.0f} to {high:.0f}", share)
    console.print(table)
    groups = {job.name: [job.folder] for job in jobs}
    save_figure(output / "curves.png", plot_curves(groups, "Cartpole swing-up"))
    films = []
    for job, result in zip(jobs, results, strict=True):
        assert isinstance(job.config, Config)
        frames, fps = film(load(job.folder), job.config, seconds=10, seed=VIDEO_SEED)
        films.append(titled(frames, f"{job.name}: {result['mean_return']:.0f}"))
    save_video(output / "video.mp4", side_by_side(films), fps)
    console.print(f"Saved: [bold]{output}[/bold]/curves.png, video.mp4")


# --- Watching ------------------------------------------------------------------------------------


SCRIPTED = ("scripted", "blind", "random")


def watch_grasp(
    options: dict[str, Any],
    policy: str,
    noise: float,
    episodes: int,
    seed: int,
    output: Path,
    console: Console,
) -> None:
    """Film episodes of grasping: a video of all, a contact sheet of the first.

    policy: one of SCRIPTED, or the folder of a trained run, which has its own options
    """
    from midstride.tasks.grasp import actions, scripted

    rng = np.random.default_rng(seed)
    if policy not in SCRIPTED and not (Path(policy) / "config.json").exists():
        raise ValueError(
            f"unknown policy {policy!r}: choose from {', '.join(SCRIPTED)}, or give the folder of "
            "a finished run"
        )
    if policy not in SCRIPTED:
        film_run(Path(policy), episodes, seed, output / "video", console)
        return
    env = GraspVectorEnv(1, autoreset_mode="Disabled", scenes=64, **options)

    def choose(observation: Any, env: GraspVectorEnv) -> NDArray[np.floating]:
        if policy == "scripted":
            return scripted.privileged(env.world, env.next_latency_ticks(), noise, rng)
        if policy == "blind":
            return scripted.blind(env.world, env.steps_taken, rng)
        drawn = rng.uniform(actions.LOW, actions.HIGH, (1, actions.SIZE))
        drawn[:, actions.TERMINATE] = 0
        return drawn

    _film(env, choose, episodes, seed, output / f"grasp-{policy}-{env.mode}", console)


def film_run(folder: Path, episodes: int, seed: int, path: Path, console: Console) -> None:
    """Film a trained grasping policy on the objects that it is evaluated with.

    path: of the film and the contact sheet, without their endings
    """
    config, policy = read_config(folder), load(folder)
    if not isinstance(config, GraspConfig):
        raise ValueError(f"{folder} holds a run of {config.task}, not of grasp")
    env = make_envs(config, 1, evaluation=EVALUATION_SCENES)
    env.autoreset_mode = AutoresetMode.DISABLED

    def choose(observation: Any, env: GraspVectorEnv) -> NDArray[np.floating]:
        return np.asarray(policy(observation))

    _film(env, choose, episodes, seed, path, console)


def _film(
    env: GraspVectorEnv,
    choose: grasp_film.Choose,
    episodes: int,
    seed: int,
    path: Path,
    console: Console,
) -> None:
    table = Table("episode", "grasped", "seconds", "decisions")
    films = []
    with progress_bars(console) as bars:
        bar = bars.add_task("filming", total=episodes, status="")
        for k in range(episodes):
            episode = grasp_film.play(env, choose, seed + k)
            pictures = grasp_film.pictures(episode, env, available_cores())
            films.append(grasp_film.film(episode, pictures))
            if k == 0:
                save_image(path.with_suffix(".png"), grasp_film.contact_sheet(episode, pictures))
            grasped = "yes" if episode.success else "no"
            table.add_row(str(k), grasped, f"{episode.end_s:.1f}", str(len(episode.views)))
            bars.update(bar, completed=k + 1)
    save_video(path.with_suffix(".mp4"), np.concatenate(films), grasp_film.FPS)
    console.print(table)
    console.print(f"Saved: [bold]{path}[/bold].mp4, .png")

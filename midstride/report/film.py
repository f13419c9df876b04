"""Films of policies, rendered without OpenGL, whatever the environment.

Environments draw themselves (`render`). Grasping has a film of its own, with a timeline of thought
and action (`grasp_film.py`); `Environment.filmed` says which kind an environment gets.
"""

from __future__ import annotations

import errno
import math
import os
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from gymnasium.vector import AutoresetMode
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from midstride.disk.files import NotWritten, part_of, write_whole
from midstride.envs.checks import available_cores
from midstride.envs.learnable import Environment
from midstride.envs.vector import interact
from midstride.measure.evaluate import EVALUATION_SCENE_SEED, check_observation
from midstride.policies import Policy, load
from midstride.report import grasp_film
from midstride.scale.words import label, printable
from midstride.tasks.grasp.env import GraspVectorEnv
from midstride.tasks.registry import environment_of

Frames = NDArray[np.uint8]  # (time, height, width, 3)
OnFrame = Callable[[float], None]  # told the share of the film that is done
SECONDS = 20.0  # of an episode, at most
_MOST_FPS = 25.0


def film(
    policy: Policy,
    environment: Environment,
    seconds: float,
    seed: int,
    on_frame: OnFrame = lambda share: None,
) -> tuple[Frames, float]:
    """Pictures of the captures of an episode, at most 25 per second, and their rate per second."""
    envs = environment.make(1, render_mode="rgb_array")
    check_observation(policy, envs)
    period_s = envs.timing.shortest_period_ticks * envs.timing.tick_s
    stride = max(1, math.ceil(1 / (_MOST_FPS * period_s) - 1e-6)) if period_s > 0 else 1
    frames: list[NDArray[np.uint8]] = []
    steps, elapsed_s = 0, 0.0

    def act(observation: Any) -> tuple[NDArray[Any], dict[str, NDArray[Any]]]:
        if steps % stride == 0:  # here, before an episode that ends begins anew
            frames.append(envs.render()[0])
            on_frame(min(1.0, elapsed_s / seconds))
        return policy(observation), {}

    policy.reset()
    for step in interact(envs, act, seed, policy.reset):
        steps += 1
        elapsed_s += float(step.period_s[0])
        if elapsed_s >= seconds or step.done.any():
            break
    envs.close()
    on_frame(1.0)
    return np.array(frames), steps / (stride * elapsed_s) if elapsed_s > 0 else _MOST_FPS


def film_run(
    folder: Path,
    path: Path,
    episodes: int,
    seed: int,
    console: Console,
    environment: Environment | None = None,
    median: bool = False,
) -> bool:
    """Film the policy of a run where it is evaluated; whether that could be done.

    path: of the film and its picture, without their endings
    environment: that of the run, where the caller has it from elsewhere than its files
    median: show of grasping only the median episode, failures being the longest

    What cannot be filmed is said on the
    console, and is no error: a training is not lost for a film.
    """
    policy = load(folder)
    environment = environment or environment_of(folder)
    judged = environment.for_evaluation(EVALUATION_SCENE_SEED)
    try:
        if environment.filmed == "timeline":
            _film_timeline(policy, judged, path, episodes, seed, console, median)
        else:
            _film_pictures(policy, judged, path, episodes, seed, console)
    except NotWritten:  # of no kind of film
        raise
    except (ValueError, RuntimeError, OSError, ImportError, mujoco.FatalError) as error:
        console.print(printable(f"{folder} is not filmed: {error}"), markup=False)
        return False
    return True


def _film_pictures(
    policy: Policy, environment: Environment, path: Path, episodes: int, seed: int, console: Console
) -> None:
    """Episodes one after another, and a picture from the middle of the first."""
    films: list[tuple[Frames, float]] = []
    with _bar(console) as bars:
        bar = bars.add_task("filming", total=episodes)
        for k in range(episodes):

            def show(share: float, done: int = k) -> None:
                bars.update(bar, completed=done + share)

            films.append(film(policy, environment, SECONDS, seed + k, show))
    frames, fps = films[0]
    save_video(path.with_suffix(".mp4"), np.concatenate([f for f, _ in films]), fps)
    save_image(path.with_suffix(".png"), frames[len(frames) // 2])


def _film_timeline(
    policy: Policy,
    environment: Environment,
    path: Path,
    episodes: int,
    seed: int,
    console: Console,
    median: bool,
) -> None:
    envs: Any = environment.make(1)
    check_observation(policy, envs)
    policy.reset()

    def choose(observation: Any, envs: Any) -> NDArray[Any]:
        return policy(observation)

    if median:
        seed, episodes = median_seed(envs, choose, policy.reset, seed, episodes), 1
        policy.reset()
    film_grasp(envs, choose, path, episodes, seed, console)


def median_seed(
    envs: GraspVectorEnv,
    choose: grasp_film.Choose,
    reset: Callable[[], None],
    seed: int,
    episodes: int,
) -> int:
    """The seed of the median of some episodes, by duration; failures are longer than successes."""
    envs.autoreset_mode = AutoresetMode.DISABLED
    found = []
    for one in range(seed, seed + episodes):
        reset()
        episode = grasp_film.play(envs, choose, one)
        found.append((not episode.success, episode.end_s, one))
    return sorted(found)[len(found) // 2][-1]


def film_grasp(
    envs: GraspVectorEnv,
    choose: grasp_film.Choose,
    path: Path,
    episodes: int,
    seed: int,
    console: Console,
) -> None:
    """Film episodes of grasping with their timelines; a contact sheet (PNG) of the first."""
    envs.autoreset_mode = AutoresetMode.DISABLED
    table = Table("episode", "grasped", "seconds", "decisions")
    films = []
    with _bar(console) as bars:
        bar = bars.add_task("filming", total=episodes)
        for k in range(episodes):
            episode = grasp_film.play(envs, choose, seed + k)
            pictures = grasp_film.pictures(episode, envs, available_cores())
            films.append(grasp_film.film(episode, pictures))
            if k == 0:
                save_image(path.with_suffix(".png"), grasp_film.contact_sheet(episode, pictures))
            grasped = "yes" if episode.success else "no"
            table.add_row(str(k), grasped, f"{episode.end_s:.1f}", str(len(episode.views)))
            bars.update(bar, completed=k + 1)
    save_video(path.with_suffix(".mp4"), np.concatenate(films), grasp_film.FPS)
    console.print(table)


def _bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(compact=True))
    return Progress(*columns, console=console, transient=True)


def titled(frames: Frames, title: str) -> Frames:
    """Frames under a line of text."""
    height, width = 28, frames.shape[2]
    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    canvas = FigureCanvasAgg(figure)
    figure.text(0.5, 0.45, label(title), ha="center", va="center", fontsize=9)
    with warnings.catch_warnings():  # signs that the font has not are boxes
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        canvas.draw()
    band = np.asarray(canvas.buffer_rgba())[..., :3]
    bands = np.broadcast_to(band, (len(frames), *band.shape))
    return np.concatenate([bands, frames], axis=1)


def side_by_side(films: list[Frames]) -> Frames:
    """Films next to each other; one that ends before others stays at its last picture, paled."""
    length = max(len(film) for film in films)
    return np.concatenate([_stayed(film, length) for film in films], axis=2)


def _stayed(film: Frames, length: int) -> Frames:
    """A film made as long as another one."""
    last = (film[-1:].astype(np.uint16) + 255) // 2
    return np.concatenate([film, np.repeat(last.astype(np.uint8), length - len(film), axis=0)])


def save_image(path: Path, image: NDArray[np.uint8]) -> None:
    import imageio.v3

    write_whole(path, imageio.v3.imwrite("<bytes>", image, extension=".png"))


def save_video(path: Path, frames: Frames, fps: float) -> None:
    """Write an MP4, completely or not at all; even sizes, as codecs want them."""
    from imageio_ffmpeg import get_ffmpeg_exe

    even = frames[:, : frames.shape[1] // 2 * 2, : frames.shape[2] // 2 * 2]
    _, height, width, _ = even.shape
    with part_of(path) as (_, part):
        # Not through imageio, which does not look at how ffmpeg ended: on a full disk it leaves a
        # film without its end, and says nothing.
        with warnings.catch_warnings():  # JAX warns of any fork; this one only starts ffmpeg
            warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
            encode = [
                get_ffmpeg_exe(), "-y", "-v", "error",
                "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}",
                "-r", f"{fps:.9g}", "-i", "-", "-an",
                "-c:v", "libx264", "-crf", "15", "-pix_fmt", "yuv420p", "-f", "mp4", str(part),
            ]  # fmt: skip
            ended = subprocess.run(
                encode,
                input=np.ascontiguousarray(even).data.cast("B"),
                capture_output=True,
                start_new_session=True,  # Ctrl-C is for us
            )
        if ended.returncode != 0:
            raise _encoder_error(ended.stderr.decode(errors="replace"))


def _encoder_error(said: str) -> OSError:
    """What ffmpeg said, as the error of the system that it was."""
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS):
        if os.strerror(code).lower() in said.lower():
            return OSError(code, os.strerror(code))
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return OSError(None, f"ffmpeg failed: {lines[-1] if lines else 'it was killed'}")

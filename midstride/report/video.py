"""Videos of policies, rendered without OpenGL."""

from __future__ import annotations

import warnings
from pathlib import Path

import imageio
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from midstride.disk.files import write_whole
from midstride.envs.loop import interact
from midstride.learn.config import Config
from midstride.policies import Policy
from midstride.tasks.make import make_envs

Frames = NDArray[np.uint8]  # (time, height, width, 3)


def film(policy: Policy, config: Config, seconds: float, seed: int) -> tuple[Frames, float]:
    """Pictures of one environment under a policy, one per period, and their rate per second."""
    envs = make_envs(config, 1, render_mode="rgb_array")
    policy.reset()
    frames, elapsed = [], 0.0
    for step in interact(envs, policy, seed, policy.reset):
        frames.append(envs.render()[0])
        elapsed += float(step["period_s"][0])
        if elapsed >= seconds or step["done"].any():
            break
    envs.close()
    return np.array(frames), len(frames) / elapsed


def titled(frames: Frames, title: str) -> Frames:
    """Frames under a line of text."""
    height, width = 28, frames.shape[2]
    figure = Figure(figsize=(width / 100, height / 100), dpi=100)
    canvas = FigureCanvasAgg(figure)
    figure.text(0.5, 0.45, title, ha="center", va="center", fontsize=9)
    canvas.draw()
    band = np.asarray(canvas.buffer_rgba())[..., :3]
    bands = np.broadcast_to(band, (len(frames), *band.shape))
    return np.concatenate([bands, frames], axis=1)


def side_by_side(films: list[Frames]) -> Frames:
    """Films next to each other, cut to the shortest."""
    length = min(len(film) for film in films)
    return np.concatenate([film[:length] for film in films], axis=2)


def save_image(path: Path, image: NDArray[np.uint8]) -> None:
    write_whole(path, imageio.v3.imwrite("<bytes>", image, extension=".png"))


def save_video(path: Path, frames: Frames, fps: float) -> None:
    """Write an MP4, completely or not at all; even sizes, as codecs want them."""
    even = frames[:, : frames.shape[1] // 2 * 2, : frames.shape[2] // 2 * 2]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}.part{path.suffix}")
    with warnings.catch_warnings():  # JAX warns of any fork; this one only starts ffmpeg
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
        imageio.mimwrite(part, list(even), fps=fps, codec="libx264", quality=7, macro_block_size=1)
    part.replace(path)

"""Remake the pictures that README and docs show: `make pictures`."""

from pathlib import Path

import gymnasium
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

import midstride  # noqa: F401  (registers the environments)
from midstride.cli import main as midstride_command
from midstride.tasks.grasp.env import GraspVectorEnv

IMAGES = Path(__file__).parent / "images"
OLD, NEW, NEXT, THINK = "#d9822b", "#2b7bba", "#4a9c6d", "#b8bcc4"


def timeline() -> Figure:
    """Blocking above, concurrent below: who moves while the policy thinks."""
    figure = Figure(figsize=(10, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-0.2, 10.8), ylim=(-2.75, 3.9))
    axes.axis("off")

    def bar(x: float, y: float, width: float, colour: str, text: str) -> None:
        axes.add_patch(Rectangle((x, y), width, 0.55, facecolor=colour, edgecolor="white"))
        axes.text(x + width / 2, y + 0.27, text, ha="center", va="center", fontsize=10)

    def span(x0: float, x1: float, y: float, text: str) -> None:
        arrow = FancyArrowPatch((x0, y), (x1, y), arrowstyle="<->", mutation_scale=12, lw=1)
        axes.add_patch(arrow)
        axes.text((x0 + x1) / 2, y - 0.1, text, ha="center", va="top", fontsize=10)

    def capture(x: float, y: float, text: str) -> None:
        axes.plot([x, x], [y, y + 1.35], color="0.35", lw=1, ls=":")
        axes.text(x, y + 1.4, text, ha="center", fontsize=9, color="0.25")

    axes.text(0, 3.6, "Blocking: the world waits", fontsize=12, weight="bold")
    for i, (action, colour) in enumerate((("a₁", OLD), ("a₂", NEW))):
        x = 0.6 + i * 5.0  # a thought takes as long here as below
        capture(x, 1.65, "capture")
        bar(x, 2.25, 2.0, THINK, "think")
        bar(x + 2.0, 1.65, 3.0, colour, f"{action} executes")

    axes.text(0, 0.95, "Concurrent: the world moves on", fontsize=12, weight="bold")
    y = -1.0
    for x, label in ((0.6, "capture t"), (5.6, "next capture t+H")):
        capture(x, y, label)
        bar(x, y + 0.6, 2.0, THINK, "think")
    bar(0.0, y, 2.6, OLD, "        a₁ still executing")
    bar(2.6, y, 5.0, NEW, "a₂ executing" + 34 * " ")
    bar(7.6, y, 3.0, NEXT, "a₃ executing")
    axes.plot([2.6, 2.6], [y - 0.15, y + 1.2], color="0.35", lw=1, ls=":")
    axes.text(2.65, y + 1.25, "switch t+t_AS", fontsize=9, color="0.25")
    span(0.6, 2.6, y - 0.35, "latency t_AS")
    span(2.6, 5.6, y - 0.35, "execution H - t_AS")
    span(0.6, 5.6, y - 1.1, "period H")
    return figure


def thinkers() -> Figure:
    """A latency longer than the period: several decisions pending, one stale, one lost."""
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    colours = (OLD, NEW, NEXT, "#8e63b5", "#c45a6b", "#6d7f33", "#35a0a0")
    above, below = figure.subplots(2, 1, height_ratios=(9, 6))
    _thinker(
        above,
        "Pipelined: an observation every period, several decisions pending",
        [(0, 2.5), (1, 2.5), (2, 3.5), (3, 1.5), (4, None), (5, 2.5), (6, 2.5)],
        colours,
    )
    _thinker(
        below,
        "Serial: one thought at a time, the next observation at a multiple of the period",
        [(0, 2.5), (3, 1.5), (5, None), (7, 1.5)],
        colours,
    )
    return figure


def _thinker(
    axes: Axes,
    title: str,
    decisions: list[tuple[float, float | None]],
    colours: tuple[str, ...],
) -> None:
    """decisions: capture and latency in periods (None: lost, after 1.5 of thought)."""
    count, end = len(decisions), 9.0
    axes.set(xlim=(-0.75, end + 0.05), ylim=(-0.75, count + 1.3))
    axes.axis("off")
    axes.text(-0.7, count + 0.95, title, fontsize=12, weight="bold")
    for k in range(int(end) + 1):
        axes.plot([k, k], [-0.1, count + 0.35], color="0.8", lw=0.8, ls=":")
    words = {"in force": "pending", "stale": "stale: overtaken", "lost": "lost: never arrives"}
    newest, switches = -1, [(0.0, "0.93", "nothing yet: it holds")]
    arrivals = sorted(
        (at + latency, i) for i, (at, latency) in enumerate(decisions) if latency is not None
    )
    fate = {i: "lost" for i, (_, latency) in enumerate(decisions) if latency is None}
    for arrival, i in arrivals:
        fate[i] = "in force" if i > newest else "stale"
        if i > newest and arrival < end:
            newest = i
            switches.append((arrival, colours[i], f"a{chr(0x2081 + i)}"))
    for i, (at, latency) in enumerate(decisions):
        y, name = count - 0.75 - i, f"a{chr(0x2081 + i)}"
        axes.plot([at], [y + 0.3], marker="o", color=colours[i], ms=6)
        shown = min(at + (latency or 1.5), end)
        good = fate[i] == "in force"
        colour, hatch = (THINK, None) if good else ("white", "////")
        bar = Rectangle((at, y + 0.04), shown - at, 0.52, facecolor=colour, edgecolor="0.6")
        bar.set_hatch(hatch)
        axes.add_patch(bar)
        text = f"{name} {words[fate[i]]}"
        box = None if good else {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
        axes.text((at + shown) / 2, y + 0.29, text, ha="center", va="center", fontsize=9, bbox=box)
        if good and shown < end:
            arrow = FancyArrowPatch(
                (shown, y + 0.04), (shown, 0.02), arrowstyle="->", mutation_scale=11, lw=1,
                color=colours[i],
            )  # fmt: skip
            axes.add_patch(arrow)
    ends = [at for at, _, _ in switches[1:]] + [end]
    for (at, colour, text), until in zip(switches, ends, strict=True):
        bar = Rectangle((at, -0.55), until - at, 0.5, facecolor=colour, edgecolor="white")
        axes.add_patch(bar)
        axes.text((at + until) / 2, -0.3, text, ha="center", va="center", fontsize=10)
    axes.text(-0.05, -0.3, "in force", ha="right", va="center", fontsize=9, color="0.25")
    axes.text(-0.1, count - 0.45, "capture", ha="right", va="center", fontsize=9, color="0.25")
    span = FancyArrowPatch(
        (0, count + 0.2), (1, count + 0.2), arrowstyle="<->", mutation_scale=10, lw=1
    )
    axes.add_patch(span)
    axes.text(1.08, count + 0.2, "period", va="center", fontsize=9, color="0.25")


# How well a recommendation is known: 8 trainings of a row or more, fewer, none yet.
MEASURED, SKETCHED, OPEN = "#cfe8d5", "#fbe9c0", "#ffffff"


def which() -> Figure:
    """Which method for my robot: questions on the left, what to take on the right."""
    figure = Figure(figsize=(11, 6.9), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(0, 11), ylim=(-0.75, 7.1))
    axes.axis("off")

    def box(x: float, y: float, width: float, text: str, colour: str, round_: bool) -> None:
        style = "round,pad=0.04,rounding_size=0.18" if round_ else "square,pad=0.04"
        patch = FancyBboxPatch((x, y), width, 0.6, style, facecolor=colour, edgecolor="0.45")
        axes.add_patch(patch)
        axes.text(x + width / 2, y + 0.3, text, ha="center", va="center", fontsize=9)

    def arrow(x0: float, y0: float, x1: float, y1: float, text: str, dx: float, dy: float) -> None:
        patch = FancyArrowPatch((x0, y0), (x1, y1), arrowstyle="->", mutation_scale=12, lw=1.1)
        axes.add_patch(patch)
        axes.text((x0 + x1) / 2 + dx, (y0 + y1) / 2 + dy, text, fontsize=9, style="italic")

    rows = [
        (
            "Does the policy that you have\nstand your latency?  midstride margin",
            "Run it.",
            MEASURED,
        ),
        (
            "Is it good in a world\nwithout latency?",
            "midstride adapt: no reward, minutes;\n--rounds where data alone are not enough",
            MEASURED,
        ),
        (
            "Can the latency be neither told nor\nmeasured?  midstride calibrate",
            "train at random latencies, with stacked\nactions or a memory (rsac)",
            OPEN,
        ),
        (
            "Is it at most a period,\nand always the same?",
            "train sac or dqn --knowledge previous_action\n(vector_to_go with position control)",
            MEASURED,
        ),
        (
            "Is it at most a period, and varies?",
            "the same + selection_time; with data of\na frozen world, --hindsight-from 0",
            SKETCHED,
        ),
        ("Is it longer than a period?", "the same + pending_actions", OPEN),
        (
            "Is that learned too slowly?",
            "rtac at one period, rtac_substep within it,\ndcac at several; bpql at any",
            SKETCHED,
        ),
    ]
    for i, (question, answer, colour) in enumerate(rows):
        y = 6.3 - 1.0 * i
        box(0.2, y, 4.3, question, "#eef1f6", round_=True)
        box(5.9, y, 4.95, answer, colour, round_=False)
        arrow(4.56, y + 0.3, 5.84, y + 0.3, "yes", -0.13, 0.06)
        if i + 1 < len(rows):
            text = "no, or it did not take: train" if i == 1 else "no" if i < 5 else ""
            arrow(2.35, y - 0.05, 2.35, y - 0.34, text, 0.1, -0.06)
    legend = (
        (MEASURED, "measured, 8 or more trainings"),
        (SKETCHED, "a sketch"),
        (OPEN, "not measured yet"),
    )
    for i, (colour, text) in enumerate(legend):
        axes.add_patch(
            Rectangle((0.3 + 3.6 * i, -0.62), 0.3, 0.24, facecolor=colour, edgecolor="0.45")
        )
        axes.text(0.72 + 3.6 * i, -0.5, text, fontsize=9, va="center")
    return figure


def tasks() -> Figure:
    """Tasks as `render()` shows them."""
    figure = Figure(figsize=(10, 2.1), layout="constrained")
    scenes = [
        ("midstride/PointMass-v0", "PointMass-v0", [1, 1, 2, 1]),
        ("midstride/CartpoleSwingup-v0", "CartpoleSwingup-v0", [4] * 6 + [0] * 8 + [4] * 2),
        ("midstride/PendulumSwingup-v0", "PendulumSwingup-v0", [4] * 6),
        ("midstride/Balance-v0", "Balance-v0", [4] * 2),
    ]
    for axes, (env_id, title, actions) in zip(figure.subplots(1, 4), scenes, strict=True):
        env = gymnasium.make(env_id, latency=0.05, render_mode="rgb_array")
        env.reset(seed=3)
        for action in actions:
            env.step(np.int64(action))
        axes.imshow(env.render())
        axes.set_title(title, fontsize=10)
        axes.axis("off")
    return figure


def grasp_objects() -> Figure:
    """Bins of every set of objects, as the camera sees them, and small as the policy does."""
    figure = Figure(figsize=(10, 3.7), layout="constrained")
    rows = figure.subplots(2, 6)
    for column, (name, size) in enumerate(
        [(name, size) for name in ("train", "held_out", "household") for size in (240, 64)]
    ):
        env = GraspVectorEnv(2, objects=5, object_set=name, image_size=size, scenes=8)
        observation, _ = env.reset(seed=7)
        for axes, image in zip(rows[:, column], observation["image"], strict=True):
            axes.imshow(image)
            axes.axis("off")
        rows[0, column].set_title(f"{name}, {size}x{size}", fontsize=9)
    return figure


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    for mode in ("concurrent", "blocking"):
        midstride_command(["watch", "grasp", "--mode", mode, "--output", str(IMAGES)])
        (IMAGES / f"grasp-scripted-{mode}.mp4").unlink()
    midstride_command(["watch", "catch", "--episodes", "1", "--output", str(IMAGES)])
    (IMAGES / "catch.mp4").unlink()
    for draw in (timeline, thinkers, which, tasks, grasp_objects):
        draw().savefig(IMAGES / f"{draw.__name__}.png", dpi=130)


if __name__ == "__main__":
    main()

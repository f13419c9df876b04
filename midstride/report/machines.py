"""How a training on many machines did, drawn from its metrics: rates, ages, queues, losses."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from midstride.disk.runs import read_metrics

PANELS = {
    "per second": ("transitions_per_s", "labels_per_s", "updates_per_s"),
    "updates old": ("policy_staleness", "label_staleness"),
    "blocks and fitters": (
        "blocks_sampled", "blocks_labelling", "blocks_labelled", "fitters_in_step",
        "fitters_busy",
    ),
    "lost so far": ("actors_lost", "actors_replaced", "times_gone_back", "labels_again"),
}  # fmt: skip


def plot_machines(folder: Path) -> Figure:
    """Against environment steps, in four panels; a name that the metrics do not have is left out.

    folder: of a run
    """
    lines = read_metrics(folder)
    steps = [line["steps"] for line in lines]
    figure = Figure(figsize=(9, 6), layout="constrained")
    for axes, (title, names) in zip(figure.subplots(2, 2).flat, PANELS.items(), strict=True):
        for name in names:
            if lines and all(name in line for line in lines):
                axes.plot(steps, [line[name] for line in lines], marker=".", label=name)
        axes.set(xlabel="environment steps", ylabel=title)
        axes.set_xlim(left=0)
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(fontsize="small")
    return figure

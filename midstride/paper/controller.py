"""What latency does: a swing-up and balance controller on Cartpole while the world moves on.

The same hand-written controller acts twice at each latency: on what it observed, as if the cart
had waited for it (unaware), and on where the cart will be at the switch, computed from the
vector-to-go of the action in flight and the known latency (aware). Nothing is learned here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
from matplotlib.figure import Figure
from mujoco.batch import Batch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from scipy.linalg import solve_discrete_are

from midstride.disk.files import write_provenance
from midstride.envs.checks import available_cores
from midstride.measure.statistics import half_width
from midstride.report.curves import save_figure
from midstride.scale.words import saved
from midstride.seconds import format_s, parse_s, to_ticks
from midstride.settings import Range, Settings
from midstride.sweep.disk import write_csv
from midstride.tasks.cartpole import DISPLACEMENT_M, KP, KV
from midstride.tasks.env import TaskVectorEnv
from midstride.tasks.settings import TaskSettings, make_task

Array = NDArray[np.float64]
Controller = Callable[[NDArray[np.float32]], Array]

_TICK_S = 0.005


# --- The controller ------------------------------------------------------------------------------

_POLE_INERTIA = 0.1 / 3  # kg m^2 about the hinge: 0.1 kg, 1 m
_POLE_WEIGHT = 0.1 * 9.81 * 0.5  # Nm when horizontal
_TOTAL_MASS = 1.1
_STATE_COST = np.diag([1.0, 10.0, 0.1, 0.1])
_ACTION_COST = np.array([[0.1]])


def make_predictor(n: int, ticks: int) -> Callable[[Array, Array], Array]:
    """A function (states (n, 4), targets of the cart (n, 1)) -> states some ticks later."""
    batch = Batch(make_task("cartpole", _TICK_S).model, n, available_cores())

    def predict(state: Array, target: Array) -> Array:
        batch.qpos[:], batch.qvel[:], batch.ctrl[:] = state[:, :2], state[:, 2:], target
        if ticks:
            batch.step(nstep=ticks)
        return np.concatenate([batch.qpos, batch.qvel], axis=1)

    return predict


def balance_gain(period_s: float) -> Array:
    """The linear-quadratic regulator of the upright pole, (1, 4), for one action per period."""
    small = 1e-4
    shifts = np.concatenate([np.eye(5), -np.eye(5)]) * small  # of four states and the action
    target = shifts[:, :1] + shifts[:, 4:] * DISPLACEMENT_M
    predict = make_predictor(len(shifts), to_ticks(period_s, _TICK_S, "period"))
    moved = predict(shifts[:, :4], target)
    jacobian = ((moved[:5] - moved[5:]) / (2 * small)).T
    a, b = jacobian[:, :4], jacobian[:, 4:]
    cost = solve_discrete_are(a, b, _STATE_COST, _ACTION_COST)
    return np.asarray(np.linalg.solve(_ACTION_COST + b.T @ cost @ b, b.T @ cost @ a))


def swing_up_and_balance(state: Array, gain: Array) -> Array:
    """Displacements (n, 1) in [-1, 1]: pump energy into the pole, then balance it."""
    position, angle, velocity, spin = state.T
    angle = (angle + np.pi) % (2 * np.pi) - np.pi
    energy = 0.5 * _POLE_INERTIA * spin**2 + _POLE_WEIGHT * (np.cos(angle) - 1)  # 0 when upright
    acceleration = np.clip(138 * energy * spin * np.cos(angle), -5.5, 5.5) - 1.6 * position
    force = _TOTAL_MASS * acceleration + KV * velocity
    pump = force / (KP * DISPLACEMENT_M)
    balance = -(np.stack([position, angle, velocity, spin], axis=1) @ gain.T)[:, 0]
    near_upright = (np.abs(angle) < 0.6) & (np.abs(spin) < 4)
    return np.clip(np.where(near_upright, balance, pump), -1, 1)[:, None]


def make_controller(n: int, period_s: float, latency_s: float, aware: bool) -> Controller:
    """The controller of n carts; an aware one first predicts the state at the switch."""
    gain = balance_gain(period_s)
    predict = make_predictor(n, to_ticks(latency_s, _TICK_S, "latency"))

    def act(observation: NDArray[np.float32]) -> Array:
        position, cosine, sine, velocity, spin, to_go = observation.astype(float).T
        state = np.stack([position, np.arctan2(sine, cosine), velocity, spin], axis=1)
        if aware:
            state = predict(state, (position + to_go * DISPLACEMENT_M)[:, None])
        return swing_up_and_balance(state, gain)

    return act


# --- The experiment ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options(Settings):
    """Options of the comparison."""

    kind: ClassVar[str] = "option"

    latencies: tuple[str, ...] = ("0", "10ms", "20ms", "30ms", "40ms", "50ms", "60ms")
    """from an observation to the switch to the action chosen on it, each (25ms, 0.025)"""
    period: str = "60ms"
    """from one observation to the next"""
    episodes: Annotated[int, Range(2)] = 64
    """how many episodes at each latency; an interval needs at least 2"""
    seed: Annotated[int, Range(0)] = 0
    """seed of the first episode; the others count up from it"""
    output: str = "latency"
    """folder for the picture and the returns that it shows"""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.latencies:
            raise ValueError("give at least one latency")


@dataclass(frozen=True)
class Outcome:
    """Episodes of one controller at one latency."""

    latency_s: float
    aware: bool
    returns: Array  # (episodes,)
    height: Array  # (steps, episodes): of the pole's tip above the cart, in m
    command: Array  # (steps, episodes): displacement of the cart, in m


def play(latency_s: float, aware: bool, options: Options) -> Outcome:
    """Run whole episodes side by side, one environment each."""
    period_s, episodes = parse_s(options.period), options.episodes
    envs = TaskVectorEnv(
        _environment(latency_s, options), episodes, None, autoreset_mode="Disabled"
    )
    act = make_controller(episodes, period_s, latency_s, aware)
    observation, _ = envs.reset(seed=options.seed)
    returns, heights, commands = np.zeros(episodes), [], []
    truncated = np.zeros(episodes, bool)
    while not truncated.all():
        action = act(observation)
        heights.append(observation[:, 1])
        commands.append(action[:, 0] * DISPLACEMENT_M)
        observation, reward, _, truncated, _ = envs.step(action)
        returns += reward
    return Outcome(latency_s, aware, returns, np.array(heights), np.array(commands))


def _environment(latency_s: float, options: Options) -> TaskSettings:
    return TaskSettings(
        latency=latency_s,
        period=options.period,
        knowledge=("vector_to_go",),
        actions="continuous",
    )


def run(options: Options, console: Console) -> None:
    """Run both controllers at each latency; print the table, save the picture."""
    latencies_s = [parse_s(text) for text in options.latencies]
    for latency_s in latencies_s:  # reject what does not fit before anything runs
        _environment(latency_s, options)
        if latency_s > parse_s(options.period):
            raise ValueError(
                f"a latency of {format_s(latency_s)} is longer than the period of "
                f"{format_s(parse_s(options.period))}, and this controller knows of one action in "
                "flight: give a longer period, or shorter latencies"
            )
    output, period_s, started = Path(options.output), parse_s(options.period), time.perf_counter()
    output.mkdir(parents=True, exist_ok=True)
    jobs = [(latency_s, aware) for latency_s in latencies_s for aware in (False, True)]
    outcomes = []
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("", total=len(jobs))
        for latency_s, aware in jobs:
            name = "aware" if aware else "unaware"
            progress.update(bar, description=f"latency {latency_s * 1e3:3.0f} ms, {name:7}")
            outcomes.append(play(latency_s, aware, options))
            progress.advance(bar)
    console.print(make_table(outcomes, period_s))
    console.print(explain(outcomes))
    every = (
        [o.latency_s, "aware" if o.aware else "unaware", options.seed + i, value]
        for o in outcomes
        for i, value in enumerate(o.returns)
    )
    write_csv(output / "returns.csv", ["latency_s", "kind", "seed", "return"], every)
    write_provenance(output, options.to_dict(), time.perf_counter() - started)
    path = output / "latency.png"
    save_figure(path, plot(outcomes, period_s))
    console.print(saved(path, what="Picture: "))


def make_table(outcomes: Sequence[Outcome], period_s: float) -> Table:
    table = Table(
        title=f"Cartpole swing-up, one decision per {period_s * 1e3:g} ms: return of 1000",
        caption=f"mean and 95 % interval over {len(outcomes[0].returns)} episodes",
    )
    table.add_column("latency", justify="right")
    table.add_column("unaware: acts on what it saw", justify="right")
    table.add_column("aware: acts on what is in flight", justify="right")
    by_key = {(o.latency_s, o.aware): o.returns for o in outcomes}
    for latency_s in dict.fromkeys(o.latency_s for o in outcomes):
        cells = [by_key[latency_s, aware] for aware in (False, True)]
        table.add_row(
            f"{latency_s * 1e3:g} ms", *(f"{c.mean():.0f} ± {half_width(c):.0f}" for c in cells)
        )
    return table


def explain(outcomes: Sequence[Outcome]) -> str:
    """One sentence about the largest latency, with the measured numbers."""
    last = max(o.latency_s for o in outcomes)
    first = min(o.latency_s for o in outcomes)
    mean = {(o.latency_s, o.aware): o.returns.mean() for o in outcomes}
    if first == last:
        return ""
    return (
        f"From {first * 1e3:g} to {last * 1e3:g} ms of latency the controller that ignores the "
        f"motion in flight keeps {mean[last, False] / mean[first, False]:.0%} of its return; the "
        "same controller, told what is in flight, keeps "
        f"{mean[last, True] / mean[first, True]:.0%}."
    )


def plot(outcomes: Sequence[Outcome], period_s: float) -> Figure:
    """Return against latency; beside it the episode at the longest latency that went worst."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplot_mosaic([["returns", "height"], ["returns", "command"]])
    returns, height, command = axes["returns"], axes["height"], axes["command"]
    longest_s = max(o.latency_s for o in outcomes)
    at_longest = {o.aware: o for o in outcomes if o.latency_s == longest_s}
    worst = int(at_longest[False].returns.argmin())
    for aware, colour, label in (
        (False, "tab:red", "unaware"),
        (True, "tab:blue", "aware of what is in flight"),
    ):
        group = [o for o in outcomes if o.aware == aware]
        returns.errorbar(
            [o.latency_s * 1e3 for o in group],
            [o.returns.mean() for o in group],
            [half_width(o.returns) for o in group],
            color=colour,
            marker="o",
            capsize=3,
            label=label,
        )
        one = at_longest[aware]
        time_s = np.arange(len(one.height)) * period_s
        height.plot(time_s, one.height[:, worst], color=colour)
        command.step(time_s, one.command[:, worst], color=colour, where="post", lw=1)
    returns.set(
        xlabel="latency (ms)",
        ylabel="return (of 1000)",
        title=f"Cartpole, one decision per {period_s * 1e3:g} ms",
        ylim=(0, None),
    )
    returns.legend(loc="lower left")
    height.set(
        ylabel="pole tip (m)",
        title=f"The worst episode at {longest_s * 1e3:g} ms of latency",
        xticklabels=[],
    )
    command.set(xlabel="time (s)", ylabel="command (m)")
    for each in axes.values():
        each.grid(alpha=0.3)
    return figure

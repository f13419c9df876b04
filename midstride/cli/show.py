"""What commands show alike: numbers, intervals, a bar while something is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from midstride.learn.signals import Interrupted, number_of, word

if TYPE_CHECKING:
    from midstride.envs.learnable import Environment, LearnableEnvs


def number(value: float) -> str:
    """Three significant digits below 10, whole numbers above."""
    return f"{value:.0f}" if abs(value) >= 9.995 else f"{value:.3g}"


def share(value: float) -> str:
    return f"{value:.1%}"


def summary(values: Sequence[float], is_share: bool) -> tuple[str, str]:
    """A mean and its 95 % interval, as text; of returns, or of zeros and ones."""
    from midstride.measure.statistics import interval, share_interval

    form = share if is_share else number
    low, high = share_interval(values) if is_share else interval(values)
    return form(sum(values) / len(values)), f"{form(low)} to {form(high)}"


@contextmanager
def bar(console: Console, text: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar; yields a function that is told how much is done."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=console) as bars:
        one = bars.add_task(text, total=total)
        yield lambda done: bars.update(one, completed=done)


@contextmanager
def going_on(how: str) -> Iterator[None]:
    """Ctrl-C says how to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        number = number_of(stop)
        raise Interrupted(f"{str(stop) or word(number)}; {how}", number) from None


def small(environment: Environment) -> LearnableEnvs:
    """One environment to look at, made quickly."""
    return environment.small().make(1)


def success_of(environment: Environment) -> str | None:
    """The name of the share of episodes that succeed, where that is measured."""
    envs = small(environment)
    found = envs.hints.measure
    envs.close()
    return found

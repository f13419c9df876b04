"""What is swept: a specification is read, checked, and drawn from.

A specification (TOML) names fields of a run's configuration, each with a value or a space to draw
from, and arms that differ in some of them. Trials are paired: draw 7 has the same hyperparameters
and the same seed in every arm, so that differences between arms are within pairs.
"""

from __future__ import annotations

import difflib
import hashlib
import itertools
import re
import tomllib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from midstride.learn.config import Config

_FIELDS = tuple(field.name for field in fields(Config))
_MOST_TRIES = 1000  # draws in a row that may be excluded


@dataclass(frozen=True)
class Choices:
    """One of several values."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        return self.values[int(rng.integers(len(self.values)))]


@dataclass(frozen=True)
class Range:
    """A number between two bounds; evenly on a logarithmic scale if `log`."""

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def draw(self, rng: np.random.Generator) -> float | int:
        if self.integer and not self.log:
            return int(rng.integers(int(self.low), int(self.high) + 1))
        if self.log:
            value = float(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))
        else:
            value = float(rng.uniform(self.low, self.high))
        return round(value) if self.integer else float(f"{value:.4g}")


Setting = Any  # a value, Choices or Range


@dataclass(frozen=True)
class Spec:
    """What is swept: settings of all trials, and of each arm."""

    name: str
    common: Mapping[str, Setting]
    arms: Mapping[str, Mapping[str, Setting]]
    exclude: tuple[Mapping[str, Any], ...] = ()
    seed: int = 0
    source: str = ""  # the text that it was read from

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()[:12]

    @property
    def swept(self) -> tuple[str, ...]:
        """Fields that differ between trials, in the order of the configuration."""
        varying = {name for name, setting in self.common.items() if _is_space(setting)}
        varying |= {name for arm in self.arms.values() for name in arm}
        return tuple(name for name in _FIELDS if name in varying)


@dataclass(frozen=True)
class Trial:
    """A configuration to train: a draw in an arm."""

    arm: str
    draw: int
    config: Config

    @property
    def place(self) -> Path:
        return Path("trials") / slug(self.arm) / f"{self.draw:04d}"


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "arm"


# --- Reading -------------------------------------------------------------------------------------


def shipped() -> list[str]:
    """Names of the specifications that come with midstride."""
    found = resources.files("midstride.sweep") / "specs"
    return sorted(file.name.removesuffix(".toml") for file in found.iterdir())


def read_spec(which: str) -> Spec:
    """A specification from a TOML file, or one that comes with midstride, by name."""
    if which in shipped():
        source = (resources.files("midstride.sweep") / "specs" / f"{which}.toml").read_text()
        return parse_spec(source, which)
    path = Path(which)
    if not path.is_file():
        raise ValueError(
            f"{which} is neither a specification file nor one of {', '.join(shipped())}"
        )
    return parse_spec(path.read_text(), path.stem)


def parse_spec(source: str, name: str) -> Spec:
    """A specification from its text; an error in one sentence for what is wrong with it."""
    try:
        content = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"the specification {name} is not TOML: {error}") from None
    _known(content, ("common", "arms", "exclude", "seed"), f"in the specification {name}")
    seed = content.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}")
    common = _settings(content.get("common", {}), "[common]")
    tables = content.get("arms") or {"all": {}}
    arms = {arm: _settings(table, f"[arms.{arm!r}]") for arm, table in tables.items()}
    if len({slug(arm) for arm in arms}) < len(arms):
        raise ValueError(f"the names of arms are too much alike: {', '.join(arms)}")
    for rule in content.get("exclude", []):
        _known(rule, _FIELDS, "in [[exclude]]")
    if "seed" in common:
        raise ValueError("a trial's seed is its draw: set seed outside of [common], for the draws")
    return Spec(name, common, arms, tuple(content.get("exclude", [])), seed, source)


def _settings(table: Mapping[str, Any], where: str) -> dict[str, Setting]:
    _known(table, _FIELDS, f"in {where}")
    return {name: _setting(name, value, where) for name, value in table.items()}


def _setting(name: str, value: Any, where: str) -> Setting:
    if not isinstance(value, dict):
        return _hashable(value)
    if "choices" in value:
        _known(value, ("choices",), f"for {name} in {where}")
        if not isinstance(value["choices"], list) or not value["choices"]:
            raise ValueError(f"{name} in {where} has no choices to draw from")
        return Choices(tuple(_hashable(choice) for choice in value["choices"]))
    _known(value, ("low", "high", "log", "integer"), f"for {name} in {where}")
    if "low" not in value or "high" not in value:
        raise ValueError(f"{name} in {where} needs choices, or low and high")
    drawn = Range(**value)
    if not drawn.low < drawn.high:
        raise ValueError(f"{name} in {where} is an empty range: {drawn.low} to {drawn.high}")
    if drawn.log and drawn.low <= 0:
        raise ValueError(f"{name} in {where} is logarithmic: low must be above 0")
    return drawn


def _known(table: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    for name in table:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            hint = f"; did you mean {near[0]}?" if near else f" (known: {', '.join(names)})"
            raise ValueError(f"unknown field {name} {where}{hint}")


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is_space(setting: Setting) -> bool:
    return isinstance(setting, (Choices, Range))


# --- Drawing -------------------------------------------------------------------------------------


def expand(spec: Spec, trials: int | None) -> list[Trial]:
    """Every trial, draw by draw: `trials` random draws in each arm, or all combinations if None.

    Draw i does not depend on how many there are, nor a field on which others are drawn.
    """
    if trials is not None and trials < 1:
        raise ValueError(f"trials must be at least 1, got {trials}")
    draws = _grid(spec) if trials is None else itertools.islice(_random(spec), trials)
    found = []
    for i, drawn in enumerate(draws):
        for arm, settings in spec.arms.items():
            own = {name: _draw(spec, name, setting, i, 0) for name, setting in settings.items()}
            found.append(Trial(arm, i, _config(spec, {**drawn, **own}, i)))
    if not found:
        raise ValueError(f"nothing is left of the specification {spec.name}: all is excluded")
    return found


def _config(spec: Spec, values: Mapping[str, Any], draw: int) -> Config:
    # A trial that is cut short starts anew: no checkpoints.
    settled = {"checkpoint_every": 10**9, **values, "seed": 1000 * spec.seed + draw}
    try:
        return Config(**settled)
    except TypeError as error:
        raise ValueError(f"draw {draw} of {spec.name} is no configuration: {error}") from None


def _draw(spec: Spec, name: str, setting: Setting, i: int, attempt: int) -> Any:
    if not _is_space(setting):
        return setting
    return setting.draw(np.random.default_rng([spec.seed, i, attempt, zlib.crc32(name.encode())]))


def _excluded(spec: Spec, drawn: Mapping[str, Any]) -> bool:
    return any(
        all(drawn.get(name) == _hashable(value) for name, value in rule.items())
        for rule in spec.exclude
    )


def _random(spec: Spec) -> Iterator[dict[str, Any]]:
    for i in itertools.count():
        for attempt in range(_MOST_TRIES):
            drawn = {k: _draw(spec, k, setting, i, attempt) for k, setting in spec.common.items()}
            if not _excluded(spec, drawn):
                yield drawn
                break
        else:
            raise ValueError(f"[[exclude]] of {spec.name} leaves next to nothing to draw")


def _grid(spec: Spec) -> Iterator[dict[str, Any]]:
    settings = itertools.chain(spec.common.items(), *(arm.items() for arm in spec.arms.values()))
    for name, setting in settings:
        if isinstance(setting, Range):
            raise ValueError(f"{name} is a range, which has no end of values: give --trials N")
    if any(_is_space(setting) for arm in spec.arms.values() for setting in arm.values()):
        raise ValueError("arms that draw have no combinations of their own: give --trials N")
    spaces = [
        setting.values if isinstance(setting, Choices) else (setting,)
        for setting in spec.common.values()
    ]
    for values in itertools.product(*spaces):
        drawn = dict(zip(spec.common, values, strict=True))
        if not _excluded(spec, drawn):
            yield drawn

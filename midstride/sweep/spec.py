"""What is swept: a specification is read, checked, and drawn from.

A specification (TOML) names settings of the environment, the agent and the run, each with a value
or a space to draw from, and arms that differ in some of them. Trials are paired: draw 7 has the
same hyperparameters and the same seed in every arm, so that differences between arms are within
pairs.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from midstride.disk.read import LARGEST_TOML, Missing, in_file, parse_toml, read_text
from midstride.learn.agent_settings import RunSettings
from midstride.learn.agents import Training, agent_called
from midstride.settings import Range as Bounds
from midstride.settings import Settings, check_name, checked, one_line, shown, types_of
from midstride.sweep.design import KEYS, Design, frozen, read_design, with_budget
from midstride.tasks.registry import from_file, settings_of

_MOST_TRIES = 1000  # draws in a row that may be excluded
_MOST_TRIALS = 100_000
_MOST_ARMS = 1000
_MOST_CHOICES = 10_000
_DEFAULTS = {"task": "cartpole", "agent": "dqn"}


@dataclass(frozen=True)
class Choices:
    """One of several values."""

    values: tuple[Any, ...]

    def draw(self, rng: np.random.Generator) -> Any:
        return self.values[int(rng.integers(len(self.values)))]


@dataclass(frozen=True)
class Range(Settings):
    """A number between two bounds; evenly on a logarithmic scale if `log`."""

    kind: ClassVar[str] = "key of a range:"

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.low < self.high:
            raise ValueError(f"an empty range: {self.low} is not below {self.high}")
        if self.log and self.low <= 0:
            raise ValueError("low must be above 0 for a logarithmic range")
        largest = 2.0**53 if self.integer else 1e300
        if max(abs(self.low), abs(self.high)) > largest:
            raise ValueError(f"the bounds of a range are at most {largest:g}")

    @property
    def bounds(self) -> tuple[float, float]:
        kind = int if self.integer else float
        return kind(self.low), kind(self.high)

    def draw(self, rng: np.random.Generator) -> float | int:
        if self.integer and not self.log:
            return int(rng.integers(int(self.low), int(self.high) + 1))
        if self.log:
            value = float(np.exp(rng.uniform(np.log(self.low), np.log(self.high))))
        else:
            value = float(rng.uniform(self.low, self.high))
        return round(value) if self.integer else float(f"{value:.4g}")


_LONG_SLUG = 100
Setting = Any  # a value, Choices or Range


@dataclass(frozen=True)
class Spec:
    """What is swept: settings of all trials, and of each arm."""

    name: str
    common: Mapping[str, Setting]
    arms: Mapping[str, Mapping[str, Setting]]
    exclude: tuple[Mapping[str, Any], ...] = ()
    seed: int = 0  # of the draws
    first_seed: int = 0  # of the training of draw 0; they count up
    source: str = ""  # the text that it was read from
    design: Design = field(default_factory=Design)

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.source.encode()).hexdigest()[:12]

    @property
    def swept(self) -> tuple[str, ...]:
        """Settings that differ between trials, in the order of the specification."""
        varying = [name for stratum in self.design.strata for name in stratum]
        varying += [name for name, setting in self.common.items() if _is_space(setting)]
        varying += [name for arm in self.arms.values() for name in arm]
        return tuple(dict.fromkeys(varying))

    def types(self, arm: str) -> dict[str, list[Any]]:
        """Of each setting that an arm may have: its types, one for each task and agent drawn."""
        found: dict[str, list[Any]] = {}
        merged = {**_DEFAULTS, **self.common, **self.arms[arm]}
        tasks, agents = (_words(merged, name) for name in _DEFAULTS)
        for task, agent in itertools.product(tasks, agents):
            for name, hint in _types(task, agent).items():
                found.setdefault(name, []).append(hint)
        return found


@dataclass(frozen=True)
class Trial:
    """A training to do: a draw in an arm."""

    arm: str
    draw: int
    training: Training

    @property
    def place(self) -> Path:
        return Path("trials") / slug(self.arm) / f"{self.training.run.seed:04d}"


def slug(text: str) -> str:
    """A text as the name of a folder; a long one is cut, and told apart by a hash."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "arm"
    if len(name) <= _LONG_SLUG:
        return name
    return f"{name[:_LONG_SLUG]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


# --- Reading -------------------------------------------------------------------------------------


def shipped() -> list[str]:
    """Names of the specifications that come with midstride."""
    found = resources.files("midstride.sweep") / "specs"
    return sorted(file.name.removesuffix(".toml") for file in found.iterdir())


def read_spec(which: str, trust: bool = False) -> Spec:
    """A specification from a TOML file, or one that comes with midstride, by name.

    trust: whether the file may import modules and read traces anywhere; see `from_file`
    """
    if which in shipped():
        source = (resources.files("midstride.sweep") / "specs" / f"{which}.toml").read_text()
        return parse_spec(source, which)
    path = Path(which)
    try:
        source = read_text(path, LARGEST_TOML)
    except Missing:
        raise ValueError(
            f"{shown(which)} is neither a specification file nor one of {', '.join(shipped())}"
        ) from None
    return parse_spec(source, path.stem, path.parent, trust)


def parse_spec(source: str, name: str, folder: Path | None = None, trust: bool = False) -> Spec:
    """A specification from its text; an error in one sentence for what is wrong with it."""
    content = parse_toml(source, name)
    with in_file(f"the specification {name}"):
        content = from_file(content, folder, trust)
    for key in content:
        known = ("common", "arms", "exclude", "seed", *KEYS)
        check_name(key, known, f"part of the specification {name}:")
    seed = content.get("seed", 0)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, got {shown(repr(seed))}")
    checked("seed", seed, Annotated[int, Bounds(0, 10**6)])
    common = _settings(content.get("common", {}), "[common]")
    tables = _table(content.get("arms", {}), "[arms]", "tables, one for each arm") or {"all": {}}
    tables |= _table(content.get("controls", {}), "[controls]", "tables, one for each control")
    if len(tables) > _MOST_ARMS:
        raise ValueError(f"there are {len(tables):,} arms, and at most {_MOST_ARMS:,} are compared")
    arms = {arm: _settings(table, _place(arm)) for arm, table in tables.items()}
    if len({slug(arm) for arm in arms}) < len(arms):
        raise ValueError(f"the names of arms are too much alike: {shown(', '.join(arms))}")
    rules = content.get("exclude", [])
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise ValueError(
            f"exclude must be tables, each written as [[exclude]], got {shown(repr(rules))}"
        )
    exclude = tuple({key: _hashable(value) for key, value in rule.items()} for rule in rules)
    design = read_design(content, list(arms))
    spec = Spec(name, common, arms, exclude, seed, 1000 * seed, source, design)
    check_spec(spec)
    return spec


def _place(arm: str) -> str:
    return f'[arms."{shown(arm)}"]'


def _table(value: Any, where: str, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where} must be {what}, got {shown(repr(value))}")
    return value


def _settings(table: Any, where: str) -> dict[str, Setting]:
    table = _table(table, where, "a table of settings")
    if "seed" in table:
        raise ValueError(
            f"{where}: a trial's seed is its draw: set seed outside of {where}, for the draws"
        )
    found = {}
    for name, value in table.items():
        with _at(f"{where}: {shown(name)}"):
            found[name] = _setting(value)
            if name in _DEFAULTS and isinstance(found[name], Range):
                raise ValueError("it is drawn from choices, not from a range")
    return found


def _setting(value: Any) -> Setting:
    """A value, or the space that a table describes."""
    if not isinstance(value, dict):
        return _hashable(value)
    if set(value) == {"choices"}:
        if not isinstance(value["choices"], list) or not value["choices"]:
            got = shown(repr(value["choices"]))
            raise ValueError(f"choices must be a list to draw from, got {got}")
        if len(value["choices"]) > _MOST_CHOICES:
            raise ValueError(f"there are more than {_MOST_CHOICES:,} choices")
        return Choices(tuple(_hashable(choice) for choice in value["choices"]))
    if not {"low", "high"} <= set(value):
        raise ValueError(f"a space to draw from is choices, or low and high, got {shown(value)}")
    return Range.from_dict(value)


# --- Checking ------------------------------------------------------------------------------------


def check_spec(spec: Spec) -> None:
    """An error that says where, if a setting is unknown or has a value of the wrong type.

    A setting of [common] must be known in some arm; it counts in those that know it.
    """
    with _at("[common]"):
        given = {**_DEFAULTS, **spec.common}
        tasks, agents = (_words(given, name) for name in _DEFAULTS)
        for task, agent in itertools.product(tasks, agents):
            _types(task, agent)
    every: dict[str, list[Any]] = {}
    for arm, settings in spec.arms.items():
        with _at(_place(arm)):
            known = spec.types(arm)
            for name, setting in settings.items():
                _check_setting(name, setting, known)
        for name, hints in known.items():
            every.setdefault(name, []).extend(hints)
    with _at("[common]"):
        for name, setting in spec.common.items():
            _check_setting(name, setting, every)
    with _at("[[strata]]"):
        for name, setting in itertools.chain(*(s.items() for s in spec.design.strata)):
            _check_setting(name, setting, every)
    with _at("[[exclude]]"):
        for name, value in itertools.chain(*(rule.items() for rule in spec.exclude)):
            _check_excluded(name, value, spec.common)


def _check_setting(name: str, setting: Setting, known: Mapping[str, list[Any]]) -> None:
    check_name(name, tuple(known), "setting")
    if name in _DEFAULTS:  # looked up already
        return
    bounds = setting.bounds if isinstance(setting, Range) else _values(setting)
    for value, hint in itertools.product(bounds, known[name]):
        checked(name, value, hint)


def _check_excluded(name: str, value: Any, common: Mapping[str, Setting]) -> None:
    check_name(name, tuple(common), "setting of [common]")
    values = _values(common[name])
    if values and value not in values:
        said = ", ".join(map(repr, values))
        raise ValueError(f"{name} is never {shown(repr(value))}: exclude one of {shown(said)}")


@contextmanager
def _at(where: str) -> Iterator[None]:
    """Errors inside say in which place of the specification."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {one_line(error)}") from None


def _types(task: Any, agent: Any) -> dict[str, Any]:
    """The types of all settings of a task and an agent, by name."""
    kinds: tuple[Any, ...] = (settings_of(task), agent_called(agent).Settings, RunSettings)
    return {name: hint for kind in reversed(kinds) for name, hint in types_of(kind).items()}


def _values(setting: Setting) -> tuple[Any, ...]:
    """What a setting may be; of a range, nothing that can be listed."""
    if isinstance(setting, Range):
        return ()
    return setting.values if isinstance(setting, Choices) else (setting,)


def _words(merged: Mapping[str, Setting], name: str) -> list[str]:
    """The tasks or the agents that there are, each once."""
    found = [checked(name, value, str) for value in _values(merged[name])]
    return list(dict.fromkeys(found))


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _is_space(setting: Setting) -> bool:
    return isinstance(setting, (Choices, Range))


# --- Drawing -------------------------------------------------------------------------------------


def expand(spec: Spec, trials: int | None) -> list[Trial]:
    """Every trial, draw by draw: `trials` random draws in each arm, or all combinations if None.

    Draw i does not depend on how many there are, nor a setting on which others are drawn. Where
    nothing is drawn, `trials` are seeds of each arm.
    """
    if trials is not None and trials < 1:
        raise ValueError(f"trials must be at least 1, got {trials}")
    _check_count(spec, trials)
    draws = _grid(spec) if trials is None else itertools.islice(_random(spec), trials)
    found = []
    for i, drawn in enumerate(draws):
        for arm, settings in spec.arms.items():
            own = {name: _draw(spec, name, setting, i, 0) for name, setting in settings.items()}
            found.append(Trial(arm, i, _training(spec, arm, {**drawn, **own}, i)))
    if not found:
        raise ValueError(f"nothing is left of the specification {spec.name}: all is excluded")
    return found


def _check_count(spec: Spec, trials: int | None) -> None:
    """An error if there are more trials than anybody means, before they are counted up."""
    sizes = [len(_values(setting)) for setting in spec.common.values()]
    draws = math.prod(sizes) if trials is None else trials
    if draws * len(spec.arms) > _MOST_TRIALS:
        raise ValueError(
            f"the specification {spec.name} has {draws * len(spec.arms):.6g} trials, and at most "
            f"{_MOST_TRIALS:,} are run: give fewer choices, or --trials N"
        )


def _training(spec: Spec, arm: str, values: Mapping[str, Any], draw: int) -> Training:
    settled = {**_DEFAULTS, **values}
    known = _types(settled["task"], settled["agent"])
    settled = {name: value for name, value in settled.items() if name in known}
    with _at(f"{_place(arm)}, draw {draw}"):
        training = Training.of(**settled, seed=spec.first_seed + draw)
        if arm in spec.design.controls:
            training = frozen(training)
        if spec.design.simulated_s is not None:
            training = with_budget(training, spec.design.simulated_s, values)
        return training


def _draw(spec: Spec, name: str, setting: Setting, i: int, attempt: int) -> Any:
    if not _is_space(setting):
        return setting
    return setting.draw(np.random.default_rng([spec.seed, i, attempt, zlib.crc32(name.encode())]))


def _excluded(spec: Spec, drawn: Mapping[str, Any]) -> bool:
    return any(
        all(drawn.get(name) == value for name, value in rule.items()) for rule in spec.exclude
    )


def _random(spec: Spec) -> Iterator[dict[str, Any]]:
    for i in itertools.count():
        for attempt in range(_MOST_TRIES):
            drawn = {k: _draw(spec, k, setting, i, attempt) for k, setting in spec.common.items()}
            drawn |= stratum_of(spec, i)
            if not _excluded(spec, drawn):
                yield drawn
                break
        else:
            raise ValueError(f"[[exclude]] of {spec.name} leaves next to nothing to draw")


def stratum_of(spec: Spec, draw: int) -> Mapping[str, Any]:
    """The settings that a draw has because of its place among the others."""
    strata = spec.design.strata
    return strata[draw % len(strata)] if strata else {}


def _grid(spec: Spec) -> Iterator[dict[str, Any]]:
    if spec.design.strata:
        raise ValueError("strata are for random draws: give --trials N")
    settings = itertools.chain(spec.common.items(), *(arm.items() for arm in spec.arms.values()))
    for name, setting in settings:
        if isinstance(setting, Range):
            raise ValueError(f"{name} is a range, which has no end of values: give --trials N")
    if any(_is_space(setting) for arm in spec.arms.values() for setting in arm.values()):
        raise ValueError("arms that draw have no combinations of their own: give --trials N")
    for values in itertools.product(*(_values(setting) for setting in spec.common.values())):
        drawn = dict(zip(spec.common, values, strict=True))
        if not _excluded(spec, drawn):
            yield drawn

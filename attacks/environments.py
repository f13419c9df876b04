"""Environments that fail in every way that an environment can, but for hanging.

Each is an inverted pendulum until its fault comes. Importing this module registers them, so that
`midstride train gym:attacks.environments:NanReward-v0` meets one. `run` trains in all of them, by
the command, and counts how that ended.
"""

from __future__ import annotations

import io
import random
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np
from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv

AT = 60  # the step of each environment at which its fault comes
_TRAIN = (
    "--steps", "400", "--num-envs", "2", "--hidden", "8", "--batch-size", "8",
    "--learning-starts", "50", "--evaluate-every", "100000", "--evaluation-episodes", "1",
    "--checkpoint-every", "40", "--replay-size", "1000", "--latency", "20ms", "--no-video",
)  # fmt: skip

Given = tuple[Any, ...]  # what a step returns


class Odd:
    """Neither a number nor a text."""

    def __repr__(self) -> str:
        return "an odd thing\non two lines"


def _raises(error: BaseException) -> Callable[[Given], Given]:
    def fault(given: Given) -> Given:
        raise error

    return fault


def _gives(place: int, value: Any) -> Callable[[Given], Given]:
    """The same, with one of its five parts another."""
    return lambda given: (*given[:place], value, *given[place + 1 :])


def _observes(value: Any) -> Callable[[Given], Given]:
    return lambda given: (_with_second(given[0], value), *given[1:])


def _with_second(observation: Any, value: float) -> Any:
    changed = np.array(observation)
    changed[1] = value
    return changed


# What becomes of what a step returns, at its fault.
STEPS: dict[str, Callable[[Given], Given]] = {
    "NanReward": _gives(1, np.nan),
    "InfiniteReward": _gives(1, -np.inf),
    "HugeReward": _gives(1, 1e300),  # no float32
    "NoReward": _gives(1, None),
    "TextReward": _gives(1, "much"),
    "ManyRewards": _gives(1, np.ones(3)),
    "OddReward": _gives(1, Odd()),
    "NanObservation": _observes(np.nan),
    "InfiniteObservation": _observes(np.inf),
    "HugeObservation": _observes(1e300),
    "ShortObservation": lambda given: (given[0][:-1], *given[1:]),
    "LongObservation": lambda given: (np.append(given[0], 0.0), *given[1:]),
    "FlatObservation": lambda given: (given[0][None], *given[1:]),
    "NoObservation": _gives(0, None),
    "TextObservation": _gives(0, np.array(list("abcd"))),
    "ComplexObservation": lambda given: (given[0] * 1j, *given[1:]),
    "OddObservation": _gives(0, np.array([Odd()] * 4)),
    "RaggedObservation": _gives(0, [[0.0], [0.0, 1.0]]),
    "FourParts": lambda given: given[:4],
    "NoParts": lambda given: (),
    "NoInfo": _gives(4, None),
    "ManyEnds": _gives(2, np.array([True, False])),
    "StepRaises": _raises(KeyError("joint")),
    "StepRaisesLines": _raises(RuntimeError("the first line\n\n  the second line")),
    "StepRaisesNothing": _raises(Exception()),
    "StepDividesByZero": _raises(ZeroDivisionError("division by zero")),
    "StepAsserts": _raises(AssertionError()),
    "StepExits": _raises(SystemExit(0)),
    "StepWantsMemory": _raises(MemoryError()),
}
OTHERS = (
    "CannotBeMade",
    "ResetRaises",
    "LaterResetRaises",
    "NanReset",
    "ShortReset",
    "CloseRaises",
)
FAULTS = (*STEPS, *OTHERS)
EARLY = ("CannotBeMade", "ResetRaises", "CloseRaises")  # before there is anything to lose


class Faulty(InvertedPendulumEnv):
    """An inverted pendulum with a fault.

    fault: one of FAULTS
    at: the step, or for faults of a later reset the step after which, it comes
    """

    def __init__(self, fault: str, at: int = AT, **options: Any) -> None:
        if fault == "CannotBeMade":
            raise FileNotFoundError("no such model")
        super().__init__(**options)
        self._fault, self._at, self._steps = fault, at, 0

    def step(self, action: Any) -> Any:
        given: Given = super().step(action)
        self._steps += 1
        if self._steps == self._at and self._fault in STEPS:
            return STEPS[self._fault](given)
        return given

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        if self._fault == "ResetRaises" or (self._fault == "LaterResetRaises" and self._late):
            raise ConnectionError("the simulator does not answer")
        if self._fault == "NanReset" and self._late:
            return _with_second(observation, np.nan), info
        if self._fault == "ShortReset" and self._late:
            return observation[:-1], info
        return observation, info

    @property
    def _late(self) -> bool:
        return self._steps >= self._at

    def close(self) -> None:
        super().close()
        if self._fault == "CloseRaises":
            raise OSError("the simulator is gone")


for _name in FAULTS:
    if f"{_name}-v0" not in gymnasium.registry:
        gymnasium.register(
            f"{_name}-v0",
            entry_point="attacks.environments:Faulty",
            kwargs={"fault": _name},
            max_episode_steps=20,
        )


def task(fault: str) -> str:
    """What `midstride train` calls an environment with that fault."""
    return f"gym:attacks.environments:{fault}-v0"


def run(seed: int, faults: tuple[str, ...] = FAULTS) -> dict[str, int]:
    """Train in every faulty environment; how many ended how.

    tried: environments; sentences: ended with one sentence and exit code 2; tracebacks: with
    anything else, counted by what is wrong; lost: left no checkpoint that can be gone on with,
    though there was one; not_finite: wrote a number that is none
    """
    order = list(faults)
    random.Random(seed).shuffle(order)
    counts = Counter({"tried": 0, "sentences": 0, "tracebacks": 0, "lost": 0, "not_finite": 0})
    for fault in order:
        with TemporaryDirectory() as folder:
            code, said = train(fault, Path(folder), seed)
            counts["tried"] += 1
            is_sentence = code == 2 and said.startswith("midstride: ") and said.count("\n") == 1
            counts["sentences" if is_sentence else "tracebacks"] += 1
            steps, finite = left_in(Path(folder) / "run")
            counts["lost"] += steps < (0 if fault in EARLY else AT)
            counts["not_finite"] += not finite
    return dict(counts)


def train(fault: str, folder: Path, seed: int = 0) -> tuple[Any, str]:
    """`midstride train` in an environment with that fault: exit code, and what it said."""
    from midstride.cli import main

    said = io.StringIO()
    args = ["train", task(fault), *_TRAIN, "--seed", str(seed), "--runs", str(folder)]
    code: Any = 0
    with redirect_stderr(said), redirect_stdout(io.StringIO()):
        try:
            main([*args, "--name", "run"])
        except SystemExit as end:
            code = end.code
        except BaseException as error:
            code = repr(error)
    return code, said.getvalue()


def left_in(folder: Path) -> tuple[int, bool]:
    """The steps of the newest checkpoint (0: there is none), and whether all numbers are finite."""
    from midstride.disk.runs import Run

    found = Run.open(folder).load_checkpoint() if (folder / "config.json").exists() else None
    if found is None:
        return 0, True
    arrays, about = found
    finite = all(np.isfinite(a).all() for a in arrays.values() if a.dtype.kind == "f")
    return about["steps"], finite


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 0))

"""Attacks that happen inside of one process: mutated files, and environments that are broken.

Each runs in a fork of its own: what it starts, and what it breaks, ends with it.
"""

from __future__ import annotations

import atexit
import json
import os
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attacks.counts import Counts
from attacks.progress import Bounds, Section

_AT_ONCE = 20_000  # mutated files between two looks at the clock
_HARM = {
    "traceback": "tracebacks", "hang": "hangs", "code": "code executed", "outside": "files outside",
    "leak": "other",
}  # fmt: skip


def mutate(count: int, seed: int, place: Path, bounds: Bounds) -> dict[str, Counts]:
    """Feed mutated files to every loader; what came of them, by loader."""
    found: dict[str, Counts] = {}
    with bounds.section("mutated files", count) as section:

        def batches() -> Iterator[Any]:
            import jax

            from attacks.mutations import run

            # What is compiled would be kept outside of the folder, which is what is watched.
            jax.config.update("jax_enable_compilation_cache", False)
            for start in range(0, count, _AT_ONCE):
                size = min(_AT_ONCE, count - start)
                yield run(size, seed + start, bounds.left_s, place / "harmful")

        for batch in _in_a_fork(batches, section, place / "mutations-errors"):
            for loader, outcomes in batch.items():
                counts = found.setdefault(f"mutated files: {loader}", Counts())
                for outcome, number in outcomes.items():
                    counts.tries += number
                    if outcome in _HARM:
                        counts.troubles[_HARM[outcome]] += number
                    else:
                        counts.met(outcome, number)
            section.show(sum(counts.tries for counts in found.values()))
    return found


def break_environments(seed: int, place: Path, bounds: Bounds) -> dict[str, Counts]:
    """Train in every faulty environment."""
    counts = Counts()
    with bounds.section("faulty environments", 1) as section:

        def once() -> Iterator[Any]:
            from attacks.environments import run

            yield run(seed)

        for found in _in_a_fork(once, section, place / "environments-errors"):
            counts.tries += found["tried"]
            counts.troubles["tracebacks"] += found["tracebacks"]
            counts.troubles["lost"] += found["lost"]
            counts.troubles["other"] += found["not_finite"]
            counts.met("one sentence, exit code 2", found["sentences"])
        section.show(1)
    return {"faulty environments": counts}


def _in_a_fork(make: Callable[[], Iterator[Any]], section: Section, log: Path) -> Iterator[Any]:
    """What a generator gives in another process, as JSON; until it ends, or time is up."""
    log.parent.mkdir(parents=True, exist_ok=True)
    reads, writes = os.pipe()
    with warnings.catch_warnings():  # JAX warns of any fork; it has started nothing here
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called")
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            with os.fdopen(writes, "w") as pipe:
                for found in make():
                    pipe.write(json.dumps(found) + "\n")
                    pipe.flush()
                    if not section.goes_on():
                        break
            code = 0
        except BaseException:
            os.write(2, traceback.format_exc().encode(errors="replace"))
        finally:
            atexit._run_exitfuncs()  # which removes what it made; os._exit does not
            os._exit(code)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        for line in pipe:
            yield json.loads(line)
    _, status = os.waitpid(pid, 0)
    if status:
        raise RuntimeError(f"the attack itself failed: see {log}: {log.read_text()[-500:]}")

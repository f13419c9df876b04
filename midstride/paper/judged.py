"""Policies of trainings where they were not trained: at a latency, on other objects.

What came of it is kept in the folder of the run, and is made once.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from midstride.disk.code import code_version
from midstride.disk.files import write_whole
from midstride.disk.read import Missing, check_record, damage_of, read_json
from midstride.learn.agents import Training
from midstride.learn.trainer import FINAL_EPISODES, final_episodes
from midstride.measure.evaluate import evaluate_in
from midstride.policies import load
from midstride.settings import checked
from midstride.sweep.spec import slug


def judged(
    training: Training, folder: Path, name: str, seed: int | None = None, /, **changes: Any
) -> dict[str, Any]:
    """Returns and measures of the final episodes of a run, in its environment with changes.

    seed: of other episodes than those that every run is judged by, and as many
    """
    environment = replace(training.environment, **changes)
    path = folder / f"judged-{slug(name)}.json"
    about = {"code": code_version(), "hash": training.hash, "environment": environment.to_dict()}
    own = {} if seed is None else {"seed": seed}
    about = json.loads(json.dumps({**about, **own}))
    with suppress(Missing):
        record = read_json(path, {"about": dict, "returns": tuple[float, ...], "measures": dict})
        if record["about"] == about:
            with damage_of(path):
                check_record(record["measures"], {})
                for measure, values in record["measures"].items():
                    checked(measure, values, tuple[float, ...])
            return record
    with threadpool_limits(1):  # small products: threads that wait for one another cost more
        if seed is None:
            episodes = final_episodes(load(folder), environment, training.run)
        else:
            count = FINAL_EPISODES * training.run.evaluation_episodes
            episodes = evaluate_in(load(folder), environment, count, seed)
    record = {
        "about": about,
        "returns": [episode.total for episode in episodes],
        "measures": {
            measure: [episode.measures[measure] for episode in episodes]
            for measure in episodes[0].measures
        },
    }
    write_whole(path, json.dumps(record, allow_nan=False) + "\n")
    return record

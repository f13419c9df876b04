"""Where records come from: arrays, replay buffers, datasets, files, and runs of our own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.disk.runs import checkpoints_in, read_checkpoint, read_record
from midstride.latency import loses
from midstride.latency_text import latency_of_file, read_latency
from midstride.learn.agent import part_of
from midstride.learn.record import FIELDS, NEEDED, Record, joined, load_record
from midstride.learn.replay import SCALARS, Row
from midstride.learn.spaces import action_table
from midstride.seconds import format_s

Array = NDArray[Any]


def as_record(data: Any, action_space: spaces.Space[Any], period_s: float | None = None) -> Record:
    """A record from a record, a replay buffer, a dict of arrays, a dataset of Minari, a file or the
    folder of a run.

    period_s: how long a step lasts where the record is to be used; what tells another is refused
    """
    if isinstance(data, Record):
        return data
    if isinstance(data, (str, Path)):
        path = Path(data)
        return from_run(path, action_space, period_s) if path.is_dir() else load_record(path)
    if isinstance(data, Mapping):
        unknown = [name for name in data if name not in (*FIELDS, "within")]
        missing = [name for name in NEEDED if name not in data]
        if unknown or missing:
            wrong = f"no {', '.join(missing)}" if missing else f"an unknown {unknown[0]!r}"
            raise ValueError(f"the data have {wrong}: give arrays {', '.join(NEEDED)}")
        return Record(**data)
    if callable(getattr(data, "iterate_episodes", None)):
        return from_minari(data)
    return from_replay_buffer(data, action_space)


def from_minari(dataset: Any) -> Record:
    """What a dataset of Minari holds; its episodes are flat arrays, or this is an error."""
    records = []
    for episode in dataset.iterate_episodes():
        for name, part in (("observations", episode.observations), ("actions", episode.actions)):
            if not isinstance(part, np.ndarray):
                raise ValueError(
                    f"the dataset has {name} that are a {type(part).__name__}, and a record needs "
                    "flat arrays"
                )
        seen = episode.observations
        if seen.ndim != 2:
            raise ValueError(
                f"the dataset has observations of shape {seen.shape[1:]}, not flat ones"
            )
        if len(seen) != len(episode.actions) + 1:
            raise ValueError(
                f"an episode of the dataset has {len(seen):,} observations and "
                f"{len(episode.actions):,} actions: it needs one observation more"
            )
        if not len(episode.actions):
            continue
        terminated = np.asarray(episode.terminations, bool)
        truncated = np.asarray(episode.truncations, bool) & ~terminated
        records.append(Record(seen[:-1], episode.actions, seen[1:], terminated, truncated))
    if not records:
        raise ValueError("the dataset holds no step")
    return joined(records)


def from_replay_buffer(buffer: Any, action_space: spaces.Space[Any]) -> Record:
    """What a replay buffer of Stable-Baselines3 or of sbx holds, in memory.

    action_space: of the model; the buffer holds continuous actions scaled to [-1, 1]
    """
    try:
        size = buffer.buffer_size if buffer.full else buffer.pos
        stored = {n: getattr(buffer, n) for n in ("observations", "actions", "dones", "timeouts")}
        after = buffer.next_observations
    except AttributeError as error:
        raise ValueError(
            "this is no replay buffer of Stable-Baselines3 that holds what was observed next "
            f"({error}): give model.replay_buffer, made with optimize_memory_usage=False"
        ) from None
    if any(isinstance(array, dict) for array in stored.values()):
        raise ValueError("this replay buffer holds dicts, and a record needs flat observations")
    if size == 0:
        raise ValueError("the replay buffer is empty: train first, or give another")
    order = (np.arange(size) + (buffer.pos if buffer.full else 0)) % buffer.buffer_size
    records = []
    for env in range(stored["dones"].shape[1]):
        of_env = {name: array[order, env] for name, array in stored.items()}
        timeouts, done = of_env["timeouts"] > 0, of_env["dones"] > 0
        records.append(
            _in_order(
                of_env["observations"],
                _as_done(of_env["actions"], action_space),
                after[order, env],
                done & ~timeouts,
                timeouts,
            )
        )
    return joined(records)


def from_run(
    folder: Path, action_space: spaces.Space[Any], period_s: float | None = None
) -> Record:
    """What the newest checkpoint of one of our runs remembers, trained without latency.

    period_s: how long a step must last
    """
    record = read_record(folder)
    _check_frozen(folder, record["environment"])
    agent = record["agent"]
    if agent.get("agent") not in ("dqn", "drqn", "sac"):
        raise ValueError(
            f"what {agent.get('agent')} remembers is no record: give a run of dqn, drqn or sac"
        )
    kept = checkpoints_in(folder)
    if not kept:
        raise ValueError(
            f"{folder} keeps no checkpoint, which holds what happened in the training: train it "
            "again with this version, or record steps anew"
        )
    arrays, _ = read_checkpoint(kept[-1])
    remembered = part_of(arrays, "replay")
    continuous = agent["agent"] == "sac" and isinstance(action_space, spaces.Box)
    row = _row_of(remembered, action_space.shape or () if continuous else ())
    if row is None:
        raise ValueError(
            f"what {kept[-1]} remembers has other columns than a run of {agent['agent']} with "
            f"actions {action_space}: give a run of the same environment"
        )
    if not len(remembered["transitions"]):
        raise ValueError(f"{kept[-1]} remembers no step: train longer")
    levels = agent.get("levels", 0)
    steps = row.unpack(_oldest_first(remembered))
    records = []
    for env in range(steps["terminated"].shape[1]):
        mine = {name: array[:, env] for name, array in steps.items()}
        whole = _whole(folder, mine["period_s"], period_s)
        records.append(
            _in_order(
                mine["observation_capture"][whole],
                _as_done(_chosen(mine["action"], action_space, levels), action_space)[whole],
                mine["observation_next"][whole],
                mine["terminated"][whole],
                mine["truncated"][whole],
            )
        )
    return joined(records)


def _check_frozen(folder: Path, environment: Mapping[str, Any]) -> None:
    """An error unless a run is of somebody's environment, without latency, with nothing added."""
    task = str(environment.get("task"))
    if not task.startswith(("gym:", "dmc:")):
        raise ValueError(
            f"{folder} is a run of {task}: give one of a task gym:ID or dmc:DOMAIN/TASK"
        )
    latency = environment.get("latency", "0")
    model = read_latency(latency_of_file(latency, folder) if isinstance(latency, str) else latency)
    if max(model.values_s) > 0 or loses(model):
        raise ValueError(
            f"{folder} was trained at a latency of {latency}: give a run without latency, which a "
            "record is of"
        )
    if environment.get("knowledge"):
        raise ValueError(
            f"{folder} observes {', '.join(environment['knowledge'])} too: give a run without "
            "knowledge"
        )
    if environment.get("stack_observations") or environment.get("stack_actions"):
        raise ValueError(f"{folder} stacks what it observed: give a run without stacking")


def _row_of(remembered: Mapping[str, Array], shape: tuple[int, ...]) -> Row | None:
    """Where fields stand in the rows of a replay; None if it is no replay of such actions."""
    transitions, counts = remembered.get("transitions"), remembered.get("counts")
    if transitions is None or counts is None or transitions.ndim != 3 or counts.shape != (1,):
        return None
    actions = int(np.prod(shape)) if shape else 0
    # Without latency no switch is observed: the concurrent target is for those with one.
    columns, rest = divmod(transitions.shape[2] - max(1, actions) - len(SCALARS), 2)
    return None if rest or columns < 1 else Row(columns, False, actions)


def _oldest_first(remembered: Mapping[str, Array]) -> Array:
    transitions, added = remembered["transitions"], int(remembered["counts"][0])
    is_full = added > len(transitions)  # then the oldest stands where the next would be written
    return np.roll(transitions, -(added % len(transitions)), axis=0) if is_full else transitions


def _chosen(actions: Array, space: spaces.Space[Any], levels: int) -> Array:
    """Actions of a replay as a buffer holds them: whole numbers, or in [-1, 1]."""
    if isinstance(space, spaces.Discrete) or actions.dtype.kind == "f":
        return actions
    table = action_table(space, levels)
    assert table is not None
    if actions.min() < 0 or actions.max() >= len(table):
        raise ValueError(f"the run knows actions beyond the {len(table)} of {space}")
    low, high = space.low, space.high  # type: ignore[attr-defined]
    return np.asarray((table[actions] - low) / (high - low) * 2 - 1)


def _whole(folder: Path, lasted_s: Array, period_s: float | None) -> NDArray[np.bool_]:
    """(n,) which steps are whole: an episode may end inside of one of several own steps."""
    longest_s = float(lasted_s.max())
    if period_s is not None and not np.isclose(longest_s, period_s, rtol=1e-4):
        raise ValueError(
            f"steps of {folder} last {format_s(longest_s)}, and here {format_s(period_s)}: give "
            "the period that it was trained with"
        )
    return np.asarray(lasted_s > longest_s * (1 - 1e-4))


def _in_order(
    observation: Array, action: Array, observation_next: Array, terminated: Array, truncated: Array
) -> Record:
    """A record of steps that are known to be in order: where one does not follow, a new episode
    was begun, as by a second call of a learner."""
    follows = (observation_next[:-1] == observation[1:]).all(axis=1)
    cut = np.append(~follows, True)
    return Record(
        observation, action, observation_next, terminated, (truncated | cut) & ~terminated
    )


def _as_done(actions: Array, space: spaces.Space[Any]) -> Array:
    """Actions of a buffer as the environment took them."""
    if isinstance(space, spaces.Discrete):
        return actions.reshape(-1).astype(int)
    if not isinstance(space, spaces.Box):
        raise ValueError(f"adapt knows continuous and discrete actions, not {space}")
    low, high = space.low.ravel(), space.high.ravel()
    done = low + (actions.reshape(len(actions), -1) + 1) / 2 * (high - low)
    return np.clip(done, low, high).astype(np.float32)  # rounding may have gone beyond a bound

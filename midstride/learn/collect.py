"""Steps to adapt from, made here: of a frozen world, and of one with latency.

In the frozen world the policy acts, with more noise in some episodes than in others: a student that
errs must know what to do next to the path, not only on it. Some episodes begin with a few steps in
which nothing is in force, as all do where there is latency. In the world with latency the student
acts, and what the policy would do at each switch is asked afterwards (DAgger).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from midstride.knowledge import Layout
from midstride.learn.hindsight import Instants
from midstride.learn.record import FIELDS, Record
from midstride.timing import Timing

Array = NDArray[Any]
OnSteps = Callable[[int], None]  # told how many steps were made
Env = gymnasium.Env[Any, Any]
_TRIES = 100  # episodes that may end before anything can be recorded


def timing_of(env: Env) -> Timing:
    found: Timing = env.get_wrapper_attr("timing")
    return found


def layout_of(env: Env) -> Layout:
    found: Layout = env.get_wrapper_attr("layout")
    return found


def record_frozen(
    env: Env,
    policy: Any,
    steps: int,
    noise: Sequence[float],
    most_held: int,
    rng: np.random.Generator,
    on_steps: OnSteps = lambda steps: None,
) -> Record:
    """Steps of a world that freezes for thought, in which the policy acts.

    env: at latency 0
    noise: levels, in units of half the range of an action (of discrete ones the share of random
        actions); each episode has one of them, all have about as many steps
    most_held: episodes begin with up to so many steps in which nothing is in force, half of them
        with none
    """
    rows: list[tuple[Any, ...]] = []
    made = np.zeros(len(noise))
    lasting = 0  # episodes of which there is something to record
    shortest_s = (timing_of(env).shortest_period_ticks - 0.5) * timing_of(env).tick_s
    held_action = env.get_wrapper_attr("hold_action")
    if held_action is None:  # what holding does cannot be done by acting
        most_held = 0
    while len(rows) < steps:
        level = int(np.argmin(made))
        held = int(rng.integers(1, most_held + 1)) if most_held and rng.random() < 0.5 else 0
        observation = np.array(env.reset(seed=int(rng.integers(2**31)))[0])
        policy.reset()
        over, began = False, len(rows)
        while not over and len(rows) < steps:
            is_held = len(rows) - began < held
            chosen = policy(observation)  # also of what is held: it may have a memory
            action = held_action if is_held else noisy(chosen, noise[level], env.action_space, rng)
            after, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
            if info["period_s"] < shortest_s:  # it ended inside: what came of no whole step
                break
            cut = truncated and not terminated
            after = np.array(after)  # the environment may write the next one into it
            rows.append((observation, action, after, terminated, cut, is_held, info.get("within")))
            observation = after
        lasting += len(rows) > began
        if not lasting and made.sum() >= _TRIES:
            raise ValueError(
                f"none of {_TRIES} episodes lasts a whole period: give a shorter period, or let "
                "episodes last longer"
            )
        if len(rows) > began and not rows[-1][3]:
            rows[-1] = (*rows[-1][:4], True, *rows[-1][5:])  # what follows it is not known
        made[level] += max(1, len(rows) - began)
        on_steps(len(rows))
    columns = list(zip(*rows, strict=True))
    ticks = columns[-1][0] or {}
    found = dict(zip(FIELDS, map(np.asarray, columns[:-1]), strict=True))
    return Record(
        **found,
        within={tick: np.asarray([seen[tick] for seen in columns[-1]]) for tick in ticks},
    )


def noisy(action: Any, level: float, space: Any, rng: np.random.Generator) -> Any:
    """An action, and noise on it."""
    if isinstance(space, spaces.Discrete):
        return int(space.start + rng.integers(space.n)) if rng.random() < level else action
    half = (space.high - space.low) / 2
    moved = np.asarray(action, float) + level * half * rng.standard_normal(space.shape)
    return np.clip(moved, space.low, space.high).astype(space.dtype)


@dataclass(frozen=True)
class Visited:
    """What happened in a world with latency, as far as it is known what was right."""

    instants: Instants
    returns: list[float]  # of the episodes that ended


def visit(
    env: Env,
    student: Any,
    steps: int,
    noise: Sequence[float],
    rng: np.random.Generator,
    on_steps: OnSteps = lambda steps: None,
) -> Visited:
    """Steps of a world with latency in which the student acts; each episode has a level of noise.

    env: tells what is observed at switches. A decision that never comes into force is left out.
    """
    inputs: list[Any] = []
    switches: list[Any] = []
    returns: list[float] = []
    made = episode = 0
    while made < steps:
        level = noise[episode % len(noise)]
        seen: list[Any] = []
        observation, _ = env.reset(seed=int(rng.integers(2**31)))
        student.reset()
        over, total = False, 0.0
        while not over and made < steps:
            seen.append(observation)
            action = noisy(student(observation), level, env.action_space, rng)
            observation, reward, terminated, truncated, info = env.step(action)
            total += float(reward)
            over = terminated or truncated
            made += 1
            for number, at_switch in info["switches"]:
                if terminated and np.array_equal(at_switch, observation[: len(at_switch)]):
                    continue  # it came as the episode ended: nothing was right any more
                inputs.append(seen[number])
                switches.append(at_switch)
        if over:
            returns.append(total)
        episode += 1
        on_steps(made)
    if not inputs:
        raise ValueError(
            "episodes end before the first decision arrives: at this latency nothing is decided in "
            "time, and no policy can help"
        )
    rows = np.arange(len(inputs))
    return Visited(Instants(np.asarray(inputs), np.asarray(switches), rows), returns)

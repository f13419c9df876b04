"""Concurrent control for vector environments that others wrote, on whatever device they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from midstride.envs.actions import ActionCode, check_hold
from midstride.envs.arrays import Mask, beside, mapped, namespace, select
from midstride.envs.batch import Batch
from midstride.envs.concurrent import AHEAD
from midstride.envs.knower import base_columns, check_fits, widened_space
from midstride.envs.own_time import steps_time
from midstride.flight import Flight
from midstride.knowledge import Layout, check_features, selection_time
from midstride.latency import LatencyModel, loses
from midstride.timing import Thinker, Timing

Info = dict[str, Any]


class ConcurrentVector(VectorWrapper[Any, Any, Any]):
    """Any Gymnasium vector environment, moving while the agent thinks.

    envs: its own steps are the ticks. Its observations, actions and rewards may be NumPy arrays,
        PyTorch tensors or JAX arrays; they stay on their device. Who has ended comes to the host
    latency: seconds from an observation to the switch to the action chosen on it, shorter or longer
        than the period; or a latency model, drawn for each environment by itself
    period: seconds from one observation to the next, a whole number of own steps (default: one)
    step_s: seconds that a step of the environments lasts, where they do not say so (`dt`)
    knowledge: any of previous_action, pending_actions, selection_time
    thinker: pipelined (observes every period) or serial (observes when the last thought is over;
        all environments together, so their latencies must take the same number of periods)
    hold: the action before the first decision of an episode arrives (default: zeros, within bounds;
        of discrete actions the first)

    Environment i of a batch seeded with s has the latencies of `Concurrent` seeded with s + i.

    An episode that ends inside a period ends there: its reward is what came until then. The other
    environments go on; it follows `hold` until the next capture, and what it is paid meanwhile
    belongs to nobody. With a period of one step, or if all end together, there is no meanwhile.
    Autoreset is the environments' own: SAME_STEP, the observation is of the new episode, which has
    held since it began (the last one is in info["final_obs"]); NEXT_STEP, the observation is the
    last, and in the next step, whose action is ignored, the new episode holds; DISABLED, the
    observation is the last, and `reset` with options={"reset_mask": ...} is awaited.

    `info` of a step is the environments' own (of their last step in the period), and what `info` of
    `Concurrent` has, one row per environment, with Gymnasium's masks.
    """

    def __init__(
        self,
        envs: VectorEnv[Any, Any, Any],
        latency: float | LatencyModel = 0.0,
        *,
        period: float | None = None,
        step_s: float | None = None,
        knowledge: Iterable[str] = (),
        thinker: Thinker = "pipelined",
        hold: Any = None,
    ) -> None:
        _check_environments(envs)
        super().__init__(envs)
        self._mode = envs.metadata["autoreset_mode"]
        self.timing = steps_time(envs, step_s).timing(latency, period, thinker)
        self._interval = _interval(self.timing)
        code = ActionCode(envs.single_action_space)
        self.layout = Layout(
            base=base_columns(envs.single_observation_space),
            action=code.columns,
            controlled=None,
            features=check_features(knowledge),
            pending_slots=self.timing.pending_slots,
            units={"previous_action": code.units},
        )
        check_fits(self.layout, envs.single_observation_space, envs.single_action_space)
        self._moves_by_numbers = not isinstance(envs.single_action_space, spaces.Discrete)
        self._plain = self.layout.is_plain
        if not self._plain:
            own = envs.single_observation_space
            self.single_observation_space = widened_space(own, self.layout, code)
            self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.flight = Flight(self.num_envs, (), self.timing.most_pending)
        held = check_hold(hold, envs.single_action_space)
        self._batch = Batch(envs, self.flight, held, None if self._plain else code)
        self._latencies = _Latencies(self.timing, self.num_envs)
        self._waiting: Mask | None = None  # whose episode is over; None before the first reset

    @property
    def columns(self) -> tuple[str, ...]:
        """The name of every column of an observation."""
        return self.layout.columns

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, Info]:
        n, seed_of_all = self.num_envs, cast(Any, seed)
        which = np.array((options or {}).get("reset_mask", np.ones(n, bool)), bool)
        own_options = None if options is None else dict(options)  # Gymnasium takes things out of it
        observation, info = self.env.reset(seed=seed_of_all, options=own_options)
        if self._waiting is None:
            self._waiting = np.zeros(n, bool)
        if seed is not None:
            seeds = [seed + i for i in range(n)] if isinstance(seed, (int, np.integer)) else seed
            self._latencies.seed(seeds, which)
        self._waiting = self._waiting & ~which
        self._start(which)
        self._batch.restart(which)
        if self._plain:
            return observation, info
        known = self._known() if self._batch.columns is not None else self._nothing(observation)
        return self._augmented(observation, known), info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Info]:
        """From capture to next capture, in every environment."""
        if self._waiting is None:
            raise RuntimeError("call reset before the first step")
        waiting = self._waiting
        if self._mode is AutoresetMode.DISABLED and waiting.any():
            raise RuntimeError("an episode is over: reset it before the next step")
        actions = self._checked(actions)
        latency, lost = self._latencies.next(~waiting)
        flight, batch = self.flight, self._batch
        numbers = batch.decide(actions)
        batch.begin(waiting, self._interval > 1, None if self._plain else self._known)
        stale = flight.stale.copy()
        flight.capture(numbers, latency, ~waiting, lost)
        flight.period(batch, np.full(self.num_envs, self._interval))
        batch.bury(steps_follow=False)
        observation, own_info = batch.result()
        info = {**own_info, **self._said(latency, lost, stale, waiting)}
        if not self._plain:
            observation = self._observed(observation, info)
        self._start(batch.begun)
        if self._mode is AutoresetMode.SAME_STEP:
            batch.hold(batch.ended)
        else:
            self._waiting = (waiting | batch.ended) & ~batch.begun
        return observation, batch.reward, batch.terminated, batch.truncated, info

    def _start(self, which: Mask) -> None:
        """Episodes begin in `which`: nothing is in flight."""
        ids = np.flatnonzero(which)
        if len(ids):
            self.flight.reset(ids)
            self._latencies.begin(ids)

    def _checked(self, actions: Any) -> Any:
        """Actions as arrays, finite ones."""
        space = self.single_action_space
        if not isinstance(space, (spaces.Dict, spaces.Tuple)) and not hasattr(actions, "shape"):
            actions = np.asarray(actions)
        shape, wanted = getattr(actions, "shape", None), getattr(self.action_space, "shape", None)
        if shape is not None and wanted is not None and tuple(shape) != tuple(wanted):
            raise ValueError(f"actions must be of shape {tuple(wanted)}, got {tuple(shape)}")
        if self._moves_by_numbers:
            mapped(_check_finite, actions)
        return actions

    def _said(
        self, latency: NDArray[np.int64], lost: Mask, stale: NDArray[np.int64], waiting: Mask
    ) -> Info:
        """What `info` says of time and reward; see `Concurrent`."""
        batch, tick_s, active = self._batch, self.timing.tick_s, ~waiting
        pending, stale_now = batch.counts
        said = {
            "reward_before_switch": batch.before,
            "reward_after_switch": batch.reward - batch.before,
            "latency_s": latency * tick_s * active,
            "period_s": batch.lived * tick_s,
            "pending": pending * active,
            "stale": (stale_now - stale) * active,
            "lost": lost & active,
        }
        return {**said, **{f"_{name}": active for name in said}}

    # --- What is known

    def _known(self) -> Any:
        """Columns of what is known now, (n, columns), where the actions are."""
        batch, parts = self._batch, []
        for name in self.layout.blocks:
            if name == "previous_action":
                parts.append(batch.columns)
            elif name == "pending_actions":
                parts.append(batch.pending(self.layout.pending_slots))
            elif name == "selection_time":
                measured = selection_time(
                    self.flight.latency * self.timing.tick_s, self.timing.selection_scale_s
                )
                parts.append(beside(measured[:, None], batch.columns))
        return namespace(batch.columns).concatenate(parts, 1)

    def _nothing(self, observation: Any) -> Any:
        """What is known where nothing has ever been decided."""
        width = len(self.layout.columns) - len(self.layout.base)
        return beside(np.zeros((self.num_envs, width)), observation, self._type(observation))

    def _observed(self, observation: Any, info: Info) -> Any:
        """The observation with what is known; of episodes that began anew, nothing is."""
        batch, known = self._batch, self._known()
        if batch.known is not None:
            known = select(batch.ended, batch.known, known)
        if self._mode is AutoresetMode.SAME_STEP and batch.ended.any() and "final_obs" in info:
            last = _dense(info["final_obs"], batch.ended, observation)
            info["final_obs"] = self._augmented(last, known)
        fresh = batch.begun | batch.waiting
        if fresh.any():
            known = select(fresh, namespace(known).zeros_like(known), known)
        return self._augmented(observation, known)

    def _augmented(self, observation: Any, known: Any) -> Any:
        xp, kind = namespace(observation), self._type(observation)
        own = xp.asarray(observation, dtype=kind)
        return xp.concatenate([own, xp.asarray(known, dtype=kind, device=own.device)], 1)

    def _type(self, observation: Any) -> Any:
        """Of the columns: the observation's, or what the space says of one that is not floating."""
        if "float" in str(observation.dtype):
            return observation.dtype
        return getattr(namespace(observation), str(self.single_observation_space.dtype))


def _check_finite(array: Any) -> None:
    if "float" in str(array.dtype) and not bool(namespace(array).isfinite(array).all()):
        raise ValueError("actions must be finite numbers, and some of these are not")


class _Latencies:
    """The latencies of n environments, each from a generator of its own."""

    def __init__(self, timing: Timing, n: int) -> None:
        self._timing = timing
        self._rngs = [np.random.default_rng() for _ in range(n)]
        self._draws: list[Any] = [None] * n
        low, high = timing.latency_bounds_ticks
        self._constant = low == high and not loses(timing.latency)
        self._latency, self._lost = np.full((n, AHEAD), high), np.zeros((n, AHEAD), bool)
        self._at = np.full(n, AHEAD)  # in them

    def seed(self, seeds: Sequence[int | None], which: Mask) -> None:
        for i in np.flatnonzero(which):
            seed = seeds[int(i)]
            if seed is not None:
                self._rngs[i] = np.random.default_rng([seed, 1])

    def begin(self, ids: NDArray[np.integer]) -> None:
        """Episodes begin in environments `ids`."""
        if self._constant:
            return
        for i in ids:
            self._draws[i] = self._timing.episode(self._rngs[i])
        self._at[ids] = AHEAD

    def next(self, which: Mask) -> tuple[NDArray[np.int64], Mask]:
        """Ticks, and whether the decision is lost, for those of `which`."""
        if self._constant:
            return self._latency[:, 0], self._lost[:, 0]
        for i in np.flatnonzero(self._at >= AHEAD):
            self._latency[i], _, self._lost[i] = self._draws[i](AHEAD)
            self._at[i] = 0
        row = np.arange(len(self._at)), self._at
        found = self._latency[row], self._lost[row]
        self._at = self._at + which
        return found


def _dense(rows: Any, which: Mask, like: Any) -> Any:
    """Observations (n, columns) of those of `which`, which Gymnasium may keep one by one."""
    if hasattr(rows, "shape") and rows.shape == like.shape:
        return rows
    found = np.zeros(like.shape, like.dtype)
    found[which] = np.stack([rows[i] for i in np.flatnonzero(which)])
    return found


def _interval(timing: Timing) -> int:
    """Ticks from a capture to the next: the same for all, because they are stepped together."""
    low_s, high_s = timing.shortest_period_ticks * timing.tick_s, timing.longest_period_s
    if high_s - low_s > timing.tick_s / 2:
        raise ValueError(
            "a serial thinker observes when its last thought is over, and environments that are "
            "stepped together must observe together: give latencies that take the same number of "
            "periods, or wrap each environment in Concurrent"
        )
    return timing.shortest_period_ticks


def _check_environments(envs: Any) -> None:
    if not isinstance(envs, VectorEnv):
        raise ValueError(
            f"ConcurrentVector wraps a Gymnasium vector environment, got {envs!r}: wrap a single "
            "one in Concurrent"
        )
    inner: Any = envs
    while isinstance(inner, VectorWrapper):
        if isinstance(inner, ConcurrentVector):
            raise ValueError("these environments are concurrent already: wrap them once")
        inner = inner.env
    if not isinstance(envs.metadata.get("autoreset_mode"), AutoresetMode):
        raise ValueError(
            f"{envs} does not say how it begins episodes anew: set its "
            'metadata["autoreset_mode"] to one of gymnasium.vector.AutoresetMode'
        )

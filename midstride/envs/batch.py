"""A period of a vector environment: each of its environments switches at its own step.

Whose episode ends inside a period is done for that period. The others go on, so it cannot be left
out of their steps: it follows `hold`, in the new episode if the environments begin one themselves,
until the next capture. If nobody else is under way, no time passes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from midstride.envs.actions import ActionCode
from midstride.envs.arrays import (
    Mask,
    batch_of,
    beside,
    kept,
    mapped,
    merged_info,
    namespace,
    on_host,
    select,
)
from midstride.flight import Flight, Ticks

Info = dict[str, Any]


class Batch:
    """The plant: a vector environment whose own steps are the ticks.

    The flight holds the numbers of batches of decisions; what they are is kept here, where it is.
    """

    def __init__(
        self, envs: VectorEnv[Any, Any, Any], flight: Flight, hold: Any, code: ActionCode | None
    ) -> None:
        """hold: an action; code: of actions, where their columns are asked for"""
        self._envs, self._flight, self._code = envs, flight, code
        self._mode = envs.metadata["autoreset_mode"]
        self._held = batch_of(envs.single_action_space, hold, envs.num_envs)
        self._hold: Any = None  # the same, as actions are
        self.command: Any = None  # what each follows
        self.columns: Any = None  # the same, as columns
        self._decisions: dict[int, tuple[Any, Any]] = {}  # number -> actions, columns
        self._number = 0
        self._unreset = np.zeros(envs.num_envs, bool)  # over: they begin anew in the next step

    def restart(self, which: Mask) -> None:
        """They have been reset from outside; if all, actions may be of another make from now on."""
        self._unreset &= ~which
        if which.all():
            self._decisions, self.command, self.columns = {}, None, None
        self.hold(which)

    def hold(self, which: Mask) -> None:
        """Nothing is in force in `which`."""
        if self.command is not None and which.any():
            self.command = select(which, self._hold, self.command)
            if self.columns is not None:
                nothing = namespace(self.columns).zeros_like(self.columns)
                self.columns = select(which, nothing, self.columns)

    def decide(self, actions: Any) -> NDArray[np.float64]:
        """Remember a batch of decisions; its number, for the flight."""
        actions = kept(actions)
        columns = None if self._code is None else self._code.of_many(actions, namespace(actions))
        if self.command is None:
            self._hold = mapped(beside, self._held, actions)
            self.command = self._hold
            self.columns = None if columns is None else namespace(columns).zeros_like(columns)
        self._number += 1
        self._decisions[self._number] = actions, columns
        self._decisions.pop(self._number - self._flight.most_pending - 1, None)
        return np.full(self._flight.n, float(self._number))

    def pending(self, slots: int) -> Any:
        """Columns of the decisions that are pending, (n, slots x columns), oldest first."""
        there, numbers = self._flight.pending(slots)
        parts = []
        for k in range(slots):
            part = namespace(self.columns).zeros_like(self.columns)
            for number in np.unique(numbers[there[:, k], k]):
                which = there[:, k] & (numbers[:, k] == number)
                part = select(which, self._decisions[int(number)][1], part)
            parts.append(part)
        return namespace(self.columns).concatenate(parts, 1)

    # --- A period

    def begin(self, waiting: Mask, several: bool, look: Callable[[], Any] | None) -> None:
        """A period, of several steps or one.

        waiting: whose episode is over; they are left alone, and begin anew if they do so themselves
        look(): what is known now, as columns; asked where an episode ends
        """
        n = self._flight.n
        self._look, self._several, self.waiting = look, several, waiting
        self.hold(waiting)
        self.ended = np.zeros(n, bool)  # in this period
        self.counts = np.zeros((2, n), np.int64)
        self.lived = np.zeros(n, np.int64)  # ticks of this period, to the end of the episode
        self._dying = np.zeros(n, bool)  # at this very tick
        self._asleep = waiting
        self.reward: Any = None
        self.before: Any = None  # the part of it before the switch to this period's decision
        self.terminated: Any = None
        self.truncated: Any = None
        self.observation: Any = None
        self.known: Any = None  # at the ends of episodes
        self._kept: tuple[Any, Info] | None = None  # observation and info at the ends of episodes
        self.info: Info = {}

    def switch(self, which: Mask, numbers: NDArray[Any]) -> None:
        which = which & ~self._asleep
        chosen = numbers[which]
        alike = len(chosen) and (chosen == chosen[0]).all()
        for number in chosen[:1] if alike else np.unique(chosen):
            now = which if alike else which & (numbers == number)
            actions, columns = self._decisions[int(number)]
            everyone = bool(now.all())
            self.command = actions if everyone else select(now, actions, self.command)
            if columns is not None:
                self.columns = columns if everyone else select(now, columns, self.columns)

    def advance(self, running: Mask, ticks: int, ahead: Ticks) -> int:
        self.bury(steps_follow=True)
        for passed in range(1, ticks + 1):
            if self._asleep.all() and not (self.waiting & self._unreset).any():
                return ticks  # nobody is under way
            self._step()
            if self._dying.any():
                return passed  # what arrives at this tick arrives
        return ticks

    def at_rest(self) -> Mask:
        raise NotImplementedError("periods of a vector environment have an end")

    def _step(self) -> None:
        if self._mode is AutoresetMode.DISABLED and self._unreset.any():
            # So that the others can go on; whoever ended awaits a reset from outside all the same.
            self._envs.reset(options={"reset_mask": self._unreset.copy()})
        observation, reward, terminated, truncated, info = self._envs.step(self.command)
        over = on_host(terminated | truncated)
        awake = ~self._asleep
        late = awake & ~self._flight.newest_in_force
        self.lived += awake
        self._dying = over & awake
        if self.reward is None and awake.all():
            self.reward = kept(reward) if self._several else reward
            self.terminated, self.truncated = terminated, truncated
            self.before = self.reward if late.all() else _where(late, reward)
        else:
            paid, early = _where(awake, reward), _where(late, reward)
            died, cut = _where(awake, terminated), _where(awake, truncated)
            if self.reward is None:
                self.reward, self.before, self.terminated, self.truncated = paid, early, died, cut
            else:
                self.reward, self.before = self.reward + paid, self.before + early
                self.terminated, self.truncated = self.terminated | died, self.truncated | cut
        self.observation, self.info = observation, info
        self._unreset = over & (self._mode is not AutoresetMode.SAME_STEP)

    def bury(self, steps_follow: bool) -> None:
        """Whose episode has just ended is done for this period; what it saw last is kept."""
        dying = self._dying
        if not dying.any():
            return
        known = None if self._look is None else self._look()
        earlier = self.ended
        self.counts = np.where(earlier, self.counts, self._counts())
        self._asleep, self.ended = self._asleep | dying, self.ended | dying
        self._dying = np.zeros_like(dying)
        if known is not None:
            self.known = known if self.known is None else select(earlier, self.known, known)
        if self._kept is None:
            self._kept = kept(self.observation) if steps_follow else self.observation, self.info
        else:
            seen, info = self._kept
            self._kept = (
                select(earlier, seen, self.observation),
                merged_info(info, self.info, earlier),
            )
        if steps_follow and not self._asleep.all():
            self.hold(dying)

    def _counts(self) -> Ticks:
        """Decisions pending, and stale in the episode so far, (2, n)."""
        return np.stack([self._flight.count_pending(), self._flight.stale])

    @property
    def begun(self) -> Mask:
        """Whose new episode has begun in this period."""
        if self._mode is AutoresetMode.SAME_STEP:
            return self.ended
        return self.waiting & ~self._unreset

    def result(self) -> tuple[Any, Info]:
        """Observation and info at the next capture."""
        self.counts = np.where(self.ended, self.counts, self._counts())
        if self._kept is None or self._kept[1] is self.info:
            return self.observation, self.info
        seen, info = self._kept
        observation = self.observation
        if self._mode is not AutoresetMode.SAME_STEP:
            observation = select(self.ended, seen, observation)
        return observation, merged_info(info, self.info, self.ended)


def _where(which: Mask, values: Any) -> Any:
    return select(which, values, namespace(values).zeros_like(values))

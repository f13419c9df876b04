"""The books of a training that is spread over machines: what is done, under way, and owed.

The coordinator (`coordinator.py`) writes in them what it asked for and what came back; everything
here is arithmetic. One sum always holds: the updates that are done, those of blocks under way and
those that are owed are together what preparation and steps have called for (but `forgive`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from midstride.scale.cluster import Reference
from midstride.scale.parcels import Block, Call, Evaluation, Published, Round
from midstride.scale.plan import ScaleSettings, Work

_COUNTED = (
    "transitions", "labels", "updates", "labels_again", "actors_lost", "actors_replaced",
    "rounds_lost", "transitions_forgotten", "updates_forgone",
)  # fmt: skip


class Books:
    """What has been counted so far, and what is on its way."""

    def __init__(self, work: Work, scale: ScaleSettings) -> None:
        self.work, self.scale = work, scale
        self.phase = "auxiliary"  # then offline, then online
        self.auxiliary_left = work.auxiliary_blocks
        self.rounds: list[deque[Round]] = [deque() for _ in range(scale.replays)]
        self.blocks: list[Block] = []
        self.evaluations: deque[Evaluation] = deque()
        self.published: deque[Published] = deque(maxlen=2)
        self.steps = 0  # that have arrived in memories
        self.on_the_way = 0  # steps that were asked for, and have not arrived
        self.owed = 0.0  # updates, and parts of one, that steps have called for
        self.updates = 0
        self.version = 0
        self.drawn = 0  # blocks
        self.sampled = self.fitted = 0  # blocks since preparation
        self.generation = 0  # times that fitters went back
        self.kept: Any = None  # (updates, state) of the fitters
        self.fitted_since_kept = 0
        self.key: Any = None  # of the next label
        self.random: Any = None  # lock step: the state of the one generator
        self.is_random_away = False
        self.seen_first: Any = None  # what a policy must know beside its weights: at first,
        self.seen: Any = None  # when the newest block was sampled,
        self.seen_last: Any = None  # and when the newest steps arrived
        self.returns: deque[float] = deque(maxlen=work.num_envs)
        self.losses: dict[str, tuple[float, int]] = {}
        self.measured: dict[str, float] | None = None  # by the newest block: told with the next
        self.counts: dict[str, float] = dict.fromkeys(_COUNTED, 0)
        self.staleness: dict[str, tuple[float, int, float]] = {}  # sum, count, largest

    # --- Steps

    def arrived(self, rounds: Round, added: int, seen: Any) -> tuple[int, int]:
        """Rounds are in a memory, so many of them new; steps before and after.

        Steps count when they have arrived, once, and then call for updates.
        """
        work, n = self.work, self.work.num_envs
        self.on_the_way -= rounds.length * n
        before, self.steps = self.steps, self.steps + added * n
        self.counts["transitions"] += added * n
        self.seen_last = seen
        starts = -(-work.begins_after // n) * n - n  # before the first that calls for updates
        self.owed += work.calls_for(max(0, self.steps - max(before, starts)))
        if crosses(before, self.steps, work.evaluate_every):
            self.evaluations.append(Evaluation(self.steps, self.called_for, self.mean_return, seen))
        return before, self.steps

    @property
    def called_for(self) -> int:
        """Updates in all that have been called for."""
        return self.updates + sum(block.updates for block in self.blocks) + int(self.owed)

    @property
    def blocks_behind(self) -> float:
        """Blocks that the steps so far, and those that are asked for, call for; not fitted yet."""
        updates = self.owed + self.work.calls_for(self.on_the_way)
        return updates / self.work.at_once + len(self.blocks)

    @property
    def is_drained(self) -> bool:
        """Nothing is under way, and nothing is left to do."""
        return not (self.on_the_way or self.blocks or self.evaluations or self.owed >= 1)

    def forgive(self) -> None:
        """No memory holds anything to learn from: what is owed cannot be done."""
        self.counts["updates_forgone"] += int(self.owed)
        self.owed -= int(self.owed)
        for evaluation in self.evaluations:
            evaluation.after = min(evaluation.after, self.called_for)

    # --- Blocks

    def updates_to_sample(self, is_draining: bool) -> int:
        """Of the next block; 0 if none is called for."""
        at_once = self.work.at_once
        if self.scale.lock_step and self.phase == "online":
            return int(self.owed)
        if is_draining:
            return int(min(self.owed, at_once))  # what is left
        return at_once if self.owed >= at_once else 0

    def new_block(self, updates: int) -> Block:
        self.owed -= updates
        self.sampled += self.phase == "online"
        self.drawn += 1
        return self._started(Block(updates))

    def new_auxiliary(self) -> Block:
        self.auxiliary_left -= 1
        return self._started(Block(0, is_auxiliary=True))

    def _started(self, block: Block) -> Block:
        self.blocks.append(block)
        return block

    def first(self, stage: str) -> Block | None:
        return next((block for block in self.blocks if block.stage == stage), None)

    def fresh(self) -> Block | None:
        """A labelled block; labels that are too old by now are sent to be made again."""
        while block := self.first("labelled"):
            is_young = self.updates - block.made_at <= self.scale.max_staleness
            if is_young or block.is_auxiliary or not self.work.labels_each:
                return block
            self.make_again(block)
        return None

    def make_again(self, block: Block) -> None:
        """A label is too old, or of weights that are no more."""
        if not self.work.labels_each:
            block.stage = "labelled"  # updates label their own
            return
        self.counts["labels_again"] += 1
        block.stage, block.labels = "sampled", None

    def drop(self, block: Block) -> None:
        """A block is gone; its updates are owed again."""
        if block.is_dropped:
            return
        self.blocks.remove(block)
        block.is_dropped = True
        self.owed += block.updates
        self.auxiliary_left += block.is_auxiliary
        self.sampled -= self.phase == "online"

    def has_fitted(self, block: Block, measured: dict[str, float]) -> None:
        if self.work.labels_each:
            self.count_staleness("label", self.updates - block.made_at)
        self.blocks.remove(block)
        self.counts["updates"] += block.updates
        self.fitted_since_kept += 1
        if self.phase == "online":
            self.fitted += 1
            self._add_losses(measured)

    def publish(self, record: Any, data: Sequence[Reference]) -> None:
        """Weights of the fitters are there for all."""
        self.updates = record["updates"]
        self.version += 1
        acting, judging = data
        self.published.append(Published(self.version, self.updates, self.fitted, acting, judging))

    def acting(self) -> tuple[Published, Any]:
        """Weights to act with, and what was seen: the newest.

        In lock step the weights from before the block under way, as in the local loop.
        """
        if not self.scale.lock_step:
            return self.published[-1], self.seen
        before = max(self.sampled - 1, 0)
        fits = [one for one in self.published if one.number <= before]
        weights = fits[-1] if fits else self.published[0]
        return weights, self.seen if before else self.seen_first

    def due(self) -> Evaluation | None:
        """An evaluation whose weights are there now."""
        for evaluation in self.evaluations:
            if evaluation.weights is None:
                return evaluation if self.updates >= evaluation.after else None
        return None

    # --- Phases

    def begin(self, phase: str) -> None:
        self.phase = phase
        self.fitted_since_kept = self.scale.keep_every  # keep what came of the phase before
        if phase == "offline":
            self.owed = float(self.work.offline_blocks * self.work.at_once)
            if not self.owed:
                self.begin("online")
        else:
            self.owed, self.measured = 0.0, None

    def end_offline(self) -> None:
        """Begin with steps, when all updates before them are done."""
        if self.phase == "offline" and not self.blocks and self.owed < self.work.at_once:
            self.begin("online")

    @property
    def keeps(self) -> bool:
        """Whether the fitters' state is to be kept now."""
        return self.phase != "auxiliary" and self.fitted_since_kept >= self.scale.keep_every

    def go_back(self) -> None:
        """A fitter is lost: to what was kept; updates since then are owed again."""
        self.generation += 1
        self.published.clear()
        if self.kept is None:  # in preparation, which begins again
            for block in self.blocks:
                block.is_dropped = True
            self.blocks.clear()
            self.phase, self.auxiliary_left = "auxiliary", self.work.auxiliary_blocks
            self.owed, self.key = 0.0, None
            return
        self.owed += max(0, self.updates - self.kept[0])
        self.updates = self.kept[0]
        for block in self.blocks:
            if block.stage in ("labelled", "fitting"):
                self.make_again(block)

    # --- Losses

    def undo(self, call: Call) -> None:
        """A call ended with its actor: what it was for is still to be done."""
        kind, about = call.kind, call.about
        if kind in ("collect", "sample", "auxiliary"):
            self.is_random_away = False
        if kind == "collect":
            self.on_the_way -= about[0] * self.work.num_envs
        elif kind == "add":
            self.rounds[call.member.place].appendleft(about)
        elif kind in ("sample", "auxiliary"):
            self.drop(about)
        elif kind == "label":
            about.stage = "sampled"
        elif kind in ("evaluate", "last"):
            about.is_under_way = False

    def forget(self, call: Call) -> None:
        """What a call was given is gone with the machine that held it; its actor is well."""
        kind, about = call.kind, call.about
        if kind == "add":
            self.on_the_way -= about.length * self.work.num_envs
            self.counts["rounds_lost"] += about.length
            return
        self.undo(call)
        if kind in ("label", "fit_auxiliary"):
            self.drop(about)
        elif kind in ("fit", "begin"):  # nothing was applied yet
            self.drop(about.block)

    # --- What is random in lock step

    def taken_random(self) -> Any:
        """The one generator of lock step, which is away now."""
        self.is_random_away = self.scale.lock_step
        return self.random

    def return_random(self, record: Any) -> None:
        self.is_random_away = False
        if self.scale.lock_step:
            self.random = record["random"]

    # --- Checkpoints

    def about(self) -> dict[str, Any]:
        """What a checkpoint must hold beside state and memories, as JSON can."""
        return {
            "steps": self.steps,
            "random": {} if self.random is None else self.random,
            "returns": list(self.returns),
            "owed": self.owed,
            "losses": dict(self.losses),
            "key": None if self.key is None else np.asarray(self.key).tolist(),
            "version": self.version,
            "counts": dict(self.counts),
        }

    def go_on(self, about: dict[str, Any], state: Any) -> None:
        """From a checkpoint."""
        self.phase, self.steps, self.owed = "online", about["steps"], about["owed"]
        self.random = about["random"] or None
        self.returns.extend(about["returns"])
        self.losses = about["losses"]
        self.key = None if about["key"] is None else np.array(about["key"], np.uint32)
        self.version = about["version"]
        self.counts |= about["counts"]
        self.kept = state

    # --- What is told

    @property
    def mean_return(self) -> float | None:
        return float(np.mean(self.returns)) if self.returns else None

    def _add_losses(self, measured: dict[str, float]) -> None:
        """What is told is of the blocks before the newest, as in the local loop."""
        for name, value in (self.measured or {}).items():
            total, count = self.losses.get(name, (0.0, 0))
            self.losses[name] = total + value, count + 1
        self.measured = measured

    def count_staleness(self, what: str, age: float) -> None:
        total, count, largest = self.staleness.get(what, (0.0, 0, 0.0))
        age = max(0, age)
        self.staleness[what] = total + age, count + 1, max(largest, age)


def crosses(before: int, after: int, every: int) -> bool:
    return after // every != before // every

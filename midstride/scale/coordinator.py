"""Who does what next, when a training is spread over machines. Read this file first.

    collectors --rounds--> memories --blocks--> updaters --labels--> fitter --weights--> all
                                    \\--------------------------------/      \\--> judge

Everything that happens is a call of the coordinator to an actor, one at a time for each. When a
call ends, the coordinator reads the small record that came first, keeps references to the data
that came with it, and decides who may be called next: the methods `_next_for_...` are all of its
policy. Data never passes through it. It knows neither Ray nor JAX, and has one clock: the steps
and the updates that are counted.

**The same training.** A step calls for as many updates as in a local training (`update_every`):
where collecting is slow, fitting waits, and where fitting is slow, collecting waits (`ahead`).
So the number of updates per step, the replay ratio, is the same however many machines there are.

**Versions.** Every `fit` publishes weights with the next version. A round knows the version that
acted in it, a block the one that labelled it. How old they are when they are used is measured in
updates; a label that is older than `max_staleness` is made again.

**Loss.** An actor may be gone at any moment. What it was doing is undone here and given to
another: a round that arrived nowhere is sent again (memories know a round by its collector and
number, and keep it once), a block is labelled again, an evaluation is done again. A new actor takes
its place as soon as the cluster has room; the others go on. A memory comes back with what it held
at the last checkpoint, the fitter with the state it had at most `keep_every` blocks before; the
updates that are lost are called for again.

**Checkpoints.** A checkpoint is of a moment at which nothing is under way: no new steps are taken,
until all that steps have called for is done, fitted and evaluated.

**Lock step.** With one of each, in the order of the local loop (`learn/train.py`): the generator
is handed on, a block is fitted before the next is sampled, and while it is, the next round is taken
with the weights from before it. The numbers are those of a local training, to the last bit.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from midstride.envs.faults import Fault
from midstride.scale.cluster import Cluster, DataLost, Lost, Reference
from midstride.scale.gauge import Gauge
from midstride.scale.parcels import Block, Call, Desk, Evaluation, Member, Published, Round
from midstride.scale.plan import ScaleSettings, Work

_POLL_S = 0.5  # how often signals are looked at, when nothing happens
_ROLES = ("memory", "fitter", "updater", "collector", "judge")
_IN_A_ROW = 5  # actors of a role that may be lost before any of them has done anything


class Coordinator:
    """A training under way on a cluster."""

    def __init__(
        self,
        work: Work,
        scale: ScaleSettings,
        cluster: Cluster,
        desk: Desk,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.work, self.scale, self.cluster, self.desk, self.clock = (
            work, scale, cluster, desk, clock,
        )  # fmt: skip
        self.members: dict[str, list[Member]] = {role: [] for role in _ROLES}
        self.calls: dict[Reference, Call] = {}
        self.rounds: list[deque[Round]] = [deque() for _ in range(scale.replays)]
        self.blocks: list[Block] = []
        self.evaluations: deque[Evaluation] = deque()
        self.published: deque[Published] = deque(maxlen=2)
        self.phase = "auxiliary"  # then offline, then online
        self.auxiliary_left = work.auxiliary_blocks
        self.steps = 0  # that have arrived in memories
        self.on_the_way = 0  # steps that were asked for, and have not arrived
        self.owed = 0.0  # updates, and parts of one, that steps have called for
        self.updates = 0
        self.version = 0
        self.drawn = 0  # blocks
        self.sampled = self.fitted = 0  # blocks since preparation
        self.generation = 0  # fitters so far, but one
        self.key: Any = None
        self.random: Any = None  # lock step: the state of the one generator
        self.is_random_away = False
        self.kept: Any = None  # (updates, state) of the fitter
        self.fitted_since_kept = 0
        self.returns: deque[float] = deque(maxlen=work.num_envs)
        self.losses: dict[str, tuple[float, int]] = {}
        self.measured: dict[str, float] | None = None  # by the newest block: told with the next
        self.is_draining = False
        self.is_saving = False
        self.saved: dict[str, Any] = {}
        self.publish_again = False
        self.names = 0
        self.in_a_row: dict[str, int] = {}
        self.most_in_a_row = _IN_A_ROW
        self.counts: dict[str, float] = dict.fromkeys(
            (
                "transitions", "labels", "updates", "labels_again", "actors_lost",
                "actors_replaced", "rounds_lost", "transitions_forgotten",
            ), 0,
        )  # fmt: skip
        self.staleness: dict[str, tuple[float, int, float]] = {}  # sum, count, largest
        self.fault: Fault | None = None  # of an environment
        self.gauge = Gauge(clock)

    # --- The run

    def start(self) -> None:
        """Have an actor in every place; those that need to know what values are worth come last."""
        for role, count in (("memory", self.scale.replays), ("collector", self.scale.collectors)):
            for place in range(count):
                self._start(role, place)
        self._start("judge", 0)

    def run(self, signalled: Callable[[], int | None] = lambda: None) -> None:
        """Until all steps are taken, and all that they called for is done and saved.

        At a signal, or when an environment fails, what is under way is finished and saved; in
        preparation there is nothing to save.
        """

        def ends() -> bool:
            return bool(signalled()) or self.fault is not None or self._has_ended()

        while True:
            if ends():
                if self.phase != "online":
                    return
                self.is_draining = True
            if self.is_draining and not self.is_saving and self._is_drained():
                self.is_saving = True
            self._issue()
            if self.is_saving and len(self.saved) == self.scale.replays + 1:
                self._save()
                if ends():
                    return
            else:
                self._await()

    def judge(self) -> Evaluation:
        """The last evaluation, when everything else has ended."""
        last = Evaluation(self.steps, self.updates, None, is_last=True)
        self.evaluations.append(last)
        while last.episodes is None:
            self._issue()
            self._await()
        return last

    def stop(self) -> None:
        """End all actors."""
        for role in _ROLES:
            for member in self.members[role]:
                self.cluster.stop(member.actor)

    def _has_ended(self) -> bool:
        return self.phase == "online" and self.steps >= self.work.steps

    def _is_drained(self) -> bool:
        """Nothing is under way, and nothing is left to do."""
        return not (self.on_the_way or self.blocks or self.evaluations or self.owed >= 1)

    # --- Who may be called, and for what

    def _issue(self) -> None:
        nexts = {
            "memory": self._next_for_memory,
            "fitter": self._next_for_fitter,  # before updaters: it may send labels back to them
            "updater": self._next_for_updater,
            "collector": self._next_for_collector,
            "judge": self._next_for_judge,
        }
        for role, next_for in nexts.items():
            for member in self.members[role]:
                if member.is_ready and not member.is_busy:
                    next_for(member)

    def _next_for_memory(self, member: Member) -> None:
        rounds, has_room = self.rounds[member.place], len(self.blocks) < self.scale.blocks_at_once
        if has_room and self._is_turn(member):
            self._sample(member)  # first: others wait for it
        if member.is_busy:
            return
        if rounds:
            r = rounds.popleft()
            self._call(member, "add", r, (r.place, r.owner, r.first, r.data))
        elif self.is_saving and f"memory{member.place}" not in self.saved:
            self._call(member, "arrays", None, ())

    def _sample(self, member: Member) -> None:
        """Ask for a block, if one is called for."""
        if self.scale.lock_step and self.is_random_away:
            return
        if self.phase == "auxiliary":
            if self.auxiliary_left and self.published:
                self.auxiliary_left -= 1
                block = self._new_block(0, is_auxiliary=True)
                self._call(member, "auxiliary", block, (self._taken_random(),), 3)
            return
        at_once = self.work.at_once
        if self.scale.lock_step and self.phase == "online":
            updates = int(self.owed)
        elif self.is_draining:
            updates = int(min(self.owed, at_once))  # what is left
        else:
            updates = at_once if self.owed >= at_once else 0
        if updates:
            self.owed -= updates
            self.sampled += self.phase == "online"
            self.drawn += 1
            block = self._new_block(updates)
            self._call(member, "sample", block, (updates, self._taken_random()), 3)

    def _next_for_updater(self, member: Member) -> None:
        block = self._first("sampled")
        if block is None or not self.published:
            return
        weights = self.published[-1]
        block.stage, block.made_at = "labelling", weights.updates
        key, self.key = self.key, self.work.next_key(self.key)
        block.next_key, block.generation = self.key, self.generation
        self._call(member, "label", block, (block.judged, weights.judging, key), 2)

    def _next_for_fitter(self, member: Member) -> None:
        due, keeps = self._due(), self.fitted_since_kept >= self.scale.keep_every
        if self.publish_again:
            self.publish_again = False
            self._call(member, "publish", None, (), 3)
        elif due is not None:
            self._call(member, "averaged", due, ())
        elif self.is_saving and "fitter" not in self.saved:
            self._call(member, "state", "save", ())
        elif self.phase == "online" and keeps:
            self._call(member, "state", None, ())
        elif self.phase == "auxiliary" and not self.auxiliary_left and not self.blocks:
            self._call(member, "start_from_online", None, (), 3)
        elif block := self._fresh():
            block.stage = "fitting"
            if block.is_auxiliary:
                self._call(member, "fit_auxiliary", block, (block.fitted,))
            else:
                given = (block.fitted, block.labels, block.next_key, block.fit_key)
                self._call(member, "fit", block, given, 3)

    def _fresh(self) -> Block | None:
        """A labelled block; labels that are too old by now are sent to be made again."""
        while block := self._first("labelled"):
            if block.is_auxiliary or self.updates - block.made_at <= self.scale.max_staleness:
                return block
            self._make_again(block)
        return None

    def _next_for_collector(self, member: Member) -> None:
        work, scale = self.work, self.scale
        if self.phase != "online" or self.is_draining or not self.published or not self.kept:
            return  # what preparation came to is kept before the first step
        left = work.steps - self.steps - self.on_the_way
        if left <= 0 or not self._may_collect():
            return
        rounds = min(scale.send_every, -(-left // work.num_envs))
        weights = self._acting()
        self.on_the_way += rounds * work.num_envs
        about = (rounds, weights.updates)
        given = (weights.acting, rounds, self.steps, self._taken_random())
        self._call(member, "collect", about, given, 2)

    def _may_collect(self) -> bool:
        """Whether fitting is not too far behind what has been collected."""
        if self.scale.lock_step:
            return not (self.is_random_away or self.on_the_way or self.owed >= 1)
        return self.blocks_behind < self.scale.blocks_ahead

    @property
    def blocks_behind(self) -> float:
        """Blocks that the steps so far, and those that are asked for, call for; not fitted yet."""
        updates = self.owed + self.work.calls_for(self.on_the_way)
        return updates / self.work.at_once + len(self.blocks)

    def _acting(self) -> Published:
        """Weights to act with: the newest; in lock step those before the block under way."""
        if not self.scale.lock_step:
            return self.published[-1]
        before = max(self.sampled - 1, 0)
        fits = [one for one in self.published if one.number <= before]
        return fits[-1] if fits else self.published[0]

    def _next_for_judge(self, member: Member) -> None:
        for evaluation in self.evaluations:
            if evaluation.weights is not None and not evaluation.is_under_way:
                evaluation.is_under_way = True
                method = "last" if evaluation.is_last else "evaluate"
                self._call(member, method, evaluation, (evaluation.weights, evaluation.steps))
                return

    def _due(self) -> Evaluation | None:
        """An evaluation whose weights are there now."""
        for evaluation in self.evaluations:
            if evaluation.weights is None:
                return evaluation if self.updates >= evaluation.after else None
        return None

    def _is_turn(self, member: Member) -> bool:
        """Memories are sampled from in turn; those that are not there are left out."""
        ready = [one for one in self.members["memory"] if one.is_ready]
        return ready[self.drawn % len(ready)] is member

    # --- What comes back

    def _await(self) -> None:
        for reference in self.cluster.wait(list(self.calls), _POLL_S):
            call = self.calls.pop(reference)
            call.member.is_busy = False
            try:
                record = self.cluster.get(reference)
            except Lost as error:
                self._undo(call)
                self._replace(call.member, str(error))
                continue
            except DataLost:
                self._forget(call)
                continue
            except Fault as fault:
                if call.kind != "collect":
                    raise
                self._undo(call)
                self.fault, call.member.is_ready = fault, False
                continue
            if call.kind != "setup":
                self.in_a_row[call.member.role] = 0
            getattr(self, f"_after_{call.kind}")(call, record)
        self.desk.tell()

    def _after_setup(self, call: Call, record: Any) -> None:
        member, role = call.member, call.member.role
        self.desk.met(role, member.place, record)
        member.is_ready = True
        if role == "memory":
            forgotten = max(0, member.held - record["held"])
            self.counts["transitions_forgotten"] += forgotten
            member.held = record["held"]
            if member.place == 0 and not self.members["fitter"]:
                self._start("fitter", 0)
                for place in range(self.scale.updaters):
                    self._start("updater", place)
        if role == "fitter":
            if self.key is None:
                self.key = record["key"]
            self._publish(record, call.data)
            if self.phase == "auxiliary" and not self.work.auxiliary_blocks:
                self._begin("offline")

    def _after_collect(self, call: Call, record: Any) -> None:
        (count, made_at), member = call.about, call.member
        self._return_random(record)
        self._count_staleness("policy", self.updates - made_at)
        self.returns.extend(record["returns"])
        rounds = Round(member.place, member.name, record["first"], count, call.data[0])
        self.rounds[member.place % self.scale.replays].append(rounds)

    def _after_add(self, call: Call, record: Any) -> None:
        """Steps count when they have arrived, once, and then call for updates."""
        call.member.held = record["held"]
        self.on_the_way -= call.about.length * self.work.num_envs
        added = record["added"] * self.work.num_envs
        before, self.steps = self.steps, self.steps + added
        self.counts["transitions"] += added
        self.owed += self.work.calls_for(added)
        if crosses(before, self.steps, self.work.evaluate_every):
            after = self.updates + sum(block.updates for block in self.blocks) + int(self.owed)
            self.evaluations.append(Evaluation(self.steps, after, self.mean_return))
        if crosses(before, self.steps, self.work.checkpoint_every):
            self.is_draining = True

    def _after_sample(self, call: Call, record: Any) -> None:
        block: Block = call.about
        self._return_random(record)
        block.fitted, block.judged = call.data
        block.stage = "labelled" if block.is_auxiliary else "sampled"

    _after_auxiliary = _after_sample

    def _after_label(self, call: Call, record: Any) -> None:
        block: Block = call.about
        if block.is_dropped:
            return
        self.counts["labels"] += block.updates * self.work.labels_each
        block.labels, block.fit_key, block.stage = call.data[0], record["fit_key"], "labelled"
        if block.generation != self.generation:
            self._make_again(block)

    def _make_again(self, block: Block) -> None:
        """A label is too old, or of weights that are no more."""
        self.counts["labels_again"] += 1
        block.stage, block.labels = "sampled", None

    def _after_fit(self, call: Call, record: Any) -> None:
        block: Block = call.about
        self._count_staleness("label", self.updates - block.made_at)
        self.blocks.remove(block)
        self.counts["updates"] += block.updates
        if self.phase == "online":
            self.fitted += 1
            self.fitted_since_kept += 1
            self._add_losses(record["measured"])
        self._publish(record, call.data)
        if self.phase == "offline" and not self.blocks and self.owed < self.work.at_once:
            self._begin("online")

    def _after_fit_auxiliary(self, call: Call, record: Any) -> None:
        self.blocks.remove(call.about)

    def _after_start_from_online(self, call: Call, record: Any) -> None:
        self.key = record["key"]
        self._publish(record, call.data)
        self._begin("offline")

    def _after_publish(self, call: Call, record: Any) -> None:
        self.published.clear()
        self._publish(record, call.data)

    def _after_averaged(self, call: Call, weights: Any) -> None:
        evaluation: Evaluation = call.about
        evaluation.weights = weights
        evaluation.losses, self.losses = self.losses, {}

    def _after_evaluate(self, call: Call, episodes: Any) -> None:
        evaluation: Evaluation = call.about
        self.evaluations.remove(evaluation)
        self.desk.evaluated(evaluation, episodes, self.figures())

    def _after_last(self, call: Call, episodes: Any) -> None:
        self.evaluations.remove(call.about)
        call.about.episodes = episodes

    def _after_state(self, call: Call, state: Any) -> None:
        self.kept, self.fitted_since_kept = state, 0
        if call.about == "save":
            self.saved["fitter"] = state

    def _after_arrays(self, call: Call, arrays: Any) -> None:
        self.saved[f"memory{call.member.place}"] = arrays

    # --- Phases, weights, checkpoints

    def _begin(self, phase: str) -> None:
        self.phase = phase
        if phase == "offline":
            self.owed = float(self.work.offline_blocks * self.work.at_once)
            if not self.owed:
                self._begin("online")
        if phase == "online":
            self.owed, self.measured = 0.0, None
            self.fitted_since_kept = self.scale.keep_every  # keep what preparation came to

    def _publish(self, record: Any, data: Sequence[Reference]) -> None:
        self.updates = record["updates"]
        self.version += 1
        acting, judging = data
        self.published.append(Published(self.version, self.updates, self.fitted, acting, judging))

    def _save(self) -> None:
        memories = [self.saved[f"memory{place}"] for place in range(self.scale.replays)]
        self.desk.save(self.saved["fitter"], memories, self.about())
        self.saved, self.is_saving, self.is_draining = {}, False, False

    def about(self) -> dict[str, Any]:
        """What a checkpoint must hold beside state and memories, as JSON can."""
        return {
            "steps": self.steps,
            "random": {} if self.random is None else self.random,
            "returns": list(self.returns),
            "owed": self.owed,
            "losses": self.losses,
            "key": np.asarray(self.key).tolist(),
            "names": self.names,
            "version": self.version,
            "counts": self.counts,
        }

    def go_on(self, about: dict[str, Any], state: Any) -> None:
        """From a checkpoint; before `start`."""
        self.phase, self.steps, self.owed = "online", about["steps"], about["owed"]
        self.random = about["random"] or None
        self.returns.extend(about["returns"])
        self.losses = about["losses"]
        self.key = np.array(about["key"], np.uint32)
        self.names, self.version = about["names"], about["version"]
        self.counts |= about["counts"]
        self.kept = state

    # --- Losses

    def _start(self, role: str, place: int) -> Member:
        kept = self.kept if role == "fitter" else None
        arguments = self.desk.arguments(role, place, self.names, kept)
        member = Member(role, place, self.names, self.cluster.start(role, arguments))
        self.names += 1
        self.members[role].append(member)
        self._call(member, "setup", None, (), 3 if role == "fitter" else 1)
        return member

    def _replace(self, member: Member, why: str) -> None:
        self.counts["actors_lost"] += 1
        self.in_a_row[member.role] = self.in_a_row.get(member.role, 0) + 1
        if self.in_a_row[member.role] > self.most_in_a_row:
            raise RuntimeError(
                f"{self.in_a_row[member.role]} {member.role}s in a row were lost before one of "
                f"them did anything: {why}"
            )
        self.cluster.stop(member.actor)
        self.members[member.role].remove(member)
        if member.role == "fitter":
            self._lose_fitter()
        self._start(member.role, member.place).held = member.held
        self.counts["actors_replaced"] += 1

    def _lose_fitter(self) -> None:
        """Go back to what was kept of it; updates since then are owed again."""
        self.generation += 1
        self.published.clear()
        if self.kept is None:  # in preparation, which begins again
            for block in self.blocks:
                block.is_dropped = True
            self.blocks.clear()
            self.phase, self.auxiliary_left, self.owed = (
                "auxiliary", self.work.auxiliary_blocks, 0.0,
            )  # fmt: skip
            self.key = None
            return
        self.owed += max(0, self.updates - self.kept[0])
        self.updates = self.kept[0]
        for block in self.blocks:
            if block.stage in ("labelled", "fitting"):
                self._make_again(block)
        if "fitter" not in self.saved:  # a checkpoint has to wait for what is owed again
            self.is_saving, self.saved = False, {}

    def _undo(self, call: Call) -> None:
        """A call ended with its actor: what it was for is still to be done."""
        kind, about = call.kind, call.about
        if kind in ("collect", "sample", "auxiliary"):
            self.is_random_away = False
        if kind == "collect":
            self.on_the_way -= about[0] * self.work.num_envs
        elif kind == "add":
            self.rounds[call.member.place].appendleft(about)
        elif kind in ("sample", "auxiliary"):
            self._drop(about)
        elif kind == "label":
            about.stage = "sampled"
        elif kind in ("evaluate", "last"):
            about.is_under_way = False

    def _forget(self, call: Call) -> None:
        """What a call was given is gone: do without it, or ask for it again."""
        self._undo(call)
        if call.kind == "add":
            self.rounds[call.member.place].popleft()
            self.on_the_way -= call.about.length * self.work.num_envs
            self.counts["rounds_lost"] += call.about.length
        elif call.kind in ("label", "fit", "fit_auxiliary"):
            self._drop(call.about)
        self.publish_again |= call.kind in ("collect", "label")

    def _drop(self, block: Block) -> None:
        """A block is gone; its updates are owed again."""
        if block.is_dropped:
            return
        self.blocks.remove(block)
        block.is_dropped = True
        self.owed += block.updates
        self.auxiliary_left += block.is_auxiliary
        self.sampled -= self.phase == "online"

    # --- Small things

    def _call(
        self, member: Member, kind: str, about: Any, given: tuple[Any, ...], returns: int = 1
    ) -> None:
        first, *data = self.cluster.call(member.actor, kind, given, returns)
        member.is_busy = True
        self.calls[first] = Call(kind, member, about, data)

    def _new_block(self, updates: int, is_auxiliary: bool = False) -> Block:
        block = Block(updates, is_auxiliary)
        self.blocks.append(block)
        return block

    def _first(self, stage: str) -> Block | None:
        return next((block for block in self.blocks if block.stage == stage), None)

    def _taken_random(self) -> Any:
        """The one generator of lock step, which is away now."""
        self.is_random_away = self.scale.lock_step
        return self.random

    def _return_random(self, record: Any) -> None:
        self.is_random_away = False
        if self.scale.lock_step:
            self.random = record["random"]

    def _add_losses(self, measured: dict[str, float]) -> None:
        """What is told is of the blocks before the newest, as in the local loop."""
        for name, value in (self.measured or {}).items():
            total, count = self.losses.get(name, (0.0, 0))
            self.losses[name] = total + value, count + 1
        self.measured = measured

    def _count_staleness(self, what: str, age: float) -> None:
        total, count, largest = self.staleness.get(what, (0.0, 0, 0.0))
        age = max(0, age)
        self.staleness[what] = total + age, count + 1, max(largest, age)

    @property
    def mean_return(self) -> float | None:
        return float(np.mean(self.returns)) if self.returns else None

    def figures(self) -> dict[str, float]:
        """How the training is doing, as numbers by name; rates are of the last half minute."""
        stages = [block.stage for block in self.blocks]
        rates = self.gauge.rates(self.counts)
        updates, transitions = self.counts["updates"], self.counts["transitions"]
        found = {
            "transitions_per_s": rates["transitions"],
            "labels_per_s": rates["labels"],
            "updates_per_s": rates["updates"],
            "replay_ratio": updates / transitions if transitions else 0.0,
            "steps_on_the_way": self.on_the_way,
            "rounds_waiting": sum(map(len, self.rounds)),
            "blocks_sampled": sum(stage in ("sampling", "sampled") for stage in stages),
            "blocks_labelling": stages.count("labelling"),
            "blocks_labelled": stages.count("labelled"),
            "updates_owed": self.owed,
            "version": self.version,
        }
        for what, (total, count, largest) in self.staleness.items():
            found |= {f"{what}_staleness": total / count, f"{what}_staleness_max": largest}
        names = ("labels_again", "actors_lost", "actors_replaced", "transitions_forgotten")
        return found | {name: self.counts[name] for name in names}


def crosses(before: int, after: int, every: int) -> bool:
    return after // every != before // every

"""Who does what next, when a training is spread over machines. Read this file first.

    collectors --rounds--> memories --blocks--> updaters --labels--> fitters --weights--> all
                                    \\--------------------------------/       \\--> judge

Everything that happens is a call of the coordinator to an actor, one at a time for each. When a
call ends, the coordinator reads the small record that came first, keeps references to the data
that came with it, and decides who may be called next: the methods `_next_for_...` are all of its
policy. Data never passes through it. It knows neither Ray nor JAX, and has one clock: the steps
and the updates that are counted, in its books (`books.py`).

**The same training.** A step calls for as many updates as in a local training (`update_every`):
where collecting is slow, fitting waits, and where fitting is slow, collecting waits (`ahead`).
So the number of updates per step, the replay ratio, is the same however many machines there are.

**Versions.** Every block that is fitted publishes weights with the next version. A round knows the
version that acted in it, a block the one that labelled it. How old they are when they are used is
measured in updates; a label that is older than `max_staleness` is made again. An agent that labels
where it fits has no updaters: what is sampled goes straight to the fitters.

**Several fitters** each have a part of every batch, and all apply the mean of their gradients
(`team.py`): an update is the one of a single fitter, up to rounding.

**Loss.** An actor may be gone at any moment. What it was doing is undone here and given to
another: a round that arrived nowhere is sent again (memories know a round by its collector and
number, and keep it once), a block is labelled again, an evaluation is done again. A new actor takes
its place as soon as the cluster has room; the others go on. A memory comes back with what it held
at the last checkpoint. If a fitter is lost, all go back to the state that was kept, at most
`keep_every` blocks before; the updates that are lost are called for again.

**Checkpoints.** A checkpoint is of a moment at which nothing is under way: no new steps are taken,
until all that steps have called for is done, fitted and evaluated.

**Lock step.** With one of each, in the order of the local loop (`learn/train.py`): the generator
is handed on, a block is fitted before the next is sampled, and while it is, the next round is taken
with the weights from before it. The numbers are those of a local training, to the last bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from midstride.envs.faults import Fault
from midstride.scale.books import Books, crosses
from midstride.scale.cluster import Cluster, DataLost, Lost
from midstride.scale.crew import Crew
from midstride.scale.figures import figures
from midstride.scale.gauge import Gauge
from midstride.scale.parcels import Block, Call, Desk, Evaluation, Member, Round
from midstride.scale.plan import ScaleSettings, Work
from midstride.scale.team import Fitting


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
        self.work, self.scale, self.desk = work, scale, desk
        self.books, self.crew = Books(work, scale), Crew(cluster)
        self.members = self.crew.members
        self.fitting: Fitting | None = None
        self.publish_again = False
        self.is_draining = False  # no new steps, until all is done
        self.is_saving = False
        self.saved: dict[str, Any] = {}
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
        books = self.books

        def ends() -> bool:
            has_ended = books.phase == "online" and books.steps >= self.work.steps
            return bool(signalled()) or self.fault is not None or has_ended

        while True:
            if all(one.is_ready and not one.can_sample for one in self.members["memory"]):
                books.forgive()
            if ends():
                if books.phase != "online":
                    return
                self.is_draining = True
            if self.is_draining and not self.is_saving and books.is_drained:
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
        books = self.books
        last = Evaluation(books.steps, books.updates, None, books.seen_last, is_last=True)
        books.evaluations.append(last)
        while last.episodes is None:
            self._issue()
            self._await()
        return last

    def stop(self) -> None:
        """End all actors."""
        self.crew.stop()

    def figures(self) -> dict[str, float]:
        """How the training is doing; rates are of the last half minute."""
        return figures(self.books, self.members, self.gauge.rates(self.books.counts))

    def about(self) -> dict[str, Any]:
        """What a checkpoint must hold beside state and memories, as JSON can."""
        return {**self.books.about(), "names": self.crew.names}

    def go_on(self, about: dict[str, Any], state: Any) -> None:
        """From a checkpoint; before `start`."""
        self.crew.names = about["names"]
        self.books.go_on(about, state)

    def _save(self) -> None:
        memories = [self.saved[f"memory{place}"] for place in range(self.scale.replays)]
        self.desk.save(self.saved["fitter"], memories, self.about())
        self.saved, self.is_saving, self.is_draining = {}, False, False

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
        books = self.books
        has_room = len(books.blocks) < self.scale.blocks_at_once
        if has_room and self._is_turn(member):
            self._sample(member)  # first: others wait for it
        if member.is_busy:
            return
        rounds = books.rounds[member.place]
        if rounds:
            r = rounds.popleft()
            self._call(member, "add", r, (r.place, r.owner, r.first, r.data))
        elif self.is_saving and f"memory{member.place}" not in self.saved:
            self._call(member, "arrays", None, ())

    def _is_turn(self, member: Member) -> bool:
        """Memories are sampled from in turn; those that cannot be are left out."""
        able = [one for one in self.members["memory"] if one.is_ready and one.can_sample]
        return bool(able) and able[self.books.drawn % len(able)] is member

    def _sample(self, member: Member) -> None:
        """Ask for a block, if one is called for."""
        books = self.books
        if self.scale.lock_step and books.is_random_away:
            return
        if books.phase == "auxiliary":
            if books.auxiliary_left and books.published:
                self._call(member, "auxiliary", books.new_auxiliary(), (books.taken_random(),), 2)
        elif updates := books.updates_to_sample(self.is_draining):
            given = (updates, books.taken_random(), self.scale.fitters)
            block = books.new_block(updates)
            self._call(member, "sample", block, given, 2 + self.scale.fitters)

    def _next_for_updater(self, member: Member) -> None:
        books = self.books
        block = books.first("sampled")
        if block is None or not books.published:
            return
        weights = books.published[-1]
        block.stage, block.made_at = "labelling", weights.updates
        key, books.key = books.key, self.work.next_key(books.key)
        block.next_key, block.generation = books.key, books.generation
        self._call(member, "label", block, (block.judged, weights.judging, key), 2)

    def _next_for_fitter(self, member: Member) -> None:
        books = self.books
        if member.generation != books.generation:
            if books.kept is not None:
                self._call(member, "restore", None, (books.kept[1],))
                return
            if member.place:  # until there is something to be in step with
                return
            member.generation, self.publish_again = books.generation, True
        if self.fitting is None and member.place == 0:
            self._next_for_first_fitter(member)
        if self.fitting is not None and not member.is_busy:
            ask = self.fitting.ask(member.place)
            if ask is not None:
                self._call(member, ask.kind, self.fitting, ask.given, ask.returns)

    def _next_for_first_fitter(self, member: Member) -> None:
        """What is for one fitter to do, while none of them fits; or begin a block."""
        books, due = self.books, self.books.due()
        if self.publish_again:
            self.publish_again = False
            self._call(member, "publish", None, (), 3)
        elif due is not None:
            self._call(member, "averaged", due, ())
        elif self.is_saving and "fitter" not in self.saved:
            self._call(member, "state", "save", ())
        elif books.keeps:
            self._call(member, "state", None, ())
        elif books.phase == "auxiliary" and not books.auxiliary_left and not books.blocks:
            self._call(member, "start_from_online", None, (), 3)
        elif block := books.fresh():
            if block.is_auxiliary:
                block.stage = "fitting"
                self._call(member, "fit_auxiliary", block, (block.fitted[0],))
            elif self.crew.are_in_step(books.generation):
                block.stage = "fitting"
                self.fitting = Fitting(block, self.scale.fitters)

    def _next_for_collector(self, member: Member) -> None:
        work, books = self.work, self.books
        if books.phase != "online" or self.is_draining or not books.published or books.kept is None:
            return
        left = work.steps - books.steps - books.on_the_way
        if left <= 0 or not self._may_collect():
            return
        rounds = min(self.scale.send_every, -(-left // work.num_envs))
        weights, seen = books.acting()
        books.on_the_way += rounds * work.num_envs
        given = (weights.acting, seen, rounds, books.steps, books.taken_random())
        self._call(member, "collect", (rounds, weights.updates), given, 2)

    def _may_collect(self) -> bool:
        """Whether fitting is not too far behind what has been collected."""
        books = self.books
        if self.scale.lock_step:
            return not (books.is_random_away or books.on_the_way or books.owed >= 1)
        return books.blocks_behind < self.scale.blocks_ahead

    def _next_for_judge(self, member: Member) -> None:
        for one in self.books.evaluations:
            if one.weights is not None and not one.is_under_way:
                one.is_under_way = True
                method = "last" if one.is_last else "evaluate"
                self._call(member, method, one, (one.weights, one.seen, one.steps))
                return

    # --- What comes back

    def _await(self) -> None:
        for call, found in self.crew.ended():
            if isinstance(found, Lost):
                self.books.undo(call)
                self._replace(call.member, found)
            elif isinstance(found, DataLost):
                self._do_without(call)
            elif isinstance(found, Fault) and call.kind == "collect":
                self.books.undo(call)
                self.fault, call.member.is_ready = found, False
            elif isinstance(found, Exception):
                raise found
            elif call.kind == "setup" or not self._is_of_before(call):
                getattr(self, f"_after_{call.kind}")(call, found)
        self.desk.tell()

    def _is_of_before(self, call: Call) -> bool:
        """Whether it is of a fitter, and they have gone back since: then it counts for nothing."""
        return call.member.role == "fitter" and call.generation != self.books.generation

    def _after_setup(self, call: Call, record: Any) -> None:
        member, books = call.member, self.books
        self.desk.met(member.role, member.place, record)
        member.is_ready = True
        if member.role == "memory":
            books.counts["transitions_forgotten"] += max(0, member.held - record["held"])
            member.held, member.can_sample = record["held"], record["can_sample"]
            if books.seen is None:
                books.seen_first = books.seen = books.seen_last = record["seen"]
            if member.place == 0 and not self.members["fitter"]:
                for place in range(self.scale.fitters):
                    self._start("fitter", place)
                for place in range(self.scale.updaters if self.work.labels_each else 0):
                    self._start("updater", place)

    def _after_collect(self, call: Call, record: Any) -> None:
        (count, made_at), member, books = call.about, call.member, self.books
        books.return_random(record)
        books.count_staleness("policy", books.updates - made_at)
        books.returns.extend(record["returns"])
        rounds = Round(member.place, member.name, record["first"], count, call.data[0])
        books.rounds[member.place % self.scale.replays].append(rounds)

    def _after_add(self, call: Call, record: Any) -> None:
        call.member.held, call.member.can_sample = record["held"], record["can_sample"]
        before, after = self.books.arrived(call.about, record["added"], record["seen"])
        if crosses(before, after, self.work.checkpoint_every):
            self.is_draining = True

    def _after_sample(self, call: Call, record: Any) -> None:
        block, books = call.about, self.books
        books.return_random(record)
        if block.is_dropped:
            return
        block.judged, *block.fitted = call.data
        block.stage, block.generation = "sampled", books.generation
        books.seen = record["seen"]
        if not self.work.labels_each:
            block.stage = "labelled"

    def _after_auxiliary(self, call: Call, record: Any) -> None:
        block: Block = call.about
        self.books.return_random(record)
        block.fitted, block.stage = call.data, "labelled"

    def _after_label(self, call: Call, record: Any) -> None:
        block, books = call.about, self.books
        if block.is_dropped:
            return
        books.counts["labels"] += block.updates * self.work.labels_each
        block.labels, block.fit_key, block.stage = call.data[0], record["fit_key"], "labelled"
        if block.generation != books.generation:
            books.make_again(block)

    def _after_restore(self, call: Call, record: Any) -> None:
        call.member.generation = call.generation
        self.publish_again |= call.member.place == 0

    def _after_publish(self, call: Call, record: Any) -> None:
        books = self.books
        if books.key is None:
            books.key = record["key"]
        books.published.clear()
        books.publish(record, call.data)
        if books.phase == "auxiliary" and not self.work.auxiliary_blocks:
            books.begin("offline")

    def _after_fit_auxiliary(self, call: Call, record: Any) -> None:
        self.books.blocks.remove(call.about)

    def _after_start_from_online(self, call: Call, record: Any) -> None:
        self.books.key = record["key"]
        self.books.publish(record, call.data)
        self.books.begin("offline")

    def _after_fit(self, call: Call, record: Any) -> None:
        fitting: Fitting = call.about
        if fitting is not self.fitting:
            return  # its block is gone
        fitting.answer(call.member.place, record, call.data)
        if fitting.has_ended:
            self.fitting, (record, data) = None, fitting.published
            self.books.has_fitted(fitting.block, record["measured"])
            self.books.publish(record, data)
            self.books.end_offline()

    _after_begin = _after_step = _after_end = _after_fit

    def _after_averaged(self, call: Call, weights: Any) -> None:
        evaluation: Evaluation = call.about
        evaluation.weights = weights
        evaluation.losses, self.books.losses = self.books.losses, {}

    def _after_evaluate(self, call: Call, episodes: Any) -> None:
        evaluation: Evaluation = call.about
        self.books.evaluations.remove(evaluation)
        self.desk.evaluated(evaluation, episodes, self.figures())

    def _after_last(self, call: Call, episodes: Any) -> None:
        self.books.evaluations.remove(call.about)
        call.about.episodes = episodes

    def _after_state(self, call: Call, state: Any) -> None:
        self.books.kept, self.books.fitted_since_kept = state, 0
        if call.about == "save":
            self.saved["fitter"] = state

    def _after_arrays(self, call: Call, arrays: Any) -> None:
        self.saved[f"memory{call.member.place}"] = arrays

    # --- Losses

    def _start(self, role: str, place: int) -> Member:
        arguments = self.desk.arguments(role, place, self.crew.names)
        return self.crew.start(role, place, arguments, self.books.generation)

    def _replace(self, member: Member, why: Exception) -> None:
        self.books.counts["actors_lost"] += 1
        self.crew.lose(member, why)
        if member.generation == self.books.generation:  # a fitter that the others were in step with
            self._go_back()
        self._start(member.role, member.place).held = member.held
        self.books.counts["actors_replaced"] += 1

    def _go_back(self) -> None:
        """All fitters go on from what was kept."""
        self.books.go_back()
        self.fitting = None
        if "fitter" not in self.saved:  # a checkpoint has to wait for what is owed again
            self.is_saving, self.saved = False, {}

    def _do_without(self, call: Call) -> None:
        """What a call was given is gone: do without it, or ask for it again."""
        self.books.forget(call)
        is_fitting = self.fitting is not None and call.about is self.fitting
        if call.kind in ("step", "end") and is_fitting:  # others may have applied it
            self._go_back()
        elif is_fitting:
            self.fitting = None
        self.publish_again |= call.kind in ("collect", "label")

    def _call(
        self, member: Member, kind: str, about: Any, given: tuple[Any, ...], returns: int = 1
    ) -> None:
        self.crew.call(member, kind, about, given, returns, self.books.generation)

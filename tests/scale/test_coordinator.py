"""The coordinator on a virtual clock: what it promises, however many actors and machines are lost.

Roles only count here, so that hundreds of losses take a moment; every round has a name of its own,
so that one that is lost, or kept twice, is seen.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from midstride.envs.faults import Fault
from midstride.scale.coordinator import Coordinator
from midstride.scale.plan import ScaleSettings, Work
from tests.scale.virtual import (
    COUNTING,
    CountingDesk,
    CountingJudge,
    ForgettingMemory,
    VirtualCluster,
)

N, AT_ONCE = 8, 2


def work(**options):
    usual = {
        "steps": 1600, "num_envs": N, "at_once": AT_ONCE, "calls_for": lambda steps: steps / 4,
        "labels_each": 4.0, "next_key": lambda key: key + 1, "auxiliary_blocks": 3,
        "offline_blocks": 4, "evaluate_every": 200, "checkpoint_every": 400,
    }  # fmt: skip
    return Work(**{**usual, **options})


def coordinator(scale, cluster, **options):
    return Coordinator(work(**options), scale, cluster, CountingDesk(scale), cluster.clock)


def finish(found):
    found.start()
    found.run()
    found.last = found.judge()
    return found


def check(found):
    """What every run must come to, whatever was lost."""
    w, desk, books = found.work, found.desk, found.books
    assert books.steps == w.steps == books.counts["transitions"]
    # As many updates as steps called for; those of lost fitters were made up for, and only what
    # was owed when nothing was left to learn from is not.
    forgone = books.counts["updates_forgone"]
    assert books.updates + forgone == updates_after(w, w.steps)
    assert [steps // 200 for steps, _ in desk.evaluations] == list(range(1, w.steps // 200 + 1))
    for steps, [(_, told, (_, updates))] in desk.evaluations:
        assert told == steps
        assert updates + forgone >= updates_after(w, steps)
    saved = [about["steps"] for _, _, about in desk.saves]
    # One for every 400 steps; steps that were under way may have passed two such marks at once.
    assert saved == sorted(set(saved))
    assert saved[-1] == w.steps
    assert np.diff([0, *saved]).max() < 800 + w.num_envs * found.scale.blocks_ahead
    for (updates, _), memories, about in desk.saves:
        assert updates == updates_after(w, about["steps"]) - about["counts"]["updates_forgone"]
        rounds = [r for memory in memories for stream in memory.values() for r in stream]
        assert len(set(rounds)) == len(rounds)  # none twice
        assert len(rounds) * N <= about["steps"]
    assert found.last.episodes == [("last", w.steps, ("weights", books.updates))]
    if w.labels_each:
        assert books.staleness["label"][2] <= found.scale.max_staleness
    else:
        assert not found.members["updater"]


def updates_after(w, steps):
    before = max(0, w.begins_after - N)  # the round that comes to `begins_after` is the first
    return w.offline_blocks * w.at_once + max(0, steps - before) // 4


SCALES = st.builds(
    ScaleSettings,
    collectors=st.integers(2, 5),
    updaters=st.integers(1, 4),
    fitters=st.integers(1, 3),
    replays=st.integers(1, 2),
    send_every=st.sampled_from([1, 2, 5]),
    max_staleness=st.sampled_from([1, 4, 1000]),
    keep_every=st.sampled_from([1, 8]),
)
# What labels apart and has demonstrations, as QT-Opt; what does neither, as SAC and DQN.
KINDS = {
    "labels": ({}, COUNTING),
    "labels where it fits": (
        {"labels_each": 0.0, "auxiliary_blocks": 0, "offline_blocks": 0, "begins_after": 80},
        {**COUNTING, "memory": ForgettingMemory},
    ),
}


@settings(max_examples=6)
@given(scale=SCALES, seed=st.integers(0, 10**6), kind=st.sampled_from(sorted(KINDS)))
def test_undisturbed_every_round_is_kept_once_and_nothing_else_happens(scale, seed, kind):
    rng, (options, roles) = np.random.default_rng(seed), KINDS[kind]
    cluster = VirtualCluster(roles, lambda role, method: rng.exponential())
    found = finish(coordinator(scale, cluster, **options))
    check(found)
    (_, memories, _) = found.desk.saves[-1]
    rounds = [r for memory in memories for stream in memory.values() for r in stream]
    assert len(rounds) * N == found.work.steps
    counts = found.books.counts
    assert counts["actors_lost"] == counts["rounds_lost"] == counts["updates_forgone"] == 0
    assert counts["updates"] == found.books.updates
    assert found.books.losses == {} or found.books.losses["loss"][0] > 0


def killer(rng, chance):
    """Kills actors when they are called, and machines now and then."""
    spare = {"left": 60}

    def before_call(cluster, actor, method):
        if spare["left"] and rng.random() < chance:
            spare["left"] -= 1
            alive = [one for one in cluster.actors if one.is_alive]
            if cluster.machines > 1 and rng.random() < 0.2:
                cluster.kill_machine(int(rng.integers(cluster.machines)))
            elif alive:
                alive[int(rng.integers(len(alive)))].is_alive = False

    return before_call


@settings(max_examples=12)
@given(
    scale=SCALES,
    seed=st.integers(0, 10**6),
    machines=st.sampled_from([1, 4]),
    kind=st.sampled_from(sorted(KINDS)),
)
def test_whatever_is_lost_the_run_ends_and_counts_nothing_twice(scale, seed, machines, kind):
    rng, (options, roles) = np.random.default_rng(seed), KINDS[kind]
    cluster = VirtualCluster(
        roles, lambda role, method: rng.exponential(), machines, killer(rng, 0.1)
    )
    found = coordinator(scale, cluster, **options)
    found.crew.most_in_a_row = 10**6
    finish(found)
    check(found)
    counts = found.books.counts
    assert counts["actors_lost"] > 5
    assert counts["actors_replaced"] == counts["actors_lost"]


def test_a_driver_that_starts_again_goes_on_from_its_checkpoint():
    scale = ScaleSettings(collectors=3, updaters=2)
    cluster = VirtualCluster(COUNTING)
    first = coordinator(scale, cluster)
    first.start()
    first.run(lambda: 15 if first.books.steps >= 500 else None)
    assert 500 <= first.books.steps < 600
    state, memories, about = first.desk.saves[-1]
    assert about["steps"] == first.books.steps
    second = coordinator(scale, VirtualCluster(COUNTING))
    second.desk.saves = [(state, memories, about)]
    second.go_on(about, state)
    finish(second)
    assert (second.books.steps, second.books.updates) == (1600, 8 + 400)
    names = {
        owner
        for _, kept, _ in second.desk.saves
        for m in kept
        for s in m.values()
        for owner, _ in s
    }
    assert len(names) == 6  # no collector has the name of one before
    held = [r for m in second.desk.saves[-1][1] for s in m.values() for r in s]
    assert len(set(held)) == len(held) == 1600 // N


def test_collecting_waits_for_slow_fitting_and_fitting_for_slow_collecting():
    for slow in ("fit", "collect"):
        cluster = VirtualCluster(
            COUNTING, lambda role, method, slow=slow: 9.0 if method == slow else 0.1
        )
        found, most = coordinator(ScaleSettings(collectors=4, updaters=2), cluster), [0.0]
        found.desk.tell = lambda found=found, most=most: most.append(found.books.blocks_behind)
        check(finish(found))
        assert max(most) <= found.scale.blocks_ahead + 1


def test_labels_are_not_older_than_they_may_be():
    def seconds(role, method):
        slow["turn"] += method == "label"
        return 60.0 if method == "label" and slow["turn"] % 5 == 0 else 1.0

    slow = {"turn": 0}
    found = finish(
        coordinator(ScaleSettings(updaters=4, max_staleness=6), VirtualCluster(COUNTING, seconds))
    )
    check(found)
    assert found.books.counts["labels_again"] > 10
    assert found.books.staleness["label"][2] <= 6


def test_a_role_that_always_dies_is_an_error():
    class Dying(CountingJudge):
        def setup(self):
            raise cluster_module.Lost("out of memory")

    from midstride.scale import cluster as cluster_module

    cluster = VirtualCluster({**COUNTING, "judge": Dying})
    with pytest.raises(RuntimeError, match=r"6 judges in a row were lost .*: out of memory"):
        finish(coordinator(ScaleSettings(), cluster))


def test_after_a_fault_of_an_environment_what_was_learned_is_saved():
    class Failing(COUNTING["collector"]):
        def collect(self, weights, seen, rounds, steps, random):
            if steps > 300:
                raise Fault("it broke")
            return super().collect(weights, seen, rounds, steps, random)

    found = coordinator(
        ScaleSettings(collectors=2), VirtualCluster({**COUNTING, "collector": Failing})
    )
    found.start()
    found.run()
    assert str(found.fault) == "it broke"
    assert found.desk.saves[-1][2]["steps"] == found.books.steps > 300


def test_a_signal_in_preparation_ends_at_once():
    found = coordinator(ScaleSettings(), VirtualCluster(COUNTING))
    found.start()
    found.run(lambda: 2)
    assert not found.desk.saves


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"lock_step": True, "collectors": 2}, "lock_step is of one collector"),
        ({"lock_step": True, "fitters": 2}, "lock_step is of one collector"),
        ({"lock_step": True, "send_every": 2}, "lock_step goes round by round"),
        ({"replays": 3, "collectors": 2}, r"replays \(3\) hold what collectors send"),
        ({"collectors": 0}, "collectors must be a whole number from 1"),
        ({"updaters": 1.5}, "updaters must be a whole number"),
    ],
)
def test_what_does_not_fit_together_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        ScaleSettings(**options)

"""How a training on many machines is doing, as numbers by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from midstride.scale.books import Books
from midstride.scale.parcels import Member

_LOSSES = (
    "labels_again", "actors_lost", "actors_replaced", "transitions_forgotten", "updates_forgone",
)  # fmt: skip


def figures(
    books: Books, members: Mapping[str, Sequence[Member]], rates: Mapping[str, float]
) -> dict[str, float]:
    """rates: of what is counted, per second."""
    stages = [block.stage for block in books.blocks]
    fitters = members["fitter"]
    found = {
        "transitions_per_s": rates["transitions"],
        "labels_per_s": rates["labels"],
        "updates_per_s": rates["updates"],
        "replay_ratio": books.updates / books.steps if books.steps else 0.0,
        "steps_on_the_way": books.on_the_way,
        "rounds_waiting": sum(map(len, books.rounds)),
        "blocks_sampled": sum(stage in ("sampling", "sampled") for stage in stages),
        "blocks_labelling": stages.count("labelling"),
        "blocks_labelled": stages.count("labelled"),
        "updates_owed": books.owed,
        "fitters_in_step": sum(
            one.is_ready and one.generation == books.generation for one in fitters
        ),
        "fitters_busy": sum(one.is_busy for one in fitters),
        "times_gone_back": books.generation,
        "version": books.version,
    }
    for what, (total, count, largest) in books.staleness.items():
        found |= {f"{what}_staleness": total / count, f"{what}_staleness_max": largest}
    return found | {name: books.counts[name] for name in _LOSSES}

"""Whether shardings of one model on one machine come out in the order in which they were published."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from experiments.flexshard.models import MODELS
from experiments.flexshard.times import SHARDINGS
from experiments.validation.fit import Found


def exposed(found: Sequence[Found]) -> dict[tuple[str, str], tuple[float, float, float]]:
    """By model and sharding of FlexShard, ms of the collectives that nothing hides (all-to-all, all-reduce of all ranks): published,
    simulated, and simulated by fits without each.
    """
    times: dict[tuple[str, str], tuple[float, float, float]] = {}
    for model in MODELS:
        for sharding in SHARDINGS:
            names = [f"FlexShard {model} {sharding}: {what}" for what in ("all-to-all", "all-reduce of all")]
            own = [point for point in found if point.what in names]
            if own:
                times[model, sharding] = (sum(p.published for p in own), sum(p.simulated for p in own), sum(p.left_out for p in own))
    return times


def orders(found: Sequence[Found]) -> list[tuple[str, bool]]:
    """Of FlexShard's shardings, two by two: the order of their exposed collectives."""
    told = []
    for (one, (published, simulated, _)), (other, (their_published, their_simulated, _)) in combinations(exposed(found).items(), 2):
        if one[0] == other[0]:
            right = (published < their_published) == (simulated < their_simulated)
            told.append((f"{one[0]}: {one[1]} and {other[1]}", right))
    return told

"""When bytes are really under way: a collective waits for the last of its ranks, and only then transfers.

Ranks of one machine share one clock, so what each of them notes can be held against the others. Collectives that overlap are counted
once: the time is that of the union of their intervals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch.distributed as dist

from recsys_lab.executor.recorded import Recorded
from recsys_lab.executor.times import union_ms

#: By what travels, and from when on it is counted: its own issue, or that of the last rank.
Transfers = dict[str, dict[str, float]]
#: How the names of steps begin whose bytes are no embeddings'.
DENSE = ("dense.", "towers.module")
WHAT, HOW = ("embedding", "dense"), ("under_way", "transfer")
#: A collective of one rank: (kind, group, of embeddings, start, end), ms of the machine's clock.
Noted = tuple[str, tuple[int, ...], bool, float, float]


def transfers(recorded: Sequence[Sequence[Recorded]], names: Sequence[Sequence[str]]) -> Transfers | None:
    """{embedding, dense: {under_way, transfer}}, ms of an iteration: the mean over ranks of each one's median. Collective.

    `under_way` begins when the rank itself issues, `transfer` when all of the group have. `names`: of each collective, its step's. None
    where nothing was recorded, or not the same on all ranks.
    """
    own: list[list[Noted]] = [
        [
            (one.kind, one.group, not name.startswith(DENSE), one.start_ms, one.start_ms + one.ms)
            for one, name in zip(seen, named, strict=True)
        ]
        for seen, named in zip(recorded, names, strict=True)
    ]
    everyone: list[list[list[Noted]]] = [[]] * dist.get_world_size()
    dist.all_gather_object(everyone, own)
    if not own or len({len(iterations) for iterations in everyone}) > 1:
        return None
    by_rank = [[_of_iteration([iterations[i] for iterations in everyone], rank) for i in range(len(own))] for rank in range(len(everyone))]
    return {
        what: {how: float(np.mean([np.median([one[what][how] for one in of_rank]) for of_rank in by_rank])) for how in HOW} for what in WHAT
    }


def _of_iteration(everyone: Sequence[Sequence[Noted]], rank: int) -> Transfers:
    """Of one iteration of `rank`."""
    joined = _joined(everyone)
    intervals: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    number: dict[tuple, int] = defaultdict(int)
    for kind, group, embedding, start, end in everyone[rank]:
        last = joined[kind, group, number[kind, group]]
        number[kind, group] += 1
        what = "embedding" if embedding else "dense"
        intervals[what, "under_way"].append((start, end))
        intervals[what, "transfer"].append((min(max(start, last), end), end))
    return {what: {how: union_ms(intervals[what, how]) for how in HOW} for what in WHAT}


def _joined(everyone: Sequence[Sequence[Noted]]) -> dict[tuple, float]:
    """By (kind, group, how many of these came before it): when the last rank issued it. All ranks have one order."""
    starts: dict[tuple, float] = {}
    for of_rank in everyone:
        number: dict[tuple, int] = defaultdict(int)
        for kind, group, _, start, _ in of_rank:
            key = (kind, group, number[kind, group])
            number[kind, group] += 1
            starts[key] = max(start, starts.get(key, start))
    return starts

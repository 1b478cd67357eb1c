"""FlexShard's tiers on real ranks.

`split`: which rows are hot, the same on every rank, and each id of a batch to its tier.
`tiered`: the tiers, at home or exchanged over a process group each, and all of them as one collection.
`watch`: what training looked up, for the plan to be judged by.
"""

from __future__ import annotations

from torch import nn

from recsys_lab.executor.execution import Execution, Request, Running
from recsys_lab.schemes.tiers.execute.split import TierSplit, remaps_of
from recsys_lab.schemes.tiers.execute.tiered import TieredEmbeddings
from recsys_lab.schemes.tiers.execute.watch import TierWatch


def run(request: Request) -> Running:
    """Raises UserError where the request's hot rows do not match its plan. Collective."""
    remaps = remaps_of(request)
    split = TierSplit(request.placed, remaps, request.device)
    watch = TierWatch(split, request.device)
    return Running(TieredEmbeddings(request, split, watch), remaps, watch)


def watch_alone(request: Request, collection: nn.Module) -> TierWatch:
    """On one rank, where `collection` holds all tables whole and splits no ids."""
    watch = TierWatch(TierSplit(request.placed, remaps_of(request), request.device), request.device)
    collection.register_forward_pre_hook(watch.hook)
    return watch


EXECUTION = Execution(run, watch=watch_alone)

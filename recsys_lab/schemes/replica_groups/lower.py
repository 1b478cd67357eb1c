"""The exchanges of a scheme within each group of ranks. Between the groups, gradients or weights of all rows are all-reduced.

gradients    before the update, which is then that of one process. They are on the way while the backward pass goes on.
weights      after the update, with optimizer state, and nothing runs beside it: TorchRec's DMPCollection.sync
"""

from __future__ import annotations

from dataclasses import replace

from recsys_lab.errors import UserError
from recsys_lab.plan.context import GRADIENTS, WEIGHTS, Context, averaged_weights
from recsys_lab.plan.scheme import Placed, Scheme
from recsys_lab.plan.steps import Step
from recsys_lab.schemes.replica_groups.placement import ReplicaGroups


def lower_in_groups(context: Context, base: Scheme) -> tuple[list[Step], list[Step]]:
    """(input and forward, backward) steps: those of `base` with each group for the world."""
    check_sync(context.placed, context.sync)
    groups = ReplicaGroups.of(context.plan).groups
    within = replace(context, within=groups, averaged=len(groups) > 1 and context.sync == GRADIENTS)
    ahead, back = base.lower(within)
    return ahead, [*back, *(averaged_weights(within) if context.sync == WEIGHTS else [])]


def check_sync(members: Placed, sync: str) -> None:
    """Raises UserError for weights that are not averaged: those of other formats than FP32 are in two parts, or would be rounded."""
    for table, _ in members:
        if sync == WEIGHTS and table.dtype != "fp32":
            given, remedy = f"table {table.name} in {table.dtype}", "sharder.executor.sync=gradients"
            raise UserError("only weights in FP32 are averaged", where="sharder.executor.sync", given=given, remedy=remedy)

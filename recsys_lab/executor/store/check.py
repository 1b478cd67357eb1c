"""What a plan with stores needs to run here."""

from __future__ import annotations

import torch

from recsys_lab import kernels
from recsys_lab.errors import UserError
from recsys_lab.kernels.choice import why_not
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.store import HOST
from recsys_lab.plan.tiers import is_tiered


def check_stores(plan: ShardingPlan, device: torch.device) -> None:
    """Raises UserError for stores that cannot run: of replicated or tiered tables, on a GPU, without the C++ kernels."""
    for placement in plan.placements:
        if placement.store is None:
            continue
        where = f"table {placement.table}, store"
        if is_tiered(placement) or any(len(shard.ranks) > 1 for shard in placement.shards):
            raise UserError(
                "a table whose rows several ranks hold alike stays in device memory",
                where=where,
                given=f"{placement.store.kind} under {placement.scheme}",
                remedy="place the table whole, by row or by column",
            )
        if device.type != "cpu":
            raise UserError(
                "stores run on CPUs",
                where=where,
                given=f"{placement.store.kind} on {device.type}",
                remedy="trainer.device=cpu trains it, mode=simulate prices it",
            )
        if placement.store.kind != HOST and not kernels.available():
            raise UserError("a cache needs the C++ kernels", where=where, given=why_not(), remedy="install a C++ compiler")

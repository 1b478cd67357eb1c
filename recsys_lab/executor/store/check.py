"""What a plan with stores needs to run here."""

from __future__ import annotations

import torch

from recsys_lab import kernels
from recsys_lab.errors import UserError
from recsys_lab.executor.store.managed import PRECISIONS, sets_of
from recsys_lab.kernels import Rule
from recsys_lab.kernels.choice import why_not
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.sharding_plan import Placement
from recsys_lab.plan.store import HOST, HOST_PAGED, LFU, ON_DISK, UNCACHED, Store
from recsys_lab.plan.tiers import is_alone
from recsys_lab.tables import Table

#: Of FBGEMM's LFU, which numbers sets in 24 bits.
MOST_SETS = 2**24 - 2


def check_stores(plan: ShardingPlan, device: torch.device, rule: Rule) -> None:
    """Raises UserError for stores that cannot run.

    They are those of replicated or tiered tables, on a CPU without the C++ kernels, and on a GPU what FBGEMM's kernels do not take.
    """
    for table, placement in plan.by_table.values():
        if placement.store is None:
            continue
        where = f"table {placement.table}, store"
        if not is_alone(placement):
            raise UserError(
                "a table whose rows several ranks hold alike stays in device memory",
                where=where,
                given=f"{placement.store.kind} under {placement.scheme}",
                remedy="place the table whole, by row or by column",
            )
        if device.type != "cpu":
            _check_managed(table, placement, placement.store, rule, where)
        elif placement.store.kind not in UNCACHED and not kernels.available():
            raise UserError("a cache needs the C++ kernels", where=where, given=why_not(), remedy="install a C++ compiler")


def _check_managed(table: Table, placement: Placement, store: Store, rule: Rule, where: str) -> None:
    """Of a table on a GPU."""
    shards = [shard for shard in placement.shards if shard.rows]
    if store.kind == HOST_PAGED:
        raise UserError(
            "pages of unified memory are priced, not trained",
            where=where,
            given=store.kind,
            remedy="sharder.store=host reads rows where they are; mode=simulate prices pages",
        )
    if store.kind in ON_DISK:
        raise UserError(
            "a GPU caches rows of the host's memory, not of a disk",
            where=where,
            given=store.kind,
            remedy="sharder.store=host_cached, or trainer.device=cpu; mode=simulate prices it",
        )
    if table.dtype not in PRECISIONS:
        raise UserError(
            "FBGEMM's caches hold no such rows",
            where=where,
            given=table.dtype,
            allowed=" or ".join(PRECISIONS),
            remedy="precision.table=fp32",
        )
    if any(shard.cols % 4 for shard in shards):
        cols = next(shard.cols for shard in shards if shard.cols % 4)
        raise UserError(
            "FBGEMM's kernels read four columns at a time",
            where=where,
            given=f"{cols} columns",
            remedy="take a multiple of 4 for each shard",
        )
    if store.kind != HOST and store.policy == LFU and any(sets_of(store, shard.rows) > MOST_SETS for shard in shards):
        raise UserError(
            "FBGEMM's LFU cache has too few sets for so many rows",
            where=where,
            given=f"{max(sets_of(store, shard.rows) for shard in shards):,} sets of 32",
            allowed=f"up to {MOST_SETS:,}",
            remedy="sharder.cache_policy=lru",
        )
    if rule.weight_decay:
        raise UserError(
            "FBGEMM's optimizers decay weights by other formulas than ours",
            where=where,
            given=f"{store.kind} with optimizer.sparse.weight_decay {rule.weight_decay:g}",
            remedy="optimizer.sparse.weight_decay=0",
        )
    if rule.stochastic:
        raise UserError(
            "FBGEMM rounds at random by numbers that a resumed run would not have again",
            where=where,
            given=f"{store.kind} with precision.rounding stochastic",
            remedy="precision.rounding=nearest",
        )

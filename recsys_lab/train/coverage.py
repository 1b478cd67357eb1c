"""How much of the look-ups FlexShard's tiers really cover in training. It also says what a plan from the latest look-ups would save.

There are three answers for each tier. Planned follows from the access statistics. Measured counts every look-up of this run's training. The
third is of a new plan, made from one half of the last ids and judged on the other, so that it cannot flatter itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import lightning.pytorch as pl
import numpy as np
import torch.distributed as dist

from recsys_lab.data.protocol import Hottest
from recsys_lab.executor.sharded_model import ShardedModel
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.tiers import is_tiered, tier_rows
from recsys_lab.record.result import Coverage, Replanning
from recsys_lab.tables import AccessStatistics, TableAccess
from recsys_lab.tables.access import distinct
from recsys_lab.tables.remap import KEPT_IDS
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED, ROW_SHARDED, TIERS

#: access statistics -> the plan that this run's planner makes of them, for the same ranks.
Replan = Callable[[AccessStatistics], ShardingPlan]


def hot_rows(plan: ShardingPlan, hottest: Hottest) -> dict[str, np.ndarray]:
    """int64 ids of the rows that the plan replicates (everywhere or once a host), in falling frequency.

    They are by table placed row by row.
    """
    rows = {placement.table: tier_rows(placement) for placement in plan.placements if is_tiered(placement)}
    return {table: hottest(table, tiers[REPLICATED] + tiers[HOST_SHARDED]) for table, tiers in rows.items()}


class WatchTiers(pl.Callback):
    """Look-ups count from the first training step on. Resuming starts from zero."""

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        sharded: ShardedModel = trainer.strategy.sharded.model  # type: ignore[attr-defined]
        sharded.watch.lookups(reset=True)
        sharded.watch.keep_ids(KEPT_IDS)


@dataclass(frozen=True)
class Seen:
    """Of all ranks: look-ups by table and tier, and the last ids of each table, oldest first on each rank."""

    lookups: dict[str, dict[str, int]]
    ids: dict[str, np.ndarray]


def gather(sharded: ShardedModel) -> Seen:
    """Collective. The same on every rank."""
    own = (sharded.watch.lookups(), {table: ids.cpu().numpy() for table, ids in sharded.watch.kept_ids().items()})
    everyone: list = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, own)
    lookups = {table: {tier: sum(one[0][table][tier] for one in everyone) for tier in TIERS} for table in own[0]}
    return Seen(lookups, {table: _interleaved([one[1][table] for one in everyone]) for table in own[1]})


def coverage(
    seen: Seen, plan: ShardingPlan, access: AccessStatistics, hot_rows: Mapping[str, np.ndarray], replan: Replan, threshold: float
) -> Coverage | None:
    """None where the plan places no table row by row, or nothing was looked up.

    `hot_rows`: the tables' rows in falling frequency, as the plan has them; `threshold`: the saving from which a new plan is worth it.
    """
    tables = [p.table for p in plan.placements if is_tiered(p) and any(seen.lookups[p.table].values())]
    if not tables:
        return None
    planned = _shares({table: _planned(plan, access, table) for table in tables})
    measured = _shares({table: {tier: float(n) for tier, n in seen.lookups[table].items()} for table in tables})
    halves = {table: np.array_split(seen.ids[table], 2) for table in tables}
    if any(len(half) == 0 for pair in halves.values() for half in pair):
        return Coverage(planned, measured, None)
    sampled = {t: sampled_access(access[t], halves[t][0], plan.by_table[t][0].rows) for t in tables}
    new_plan = replan(AccessStatistics(dict(access.tables) | {table: statistics for table, (statistics, _) in sampled.items()}))
    now = _shares({t: _counted(plan, t, hot_rows[t], halves[t][1], access[t].mean_length) for t in tables})
    new = _shares({t: _counted(new_plan, t, sampled[t][1], halves[t][1], access[t].mean_length) for t in tables})
    saving = 1 - new[ROW_SHARDED] / now[ROW_SHARDED] if now[ROW_SHARDED] else 0.0
    judged_on = sum(len(halves[t][1]) for t in tables)
    return Coverage(planned, measured, Replanning(now, new, saving, threshold, saving > threshold, judged_on))


def sampled_access(known: TableAccess, ids: np.ndarray, rows: int) -> tuple[TableAccess, np.ndarray]:
    """Statistics from some look-ups of a table, and its rows that were seen, in falling frequency. Ties by lower id."""
    unique_ids, counts = np.unique(ids, return_counts=True)
    seen = unique_ids[np.argsort(-counts, kind="stable")]
    bucket_rows, values = distinct(counts)
    samples = len(ids) / known.mean_length
    unseen = [(rows - len(unique_ids), 0.0)] if rows > len(unique_ids) else []
    buckets = [*((int(n), float(v / samples)) for n, v in zip(bucket_rows, values)), *unseen]
    in_bucket, p = tuple(n for n, _ in buckets), tuple(x for _, x in buckets)
    return TableAccess(known.table, known.mean_length, in_bucket, p, "measured", f"{len(ids):,} of the last look-ups"), seen


def _planned(plan: ShardingPlan, access: AccessStatistics, table: str) -> dict[str, float]:
    lookups, begin = {}, 0
    for tier, rows in tier_rows(plan.by_table[table][1]).items():
        lookups[tier] = access[table].length_of(begin, begin + rows)
        begin += rows
    return lookups


def _counted(plan: ShardingPlan, table: str, hottest: np.ndarray, ids: np.ndarray, length: float) -> dict[str, float]:
    """Look-ups of `ids` in each tier, as those of a sample with `length` of them; `hottest` are the rows in falling frequency."""
    rows = tier_rows(plan.by_table[table][1])
    replicated = np.isin(ids, hottest[: rows[REPLICATED]])
    in_host = np.isin(ids, hottest[rows[REPLICATED] : rows[REPLICATED] + rows[HOST_SHARDED]])
    hits = {REPLICATED: replicated, HOST_SHARDED: in_host, ROW_SHARDED: ~replicated & ~in_host}
    return {tier: float(hit.mean()) * length for tier, hit in hits.items()}


def _shares(by_table: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    total = sum(sum(tiers.values()) for tiers in by_table.values())
    return {tier: sum(tiers[tier] for tiers in by_table.values()) / total if total else 0.0 for tier in TIERS}


def _interleaved(parts: list[np.ndarray]) -> np.ndarray:
    """The older part of all ranks, then the younger one: time runs the same way in the whole."""
    halves = [np.array_split(part, 2) for part in parts]
    return np.concatenate([*(older for older, _ in halves), *(younger for _, younger in halves)])

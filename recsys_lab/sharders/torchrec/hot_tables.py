"""Tables of a TorchRec plan whose hot rows overload one rank, and what such tables may be instead. TorchRec takes all rows to be alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.hot_rank import HOT
from recsys_lab.plan.memory import bytes_of_ranks, missing_bytes
from recsys_lab.plan.sharding_plan import even_blocks
from recsys_lab.schemes.in_host import GRID_SHARD, TABLE_ROW_WISE
from recsys_lab.schemes.replicated import DATA_PARALLEL
from recsys_lab.schemes.row_blocks import ROW_WISE
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.neo.costs import Setting, Weights, costs_of_ranks
from recsys_lab.sharders.torchrec.columns import Types
from recsys_lab.sharders.torchrec.types import SCHEMES
from recsys_lab.tables import Table

#: Where ranks share a table's rows.
BY_ROWS = (ROW_WISE, TABLE_ROW_WISE, GRID_SHARD)
#: Hot rows that make the slowest ranks dearer by less than this are left where they are: another search takes seconds.
LITTLE = 0.05


def fits(plan: ShardingPlan, inputs: PlanInputs) -> bool:
    return missing_bytes(bytes_of_ranks(plan, inputs.workload), inputs.cluster)[0] <= 0


def cost_ms(plan: ShardingPlan, inputs: PlanInputs, hot_rows: bool = True) -> float:
    """Of the slowest ranks, by Neo's cost model."""
    return costs_of_ranks(plan, replace(Setting.of(inputs, Weights()), hot_rows=hot_rows)).worst_ms


def cooler_types(plan: ShardingPlan, inputs: PlanInputs, types: Types) -> Iterator[tuple[Types, set[str]]]:
    """Other `types` to search with, and the hot tables that are then whole or cut by columns.

    First those hot tables that `plan` cuts by rows. Where it does not fit, then all hot ones, and no table has replicas. None where hot
    rows cost little, and the plan fits.
    """
    holds = fits(plan, inputs)
    if holds and cost_ms(plan, inputs) < (1 + LITTLE) * cost_ms(plan, inputs, hot_rows=False):
        return
    setting = Setting.of(inputs, Weights())
    hot = {table.name for table in plan.tables if _hottest(table, setting) > HOT}
    by_rows = hot & {placement.table for placement in plan.placements if placement.scheme in BY_ROWS}
    if by_rows:
        yield _cooler(types, by_rows, ()), by_rows
    if hot and not holds and any(placement.scheme == DATA_PARALLEL for placement in plan.placements):
        yield _cooler(types, hot, (DATA_PARALLEL,)), hot


def _cooler(types: Types, names: set[str], never: tuple[str, ...]) -> Types:
    """`types` without what cuts tables `names` by rows, and of all tables without what is `never` to be; as they are if nothing is left."""
    usual, left_out = [scheme for scheme in SCHEMES if scheme != GRID_SHARD], dict.fromkeys(names, BY_ROWS)
    able = {name: [one for one in own or usual if one not in (*left_out.get(name, ()), *never)] for name, own in types.items()}
    return {name: able[name] or own for name, own in types.items()}


def _hottest(table: Table, setting: Setting) -> float:
    """Times the mean that the rank with the hottest rows serves, were the table cut by rows over all ranks."""
    ranks = setting.cluster.world_size
    return ranks * float(setting.served(table, [(first, past - first) for first, past in even_blocks(table.rows, ranks)]).max())

"""Which columns the shards of tables have. No torch: who starts ranks asks whether a checkpoint's state can be had under another plan.

Row-wise Adagrad's state is the mean over the columns of a shard, so each shard of a table that is cut by columns has its own. The state of
several neighbours as one shard is their mean, weighted by columns: what that shard would have kept, but for rounding. The state of a part
of a shard is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recsys_lab.errors import UserError
from recsys_lab.plan import ShardingPlan

#: By table, the [first, one behind the last] columns of its shards. A table that is not cut is absent.
Cuts = Mapping[str, Sequence[Sequence[int]]]


def column_cuts(plan: ShardingPlan) -> dict[str, list[list[int]]]:
    """Of the tables of `plan`."""
    cuts = {}
    for table, placement in zip(plan.tables, plan.placements):
        columns = sorted({(shard.col_start, shard.col_stop) for shard in placement.shards if shard.rows})
        if columns != [(0, table.dim)]:
            cuts[table.name] = [list(one) for one in columns]
    return cuts


def merged_tables(saved: Cuts, plan: ShardingPlan) -> list[str]:
    """The tables whose state under `plan` is a mean of what was `saved`. UserError for the first one whose state is not known."""
    cuts, merged = column_cuts(plan), []
    for table in plan.tables:
        before, now = ([list(cut) for cut in of.get(table.name, [[0, table.dim]])] for of in (saved, cuts))
        if before == now:
            continue
        edges = {edge for cut in before for edge in cut}
        if any(edge not in edges for cut in now for edge in cut):
            raise UserError(
                "row-wise Adagrad's state of a column shard cannot be divided",
                where=f"table {table.name}",
                given=f"columns {_columns(now)} under this plan, {_columns(before)} in the checkpoint",
                remedy="cut it as before, or not at all, as sharder=torchrec_row_wise does; or take the weights alone: start_from=RUN",
            )
        merged.append(table.name)
    return merged


def _columns(cuts: Sequence[Sequence[int]]) -> str:
    return ", ".join(f"{start}-{stop}" for start, stop in cuts)

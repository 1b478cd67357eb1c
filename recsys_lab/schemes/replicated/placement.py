"""Every rank holds the table."""

from __future__ import annotations

from collections.abc import Sequence

from recsys_lab.plan.sharding_plan import Placement, Shard
from recsys_lab.tables import Table

DATA_PARALLEL = "data_parallel"


def on_every_rank(table: Table, ranks: Sequence[int]) -> Placement:
    return Placement(table.name, DATA_PARALLEL, (Shard(tuple(ranks), 0, table.rows, 0, table.dim),))

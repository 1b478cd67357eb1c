"""Rows over the ranks of a host, in words."""

from __future__ import annotations

from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.tables import Table
from recsys_lab.units import human_bytes

ROWS_TRAVEL = "each id to the rank with its row; parts are summed inside the host, then sent between peers"
GRID_TRAVELS = "each id to every column shard's host; parts are summed inside the host, then sent between peers"


def row_words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    """(where, why) of a table on one host."""
    size = human_bytes(table.weight_bytes)
    why = f"{size} are divided over one host, at most {most_bytes} a rank; sums stay inside it"
    return f"rows in equal blocks inside {_hosts(placement, plan)}", why


def grid_words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    """(where, why) of column shards on hosts."""
    columns = len({shard.col_start for shard in placement.shards})
    where = f"{columns} column shards, each with its rows in blocks inside a host ({_hosts(placement, plan)})"
    return where, f"{human_bytes(table.weight_bytes)} are divided both ways, at most {most_bytes} a rank"


def _hosts(placement: Placement, plan: ShardingPlan) -> str:
    hosts = sorted({rank // plan.ranks_per_host for rank in placement.ranks})
    return f"host {hosts[0]}" if len(hosts) == 1 else f"hosts {', '.join(map(str, hosts))}"

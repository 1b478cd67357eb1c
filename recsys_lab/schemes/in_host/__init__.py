"""Rows split over the ranks of a host. They are those of whole tables, or of column shards on hosts of their own (a grid)."""

from functools import partial

from recsys_lab.plan.scheme import Rules, Scheme, examples
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.schemes.in_host.lower import lower_in_host
from recsys_lab.schemes.in_host.placement import GRID_SHARD, TABLE_ROW_WISE, check_execution, example
from recsys_lab.tables import Table
from recsys_lab.units import human_bytes

__all__ = ["GRID_SHARD", "SCHEMES", "TABLE_ROW_WISE"]


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


SCHEMES = tuple(
    Scheme(
        name=name,
        travels=travels,
        execution="recsys_lab.executor.collection:EXECUTION",
        lower=lower_in_host,
        words=words,
        reference_cases=examples(partial(example, scheme=name)),
        rules=Rules(all_columns=name == TABLE_ROW_WISE, one_host=name == TABLE_ROW_WISE, blocks="host"),
        sums_across_ranks=True,
        check_execution=check_execution,
    )
    for name, travels, words in ((TABLE_ROW_WISE, ROWS_TRAVEL, row_words), (GRID_SHARD, GRID_TRAVELS, grid_words))
)

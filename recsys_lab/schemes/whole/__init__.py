"""Whole tables, and column shards with all rows: each shard on one rank."""

from functools import partial

from recsys_lab.cluster import ranks_words
from recsys_lab.plan.scheme import Rules, Scheme, examples
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.schemes.whole.lower import lower_whole
from recsys_lab.schemes.whole.placement import COLUMN_WISE, TABLE_COLUMN_WISE, TABLE_WISE, check_execution, example
from recsys_lab.tables import Table
from recsys_lab.units import human_bytes

__all__ = ["COLUMN_WISE", "SCHEMES", "TABLE_COLUMN_WISE", "TABLE_WISE"]


TABLE_TRAVELS = "ids to its rank, pooled rows back, by all-to-all"
COLUMNS_TRAVEL = "ids to each column shard's rank, columns back, by all-to-all"
HOST_COLUMNS_TRAVEL = "ids to each column shard's rank on one host, pooled columns back, by all-to-all"


def table_words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    """(where, why) of a whole table."""
    return f"whole on rank {placement.ranks[0]}", f"{human_bytes(table.weight_bytes)} fit on one rank, so ids and rows travel once"


def column_words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    """(where, why) of column shards."""
    columns = len({shard.col_start for shard in placement.shards})
    where = f"{columns} column shards on {ranks_words(placement.ranks)}"
    return where, f"bytes and look-ups are divided, at most {most_bytes} a rank; ids are sent {columns} times"


SCHEMES = tuple(
    Scheme(
        name=name,
        travels=travels,
        execution="recsys_lab.schemes.whole.execute:EXECUTION",
        lower=lower_whole,
        words=table_words if name == TABLE_WISE else column_words,
        reference_cases=examples(partial(example, scheme=name)),
        rules=Rules(one_shard=name == TABLE_WISE, all_rows=True, all_columns=name == TABLE_WISE, one_host=name == TABLE_COLUMN_WISE),
        sequences=name != TABLE_COLUMN_WISE,
        any_exchange=name == TABLE_WISE,
        check_execution=check_execution,
    )
    for name, travels in ((TABLE_WISE, TABLE_TRAVELS), (COLUMN_WISE, COLUMNS_TRAVEL), (TABLE_COLUMN_WISE, HOST_COLUMNS_TRAVEL))
)

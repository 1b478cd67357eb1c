"""Rows in equal blocks, one on each rank: each id finds the rank of its row by its block."""

from recsys_lab.cluster import ranks_words
from recsys_lab.plan.scheme import Rules, Scheme, examples
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.schemes.row_blocks.lower import lower_row_blocks
from recsys_lab.schemes.row_blocks.placement import ROW_WISE, in_row_blocks
from recsys_lab.tables import Table
from recsys_lab.units import human_bytes

__all__ = ["ROW_WISE", "SCHEMES"]


def words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    """(where, why)."""
    size = human_bytes(table.weight_bytes)
    where = f"rows in equal blocks on {ranks_words(placement.ranks)}"
    return where, f"{size} are divided evenly, at most {most_bytes} a rank; every rank takes part in each look-up"


SCHEMES = (
    Scheme(
        name=ROW_WISE,
        travels="each id to the rank with its row; parts of pooled rows are summed over all ranks by reduce-scatter",
        execution="recsys_lab.executor.collection:EXECUTION",
        lower=lower_row_blocks,
        words=words,
        reference_cases=examples(lambda table, number, hosts, per_host: in_row_blocks(table, range(hosts * per_host))),
        rules=Rules(all_columns=True, blocks="world"),
        sequences=True,
        divides_evenly=True,
        sums_across_ranks=True,
    ),
)

"""FlexShard (arXiv 2301.02959): the rows of a table in three tiers, by how often they are read."""

from recsys_lab.plan.scheme import Scheme
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.plan.tiers import tier_rows
from recsys_lab.schemes.tiers.lower import lower_tiers
from recsys_lab.schemes.tiers.placement import FLEXSHARD, reference_cases, served_ranks, validate
from recsys_lab.tables import Table
from recsys_lab.units import human_count

__all__ = ["FLEXSHARD", "SCHEMES"]


def words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    """(where, why)."""
    rows = ", ".join(f"{human_count(n)} {tier.replace('_', '-')}" for tier, n in tier_rows(placement).items() if n)
    return f"row by row: {rows}", f"the more often a row is read, the more ranks have a copy; at most {most_bytes} a rank"


SCHEMES = (
    Scheme(
        name=FLEXSHARD,
        travels="hot rows: gradients all-reduced over all ranks (replicated), or ids and rows inside the host and gradients between "
        "peers (host-sharded); cold rows: ids and rows between all ranks",
        execution="recsys_lab.schemes.tiers.execute:EXECUTION",
        lower=lower_tiers,
        words=words,
        reference_cases=reference_cases,
        sequences=True,
        rules=None,
        validate=validate,
        served_ranks=served_ranks,
    ),
)

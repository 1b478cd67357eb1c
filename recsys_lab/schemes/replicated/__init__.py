"""Data parallelism: every rank holds the table and looks its own samples up; gradients are averaged over all ranks."""

from recsys_lab.plan.scheme import Rules, Scheme, examples
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.schemes.replicated.lower import lower_replicated
from recsys_lab.schemes.replicated.placement import DATA_PARALLEL, on_every_rank
from recsys_lab.tables import Table
from recsys_lab.tables.tiers import REPLICATED
from recsys_lab.units import counted, human_bytes

__all__ = ["DATA_PARALLEL", "SCHEMES"]


def words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    """(where, why)."""
    size, gradient = human_bytes(table.weight_bytes), human_bytes(4 * table.parameters)
    return (
        f"a copy on each of {counted(plan.world_size, 'rank')}",
        f"{size} a rank is the price of looking up at home; {gradient} are all-reduced",
    )


SCHEMES = (
    Scheme(
        name=DATA_PARALLEL,
        travels="no ids or rows; the gradients of all rows are all-reduced",
        execution="recsys_lab.executor.collection:EXECUTION",
        lower=lower_replicated,
        words=words,
        reference_cases=examples(lambda table, number, hosts, per_host: on_every_rank(table, range(hosts * per_host))),
        rules=Rules(everywhere=True),
        tier=REPLICATED,
        sequences=True,
        at_home=True,
        any_exchange=True,
    ),
)

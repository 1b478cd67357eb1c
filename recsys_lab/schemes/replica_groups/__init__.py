"""2D parallelism: tables sharded within groups of ranks, the groups' copies averaged (TorchRec's DMPCollection; arXiv 2508.03854)."""

from functools import partial

from recsys_lab.cluster import ranks_words
from recsys_lab.plan.scheme import Scheme
from recsys_lab.plan.sharding_plan import Placement, Shard, ShardingPlan
from recsys_lab.schemes import row_blocks, whole
from recsys_lab.schemes.replica_groups.lower import lower_in_groups
from recsys_lab.schemes.replica_groups.placement import NAMES, SUFFIX, ReplicaGroups, check_execution, reference_cases, validate
from recsys_lab.tables import Table
from recsys_lab.units import counted

__all__ = ["BASES", "NAMES", "SCHEMES", "SUFFIX", "ReplicaGroups"]

BASES = {scheme.name: scheme for scheme in (*whole.SCHEMES, *row_blocks.SCHEMES) if scheme.name + SUFFIX in NAMES}


def words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    """(where, why)."""
    groups = ReplicaGroups.of(plan)
    scheme = placement.scheme.removesuffix(SUFFIX).replace("_", "-")
    where = f"{scheme} on the {counted(groups.size, 'rank')} of each of {counted(len(groups.groups), 'group')}"
    return where, f"ids and rows stay in a group, the first of which is {ranks_words(groups.groups[0])}; at most {most_bytes} a rank"


def _served_ranks(shard: Shard, plan: ShardingPlan) -> int:
    return plan.world_size // len(shard.ranks)


SCHEMES = tuple(
    Scheme(
        name=name,
        travels=f"within each group: {base.travels}; between groups: the gradients of all rows, all-reduced",
        execution="recsys_lab.schemes.replica_groups.execute:EXECUTION",
        lower=partial(lower_in_groups, base=base),
        words=words,
        reference_cases=partial(reference_cases, base=base),
        rules=None,
        sequences=base.sequences,
        sums_across_ranks=base.sums_across_ranks,
        validate=partial(validate, base=base),
        served_ranks=_served_ranks,
        check_execution=partial(check_execution, base=base),
    )
    for name, base in ((name, BASES[name.removesuffix(SUFFIX)]) for name in NAMES)
)

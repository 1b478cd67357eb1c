"""DMT (arXiv 2403.00877): all tables of a plan in towers, each on the ranks of its tower's site, exchanged by SPTT."""

from functools import partial

from recsys_lab.cluster import ranks_words
from recsys_lab.plan.scheme import Rules, Scheme
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.schemes.towers.lower import FAMILY, lower_towers, module_memory
from recsys_lab.schemes.towers.placement import (
    NAMES,
    TOWER_COLUMN_WISE,
    TOWER_ROW_WISE,
    TOWER_TABLE_WISE,
    check_towers,
    reference_cases,
)
from recsys_lab.schemes.towers.sites import sites_of_plan
from recsys_lab.schemes.whole import column_words
from recsys_lab.tables import Table
from recsys_lab.units import counted, human_bytes

__all__ = ["SCHEMES", "TOWER_COLUMN_WISE", "TOWER_ROW_WISE", "TOWER_TABLE_WISE"]
TRAVELS = {
    TOWER_TABLE_WISE: "ids to its rank in the tower's site; pooled rows inside the site, then between peers",
    TOWER_COLUMN_WISE: "ids to each column shard's rank in the tower's site; pooled columns inside the site, then between peers",
    TOWER_ROW_WISE: "each id to the rank with its row in the tower's site; parts are summed inside the site, then sent between peers",
}
#: What the peer permute of DMT's step c moves.
PERMUTED = {
    "rows": "Looked-up rows are permuted into peer order",
    "ids": "Ids are permuted into peer order before they are looked up",
    "none": "Nothing is permuted: ids travel in a process group that is in peer order",
}


def words(table: Table, placement: Placement, most_bytes: str, plan: ShardingPlan) -> tuple[str, str]:
    """(where, why)."""
    size = human_bytes(table.weight_bytes)
    if placement.scheme == TOWER_TABLE_WISE:
        why = f"{size} fit on one rank, so ids travel once; rows inside the site, then between peers"
        return f"whole on rank {placement.ranks[0]}", why
    if placement.scheme == TOWER_COLUMN_WISE:
        return column_words(table, placement, most_bytes, plan)
    where = f"rows in equal blocks on {ranks_words(placement.ranks)}"
    return where, f"{size} are divided over the site, at most {most_bytes} a rank; sums stay inside it"


def sentences(plan: ShardingPlan) -> tuple[str, ...]:
    """Where the towers are, and what peer order costs."""
    sites = sites_of_plan(plan)
    towers, hosts = (_to(*sorted(set(each))) for each in (sites.towers, sites.hosts))
    on = "one host" if hosts == "1" else f"{hosts} hosts"
    where = f"{counted(len(plan.towers), 'tower')} on {counted(sites.count, 'site')}: {towers} on each, which is {on}"
    groups = sites.exchanges
    across = f"Between sites travel ids, and in {counted(len(groups), 'exchange')} of {len(groups[0])} peers side by side what towers give"
    return (f"{where}. {across if sites.count > 1 else 'Nothing travels between sites'}. {PERMUTED[plan.permute]}.",)


def _to(*numbers: int) -> str:
    """`1`, or `1 to 4`."""
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"


SCHEMES = tuple(
    Scheme(
        name=name,
        travels=TRAVELS[name],
        execution="recsys_lab.schemes.towers.execute:EXECUTION",
        lower=lower_towers,
        words=words,
        reference_cases=partial(reference_cases, scheme=name),
        rules=Rules(one_shard=name == TOWER_TABLE_WISE, all_rows=name != TOWER_ROW_WISE, all_columns=name != TOWER_COLUMN_WISE),
        family=FAMILY,
        validate_plan=check_towers,
        module_memory=module_memory,
        sentences=sentences,
    )
    for name in NAMES
)

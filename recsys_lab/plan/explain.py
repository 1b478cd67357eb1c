"""A plan in plain words: where each table lies, what that costs each rank, and what travels because of it."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.cluster import ranks_text
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.tables import Table
from recsys_lab.units import human_bytes, human_count

#: What travels in an iteration because of the scheme.
TRAVELS = {
    "data_parallel": "no ids or rows; the gradients of all rows are all-reduced",
    "table_wise": "ids to its rank, pooled rows back, by all-to-all",
    "column_wise": "ids to each column shard's rank, pooled columns back, by all-to-all",
    "table_column_wise": "ids to each column shard's rank on one host, pooled columns back, by all-to-all",
    "row_wise": "each id to the rank with its row; parts of pooled rows are summed over all ranks by reduce-scatter",
    "table_row_wise": "each id to the rank with its row; parts are summed inside the host, then sent between peers",
    "flexshard": "hot rows: gradients all-reduced over all ranks (replicated), or ids and rows inside the host and gradients between "
    "peers (host-sharded); cold rows: ids and rows between all ranks",
    "tower_table_wise": "ids to its rank in the tower's site; pooled rows inside the site, then between peers",
    "tower_column_wise": "ids to each column shard's rank in the tower's site; pooled columns inside the site, then between peers",
    "tower_row_wise": "each id to the rank with its row in the tower's site; parts are summed inside the site, then sent between peers",
    "grid_shard": "each id to every column shard's host; parts are summed inside the host, then sent between peers",
}


#: What the peer permute of DMT's step c moves.
PERMUTED = {
    "rows": "Looked-up rows are permuted into peer order",
    "ids": "Ids are permuted into peer order before they are looked up",
    "none": "Nothing is permuted: ids travel in a process group that is in peer order",
}


@dataclass(frozen=True)
class TableFacts:
    """One row of the plan's table. `where` and `why` are for people; `bytes` are of the weights, `most_bytes` on the fullest rank."""

    table: str
    rows: int
    dim: int
    features: int
    scheme: str
    tier: str
    ranks: str
    shards: int
    bytes: int
    most_bytes: int
    where: str
    why: str


def table_facts(plan: ShardingPlan) -> tuple[TableFacts, ...]:
    """One entry a table, in the plan's order."""
    return tuple(_facts(table, placement, plan) for table, placement in zip(plan.tables, plan.placements))


def explain(plan: ShardingPlan) -> tuple[str, ...]:
    """The plan as sentences: size, schemes, balance, the biggest table."""
    held = plan.weight_bytes_of_ranks()
    total = sum(table.weight_bytes for table in plan.tables)
    lines = [
        f"{plan.sharder} places {_count(len(plan.tables), 'table')} with {human_count(sum(t.rows for t in plan.tables))} rows "
        f"({human_bytes(total)}) on {_count(plan.world_size, 'rank')}: {_count(plan.hosts, 'host')} of {plan.ranks_per_host}."
    ]
    for scheme in dict.fromkeys(placement.scheme for placement in plan.placements):
        own = [table for table, placement in zip(plan.tables, plan.placements) if placement.scheme == scheme]
        size = sum(table.weight_bytes for table in own)
        share = f", {size / total:.0%} of the bytes" if total else ""
        lines.append(f"{scheme}: {_count(len(own), 'table')}, {human_bytes(size)}{share}. What travels: {TRAVELS[scheme]}.")
    fullest, emptiest = held.index(max(held)), held.index(min(held))
    mean = sum(held) / len(held)
    balance = f"the fullest is {max(held) / mean:.2f} times the mean" if mean else "no rank holds any"
    lines.append(
        f"Weights a rank: {human_bytes(mean)} on average, {human_bytes(held[fullest])} on rank {fullest}, "
        f"{human_bytes(held[emptiest])} on rank {emptiest}; {balance}."
    )
    biggest = max(table_facts(plan), key=lambda facts: facts.bytes)
    lines.append(f"The biggest table is {biggest.table} ({human_count(biggest.rows)} rows, {human_bytes(biggest.bytes)}): {biggest.where}.")
    if plan.has_tower_tables:
        lines.append(_sites(plan))
    for number, tower in enumerate(plan.towers):
        lines.append(f"Tower {number} has {_count(len(tower), 'feature')}: {', '.join(tower)}.")
    return tuple(lines)


def _sites(plan: ShardingPlan) -> str:
    """Where the towers are, and what peer order costs."""
    sites = plan.sites
    on = "one host" if sites.ranks == plan.ranks_per_host else f"{sites.ranks // plan.ranks_per_host} hosts"
    where = f"{_count(len(plan.towers), 'tower')} on {_count(sites.count, 'site')}: {sites.towers} on each, which is {on}"
    across = f"Between sites travel ids, and in {_count(sites.ranks, 'exchange')} of {sites.count} peers side by side what towers give"
    return f"{where}. {across if sites.count > 1 else 'Nothing travels between sites'}. {PERMUTED[plan.permute]}."


def _facts(table: Table, placement: Placement, plan: ShardingPlan) -> TableFacts:
    held: dict[int, int] = {}
    for shard in placement.shards:
        for rank in shard.ranks:
            held[rank] = held.get(rank, 0) + shard.rows * shard.cols * table.row_bytes // table.dim
    most = max(held.values())
    where, why = _words(table, placement, most, plan)
    return TableFacts(
        table=table.name,
        rows=table.rows,
        dim=table.dim,
        features=len(table.features),
        scheme=placement.scheme,
        tier=placement.tier,
        ranks=ranks_text(placement.ranks),
        shards=len(placement.shards),
        bytes=table.weight_bytes,
        most_bytes=most,
        where=where,
        why=why,
    )


def _words(table: Table, placement: Placement, most: int, plan: ShardingPlan) -> tuple[str, str]:
    scheme, ranks = placement.scheme, placement.ranks
    size = human_bytes(table.weight_bytes)
    hosts = sorted({rank // plan.ranks_per_host for rank in ranks})
    at_most = f"at most {human_bytes(most)} a rank"
    if scheme == "data_parallel":
        gradient = human_bytes(4 * table.parameters)
        return f"a copy on each of {plan.world_size} ranks", f"{size} a rank is the price of looking up at home; {gradient} are all-reduced"
    if scheme == "table_wise":
        return f"whole on rank {ranks[0]}", f"{size} fit on one rank, so ids and rows travel once"
    if scheme == "tower_table_wise":
        return f"whole on rank {ranks[0]}", f"{size} fit on one rank, so ids travel once; rows inside the site, then between peers"
    columns = len({shard.col_start for shard in placement.shards})
    if scheme in ("column_wise", "table_column_wise", "tower_column_wise"):
        return f"{columns} column shards on {_ranks(ranks)}", f"bytes and look-ups are divided, {at_most}; ids are sent {columns} times"
    if scheme == "flexshard":
        rows = ", ".join(f"{human_count(n)} {tier.replace('_', '-')}" for tier, n in placement.tier_rows.items() if n)
        return f"row by row: {rows}", f"the more often a row is read, the more ranks have a copy; {at_most}"
    if scheme == "row_wise":
        return f"rows in equal blocks on {_ranks(ranks)}", f"{size} are divided evenly, {at_most}; every rank takes part in each look-up"
    on = f"host {hosts[0]}" if len(hosts) == 1 else f"hosts {', '.join(map(str, hosts))}"
    if scheme == "tower_row_wise":
        return f"rows in equal blocks on {_ranks(ranks)}", f"{size} are divided over the site, {at_most}; sums stay inside it"
    if scheme == "table_row_wise":
        return f"rows in equal blocks inside {on}", f"{size} are divided over one host, {at_most}; sums stay inside it"
    return f"{columns} column shards, each with its rows in blocks inside a host ({on})", f"{size} are divided both ways, {at_most}"


def _ranks(ranks: tuple[int, ...]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {ranks_text(ranks)}"


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'s' if number != 1 else ''}"

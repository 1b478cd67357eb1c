"""A plan in plain words: where each table lies, what that costs each rank, and what travels because of it."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.cluster import ranks_text
from recsys_lab.plan.scheme import known_schemes, scheme_of, schemes_of
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.plan.tiers import tier_of
from recsys_lab.tables import Table
from recsys_lab.units import counted, human_bytes, human_count


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
        f"{plan.sharder} places {counted(len(plan.tables), 'table')} with {human_count(sum(t.rows for t in plan.tables))} rows "
        f"({human_bytes(total)}) on {counted(plan.world_size, 'rank')}: {counted(plan.hosts, 'host')} of {plan.ranks_per_host}."
    ]
    for scheme in dict.fromkeys(placement.scheme for placement in plan.placements):
        own = [table for table, placement in zip(plan.tables, plan.placements) if placement.scheme == scheme]
        size = sum(table.weight_bytes for table in own)
        share = f", {size / total:.0%} of the bytes" if total else ""
        lines.append(
            f"{scheme}: {counted(len(own), 'table')}, {human_bytes(size)}{share}. What travels: {known_schemes()[scheme].travels}."
        )
    fullest, emptiest = held.index(max(held)), held.index(min(held))
    mean = sum(held) / len(held)
    balance = f"the fullest is {max(held) / mean:.2f} times the mean" if mean else "no rank holds any"
    lines.append(
        f"Weights a rank: {human_bytes(mean)} on average, {human_bytes(held[fullest])} on rank {fullest}, "
        f"{human_bytes(held[emptiest])} on rank {emptiest}; {balance}."
    )
    biggest = max(table_facts(plan), key=lambda facts: facts.bytes)
    lines.append(f"The biggest table is {biggest.table} ({human_count(biggest.rows)} rows, {human_bytes(biggest.bytes)}): {biggest.where}.")
    lines += [sentence for scheme in schemes_of(plan) if scheme.sentences for sentence in scheme.sentences(plan)]
    for number, tower in enumerate(plan.towers):
        lines.append(f"Tower {number} has {counted(len(tower), 'feature')}: {', '.join(tower)}.")
    return tuple(lines)


def _facts(table: Table, placement: Placement, plan: ShardingPlan) -> TableFacts:
    held: dict[int, int] = {}
    for shard in placement.shards:
        for rank in shard.ranks:
            held[rank] = held.get(rank, 0) + shard.rows * shard.cols * table.row_bytes // table.dim
    most = max(held.values())
    where, why = scheme_of(placement).words(table, placement, human_bytes(most), plan)
    return TableFacts(
        table=table.name,
        rows=table.rows,
        dim=table.dim,
        features=len(table.features),
        scheme=placement.scheme,
        tier=tier_of(placement),
        ranks=ranks_text(placement.ranks),
        shards=len(placement.shards),
        bytes=table.weight_bytes,
        most_bytes=most,
        where=where,
        why=why,
    )

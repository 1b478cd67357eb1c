"""A plan in plain words: where each table lies, what that costs each rank, and what travels because of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from recsys_lab.plan.scheme import known_schemes, scheme_of, schemes_of
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.tables import Table
from recsys_lab.units import counted, human_bytes, human_count


@dataclass(frozen=True)
class TableFacts:
    """A table of a plan. `where` and `why` are for people; `most_bytes`: of its weights, on the rank that has most of them."""

    table: Table
    placement: Placement
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
    facts = max(table_facts(plan), key=lambda facts: facts.table.weight_bytes)
    biggest = facts.table
    lines.append(
        f"The biggest table is {biggest.name} ({human_count(biggest.rows)} rows, {human_bytes(biggest.weight_bytes)}): {facts.where}."
    )
    lines += [sentence for scheme in schemes_of(plan) if scheme.sentences for sentence in scheme.sentences(plan)]
    for number, tower in enumerate(plan.towers):
        lines.append(f"Tower {number} has {counted(len(tower), 'feature')}: {', '.join(tower)}.")
    return tuple(lines)


def _facts(table: Table, placement: Placement, plan: ShardingPlan) -> TableFacts:
    most = max(replace(plan, tables=(table,), placements=(placement,)).weight_bytes_of_ranks())
    where, why = scheme_of(placement).words(table, placement, human_bytes(most), plan)
    return TableFacts(table, placement, most, where, why)

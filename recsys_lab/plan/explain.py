"""A plan in plain words: where each table lies, what that costs each rank, and what travels because of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from recsys_lab.plan.scheme import known_schemes, scheme_of, schemes_of
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.plan.store import DISK_CACHED, DISK_HOST_CACHED, HOST, HOST_CACHED, HOST_PAGED, UNCACHED
from recsys_lab.tables import Table
from recsys_lab.units import counted, human_bytes, human_count

#: Where rows of a store are, by its kind.
_PLACES = {
    HOST: "the hosts' memory",
    HOST_PAGED: "the hosts' memory, from where pages move",
    HOST_CACHED: "the hosts' memory",
    DISK_CACHED: "files on the hosts' disks",
    DISK_HOST_CACHED: "files on the hosts' disks, cached in the hosts' memory",
}


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
    weight_bytes = plan.weight_bytes_of_ranks()
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
    fullest, emptiest = weight_bytes.index(max(weight_bytes)), weight_bytes.index(min(weight_bytes))
    mean = sum(weight_bytes) / len(weight_bytes)
    balance = f"the fullest is {max(weight_bytes) / mean:.2f} times the mean" if mean else "no rank holds any"
    spread = (
        f"{human_bytes(mean)} on average, {human_bytes(weight_bytes[fullest])} on rank {fullest}, "
        f"{human_bytes(weight_bytes[emptiest])} on rank {emptiest}; {balance}"
    )
    lines.append(f"Weights a rank: {spread if fullest != emptiest else f'{human_bytes(mean)} on every rank'}.")
    facts = max(table_facts(plan), key=lambda facts: facts.table.weight_bytes)
    biggest = facts.table
    lines.append(
        f"The biggest table is {biggest.name} ({human_count(biggest.rows)} rows, {human_bytes(biggest.weight_bytes)}): {facts.where}."
    )
    lines += _stores(plan)
    lines += [sentence for scheme in schemes_of(plan) if scheme.sentences for sentence in scheme.sentences(plan)]
    for number, tower in enumerate(plan.towers):
        lines.append(f"Tower {number} has {counted(len(tower), 'feature')}: {', '.join(tower)}.")
    return tuple(lines)


def _stores(plan: ShardingPlan) -> list[str]:
    """Of tables that are not in the ranks' memory as a whole, a sentence for each kind of store."""
    stores = [(table, p.store) for table, p in zip(plan.tables, plan.placements) if p.store is not None]
    lines = []
    for kind in dict.fromkeys(store.kind for _, store in stores):
        own = [(table, store) for table, store in stores if store.kind == kind]
        size = human_bytes(sum(table.weight_bytes for table, _ in own))
        have = "has its" if len(own) == 1 else "have their"
        cached = "no row is cached"
        if kind not in UNCACHED:
            shares = sorted(store.cached_share for _, store in own)
            span = " to ".join(dict.fromkeys(f"{share:.3g} %" for share in (100 * shares[0], 100 * shares[-1])))
            cached = f"the ranks' memory caches {span} of them"
        lines.append(f"{counted(len(own), 'table')} ({size}) {have} rows in {_PLACES[kind]}; {cached}.")
    return lines


def _facts(table: Table, placement: Placement, plan: ShardingPlan) -> TableFacts:
    most = max(replace(plan, tables=(table,), placements=(placement,)).weight_bytes_of_ranks())
    where, why = scheme_of(placement).words(table, placement, human_bytes(most), plan)
    return TableFacts(table, placement, most, where, why)

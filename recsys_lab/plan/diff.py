"""What differs between two plans, table by table."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.cluster import ranks_text
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.tables import Table


@dataclass(frozen=True)
class Difference:
    """`what` differs: a field of the plan, or a table's; before and after as people read them. None where it is not there."""

    table: str | None
    what: str
    before: str | None
    after: str | None


def diff(before: ShardingPlan, after: ShardingPlan) -> tuple[Difference, ...]:
    """Empty for equal plans. First the plans' own fields, then tables in the order of `before`, then those only in `after`."""
    found = [
        Difference(None, name, str(getattr(before, name)), str(getattr(after, name)))
        for name in ("sharder", "hosts", "ranks_per_host", "towers", "permute")
        if getattr(before, name) != getattr(after, name)
    ]
    for name in dict.fromkeys([*before.by_table, *after.by_table]):
        found += _table_differences(name, before.by_table.get(name), after.by_table.get(name))
    if not found and before != after:
        found.append(Difference(None, "order of tables", ", ".join(t.name for t in before.tables), ", ".join(t.name for t in after.tables)))
    return tuple(found)


def _table_differences(name: str, old: tuple[Table, Placement] | None, new: tuple[Table, Placement] | None) -> list[Difference]:
    if old is None or new is None:
        present = [None if side is None else f"{side[1].scheme} on ranks {ranks_text(side[1].ranks)}" for side in (old, new)]
        return [Difference(name, "table", *present)]
    (old_table, old_placement), (new_table, new_placement) = old, new
    found = [
        Difference(name, field, str(getattr(old_table, field)), str(getattr(new_table, field)))
        for field in ("rows", "dim", "features", "pooling", "dtype")
        if getattr(old_table, field) != getattr(new_table, field)
    ]
    if old_placement.scheme != new_placement.scheme:
        found.append(Difference(name, "scheme", old_placement.scheme, new_placement.scheme))
    if old_placement.ranks != new_placement.ranks:
        found.append(Difference(name, "ranks", ranks_text(old_placement.ranks), ranks_text(new_placement.ranks)))
    if not found and old_placement.shards != new_placement.shards:
        found.append(Difference(name, "shards", _shards(old_placement), _shards(new_placement)))
    return found


def _shards(placement: Placement) -> str:
    return "; ".join(f"{ranks_text(shard.ranks)}: {shard.extent}" for shard in placement.shards)

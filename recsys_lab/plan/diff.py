"""What differs between two plans, table by table."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.cluster import ranks_text
from recsys_lab.plan.sharding_plan import Placement, ShardingPlan
from recsys_lab.tables import Table


@dataclass(frozen=True)
class Difference:
    """`what` differs: a field of the plan, or a table's. Before and after as people read them. None where it is not there."""

    table: str | None
    what: str
    before: str | None
    after: str | None


def diff(before: ShardingPlan, after: ShardingPlan) -> tuple[Difference, ...]:
    """Empty for equal plans. First the plans' own fields, then tables in the order of `before`, then those only in `after`."""
    differences = [
        Difference(None, name, str(getattr(before, name)), str(getattr(after, name)))
        for name in ("sharder", "hosts", "ranks_per_host", "towers", "permute")
        if getattr(before, name) != getattr(after, name)
    ]
    for name in dict.fromkeys([*before.by_table, *after.by_table]):
        differences += _table_differences(name, before.by_table.get(name), after.by_table.get(name))
    if not differences and before != after:
        differences.append(
            Difference(None, "order of tables", ", ".join(t.name for t in before.tables), ", ".join(t.name for t in after.tables))
        )
    return tuple(differences)


def _table_differences(name: str, old: tuple[Table, Placement] | None, new: tuple[Table, Placement] | None) -> list[Difference]:
    if old is None or new is None:
        present = [None if side is None else f"{side[1].scheme} on ranks {ranks_text(side[1].ranks)}" for side in (old, new)]
        return [Difference(name, "table", *present)]
    before, after = _as_text(*old), _as_text(*new)
    differences = [Difference(name, what, before[what], after[what]) for what in before if before[what] != after[what]]
    if not differences and old[1].shards != new[1].shards:
        differences.append(Difference(name, "shards", _shards(old[1]), _shards(new[1])))
    return differences


def _as_text(table: Table, placement: Placement) -> dict[str, str]:
    fields = {field: str(getattr(table, field)) for field in ("rows", "dim", "features", "pooling", "dtype")}
    return fields | {"scheme": placement.scheme, "ranks": ranks_text(placement.ranks)}


def _shards(placement: Placement) -> str:
    return "; ".join(f"{ranks_text(shard.ranks)}: {shard.extent}" for shard in placement.shards)

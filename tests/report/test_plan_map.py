"""The plan as a map: every shard stands on its ranks' lines, and hovering says which rows it has."""

from __future__ import annotations

from typing import Any

from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.report import plan_map as module
from recsys_lab.report.plan_map import KINDS, MOST_TABLES, plan_map
from recsys_lab.tables import Table
from tests.record.fake_run import make_plan


def cells(plan: ShardingPlan) -> dict[tuple[str, int], tuple[str, str]]:
    """(column, rank) -> how often it is stored, and what hovering says."""
    heat: dict[str, Any] = plan_map(plan, "map").data[0]
    kinds = [kind for kind, _ in KINDS.values()]
    return {
        (name.rstrip("\u200b"), rank): (kinds[heat["z"][y][x]], heat["customdata"][y][x])
        for y, rank in enumerate(heat["y"])
        for x, name in enumerate(heat["x"])
        if heat["z"][y][x] is not None
    }


def test_a_table_has_a_cell_on_every_rank_that_holds_it_and_no_other() -> None:
    plan = make_plan(8, 8, scale=100)
    there = {(p.table, rank) for p in plan.placements for shard in p.shards for rank in shard.ranks}
    shown = cells(plan)
    assert set(shown) == there and {rank for _, rank in shown} == set(range(64))
    assert shown["cat_4", 63] == (
        "on every rank",
        "<b>cat_4</b>, 63 rows x 64, data parallel<br>rank 63, host 7<br>rows 0 to 63, 16.1 kB, on every rank",
    )
    shard = plan.placements[0].shards[9]
    assert f"rank 9, host 1<br>rows {shard.row_start:,} to {shard.row_stop:,}, " in shown["cat_0", 9][1] and shown["cat_0", 9][0] == "once"


def tiered() -> ShardingPlan:
    """One table in three tiers, on two hosts of two."""
    table = Table("t", 1_000_000, 8, ("t",))
    shards = (
        Shard((0, 1, 2, 3), 0, 100, 0, 8, "replicated"),
        *(Shard((r, r + 2), 100 + 450 * r, 550 + 450 * r, 0, 8, "host_sharded") for r in range(2)),
        *(Shard((r,), 1000 + 249_750 * r, 1000 + 249_750 * (r + 1), 0, 8, "row_sharded") for r in range(4)),
    )
    return ShardingPlan("flexshard_3tier", 2, 2, (table,), (Placement("t", "flexshard", shards),))


def test_a_table_in_tiers_has_a_column_a_tier() -> None:
    shown = cells(tiered())
    assert len(shown) == 12 and {(name, kind) for (name, _), (kind, _) in shown.items()} == {
        ("t, on every rank", "on every rank"),
        ("t, once in every host", "once in every host"),
        ("t, once", "once"),
    }
    assert "rows 550 to 1,000" in shown["t, once in every host", 3][1]


def test_what_is_left_out_is_said(monkeypatch: Any) -> None:
    tables = tuple(Table(f"t{i}", 100 + i, 4, (f"t{i}",)) for i in range(MOST_TABLES + 3))
    placements = tuple(Placement(t.name, "table_wise", (Shard((i % 64,), 0, t.rows, 0, 4),)) for i, t in enumerate(tables))
    plan = ShardingPlan("x", 8, 8, tables, placements)
    chart = plan_map(plan, "map")
    assert chart.note.startswith(f"The {MOST_TABLES} largest of {len(tables)} tables, a line a rank.")
    assert chart.data[0]["x"][0].startswith("t3") and len(chart.data[0]["y"]) == 64
    monkeypatch.setattr(module, "MOST_CELLS", 6000)
    chart = plan_map(plan, "map")
    assert chart.data[0]["y"] == list(range(0, 64, 8)) and "a line a host, its first rank" in chart.note

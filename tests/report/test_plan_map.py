"""The plan as a map: every shard stands on its ranks' lines, and hovering says which rows it has."""

from __future__ import annotations

from typing import Any

from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.report import plan_map as module
from recsys_lab.report.charts import Chart
from recsys_lab.report.plan_map import MOST_TABLES, plan_map
from recsys_lab.tables import Table
from tests.record.fake_run import make_plan
from tests.report.drawn import tips, words


def boxes(chart: Chart) -> dict[tuple[str, str, int], str]:
    """(table, how often it is stored, rank) -> its part there."""
    parts = {}
    for said in tips(chart):
        head, *lines = said.split("\n")
        for line in lines:
            place, _, part = line.partition(": ")
            parts[head.split(", ")[0], head.split(", ")[-1], int(place.split(",")[0].removeprefix("rank "))] = part
    return parts


def test_a_table_has_a_box_on_every_rank_that_holds_it_and_no_other(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "MOST_BOXES", 64)
    plan = make_plan(8, 8, scale=100)
    there = {(p.table, rank) for p in plan.placements for shard in p.shards for rank in shard.ranks}
    shown = boxes(plan_map(plan, "map"))
    assert {(table, rank) for table, _, rank in shown} == there and len(shown) == len(there)
    assert shown["cat_4", "on every rank", 63] == "rows 0 to 63, 16.1 kB"
    shard = plan.placements[0].shards[9]
    assert shown["cat_0", "once", 9].startswith(f"rows {shard.row_start:,} to {shard.row_stop:,}, ")


def test_of_many_ranks_neighbours_are_one_box() -> None:
    chart = plan_map(make_plan(8, 8, scale=100), "map")
    (everywhere,) = [said for said in tips(chart) if said.startswith("cat_4,")]
    assert everywhere.split("\n")[1:] == ["rank 0, host 0: rows 0 to 63, 16.1 kB", "rank 63, host 7: rows 0 to 63, 16.1 kB"]


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
    chart = plan_map(tiered(), "map")
    shown = boxes(chart)
    assert len(shown) == 12 and {kind for _, kind, _ in shown} == {"on every rank", "once in every host", "once"}
    assert {"t, on every rank", "t, once in every host", "t, once"} <= set(words(chart))
    assert shown["t", "once in every host", 3].startswith("rows 550 to 1,000")


def test_what_is_left_out_is_said(monkeypatch: Any) -> None:
    tables = tuple(Table(f"t{i}", 100 + i, 4, (f"t{i}",)) for i in range(MOST_TABLES + 3))
    placements = tuple(Placement(t.name, "table_wise", (Shard((i % 64,), 0, t.rows, 0, 4),)) for i, t in enumerate(tables))
    plan = ShardingPlan("x", 8, 8, tables, placements)
    chart = plan_map(plan, "map")
    assert chart.note.startswith(f"The {MOST_TABLES} largest of {len(tables)} tables, a line a rank.")
    assert not {"t0", "t1", "t2"} & set(words(chart)) and "t3" in words(chart) and len(tips(chart)) == MOST_TABLES
    monkeypatch.setattr(module, "MOST_CELLS", 6000)
    chart = plan_map(plan, "map")
    assert {rank % 8 for *_, rank in boxes(chart)} == {0} and "a line a host, its first rank" in chart.note

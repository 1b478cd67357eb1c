"""The plan as a map: every shard stands on its ranks' lines, as wide as its share of the rows, in the colour of how often it is there."""

from __future__ import annotations

from xml.etree import ElementTree

from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.report.plan_map import MOST_RANKS, MOST_TABLES, plan_map
from recsys_lab.report.svg import colour
from recsys_lab.tables import Table
from tests.record.fake_run import make_plan


def rectangles(picture: str) -> list[tuple[str, str, float]]:
    """(tip, fill, width) of every part of a table."""
    found = [r for r in ElementTree.fromstring(picture).iter("rect") if r.find("title") is not None]
    return [(r.find("title").text, r.get("fill"), float(r.get("width"))) for r in found]


def test_a_part_is_drawn_on_every_rank_that_holds_it() -> None:
    plan = make_plan(2, 2)
    drawn = rectangles(plan_map(plan))
    assert len(drawn) == sum(len(shard.ranks) for placement in plan.placements for shard in placement.shards)
    replicated = [fill for tip, fill, _ in drawn if tip.startswith("cat_4,")]
    assert replicated == [colour(4)] * 4
    assert {fill for tip, fill, _ in drawn if tip.startswith("cat_0,")} == {colour(0)}


def test_row_shards_share_the_width_of_their_table() -> None:
    drawn = rectangles(plan_map(make_plan(1, 4)))
    whole = next(width for tip, _, width in drawn if tip.startswith("cat_1,"))
    parts = [width for tip, _, width in drawn if tip.startswith("cat_0,")]
    assert len(parts) == 4 and abs(sum(parts) - whole) < 0.1


def test_tiers_have_their_colours_and_rows_a_logarithmic_scale() -> None:
    table = Table("t", 1_000_000, 8, ("t",))
    shards = (
        Shard((0, 1, 2, 3), 0, 100, 0, 8, "replicated"),
        *(Shard((r, r + 2), 100 + 450 * r, 550 + 450 * r, 0, 8, "host_sharded") for r in range(2)),
        *(Shard((r,), 1000 + 249_750 * r, 1000 + 249_750 * (r + 1), 0, 8, "row_sharded") for r in range(4)),
    )
    picture = plan_map(ShardingPlan("flexshard_3tier", 2, 2, (table,), (Placement("t", "flexshard", shards),)))
    drawn = rectangles(picture)
    assert [fill for _, fill, _ in drawn] == [colour(4)] * 4 + [colour(1)] * 4 + [colour(0)] * 4
    assert drawn[0][2] > 0.3 * sum(width for tip, _, width in drawn if "rank 0" in tip)  # a ten-thousandth of the rows
    for words in ("on every rank", "in every host once", ">once<"):
        assert words in picture


def test_what_is_left_out_is_said() -> None:
    tables = tuple(Table(f"t{i}", 100 + i, 4, (f"t{i}",)) for i in range(MOST_TABLES + 3))
    placements = tuple(Placement(t.name, "table_wise", (Shard((i,), 0, t.rows, 0, 4),)) for i, t in enumerate(tables))
    picture = plan_map(ShardingPlan("x", 8, 8, tables, placements))
    assert f"Shown: the {MOST_TABLES} largest of {len(tables)} tables, the first {MOST_RANKS} of 64 ranks." in picture
    assert ">t0<" not in picture and ">t14<" in picture

"""A plan in words, what differs between two, and its file, by hand."""

from __future__ import annotations

import json
from dataclasses import replace

from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.diff import Difference, diff
from recsys_lab.plan.explain import explain, table_facts
from recsys_lab.tables import Table
from tests.plan.plans import TABLES, plan


def test_a_plan_in_words() -> None:
    tables = (Table("big", 3_000_000, 8, ("a",)), Table("small", 1000, 4, ("b", "c"), dtype="fp16"))
    sharding = ShardingPlan("mine", 1, 2, tables, (Placement("big", "table_wise", (Shard((1,), 0, 3_000_000, 0, 8),)),
        Placement("small", "data_parallel", (Shard((0, 1), 0, 1000, 0, 4),))), towers=(("a",), ("b", "c")))  # fmt: skip
    lines = explain(sharding)
    assert lines[0] == "mine places 2 tables with 3.0 M rows (96.0 MB) on 2 ranks: 1 host of 2."
    assert lines[1].startswith("table_wise: 1 table, 96.0 MB, 100% of the bytes. What travels: ")
    assert lines[2].startswith("data_parallel: 1 table, 8.0 kB, 0% of the bytes. What travels: ")
    assert lines[3] == "Weights a rank: 48.0 MB on average, 96.0 MB on rank 1, 8.0 kB on rank 0; the fullest is 2.00 times the mean."
    assert lines[4] == "The biggest table is big (3.0 M rows, 96.0 MB): whole on rank 1."
    assert lines[-2:] == ("Tower 0 has 1 feature: a.", "Tower 1 has 2 features: b, c.")
    big, small = table_facts(sharding)
    assert (big.table, big.placement, big.most_bytes) == (tables[0], sharding.placements[0], 96_000_000)
    assert (small.table, small.placement, small.most_bytes) == (tables[1], sharding.placements[1], 8000)


def test_ranks_that_hold_the_same_are_said_to() -> None:
    shards = (Shard((0,), 0, 10, 0, 8), Shard((1,), 10, 20, 0, 8))
    sharding = ShardingPlan("mine", 1, 2, (Table("t", 20, 8, ("a",)),), (Placement("t", "row_wise", shards),))
    assert explain(sharding)[2] == "Weights a rank: 320 B on every rank."
    one = ShardingPlan("mine", 1, 1, (Table("t", 20, 8, ("a",)),), (Placement("t", "table_wise", (Shard((0,), 0, 20, 0, 8),)),))
    assert explain(one)[2] == "Weights a rank: 640 B on every rank."


def test_a_rank_s_part_of_a_table_is_all_of_its_pieces() -> None:
    shards = (Shard((0,), 0, 10, 0, 3), Shard((1,), 0, 10, 3, 4), Shard((0,), 0, 10, 4, 8))
    sharding = ShardingPlan("mine", 1, 2, (Table("t", 10, 8, ("a",)),), (Placement("t", "column_wise", shards),))
    (facts,) = table_facts(sharding)
    assert str(facts.most_bytes) == "280"  # whole bytes


def test_differences_by_hand() -> None:
    sharding = plan(("row_wise",), 1, 2, TABLES[:2])
    table = replace(TABLES[0], rows=41, dtype="fp16")
    after = replace(sharding, sharder="other", permute="ids", tables=(table, TABLES[1]))
    assert diff(sharding, after) == (
        Difference(None, "sharder", "by_hand", "other"),
        Difference(None, "permute", "", "ids"),
        Difference("t0", "rows", "40", "41"),
        Difference("t0", "dtype", "fp32", "fp16"),
    )
    moved = replace(sharding, placements=(Placement("t0", "table_wise", (Shard((1,), 0, 40, 0, 16),)), sharding.placements[1]))
    assert diff(sharding, moved) == (Difference("t0", "scheme", "row_wise", "table_wise"), Difference("t0", "ranks", "0-1", "1"))
    cut = replace(
        sharding, placements=(Placement("t0", "row_wise", (Shard((0,), 0, 10, 0, 16), Shard((1,), 10, 40, 0, 16))), sharding.placements[1])
    )
    extents = ("0: rows 0-20, columns 0-16; 1: rows 20-40, columns 0-16", "0: rows 0-10, columns 0-16; 1: rows 10-40, columns 0-16")
    assert diff(sharding, cut) == (Difference("t0", "shards", *extents),)
    turned = replace(sharding, tables=sharding.tables[::-1], placements=sharding.placements[::-1])
    assert diff(sharding, turned) == (Difference(None, "order of tables", "t0, t1", "t1, t0"),)
    more = plan(("row_wise",), 1, 2, TABLES[:3])
    assert diff(sharding, more) == (Difference("t2", "table", None, "row_wise on ranks 0-1"),)
    assert diff(more, sharding) == (Difference("t2", "table", "row_wise on ranks 0-1", None),)


def test_a_plan_goes_into_a_file_and_back_with_all_of_its_fields() -> None:
    sharding = replace(plan(("row_wise",), 1, 2), towers=(("a", "b"), ("c",)), permute="rows")
    record = json.loads(json.dumps(sharding.to_json()))
    assert record["schema"] == 1 and ShardingPlan.from_json(record) == sharding and len(sharding.fingerprint) == 16
    record.pop("permute")
    assert ShardingPlan.from_json(record).permute == ""
    assert sharding.placements[0].shards[1].extent == "rows 20-40, columns 0-16" and sharding.world_size == 2


def test_where_rows_lie_inside_hosts() -> None:
    tables = (Table("t", 40, 16, ("a",)),)
    assert table_facts(plan(("table_row_wise",), 2, 2, tables))[0].where == "rows in equal blocks inside host 0"
    assert table_facts(plan(("grid_shard",), 2, 2, tables))[0].where.endswith("inside a host (hosts 0, 1)")

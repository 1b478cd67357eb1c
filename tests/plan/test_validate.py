"""What shards must be: rules of schemes, and that each cell is held once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recsys_lab.errors import UserError
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.scheme import Rules, check_exchange
from recsys_lab.plan.validate import check_blocks, check_rules, validate
from recsys_lab.tables import Table
from tests.plan.plans import TABLES, plan


@pytest.mark.parametrize(
    ("schemes", "ranks", "exchange", "overlap", "says"),
    [
        (("row_wise",), 2, "all_to_all", True, None),
        (("table_wise", "data_parallel"), 2, "scatter_list", True, None),
        (("row_wise",), 1, "fused_scatter", False, None),
        (("row_wise",), 2, "scatter", True, "no such exchange.*all_to_all, scatter_list, fused_scatter"),
        (("row_wise",), 2, "fused_scatter", True, "sharder.executor.exchange.*table t0 is row_wise"),
        (
            ("table_wise", "row_wise"),
            2,
            "all_to_all",
            False,
            "executor.overlap.*table t1 is row_wise.*allowed: data_parallel, table_wise",
        ),
    ],
)
def test_an_exchange_is_for_whole_pooled_tables(
    schemes: tuple[str, ...], ranks: int, exchange: str, overlap: bool, says: str | None
) -> None:
    sharding = plan(schemes, 1, ranks)
    if says is None:
        check_exchange(sharding, exchange, overlap)
    else:
        with pytest.raises(UserError, match=says):
            check_exchange(sharding, exchange, overlap)


TABLE_OF_FOUR = Table("t", 4, 4, ("a",))


def rules(rule: Rules, *shards: Shard) -> None:
    check_rules("here", TABLE_OF_FOUR, shards, ShardingPlan("", 2, 2, (), ()), rule)


ROWS = [Shard((rank,), rank, rank + 1, 0, 4) for rank in range(4)]


COLUMNS = [Shard((rank,), 0, 4, rank, rank + 1) for rank in range(4)]


@pytest.mark.parametrize(
    ("rule", "right", "wrong", "says"),
    [
        (Rules(everywhere=True), [Shard((0, 1, 2, 3), 0, 4, 0, 4)], [Shard((0, 1), 0, 4, 0, 4)], "one shard on every rank"),
        (Rules(everywhere=True), [Shard((0, 1, 2, 3), 0, 4, 0, 4)], [Shard((0, 1, 2, 3), 0, 2, 0, 4)] * 2, "on every rank; given 2"),
        (Rules(), ROWS, [Shard((0, 1), 0, 4, 0, 4)], "only a replicated table may lie on several ranks"),
        (Rules(), ROWS, [replace(ROWS[0], tier="row_sharded")], "have a tier"),
        (Rules(one_shard=True), [Shard((2,), 0, 4, 0, 4)], COLUMNS, "is one shard; given 4 shards"),
        (Rules(all_rows=True), COLUMNS, ROWS, "all rows"),
        (Rules(all_columns=True), ROWS, COLUMNS, "all columns"),
        (Rules(one_host=True), ROWS[2:], ROWS[1:], r"on one host; given hosts \[0, 1\]"),
        (Rules(blocks="world"), ROWS, ROWS[::-1][:3], "rank 0 must hold rows 0 to 1"),
        (Rules(blocks="host"), [Shard((2,), 0, 2, 0, 4), Shard((3,), 2, 4, 0, 4)], ROWS[2:], "rank 2 must hold rows 0 to 2; given 2 to 3"),
    ],
)  # fmt: skip
def test_rules_of_shards(rule: Rules, right: list[Shard], wrong: list[Shard], says: str) -> None:
    rules(rule, *right)
    with pytest.raises(UserError, match=says):
        rules(rule, *wrong)


def test_blocks_of_a_host_are_looked_at_column_by_column() -> None:
    grid = [Shard((rank,), 2 * (rank % 2), 2 * (rank % 2) + 2, 2 * (rank // 2), 2 * (rank // 2) + 2) for rank in range(4)]
    rules(Rules(blocks="host"), *grid)
    same_host = [Shard((0,), 0, 2, 0, 2), Shard((1,), 2, 4, 0, 2), Shard((1,), 0, 2, 2, 4), Shard((0,), 2, 4, 2, 4)]
    with pytest.raises(UserError, match="rank 0 must hold rows 0 to 2; given 2 to 4"):
        rules(Rules(blocks="host"), *same_host)


def test_the_last_blocks_may_be_short_or_empty() -> None:
    """5 rows on 4 ranks: 2, 2, 1 and none, wherever that lies."""
    blocks = [Shard((0,), 0, 2, 0, 4), Shard((1,), 2, 4, 0, 4), Shard((2,), 4, 5, 0, 4)]
    check_blocks("here", 5, blocks, range(4))
    check_blocks("here", 5, [*blocks, Shard((3,), 3, 3, 0, 4)], range(4))
    with pytest.raises(UserError, match="rank 3 must hold rows 5 to 5; given 0 to 1"):
        check_blocks("here", 5, [*blocks, Shard((3,), 0, 1, 0, 4)], range(4))
    with pytest.raises(UserError, match="rank 2 must hold rows 4 to 5; given 5 to 5"):
        check_blocks("here", 5, blocks[:2], range(4))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hosts": 0}, "at least one rank; given 0 x 2"),
        ({"ranks_per_host": 0}, "at least one rank; given 1 x 0"),
        ({"tables": (replace(TABLES[0], rows=0), TABLES[1])}, "table t0: a table needs rows"),
        ({"tables": (replace(TABLES[0], dim=0), TABLES[1])}, "table t0: a table needs rows"),
        ({"tables": (replace(TABLES[0], features=()), TABLES[1])}, "table t0: a table needs rows"),
        ({"tables": (replace(TABLES[0], pooling="max"), TABLES[1])}, "unknown pooling; given max; allowed: sum, mean, none"),
        ({"tables": (TABLES[0], replace(TABLES[1], dtype="fp64"))}, "table t1"),
        ({"tables": (TABLES[0], TABLES[0])}, "two tables have one name"),
        ({"hosts": "two"}, "a value of a wrong type"),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        validate(replace(plan(("row_wise",), 1, 2, TABLES[:2]), **change), "plan.json")
    assert str(caught.value).startswith("plan.json")


@pytest.mark.parametrize(
    ("shards", "says"),
    [
        ([Shard((0,), 0, 4, 0, 4)], None),
        ([Shard((3,), 0, 4, 0, 2), Shard((0,), 0, 4, 2, 4)], None),
        ([Shard((0,), 0, 4, 0, 2), Shard((1,), 0, 4, 1, 3), Shard((2,), 0, 4, 3, 4)], "two shards hold the same cells"),
        ([Shard((0,), 0, 3, 0, 4), Shard((1,), 2, 4, 0, 4)], "same cells; given rows 0-3, columns 0-4 and rows 2-4, columns 0-4"),
        ([Shard((0,), 0, 4, 0, 3)], "do not cover the table; given 12 of 16 cells"),
        ([Shard((4,), 0, 4, 0, 4)], r"rank that does not exist; given \(4,\); allowed: 0 to 3"),
        ([Shard((-1,), 0, 4, 0, 4)], "rank that does not exist"),
        ([Shard((), 0, 4, 0, 4)], "rank that does not exist"),
        ([Shard((0,), 0, 5, 0, 4)], "outside its table; given rows 0-5, columns 0-4; allowed: 4 x 4"),
        ([Shard((0,), 0, 4, 0, 5)], "outside its table"),
        ([Shard((0,), -1, 4, 0, 4)], "outside its table"),
        ([Shard((0,), 0, 4, -1, 4)], "outside its table"),
        ([Shard((0,), 0, 4, 0, 4), Shard((1,), 0, 4, 4, 4)], "outside its table"),
        ([Shard((0,), 3, 1, 0, 4)], "outside its table"),
    ],
)  # fmt: skip
def test_shards_cover_their_table_once(shards: list[Shard], says: str | None) -> None:
    scheme = "table_wise" if len(shards) == 1 else "column_wise"
    sharding = ShardingPlan("by_hand", 2, 2, (TABLE_OF_FOUR,), (Placement("t", scheme, tuple(shards)),))
    if says is None:
        validate(sharding)
    else:
        with pytest.raises(UserError, match=f"table t.*{says}"):
            validate(sharding)

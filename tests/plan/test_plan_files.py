"""Plans are checked, saved, loaded, compared and explained."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.errors import UserError
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.diff import diff
from recsys_lab.plan.explain import explain, table_facts
from recsys_lab.plan.serialise import load_plan, save_plan
from recsys_lab.plan.tiers import tier_rows
from recsys_lab.plan.validate import validate
from recsys_lab.tables import Table
from tests.plan.plans import FLAT_SCHEMES, plan

EVERYTHING = tuple(FLAT_SCHEMES)


@st.composite
def plans(draw) -> ShardingPlan:
    tables = tuple(
        Table(f"t{i}", draw(st.integers(1, 200)), 2 * draw(st.integers(1, 8)), (f"f{i}",)) for i in range(draw(st.integers(1, 5)))
    )
    schemes = tuple(draw(st.lists(st.sampled_from(FLAT_SCHEMES), min_size=1, max_size=5)))
    return plan(schemes, draw(st.integers(1, 4)), draw(st.integers(1, 4)), tables)


def cells(placement: Placement) -> dict[tuple[int, int], int]:
    """How often each cell of a table is held, by one rank or alike by all of a shard."""
    counts: dict[tuple[int, int], int] = {}
    for shard in placement.shards:
        for row in range(shard.row_start, shard.row_stop):
            for col in range(shard.col_start, shard.col_stop):
                counts[row, col] = counts.get((row, col), 0) + 1
    return counts


def with_shard(sharding: ShardingPlan, table: int, index: int, shard: Shard | None) -> ShardingPlan:
    shards = list(sharding.placements[table].shards)
    if shard is None:
        del shards[index]
    else:
        shards[index] = shard
    placements = list(sharding.placements)
    placements[table] = dataclasses.replace(placements[table], shards=tuple(shards))
    return dataclasses.replace(sharding, placements=tuple(placements))


@settings(max_examples=60)
@given(plans(), st.data())
def test_a_valid_plan_covers_each_cell_once_and_a_changed_one_is_refused(sharding: ShardingPlan, data: st.DataObject) -> None:
    validate(sharding)
    for table, placement in zip(sharding.tables, sharding.placements):
        assert cells(placement) == {(r, c): 1 for r in range(table.rows) for c in range(table.dim)}
    number = data.draw(st.integers(0, len(sharding.tables) - 1))
    filled = [i for i, s in enumerate(sharding.placements[number].shards) if s.rows]
    index = data.draw(st.sampled_from(filled))
    shard = sharding.placements[number].shards[index]
    changes = {
        "gone": None,
        "a row less": dataclasses.replace(shard, row_stop=shard.row_stop - 1),
        "a row more": dataclasses.replace(shard, row_stop=shard.row_stop + 1),
        "a column less": dataclasses.replace(shard, col_start=shard.col_start + 1),
        "no such rank": dataclasses.replace(shard, ranks=(sharding.world_size,)),
    }
    with pytest.raises(UserError, match=f"table {sharding.tables[number].name}"):
        validate(with_shard(sharding, number, index, changes[data.draw(st.sampled_from(sorted(changes)))]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hosts": 0}, "at least one rank"),
        ({"placements": ()}, "not those of the tables"),
        ({"towers": (("a", "nobody"),)}, "feature of no table.*nobody"),
    ],
)
def test_what_is_wrong_is_named(change: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        validate(dataclasses.replace(plan(EVERYTHING, 2, 2), **change))


def test_rows_must_lie_in_the_order_of_the_ranks() -> None:
    """TorchRec finds a row's rank by its number alone."""
    sharding = plan(("row_wise",), 1, 2)
    first, second = sharding.placements[0].shards
    shards = (dataclasses.replace(first, ranks=second.ranks), dataclasses.replace(second, ranks=first.ranks))
    swapped = dataclasses.replace(
        sharding, placements=(dataclasses.replace(sharding.placements[0], shards=shards), *sharding.placements[1:])
    )
    with pytest.raises(UserError, match="rank 0 must hold rows 0 to 20"):
        validate(swapped)


@settings(max_examples=30)
@given(plans())
def test_a_saved_plan_loads_as_it_was(tmp_path_factory: pytest.TempPathFactory, sharding: ShardingPlan) -> None:
    path = save_plan(sharding, tmp_path_factory.mktemp("plan") / "plan.json")
    loaded = load_plan(path)
    assert loaded == sharding and loaded.fingerprint == sharding.fingerprint and diff(sharding, loaded) == ()
    assert [p.name for p in path.parent.iterdir()] == ["plan.json"]


def broken(change) -> str:
    data = json.loads(json.dumps(plan(EVERYTHING, 2, 2).to_json()))
    change(data)
    return json.dumps(data)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[1, 2]",
        "\x00\xff",
        '{"schema": 1}',
        broken(lambda d: d.update(schema=99)),
        broken(lambda d: d["tables"][0].pop("rows")),
        broken(lambda d: d["tables"][0].update(colour="red")),
        broken(lambda d: d["placements"][0].update(shards=None)),
        broken(lambda d: d["placements"][0].update(scheme="sideways")),
        broken(lambda d: d["placements"][1]["shards"][0].update(row_stop="x")),
        broken(lambda d: d.update(hosts="two")),
        broken(lambda d: d["placements"][0].update(store={"kind": "tape"})),
        broken(lambda d: d["placements"][0].update(store={"kind": "host_cached", "cached_share": 2})),
        broken(lambda d: d["placements"][0].update(store={"kind": "host_cached", "policy": "fifo"})),
        broken(lambda d: d["placements"][0].update(store="host")),
    ],
)
def test_a_bad_file_is_the_users_to_mend(tmp_path: Path, text: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(UserError, match="plan.json"):
        load_plan(path)


def test_a_missing_file_and_an_unwritable_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere.json"):
        load_plan(tmp_path / "nowhere.json")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        save_plan(plan(EVERYTHING, 1, 2), tmp_path / "file" / "plan.json")


def test_diff_names_what_changed() -> None:
    before, after = plan(("table_wise", "row_wise"), 2, 2), plan(("table_wise", "data_parallel"), 2, 2)
    differences = {(d.table, d.what): (d.before, d.after) for d in diff(before, after)}
    assert differences == {("t1", "scheme"): ("row_wise", "data_parallel"), ("t3", "scheme"): ("row_wise", "data_parallel")}
    fewer = dataclasses.replace(after, tables=after.tables[:-1], placements=after.placements[:-1])
    assert [(d.table, d.what, d.after) for d in diff(after, fewer)] == [("t4", "table", None)]


def test_explain_says_where_each_table_is() -> None:
    sharding = plan(("table_wise", "row_wise", "data_parallel", "column_wise", "grid_shard"), 2, 2)
    facts = {f.table.name: f for f in table_facts(sharding)}
    assert facts["t0"].where == "whole on rank 1"
    assert facts["t1"].where == "rows in equal blocks on ranks 0-3"
    assert facts["t2"].where == "a copy on each of 4 ranks" and tier_rows(facts["t2"].placement)["replicated"] == sharding.tables[2].rows
    assert facts["t3"].most_bytes * 2 == facts["t3"].table.weight_bytes == sharding.tables[3].weight_bytes
    text = "\n".join(explain(sharding))
    assert "5 tables" in text and "2 hosts of 2" in text and "The biggest table is t3" in text
    assert f"on rank {max(range(4), key=sharding.weight_bytes_of_ranks().__getitem__)}" in text

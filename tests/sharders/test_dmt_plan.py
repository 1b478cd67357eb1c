"""DMT's planner: every table inside its tower's site, cut as volume and balance say, the same every time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.cluster import Cluster
from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.plan.validate import validate
from recsys_lab.schemes.towers.sites import PERMUTES
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.dmt import DMT, Reasons
from recsys_lab.sharders.dmt.place import LEAST_COLUMNS
from recsys_lab.sharders.dmt.planner import SCHEMES
from recsys_lab.sharders.dmt.volume import Links, column_shards, row_blocks
from recsys_lab.tables import AccessStatistics, Table, power_law_access
from tests.executor.sharded import FP32, small_cluster
from tests.plan.plans import workload

Towers = tuple[tuple[str, ...], ...]


def tables(rows: list[int], dim: int = 32) -> tuple[Table, ...]:
    return tuple(Table(f"t{i}", n, dim, (f"f{i}",)) for i, n in enumerate(rows))


def lengths(own_tables: tuple[Table, ...], *each: float) -> AccessStatistics:
    """Look-ups a sample of each table; the last figure for all that follow."""
    of_table = [each[min(i, len(each) - 1)] for i in range(len(own_tables))]
    return AccessStatistics({t.name: power_law_access(t.name, t.rows, length, 1.05) for t, length in zip(own_tables, of_table)})


def strided(own_tables: tuple[Table, ...], count: int) -> Towers:
    return tuple(tuple(f for t in own_tables[tower::count] for f in t.features) for tower in range(count))


def schemes(sharding: ShardingPlan) -> list[str]:
    return [p.scheme.removeprefix("tower_") for p in sharding.placements]


def plan(*inputs: Any, **options: str) -> ShardingPlan:
    return DMT(**options).plan(PlanInputs(*inputs))


def reasons(sharding: ShardingPlan, *inputs: Any, **options: str) -> Reasons:
    return DMT(**options).reasons(sharding, PlanInputs(*inputs, towers=sharding.towers))


def planned(own_tables: tuple[Table, ...], cluster: Cluster, towers: int, *each: float, **options: str) -> ShardingPlan:
    return plan(own_tables, lengths(own_tables, *each), cluster, FP32, workload(), strided(own_tables, towers), **options)


@settings(max_examples=60)
@given(st.data())
def test_any_towers_fill_their_sites(data: st.DataObject) -> None:
    hosts, ranks = data.draw(st.sampled_from([1, 2, 4])), data.draw(st.integers(1, 4))
    count = data.draw(st.sampled_from([n for n in (1, 2, 4, 8) if max(n, hosts) % min(n, hosts) == 0]))
    own_tables = tables(data.draw(st.lists(st.integers(1, 5000), min_size=count, max_size=12)), data.draw(st.sampled_from([1, 6, 16, 30])))
    each = data.draw(st.lists(st.sampled_from([0.5, 1.0, 8.0, 100.0]), min_size=1, max_size=4))
    scheme = data.draw(st.sampled_from(SCHEMES))
    options = {"scheme": scheme, "permute": data.draw(st.sampled_from(["auto", *PERMUTES]))}
    sharding = planned(own_tables, small_cluster(hosts, ranks), count, *each, **options)
    validate(sharding)
    assert sharding == planned(own_tables, small_cluster(hosts, ranks), count, *each, **options)
    assert sharding.permute == (options["permute"] if options["permute"] != "auto" else "none")
    for placement in sharding.placements:  # no rank holds two pieces of one table
        holders = [shard.ranks[0] for shard in placement.shards]
        assert len(holders) == len(set(holders))
    lower(sharding, lengths(own_tables, *each), FP32, workload())


def test_fewer_tables_than_ranks_are_cut_by_columns_so_that_every_rank_has_work() -> None:
    sharding = planned(tables([100, 100, 5000, 10]), small_cluster(2, 4), 2, 1.0)
    assert schemes(sharding) == ["column_wise"] * 4
    assert sorted(rank for p in sharding.placements for rank in p.ranks) == list(range(8))
    assert {shard.cols for p in sharding.placements for shard in p.shards} == {16}


def test_tables_that_are_enough_stay_whole_and_are_spread_by_bytes_and_look_ups() -> None:
    own_tables = tables([4000, 4000, 10, 10, 2000, 2000, 1000, 1000])
    sharding = planned(own_tables, small_cluster(2, 2), 2, 1.0)
    assert schemes(sharding) == ["table_wise"] * 8
    bytes_of_rank = sharding.weight_bytes_of_ranks()
    assert max(bytes_of_rank) / (sum(bytes_of_rank) / 4) < 1.15
    assert [p.ranks for p in sharding.placements[:2]] == [(0,), (2,)]


def test_more_ranks_than_features_make_more_pieces_down_to_four_columns() -> None:
    """Section 5.1: two towers of one feature each, on 16 ranks."""
    sharding = planned(tables([50, 50]), small_cluster(2, 8), 2, 1.0)
    assert [len(p.shards) for p in sharding.placements] == [8, 8]
    assert {s.cols for p in sharding.placements for s in p.shards} == {LEAST_COLUMNS}


def test_long_bags_are_cut_by_rows_where_their_ids_weigh_more_than_parts_of_rows() -> None:
    """Section 4: single-hot by columns, multi-hot by rows. The boundary is where both cost the links the same."""
    cluster = small_cluster(2, 4)
    own_tables = tables([5000, 5000])
    for length in (1.0, 4.0, 16.0, 64.0, 256.0):
        links = Links.of(cluster, 4)
        by_rows = row_blocks(own_tables[0], length, 4, FP32).cost(links) < column_shards(own_tables[0], length, 4, FP32).cost(links)
        assert schemes(planned(own_tables, cluster, 2, length)) == ["row_wise" if by_rows and length > 1 else "column_wise"] * 2
    assert (
        schemes(planned(own_tables, cluster, 2, 1.0))[0] == "column_wise"
        and schemes(planned(own_tables, cluster, 2, 256.0))[0] == "row_wise"
    )
    assert schemes(planned(own_tables, small_cluster(2, 1), 2, 256.0)) == ["table_wise"] * 2  # one rank has nothing to divide


def test_volumes_are_those_of_the_steps() -> None:
    """For one sample and all ranks together: ids and lengths of step a; pooled rows of step d, both ways."""
    own_tables = tables([5000, 5000])
    for scheme in ("column_wise", "row_wise"):
        sharding = planned(own_tables, small_cluster(2, 4), 2, 8.0, scheme=scheme)
        steps = {s.name: s for s in lower(sharding, lengths(own_tables, 8.0), FP32, workload(batch_size=1)).steps}
        ids = 8 * (steps["towers.input.lengths"].bytes_on(0) + steps["towers.input.ids"].bytes_on(0))
        ahead = sum(steps[name].bytes_on(rank) for name in steps if name.startswith("towers.exchange.") for rank in range(8))
        each = [column_shards(t, 8.0, 4, FP32) if scheme == "column_wise" else row_blocks(t, 8.0, 4, FP32) for t in own_tables]
        assert ids == pytest.approx(8 * sum(v.ids for v in each)) and ahead == pytest.approx(8 * sum(v.rows for v in each) / 2)


def test_a_table_too_large_for_a_rank_is_cut_and_a_plan_that_cannot_fit_is_refused() -> None:
    own_tables = tables([400_000, 10, 10, 10])
    one = own_tables[0].weight_bytes * 2  # with Adagrad's state
    roomy, tight, tiny = (small_cluster(1, 2, memory_gb=gb * one / 1e9) for gb in (2.0, 0.8, 0.4))
    assert schemes(planned(own_tables, roomy, 1, 1.0))[0] == "table_wise"
    assert schemes(planned(own_tables, tight, 1, 1.0))[0] == "column_wise"
    with pytest.raises(PlanDoesNotFit, match="lacks"):
        planned(own_tables, tiny, 1, 1.0)


def test_what_is_not_a_plan_says_why() -> None:
    own_tables, cluster = tables([10, 10, 10]), small_cluster(2, 2)
    with pytest.raises(UserError, match="so many towers cannot share the hosts"):
        planned(own_tables, small_cluster(3, 2), 2, 1.0)
    with pytest.raises(UserError, match=r"sharder\.planner\.scheme"):
        planned(own_tables, cluster, 2, 1.0, scheme="row_wis")
    with pytest.raises(UserError, match="in no tower"):
        plan(own_tables, lengths(own_tables, 1.0), cluster, FP32, workload(), (("f0",), ("f1",)))
    shared = (Table("t", 5, 8, ("a", "b")),)
    with pytest.raises(UserError, match="all features of a table must be in one tower"):
        plan(shared, lengths(shared, 1.0), cluster, FP32, workload(), (("a",), ("b",)))
    clicks = (Table("clicks", 5, 8, ("a",), "none"),)
    with pytest.raises(UserError, match="a sequence"):
        plan(clicks, lengths(clicks, 1.0), small_cluster(1, 2), FP32, workload(), (("a",),))


@pytest.mark.parametrize(("hosts", "most"), [(32, 2), (64, 4)])
def test_26_towers_lie_on_the_papers_hosts(hosts: int, most: int) -> None:
    """256 and 512 GPUs of DMT's figure 10: a plan, its steps and its reasons. Ids alone can be permuted."""
    own_tables, cluster = tables([5000] * 26), small_cluster(hosts, 8)
    sharding = planned(own_tables, cluster, 26, 1.0)
    assert sharding.permute == "ids" and max(len(placement.ranks) for placement in sharding.placements) <= 8 * most
    explained = reasons(sharding, own_tables, lengths(own_tables, 1.0), cluster, FP32, workload())
    assert not [other for other in explained.alternatives if other.name.startswith("permute=")]
    assert "26 sites of at most" in explained.explanation()["sentences"][0]
    with pytest.raises(UserError, match="no common peer order"):
        planned(own_tables, cluster, 26, 1.0, permute="none")


def test_reasons_tell_what_the_other_choices_would_move() -> None:
    own_tables = tables([5000] * 6)
    sharding = planned(own_tables, small_cluster(2, 2), 2, 1.0)
    explained = reasons(sharding, own_tables, lengths(own_tables, 1.0), small_cluster(2, 2), FP32, workload())
    by_name = {m.name: m for m in explained.alternatives}
    assert set(by_name) == {"scheme=column_wise", "scheme=row_wise", "scheme=table_wise", "permute=rows", "permute=ids"}
    assert explained.chosen.permuted == 0 < by_name["permute=ids"].permuted < by_name["permute=rows"].permuted
    assert explained.chosen.between == by_name["scheme=row_wise"].between
    text = " ".join(explained.explanation()["sentences"])
    assert "6 whole on one rank" in text and "Peer permute: none" in text and len(explained.explanation()["rows"]) == 6


def test_permuted_bytes_are_what_the_other_ways_would_handle() -> None:
    """Step c (3.1.1, 3.1.3): rows, forward and back, of the batch of all ranks; or ids and lengths, once; or nothing."""
    own_tables, cluster = tables([5000] * 6), small_cluster(2, 2)
    for length in (1.0, 3.0):
        sharding = planned(own_tables, cluster, 2, length, scheme="table_wise")
        explained = reasons(sharding, own_tables, lengths(own_tables, length), cluster, FP32, workload(), scheme="table_wise")
        by_name = {m.name: m.permuted for m in explained.alternatives}
        batch, tables_of_busiest = 4 * workload().batch_size, max(sum(rank in p.ranks for p in sharding.placements) for rank in range(4))
        assert by_name["permute=rows"] == pytest.approx(tables_of_busiest * batch * 32 * 4 * 2)
        assert by_name["permute=ids"] == pytest.approx(tables_of_busiest * batch * (8 * length + 4))
        assert explained.chosen.permuted == 0
        rows = planned(own_tables, cluster, 2, length, scheme="table_wise", permute="rows")
        forced = reasons(rows, own_tables, lengths(own_tables, length), cluster, FP32, workload(), scheme="table_wise", permute="rows")
        assert forced.chosen.permuted == by_name["permute=rows"] and {m.name: m.permuted for m in forced.alternatives}["permute=none"] == 0
        assert "Peer permute: rows" in " ".join(forced.explanation()["sentences"])


@pytest.mark.parametrize(("hosts", "ranks", "towers"), [(1, 4, 1), (2, 1, 2), (2, 2, 1)])
def test_where_ranks_are_in_peer_order_nothing_is_permuted(hosts: int, ranks: int, towers: int) -> None:
    own_tables, cluster = tables([5000] * 4), small_cluster(hosts, ranks)
    for permute in PERMUTES:
        sharding = planned(own_tables, cluster, towers, 1.0, permute=permute)
        explained = reasons(sharding, own_tables, lengths(own_tables, 1.0), cluster, FP32, workload(), permute=permute)
        assert all(m.permuted == 0 for m in (explained.chosen, *explained.alternatives))
        assert "nothing to permute" in explained.explanation()["sentences"][-1]

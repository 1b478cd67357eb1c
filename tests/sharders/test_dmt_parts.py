"""DMT's volumes, pieces of tables on the ranks of a site, and what a plan moves, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recsys_lab.cluster import Cluster
from recsys_lab.errors import UserError
from recsys_lab.plan import ShardingPlan
from recsys_lab.precision import Precision
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.dmt import DMT, Reasons
from recsys_lab.sharders.dmt.affinity import affinity, coordinates, distances
from recsys_lab.sharders.dmt.partition import check_count, inertia, size_bounds
from recsys_lab.sharders.dmt.partition_file import adjusted_rand_index, load_partition
from recsys_lab.sharders.dmt.place import Loads, Site, _most, _next, place
from recsys_lab.sharders.dmt.reasons import Moved, moved_by
from recsys_lab.sharders.dmt.volume import Links, Volume, column_shards, row_blocks
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from tests.plan.plans import FP32, workload
from tests.simulate.clusters import cluster

MIXED = Precision("p", forward_comm="bf16", backward_comm="fp32")  # 2 + 4 bytes there and back


def table(name: str = "t", rows: int = 100, dim: int = 16, features: int = 1) -> Table:
    return Table(name, rows, dim, tuple(f"{name}{i}" for i in range(features)))


def inputs(tables: list[Table], lengths: list[float], on: Cluster | None = None, **work: Any) -> PlanInputs:
    access = {t.name: TableAccess(t.name, n, (t.rows,), (n / t.rows,), "formula", "") for t, n in zip(tables, lengths)}
    figures = {"batch_size": 8, "dense_parameters": 0, "sparse_optimizer": "sgd", "activation_bytes_per_sample": 0.0} | work
    return PlanInputs(tuple(tables), AccessStatistics(access), on or cluster(1, 4), FP32, workload(**figures))


def test_volumes_by_hand() -> None:
    """Two features of 16 columns with 10 look-ups: ids of 8 bytes, lengths of 4, numbers of 2 and 4."""
    assert column_shards(table(features=2), 10.0, 3, MIXED) == Volume(3 * (80 + 8), 2 * 16 * 6)
    assert row_blocks(table(features=2), 10.0, 4, MIXED) == Volume(80 + 4 * 8, 4 * 2 * 16 * 6)
    assert Volume(100.0, 60.0).cost(Links(10.0, 20.0)) == 13.0


@pytest.mark.parametrize(
    ("hosts", "ranks", "of_site", "links"),
    [(1, 4, 4, (100, 100)), (2, 4, 4, (10, 100)), (2, 4, 8, (10, 10)), (2, 4, 2, (10, 100)), (1, 4, 2, (100, 100))],
)
def test_links_between_sites_and_inside(hosts: int, ranks: int, of_site: int, links: tuple[float, float]) -> None:
    assert Links.of(cluster(hosts, ranks), of_site) == Links(*links)


@pytest.mark.parametrize(("dim", "ranks", "most"), [(16, 8, 4), (16, 3, 2), (16, 1, 1), (6, 8, 2), (4, 8, 1), (2, 8, 1), (64, 8, 8)])
def test_column_shards_have_four_columns_at_least(dim: int, ranks: int, most: int) -> None:
    assert _most(table(dim=dim), ranks) == most


def test_the_next_number_of_shards_is_one_that_there_can_be() -> None:
    assert [_next(table(dim=16), shards) for shards in (1, 2)] == [2, 4]  # three shards would be of 8, 8 and none
    assert [_next(table(dim=12), shards) for shards in (1, 2)] == [2, 3]


def on(tables: list[Table], lengths: list[float], ranks: int = 4, scheme: str = "auto", **more: Any) -> dict[str, list[tuple[int, ...]]]:
    """By table, (rank, rows, columns) of its shards."""
    placements = place(Site(tables, tuple(range(ranks))), Loads(inputs(tables, lengths, **more), scheme))
    return {name: [(s.ranks[0], s.rows, s.cols) for s in placement.shards] for name, placement in placements.items()}


def test_what_a_table_takes_of_a_rank() -> None:
    """100 rows of 16 in FP32 with adagrad's state; 3 look-ups of two features are 5 rows of 16 numbers read and sent."""
    loads = Loads(inputs([table(features=2)], [3.0], sparse_optimizer="adagrad", dense_parameters=10), "auto")
    one = loads.inputs.tables[0]
    assert (loads.size(one, 16), loads.size(one, 4), loads.work(one, 16), loads.work(one, 4)) == (12_800, 3200, 80, 20)
    assert loads.is_multi_hot(one) and not Loads(inputs([table(features=2)], [2.0]), "auto").is_multi_hot(one)
    assert loads.room_bytes == 68_000_000_000 - 160


def test_tables_as_many_as_ranks_stay_whole_and_the_largest_comes_first() -> None:
    tables = [table("a", 10), table("b", 40), table("c", 30), table("d", 20)]
    assert on(tables, [1.0] * 4) == {"b": [(0, 40, 16)], "c": [(1, 30, 16)], "d": [(2, 20, 16)], "a": [(3, 10, 16)]}


def test_a_rank_gets_what_leaves_it_least_full_of_bytes_and_of_work() -> None:
    """Of three tables the one with most rows, or with most look-ups, has a rank for itself; else the first rank has two."""

    def ranks(rows: tuple[int, ...], lengths: list[float]) -> list[int]:
        return [shards[0][0] for shards in on([table(name, n) for name, n in zip("abc", rows)], lengths, 2).values()]

    assert ranks((60, 20, 20), [1.0, 1.0, 1.0]) == [0, 1, 1] and ranks((20, 20, 60), [1.0, 1.0, 1.0]) == [1, 1, 0]
    assert ranks((20, 20, 20), [5.0, 1.0, 1.0]) == [0, 1, 1] and ranks((20, 20, 20), [1.0, 1.0, 1.0]) == [0, 1, 0]


def test_ranks_without_a_table_get_columns_of_that_with_most_work() -> None:
    assert on([table("a"), table("b", 90)], [1.0, 1.0]) == {"a": [(0, 100, 8), (1, 100, 8)], "b": [(2, 90, 8), (3, 90, 8)]}
    assert {name: len(shards) for name, shards in on([table("a"), table("b", dim=4)], [1.0, 1.0]).items()} == {"a": 4, "b": 1}
    assert {name: len(shards) for name, shards in on([table("a", dim=4), table("b", dim=4)], [1.0, 1.0]).items()} == {"a": 1, "b": 1}


def test_a_table_with_too_much_work_for_a_rank_is_cut_until_no_piece_has() -> None:
    """For a sample "a" has 2 x 20 of 50 rows. Twice a rank's even part are 25 on four ranks, 50 on two."""
    tables, lengths = [table("a", features=20), *(table(name) for name in "bcdef")], [20.0, *[1.0] * 5]
    assert [len(shards) for shards in on(tables, lengths, 4).values()] == [2, 1, 1, 1, 1, 1]
    assert [len(shards) for shards in on(tables, lengths, 2).values()] == [1] * 6


@pytest.mark.parametrize(
    ("scheme", "shards"),
    [
        ("table_wise", [(0, 100, 16)]),
        ("column_wise", [(rank, 100, 4) for rank in range(4)]),
        ("row_wise", [(rank, 25, 16) for rank in range(4)]),
    ],
)
def test_one_way_for_all_tables(scheme: str, shards: list[tuple[int, ...]]) -> None:
    assert on([table()], [1.0], scheme=scheme) == {"t": shards}


def test_long_bags_of_few_columns_are_cut_by_rows() -> None:
    """On one host, four ranks: column shards send each id four times. 8 columns both ways are 64 bytes; four parts of a row 256."""
    assert on([table(dim=16)], [1.0]) == {"t": [(rank, 100, 4) for rank in range(4)]}
    assert on([table(dim=16)], [100.0]) == {"t": [(rank, 25, 16) for rank in range(4)]}
    assert on([table(dim=16)], [16.0])["t"][0][1] == 100 and on([table(dim=16)], [16.1])["t"][0][1] == 25  # 24 n + 16 = 3 x 128 + 16


def test_a_table_too_large_for_a_rank_is_cut_further() -> None:
    """Weights of 6,400 and 640 bytes: a rank has room for 5,100, then for 1,700."""
    tables = [table("a"), table("b", 10)]
    for gb, shards in ((1e-5, 1), (6e-6, 2), (2e-6, 4)):
        where = cluster(1, 2 if shards < 4 else 4)
        where = replace(where, device=replace(where.device, memory_gb=gb))
        pieces = on(tables, [1.0, 1.0], where.ranks_per_host, on=where)
        assert len(pieces["a"]) == shards, gb


def test_of_the_fullest_rank_s_tables_the_largest_is_cut() -> None:
    """3,840 bytes on one rank, twice 2,880 on the other, of 5,300: one of the two is cut, though the first is larger."""
    where = replace(cluster(1, 2), device=replace(cluster(1, 2).device, memory_gb=6.236e-6))
    pieces = on([table("a", 60), table("b", 45), table("c", 45)], [1.0] * 3, 2, on=where)
    assert {name: len(shards) for name, shards in pieces.items()} == {"a": 1, "b": 2, "c": 1}


def test_one_sample_is_enough_for_an_affinity() -> None:
    similarity = affinity([torch.tensor([[[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]])])
    assert similarity == pytest.approx(np.array([[1, 0.5**0.5, 0], [0.5**0.5, 1, 0], [0, 0, 1]]))


def test_coordinates_are_of_seed_0_unless_told() -> None:
    apart = np.array([[0.0, 1.0], [1.0, 0.0]])
    points, other = (coordinates(apart, seed=seed, starts=1)[0].tobytes() for seed in (0, 1))
    assert coordinates(apart, starts=1)[0].tobytes() == points != other


def test_a_file_too_deep_is_no_partition(tmp_path: Path) -> None:
    (tmp_path / "deep").write_text("[" * 100_000)
    with pytest.raises(UserError, match="no JSON"):
        load_partition(tmp_path / "deep")


def test_groups_and_distances_by_hand() -> None:
    points = np.array([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0]])
    assert inertia(points, [[0, 1], [2]]) == 2.0 and inertia(points, [[0], [1], [2]]) == 0.0
    alike = np.array([[1.0, 0.25], [0.25, 1.0]])
    assert distances(alike, "coherent").tolist() == [[0.0, 0.75], [0.75, 0.0]]
    assert distances(alike, "diverse").tolist() == [[0.0, 0.25], [0.25, 0.0]] and alike[0, 0] == 1.0
    with pytest.raises(UserError, match="no such strategy.*given best; allowed: coherent, diverse"):
        distances(alike, "best")


def test_bounds_on_sizes() -> None:
    assert size_bounds(4, 4, 3.0) == [(1, 3), (1, 1)]
    assert size_bounds(3, 1, 2.0) == [(2, 3), (3, 3)] or size_bounds(3, 1, 2.0)[-1] == (3, 3)
    assert len(size_bounds(1000, 10, 2.0)) == 8 and size_bounds(1000, 10, 2.0)[-1] == (100, 100)
    check_count(3, 3)
    check_count(3, 1)
    for wrong in (0, 4):
        with pytest.raises(UserError, match=f"{wrong} towers, 3 tables; allowed: 1 to 3"):
            check_count(3, wrong)


def test_how_far_two_groupings_agree() -> None:
    """Of 6 pairs, 2 are together in each and 1 in both: (1 - 2/3) / (2 - 2/3)."""
    assert adjusted_rand_index([["a", "b"], ["c", "d"]], [["a", "b"], ["c", "d"]]) == 1.0
    assert adjusted_rand_index([["a", "b"], ["c", "d"]], [["a", "c"], ["b", "d"]]) == pytest.approx(-0.5)
    assert adjusted_rand_index([["a", "b", "c"], ["d"]], [["a", "b"], ["c", "d"]]) == pytest.approx((1 - 1) / (2.5 - 1))
    assert adjusted_rand_index([["a"]], [["a"]]) == 1.0


def towers(permute: str = "none", hosts: int = 2, ranks: int = 2) -> tuple[ShardingPlan, PlanInputs]:
    inputs_of_towers = replace(inputs([table("a"), table("b")], [1.0, 1.0], cluster(hosts, ranks)), towers=(("a0",), ("b0",)))
    return DMT(permute=permute).plan(inputs_of_towers), inputs_of_towers


@pytest.mark.parametrize(("permute", "permuted"), [("none", 0.0), ("rows", 8 * 4 * 2 * 8 * 4.0), ("ids", 4 * 8 * (4.0 + 8.0))])
def test_what_a_plan_moves(permute: str, permuted: float) -> None:
    """Two sites of two ranks, a table of 16 columns in each, cut in two; 8 samples a rank. A rank has ids of 32 samples, 12 bytes each."""
    plan, own = towers(permute)
    moved = moved_by("x", plan, own)
    assert (moved.name, moved.ids) == ("x", 4 * 8 * 12.0)  # its own of both tables, to both ranks of each site
    assert moved.inside == 2 * 32 * 8 * 4.0 and moved.between == 2 * 16 * 16 * 4.0
    assert moved.permuted == permuted


MOVED = Moved("this plan", 1e3, 2e3, 3e3, 0.0)


@pytest.mark.parametrize(
    ("sites", "ranks", "last"),
    [
        (1, 4, "Peer permute: nothing to permute; the ranks are in peer order as they are numbered."),
        (4, 1, "Peer permute: nothing to permute; the ranks are in peer order as they are numbered."),
        (
            2,
            2,
            "Peer permute: none. Permuting rows would move 5.0 kB in memory, ids 7.0 kB, none of it in a process group "
            "that is in peer order.",
        ),
    ],
)
def test_reasons_in_words(sites: int, ranks: int, last: str) -> None:
    others = (replace(MOVED, name="permute=rows", permuted=5e3), replace(MOVED, name="permute=ids", permuted=7e3))
    reasons = Reasons("none", {"tower_table_wise": 2, "tower_row_wise": 1}, sites, ranks, MOVED, others, 9e3)
    assert reasons.explanation()["sentences"] == [
        f"Tables in the {sites} sites of {ranks} ranks: 2 whole on one rank, 1 cut by rows. Bytes are simulated, of the busiest rank in an "
        "iteration.",
        f"Between peers travel 3.0 kB in exchanges of {sites} ranks; the pooled rows of a rank's own samples are 9.0 kB.",
        last,
    ]
    assert reasons.explanation()["rows"][1] == ["permute=rows", "1.0 kB", "2.0 kB", "3.0 kB", "5.0 kB"]
    assert reasons.explanation()["columns"] == ["plan", "ids", "inside sites", "between peers", "permuted"]
    assert Reasons.from_json(reasons.to_json()) == reasons


def test_the_alternatives_of_a_plan() -> None:
    plan, own = towers("rows")
    reasons = DMT(permute="rows").reasons(plan, own)
    assert [m.name for m in reasons.alternatives] == [
        "scheme=column_wise", "scheme=row_wise", "scheme=table_wise", "permute=ids", "permute=none",
    ]  # fmt: skip
    assert (reasons.sites, reasons.ranks_of_site, reasons.flat_bytes, reasons.schemes) == (2, 2, 32 * 8 * 8.0, {"tower_column_wise": 2})
    assert "Peer permute: rows. Permuting rows would move" in reasons.explanation()["sentences"][-1]

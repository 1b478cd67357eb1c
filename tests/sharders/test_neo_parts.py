"""Neo's cuts, bounds and placements of pieces, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from recsys_lab.errors import UserError
from recsys_lab.plan import Placement, Shard
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.neo import Neo4D, Reasons
from recsys_lab.sharders.neo.assign import room_of_rank
from recsys_lab.sharders.neo.bound import bound_of_placement, bound_of_plans
from recsys_lab.sharders.neo.choose import LIMITS, with_one_width
from recsys_lab.sharders.neo.costs import Cost, RankCosts, Setting, Weights
from recsys_lab.sharders.neo.cuts import Cut, Piece, Size, _widths, column_ranges, cuts_of
from recsys_lab.sharders.neo.levels import SCHEMES
from recsys_lab.sharders.neo.reasons import Choice
from recsys_lab.sharders.neo.repair import repaired
from recsys_lab.sharders.neo.shards import exchanged_together, placements_of
from recsys_lab.tables import AccessStatistics, Table, power_law_access
from tests.executor.sharded import FP32, small_cluster
from tests.plan.plans import workload

TABLE = Table("t", 10, 8, ("a",))


def setting(table: Table, hosts: int = 2, ranks: int = 2) -> Setting:
    access = AccessStatistics({table.name: power_law_access(table.name, table.rows, 3.0, 1.05)})
    return Setting(access, small_cluster(hosts, ranks), FP32, 8, Weights())


@pytest.mark.parametrize(
    ("dim", "members", "widths"),
    [
        (64, 8, [[32, 32], [24, 24, 16], [16] * 4, [12] * 5 + [4], [8] * 8]),
        (64, 5, [[32, 32], [24, 24, 16], [16] * 4, [16] * 4]),  # five pieces of 13 columns are rounded up to 16
        (64, 2, [[32, 32]]),
        (64, 1, []),
        (8, 8, [[4, 4]]),
        (4, 8, []),
        (6, 2, [[4, 2]]),
    ],
)
def test_widths_of_column_pieces(dim: int, members: int, widths: list[list[int]]) -> None:
    expected = list({len(each): each for each in widths}.values())
    assert _widths(Table("t", 5, dim, ("a",)), members) == expected


def test_ranges_of_columns_are_multiples_of_what_kernels_read_at_once() -> None:
    assert column_ranges(16, 1) == [(0, 16)] and column_ranges(16, 3) == [(0, 8), (8, 16)] and column_ranges(9, 2) == [(0, 8), (8, 9)]


@pytest.mark.parametrize(
    ("pooling", "schemes"),
    [
        ("sum", {"table_wise": (1, [8]), "table_row_wise": (2, [8]), "table_column_wise": (2, [8]), "column_wise": (1, [4, 4]),
            "grid_shard": (2, [4, 4]), "row_wise": (4, [8]), "data_parallel": (4, [8]), "flexshard": (4, [8])}),
        ("mean", {"table_wise": (1, [8]), "table_row_wise": (2, [8]), "table_column_wise": (2, [8]), "column_wise": (1, [4, 4]),
            "row_wise": (4, [8]), "data_parallel": (4, [8]), "flexshard": (4, [8])}),
        ("none", {"table_wise": (1, [8]), "column_wise": (1, [4, 4]), "row_wise": (4, [8]), "data_parallel": (4, [8]),
            "flexshard": (4, [8])}),
    ],
)  # fmt: skip
def test_cuts_of_a_table(pooling: str, schemes: dict[str, tuple[int, list[int]]]) -> None:
    table = Table("t", 10, 8, ("a",), pooling)
    cuts = cuts_of(3, table, SCHEMES, setting(table), workload(8, lengths={"t": 3.0}))
    assert {cut.scheme: (cut.holders, [piece.cols for piece in cut.pieces]) for cut in cuts} == schemes
    assert {piece.table for cut in cuts for piece in cut.pieces} == {3}
    assert {cut.scheme for cut in cuts if cut.of_hosts} == {*schemes} & {"table_row_wise", "table_column_wise", "grid_shard"}
    assert {cut.scheme for cut in cuts if cut.of_all} == {"row_wise", "data_parallel", "flexshard"}


def test_bytes_of_the_busiest_holder_of_a_piece() -> None:
    """10 rows of 8 with adagrad's state: by rows 5 on a host's ranks and 3 on all four; by columns 4. 32 samples pass, there and back."""
    cuts = {cut.scheme: cut.pieces[0].size for cut in cuts_of(0, TABLE, SCHEMES, setting(TABLE), workload(8))}
    whole, samples = 2 * 4 * 80, 2 * 4 * 32
    assert cuts["table_wise"] == Size(whole, samples * 8) and cuts["column_wise"] == Size(whole // 2, samples * 4)
    assert cuts["table_row_wise"] == Size(whole // 2, samples * 8) and cuts["row_wise"] == Size(whole * 3 // 10, samples * 8)
    assert cuts["table_column_wise"] == cuts["column_wise"] and cuts["grid_shard"] == Size(whole // 4, samples * 4)
    assert cuts["data_parallel"] == Size(whole, 4 * 80)
    alone = setting(TABLE, 1, 1)
    assert cuts_of(0, TABLE, ["data_parallel"], alone, workload(8))[0].pieces[0].size == Size(whole, 0)


def test_sizes_fit_beside_what_lasts_and_with_what_passes() -> None:
    room = Size(5, 10)
    assert Size(5, 5).fits(room) and not Size(5, 6).fits(room) and not Size(6, 0).fits(room) and Size(0, 10).fits(room)
    assert Size(1, 2) + Size(3, 5) == Size(4, 7) and Size() == Size(0, 0)


def cut(holders: int, *ms: float) -> Cut:
    return Cut("table_wise", holders, tuple(Piece(0, 4, Cost(one / 4, one * 3 / 4), Size(10 * i + 10)) for i, one in enumerate(ms)))


def test_figures_of_a_cut() -> None:
    own = cut(2, 3.0, 5.0)
    assert (own.total_ms, own.largest_ms, own.total_bytes, own.largest_bytes) == (16.0, 5.0, 60, 20)
    assert Cost(1.0, 2.0).weighted(Weights(3.0, 4.0)) == Cost(3.0, 8.0) and Cost(3.0, 8.0).total == 11.0 and Weights() == Weights(1.0, 4.0)


def test_bounds_by_hand() -> None:
    options = [[cut(1, 8.0), cut(1, 5.0, 5.0)], [cut(1, 2.0)]]
    assert [bound_of_plans(options, ranks) for ranks in (1, 2, 4)] == [10.0, 5.0, 5.0]
    assert bound_of_plans([], 4) == 0.0


@pytest.mark.parametrize(
    ("costs", "bins", "bound"),
    [
        ([5.0, 4.0, 3.0], [0.0, 0.0], 7.0),  # two of the three share a bin: the two smaller
        ([5.0, 4.0, 3.0], [1.0, 2.0], 8.0),
        ([5.0, 4.0], [0.0, 0.0], 5.0),
        ([9.0], [1.0, 4.0], 10.0),
        ([], [1.0, 4.0], 4.0),
        ([1.0] * 8, [0.0, 0.0], 4.0),
    ],
)
def test_no_placement_is_below(costs: list[float], bins: list[float], bound: float) -> None:
    assert bound_of_placement(costs, bins) == bound


def test_limits_are_halved() -> None:
    assert list(LIMITS) == [float("inf"), 1.0, 0.5, 0.25, 0.125]


def pieces(*each: tuple[float, float, int]) -> list[Piece]:
    return [Piece(0, 4, Cost(communication, load), Size(size)) for communication, load, size in each]


@pytest.mark.parametrize(
    ("even_out", "room", "expected"),
    [
        (False, 10, {(0,), (1, 2)}),  # as it was: it fits
        (False, 5, {(0, 2), (1,)}),  # 4 and 3 bytes are too many for a bin
        (False, 4, None),
        (True, 10, {(0, 2), (1,)}),
    ],
)
def test_pieces_are_moved_for_memory_and_to_be_even(even_out: bool, room: int, expected: set[tuple[int, ...]] | None) -> None:
    """Pieces of 1, 3 and 2 ms and of 2, 4 and 3 bytes; two bins."""
    own_pieces = pieces((0.0, 1.0, 2), (0.0, 3.0, 4), (0.0, 2.0, 3))
    assignment = repaired(own_pieces, [0, 1, 1], [Cost()] * 2, [Size(room, room)] * 2, even_out)
    assert (assignment and {tuple(i for i in range(3) if assignment[i] == b) for b in (0, 1)}) == expected


def test_what_bins_have_counts_when_pieces_are_moved() -> None:
    own_pieces = pieces((0.0, 2.0, 1), (0.0, 2.0, 1))
    assert repaired(own_pieces, [0, 0], [Cost(0.0, 0.0), Cost(0.0, 5.0)], [Size(9, 9)] * 2, True) == [0, 0]
    assert sorted(repaired(own_pieces, [0, 0], [Cost(0.0, 0.0), Cost(0.0, 1.0)], [Size(9, 9)] * 2, True) or []) == [0, 1]
    assert repaired(own_pieces, [0, 0], [Cost()], [Size(9, 9)], True) == [0, 0]


def test_a_change_must_save_something() -> None:
    """A bin is empty, and a piece in it would cost as much as where it is."""
    own_pieces = pieces((0.0, 1.0, 1), (0.0, 1.0, 1))
    assert repaired(own_pieces, [0, 1], [Cost()] * 3, [Size(9, 9)] * 3, True) == [0, 1]


def test_for_memory_a_piece_goes_where_ranks_stay_cheapest_and_have_room() -> None:
    """Bin 0 has 12 bytes of 10. Its piece of 4 fits bin 1, which costs 5 ms, and bin 2, which costs 0.5; its piece of 8 fits no other."""
    own_pieces = pieces((0.0, 1.0, 4), (0.0, 0.5, 8), (0.0, 5.0, 1), (0.0, 0.5, 6))
    assert repaired(own_pieces, [0, 0, 1, 2], [Cost()] * 3, [Size(10, 10)] * 3, False) == [2, 0, 1, 2]


def of(scheme: str, where: Sequence[tuple[int, int]], hosts: int = 2, ranks: int = 2) -> Placement:
    """Pieces of so many columns on these ranks or hosts."""
    numbered = [(Piece(0, cols, Cost(), Size()), number) for cols, number in where]
    return placements_of(TABLE, Cut(scheme, 1, tuple(piece for piece, _ in numbered)), numbered, small_cluster(hosts, ranks))


def test_pieces_as_placements() -> None:
    def block(ranks: tuple[int, ...], rows: tuple[int, int], cols: tuple[int, int]) -> Shard:
        return Shard(ranks, *rows, *cols)

    assert of("table_wise", [(8, 3)]) == Placement("t", "table_wise", (block((3,), (0, 10), (0, 8)),))
    assert of("column_wise", [(4, 2), (4, 1)]).shards == (block((1,), (0, 10), (0, 4)), block((2,), (0, 10), (4, 8)))
    assert of("column_wise", [(4, 2), (4, 2)]) == of("table_wise", [(8, 2)])  # pieces that met
    assert of("table_row_wise", [(8, 1)]).shards == (block((2,), (0, 5), (0, 8)), block((3,), (5, 10), (0, 8)))
    assert of("table_column_wise", [(8, 1)]).shards == (block((2,), (0, 10), (0, 4)), block((3,), (0, 10), (4, 8)))
    assert of("grid_shard", [(4, 1), (4, 1)]) == of("table_row_wise", [(8, 1)])
    assert [s.ranks[0] for s in of("grid_shard", [(4, 1), (4, 0)]).shards] == [0, 1, 2, 3]
    assert of("row_wise", []).scheme == "row_wise" and of("data_parallel", []).shards == (block((0, 1, 2, 3), (0, 10), (0, 8)),)


def test_column_pieces_of_sequences_have_one_width() -> None:
    sequence, longer = replace(TABLE, pooling="none"), replace(TABLE, pooling="none", dim=24)
    where = [(Piece(0, 4, Cost(), Size()), 2)] * 2
    met = placements_of(sequence, Cut("column_wise", 1, tuple(piece for piece, _ in where)), where, small_cluster(2, 2))
    assert met.shards == (Shard((2,), 0, 10, 0, 4), Shard((2,), 0, 10, 4, 8)), "pieces that met stay apart"
    whole, rows = of("table_wise", [(8, 3)]), of("row_wise", [])
    assert exchanged_together([sequence] * 3, [whole, met, rows]) == (whole, met, rows)
    work, wide = workload(8, lengths={"t": 3.0}), setting(longer, 2, 8)
    cuts = cuts_of(0, longer, ["table_wise", "column_wise"], wide, work)
    assert {(len(c.pieces), c.pieces[0].cols) for c in cuts} == {(1, 24), (2, 12), (3, 8), (6, 4)}, "24 columns in four pieces are uneven"
    assert [[(len(c.pieces), c.pieces[0].cols) for c in one] for (one,) in with_one_width([cuts])] == [
        [(1, 24), (6, 4)], [(1, 24), (3, 8)], [(1, 24), (2, 12)],
    ]  # fmt: skip
    assert with_one_width([cuts[:1]]) == [[cuts[:1]]]


def test_whole_tables_are_exchanged_with_those_cut_by_columns() -> None:
    whole, columns, rows = of("table_wise", [(8, 3)]), of("column_wise", [(4, 2), (4, 1)]), of("row_wise", [])
    assert exchanged_together([TABLE], [whole, rows]) == (whole, rows)
    assert [p.scheme for p in exchanged_together([TABLE], [whole, columns, rows])] == ["column_wise", "column_wise", "row_wise"]


def test_ranks_wait_for_the_slowest_of_each_exchange_and_of_all_look_ups() -> None:
    import numpy as np

    costs = RankCosts({"table_wise": np.array([1.0, 3.0]), "row_wise": np.array([4.0, 2.0])}, np.array([5.0, 7.0]))
    assert (costs.worst_ms, costs.mean_ms) == (14.0, 11.0) and costs.imbalance == 14 / 11
    assert RankCosts({}, np.zeros(2)).imbalance == 1.0


def test_a_rank_s_room_is_beside_the_dense_part_and_its_buffers() -> None:
    work = workload(2, 100, activation_bytes_per_sample=10.0)
    inputs = PlanInputs((TABLE,), setting(TABLE).access, small_cluster(1, 2, memory_gb=1e-5), FP32, work)
    assert room_of_rank(inputs) == Size(int(1e4 * 0.85) - 1600, 10_000 - 1600 - 20 - 2 * 4 * 2 * 8)


def test_choices_are_told_over_the_bound() -> None:
    inputs = PlanInputs((TABLE,), setting(TABLE).access, small_cluster(1, 2), FP32, workload(2))
    reasons = Neo4D().reasons(Neo4D().plan(inputs), inputs)
    for choice in (reasons.chosen, *reasons.alternatives):
        assert choice.over_bound == pytest.approx(choice.worst_ms / reasons.bound_ms)
    free = Neo4D(communication_weight=0.0, load_weight=0.0)
    assert free.reasons(free.plan(inputs), inputs).chosen == Choice("this plan", 0.0, 1.0, 1.0)


@pytest.mark.parametrize("key", ["communication_weight", "load_weight"])
def test_a_weight_may_be_nothing_but_not_less(key: str) -> None:
    inputs = PlanInputs((TABLE,), setting(TABLE).access, small_cluster(1, 2), FP32, workload(2))
    Neo4D(**{key: 0.0}).plan(inputs)
    with pytest.raises(UserError, match=f"{key}.*0 or more"):
        Neo4D(**{key: -0.1}).plan(inputs)


def test_reasons_in_words() -> None:
    reasons = Reasons({"row_wise": 2, "table_wise": 5}, 1.5, Choice("this plan", 2.0, 1.25, 1.3333), (Choice("other", 3.0, 1.5, 2.0),))
    explanation = reasons.explanation()
    assert explanation["sentences"] == [
        "Tables: 5 table_wise, 2 row_wise.",
        "The slowest ranks cost 2 ms by the planner's model of volume and load, 1.250 times the mean. No plan can be below 1.5 ms.",
    ]
    assert explanation["rows"] == [["this plan", "2 ms", "1.250", "1.333"], ["other", "3 ms", "1.500", "2.000"]]
    assert explanation["columns"] == ["plan", "slowest ranks", "imbalance", "over the bound"]

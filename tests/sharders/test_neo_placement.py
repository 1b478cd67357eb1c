"""Neo's two heuristics on bare numbers: what they place, how near the bound, and that memory is kept."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.sharders.neo.bound import bound_of_placement
from recsys_lab.sharders.neo.costs import Cost
from recsys_lab.sharders.neo.cuts import Piece, Size
from recsys_lab.sharders.neo.placement import HEURISTICS, greedy, karmarkar_karp
from recsys_lab.sharders.neo.repair import repaired

COSTS = st.lists(st.floats(0.01, 100.0), max_size=30)
BINS = st.lists(st.sampled_from([0.0, 0.0, 1.0, 20.0]), min_size=1, max_size=6)


def sums(costs: list[float], bins: list[float], assignment: list[int]) -> np.ndarray:
    totals = np.array(bins, dtype=float)
    np.add.at(totals, assignment, costs)
    return totals


@settings(max_examples=150)
@given(COSTS, BINS, st.sampled_from(sorted(HEURISTICS)))
def test_every_piece_has_one_bin_the_same_every_time_and_no_bin_beats_the_bound(costs, bins, name):
    assignment = HEURISTICS[name](costs, bins)
    assert len(assignment) == len(costs) and all(0 <= number < len(bins) for number in assignment)
    assert assignment == HEURISTICS[name](costs, bins)
    assert sums(costs, bins, assignment).max() >= bound_of_placement(costs, bins) * (1 - 1e-12)


@settings(max_examples=150)
@given(COSTS.filter(bool), st.integers(1, 6))
def test_greedy_keeps_graham_s_bound(costs, m):
    """In falling cost: at most 4/3 - 1/(3m) times the best, which is no less than a piece and no less than the mean."""
    worst = sums(costs, [0.0] * m, greedy(costs, [0.0] * m)).max()
    assert worst <= sum(costs) / m + (1 - 1 / m) * max(costs) + 1e-9


def test_against_all_placements() -> None:
    """Few pieces on few bins: the bound is below the best, and neither heuristic is far above it."""
    rng = np.random.default_rng(3)
    ratios = {name: [] for name in HEURISTICS}
    for _ in range(10):
        costs = rng.integers(1, 40, 8).tolist()
        best = min(sums(costs, [0.0] * 3, list(assignment)).max() for assignment in product(range(3), repeat=8))
        assert bound_of_placement(costs, [0.0] * 3) <= best
        for name, heuristic in HEURISTICS.items():
            ratios[name].append(sums(costs, [0.0] * 3, heuristic(costs, [0.0] * 3)).max() / best)
    assert max(ratios["greedy"]) <= 4 / 3 - 1 / 9 and max(ratios["karmarkar_karp"]) <= 7 / 6 + 1e-9


def test_the_difference_method_as_karmarkar_and_karp_show_it() -> None:
    """8, 7, 6, 5, 4 in two: the differences are 1, then 6 - 5 = 1, 4 - 1 = 3, 3 - 1 = 2: a difference of 2, where greedy ends with 4."""
    costs = [8.0, 7.0, 6.0, 5.0, 4.0]
    differences = {name: np.ptp(sums(costs, [0.0, 0.0], way(costs, [0.0, 0.0]))) for name, way in HEURISTICS.items()}
    assert differences == {"greedy": 4.0, "karmarkar_karp": 2.0}


def test_differencing_beats_greedy_where_pieces_are_many() -> None:
    rng = np.random.default_rng(0)
    costs, bins = rng.lognormal(0, 1, 800).tolist(), [0.0] * 32
    spread = {name: np.ptp(sums(costs, bins, way(costs, bins))) for name, way in HEURISTICS.items()}
    assert spread["karmarkar_karp"] < spread["greedy"]
    assert sums(costs, bins, karmarkar_karp(costs, bins)).max() < 1.001 * bound_of_placement(costs, bins)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.floats(0.01, 9.0), st.integers(1, 50), st.integers(0, 9)), max_size=14), st.integers(1, 5), st.integers(20, 90)
)
def test_repair_keeps_memory_or_says_that_it_cannot(pieces, m, room_bytes):
    own_pieces = [Piece(0, 4, Cost(cost, 1.0), Size(lasting, passing)) for cost, lasting, passing in pieces]
    room, nothing = [Size(room_bytes, room_bytes + 5)] * m, [Cost()] * m
    first = karmarkar_karp([piece.cost_ms for piece in own_pieces], [0.0] * m)
    assignment, evened = (repaired(own_pieces, first, nothing, room, even_out) for even_out in (False, True))

    def fitted(where: list[int]) -> bool:
        sizes = [sum((piece.size for piece, number in zip(own_pieces, where) if number == b), Size()) for b in range(m)]
        return all(size.fits(of) for size, of in zip(sizes, room))

    if fitted(first):
        assert assignment == first
    assert (assignment is None) == (evened is None)
    if assignment is not None and evened is not None:
        assert set(assignment) <= set(range(m)) and fitted(assignment) and fitted(evened)
        assert slowest(own_pieces, evened, m) <= slowest(own_pieces, assignment, m) * (1 + 1e-9)


def slowest(pieces: list[Piece], assignment: list[int], m: int) -> float:
    """The slowest exchange and the slowest look-up."""
    both = np.zeros((m, 2))
    for piece, number in zip(pieces, assignment):
        both[number] += piece.cost.communication, piece.cost.load
    return float(both.max(axis=0).sum())


def test_both_costs_are_evened_where_their_sum_already_is() -> None:
    """Two pieces that only send on one bin, two that only look up on the other: equal sums, and both phases wait."""
    pieces = [Piece(0, 4, cost, Size(1)) for cost in (Cost(1.0, 0.0), Cost(1.0, 0.0), Cost(0.0, 1.0), Cost(0.0, 1.0))]
    apart = [0, 0, 1, 1]
    assert slowest(pieces, apart, 2) == 4.0
    evened = repaired(pieces, apart, [Cost()] * 2, [Size(9, 9)] * 2, even_out=True)
    assert evened is not None and slowest(pieces, evened, 2) == 2.0


def test_repair_exchanges_where_nothing_can_be_given_away() -> None:
    """Both bins are nearly full: only an exchange of the 6 for the 4 helps."""
    pieces = [Piece(0, 4, Cost(1.0), Size(size)) for size in (6, 5, 4, 4)]
    assert repaired(pieces, [0, 0, 1, 1], [Cost()] * 2, [Size(10, 10)] * 2, even_out=False) in ([1, 0, 0, 1], [1, 0, 1, 0])
    assert repaired(pieces, [0, 0, 1, 1], [Cost()] * 2, [Size(9, 9)] * 2, even_out=False) is None


@pytest.mark.parametrize("bins", [[3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 3.0]], ids=str)
@pytest.mark.parametrize("name", sorted(HEURISTICS))
def test_what_bins_cost_already_is_filled_up(name: str, bins: list[float]) -> None:
    assert sums([1.0] * 6, bins, HEURISTICS[name]([1.0] * 6, bins)).tolist() == [3.0, 3.0, 3.0]


@pytest.mark.parametrize("name", sorted(HEURISTICS))
def test_a_piece_goes_where_least_is_already(name: str) -> None:
    """Bins of 5, 1 and 3, pieces of 4 and 2: 5, 1 + 4 and 3 + 2."""
    assignment = HEURISTICS[name]([4.0, 2.0], [5.0, 1.0, 3.0])
    assert assignment == [1, 2]

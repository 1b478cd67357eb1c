"""Each single change of Neo's repair against all changes that there are, for few pieces and bins."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from recsys_lab.sharders.neo.choose import smallest
from recsys_lab.sharders.neo.costs import Cost
from recsys_lab.sharders.neo.cuts import Cut, Piece, Size
from recsys_lab.sharders.neo.repair import LEAST_GAIN, _Bins

Given = tuple[list[Piece], list[int], list[Cost], list[Size]]


def piece(communication: float, load: float, lasting: int, passing: int = 0) -> Piece:
    return Piece(0, 4, Cost(communication, load), Size(lasting, passing))


def drawn(count: int, room: int) -> Iterator[Given]:
    """Up to six pieces in up to four bins, with whole numbers, so that many are equal or just fit."""
    draw = np.random.default_rng(room)
    for _ in range(count):
        n, m = int(draw.integers(1, 7)), int(draw.integers(1, 5))
        pieces = [piece(*draw.integers(0, 9, 2).tolist(), *draw.integers(0, 6, 2).tolist()) for _ in range(n)]
        costs = [Cost(*draw.integers(0, 4, 2).tolist()) for _ in range(m)]
        rooms = [Size(*draw.integers(room - 2, room + 3, 2).tolist()) for _ in range(m)]
        yield pieces, draw.integers(0, m, n).tolist(), costs, rooms


def figures(
    pieces: list[Piece], assignment: list[int], costs: list[Cost], rooms: list[Size]
) -> tuple[list[tuple[float, float]], list[int]]:
    """(communication and load, what is lacking) of each bin."""
    used, lacks = [], []
    for number, (cost, room) in enumerate(zip(costs, rooms)):
        own = [p for p, at in zip(pieces, assignment) if at == number]
        used.append((cost.communication + sum(p.cost.communication for p in own), cost.load + sum(p.cost.load for p in own)))
        lasting, passing = sum(p.size.lasting for p in own), sum(p.size.passing for p in own)
        lacks.append(max(lasting - room.lasting, lasting + passing - room.passing))
    return used, lacks


def changes(assignment: list[int], a: int, bins: int) -> Iterator[tuple[int, list[int]]]:
    """(other bin, assignment): a piece of bin `a` to another, with or without a piece that comes back."""
    for number, at in enumerate(assignment):
        for b in set(range(bins)) - {a} if at == a else ():
            moved = [*assignment[:number], b, *assignment[number + 1 :]]
            yield b, moved
            yield from ((b, [*moved[:k], a, *moved[k + 1 :]]) for k, other in enumerate(assignment) if other == b)


def slowest(used: list[tuple[float, float]]) -> float:
    return max(one for one, _ in used) + max(other for _, other in used)


@pytest.mark.parametrize("room", [4, 9, 30])
def test_the_change_after_which_the_slowest_ranks_take_least(room: int) -> None:
    for pieces, assignment, costs, rooms in drawn(60, room):
        now, before = figures(pieces, assignment, costs, rooms)
        for a in range(len(costs)):
            bins = _Bins(pieces, assignment, costs, rooms)
            assert bins.lacks().tolist() == before
            able = []
            for b, changed in changes(assignment, a, len(costs)):
                used, lacks = figures(pieces, changed, costs, rooms)
                if lacks[a] <= 0 and lacks[b] <= 0 and slowest(used) < slowest(now) * (1 - LEAST_GAIN):
                    able.append((slowest(used), changed))
            assert bins.relieve_costs(a) == bool(able)
            chosen = bins.assignment.tolist()
            assert chosen in [changed for worst, changed in able if worst == min(able)[0]] if able else chosen == assignment
            used, lacks = figures(pieces, chosen, costs, rooms)
            assert bins.used[:, :2].tolist() == [list(each) for each in used] and bins.lacks().tolist() == lacks


@pytest.mark.parametrize("room", [4, 9])
def test_the_change_that_leaves_least_lacking_and_the_two_bins_cheapest(room: int) -> None:
    for pieces, assignment, costs, rooms in drawn(120, room):
        _, before = figures(pieces, assignment, costs, rooms)
        a = int(np.argmax(before))
        bins, able = _Bins(pieces, assignment, costs, rooms), []
        for b, changed in changes(assignment, a, len(costs)):
            used, lacks = figures(pieces, changed, costs, rooms)
            if lacks[b] <= 0 and lacks[a] < before[a]:
                able.append(((max(lacks[a], 0), max(sum(used[a]), sum(used[b]))), changed))
        assert bins.relieve_memory(a) == bool(able)
        chosen = bins.assignment.tolist()
        assert chosen in [changed for worst, changed in able if worst == min(able)[0]] if able else chosen == assignment


def test_a_cut_of_exactly_a_tenth_more_may_be_the_finest() -> None:
    """10 bytes in one piece, or 6 and 5; three of 4 are too many."""
    whole, finer, more = (Cut("column_wise", 1, tuple(piece(1.0, 1.0, size) for size in sizes)) for sizes in ((10,), (6, 5), (4, 4, 4)))
    assert smallest([[whole, finer, more], [whole, more]]) == [finer, whole]

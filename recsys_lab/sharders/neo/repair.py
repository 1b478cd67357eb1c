"""Pieces moved after they were placed: off bins that would lack memory, and so that look-up and exchange are each even.

The heuristics of the paper look at one cost, the sum, and at no memory. But ranks that have looked up wait for the slowest before they
exchange. A bin with many look-ups is not made good by one with much to send.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recsys_lab.sharders.neo.costs import Cost
from recsys_lab.sharders.neo.cuts import Piece, Size

#: Of what the slowest bins cost: a change must save more.
LEAST_GAIN = 1e-4


def repaired(
    pieces: Sequence[Piece], assignment: Sequence[int], costs: Sequence[Cost], room: Sequence[Size], even_out: bool
) -> list[int] | None:
    """`assignment`, changed until every bin has room for its pieces. None where no single change helps. `costs`: of the bins without them.

    A change moves a piece of one bin to another, or exchanges two. First comes the bin that lacks most memory. Of the changes that end its
    lack, it takes the one that leaves the two bins cheapest. Else it takes the one that removes most of it. Then it evens out. The bin with
    most to send or most to look up comes next, as long as the sum of both maxima falls.
    """
    bins = _Bins(pieces, assignment, costs, room)
    most = 4 * (len(pieces) + len(room))
    for _ in range(most):
        lacks = bins.lacks()
        fullest = int(lacks.argmax())
        if lacks[fullest] <= 0:
            break
        if not bins.relieve_memory(fullest):
            return None
    else:
        return None
    if even_out:
        for _ in range(most):
            if not any(bins.relieve_costs(int(bins.used[:, kind].argmax())) for kind in (0, 1)):
                break
    return bins.assignment.tolist()


@dataclass(frozen=True)
class _Changes:
    """A bin's `piece` goes to one of `bins`, and `partner` of that one comes back: [c] each. Partner -1 is none.

    `outgoing`, `incoming`: their weights, as `_Bins.weight` [c, 4].
    """

    piece: np.ndarray
    partner: np.ndarray
    bins: np.ndarray
    outgoing: np.ndarray
    incoming: np.ndarray


class _Bins:
    """[m] bins and [n] pieces as arrays. `weight`, of pieces [n, 4], and `used`, of bins [m, 4]: communication, load, lasting, all."""

    def __init__(self, pieces: Sequence[Piece], assignment: Sequence[int], costs: Sequence[Cost], room: Sequence[Size]):
        self.assignment = np.asarray(assignment, dtype=np.int64)
        each = [(p.cost.communication, p.cost.load, p.size.lasting, p.size.lasting + p.size.passing) for p in pieces]
        self.weight = np.asarray(each, dtype=float).reshape(-1, 4)
        self.room = np.asarray([(size.lasting, size.passing) for size in room], dtype=float)
        self.used = np.zeros((len(room), 4))
        self.used[:, :2] = [(cost.communication, cost.load) for cost in costs]
        np.add.at(self.used, self.assignment, self.weight)

    def lacks(self) -> np.ndarray:
        """Bytes that each bin lacks. None where not above zero."""
        return (self.used[:, 2:] - self.room).max(axis=1)

    def relieve_memory(self, a: int) -> bool:
        """Makes the best change for bin `a`, which lacks memory; False where none helps it without harm to another."""
        changes, after_a, after_b, lack_a, lack_b = self._outcomes(a)
        worst = np.maximum(after_a[:, :2].sum(axis=1), after_b[:, :2].sum(axis=1))
        able = (lack_b <= 0) & (lack_a < self.lacks()[a])
        return self._do_first(a, changes, np.lexsort((worst, np.maximum(lack_a, 0.0))), able)

    def relieve_costs(self, a: int) -> bool:
        """Makes the change for bin `a` after which the slowest look-up and the slowest exchange take least together; False for none."""
        if len(self.room) == 1:
            return False
        changes, after_a, after_b, lack_a, lack_b = self._outcomes(a)
        now = self.used[:, :2].max(axis=0).sum()
        others = np.array([np.delete(self.used[:, :2], [a, b], axis=0).max(axis=0, initial=0.0) for b in range(len(self.room))])
        worst = np.maximum(np.maximum(after_a[:, :2], after_b[:, :2]), others[changes.bins]).sum(axis=1)
        able = (lack_a <= 0) & (lack_b <= 0) & (worst < now * (1 - LEAST_GAIN))
        return self._do_first(a, changes, np.argsort(worst, kind="stable"), able)

    def _outcomes(self, a: int) -> tuple[_Changes, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """All changes, with what bin `a` and the other bin then have [c, 4] and lack [c]."""
        changes = self._changes(a)
        after_a = self.used[a] - changes.outgoing + changes.incoming
        after_b = self.used[changes.bins] + changes.outgoing - changes.incoming
        lack_a = (after_a[:, 2:] - self.room[a]).max(axis=1)
        lack_b = (after_b[:, 2:] - self.room[changes.bins]).max(axis=1)
        return changes, after_a, after_b, lack_a, lack_b

    def _changes(self, a: int) -> _Changes:
        """Every piece of `a` to every other bin, and for every piece of another bin."""
        own, others = np.flatnonzero(self.assignment == a), np.flatnonzero(self.assignment != a)
        bins = np.delete(np.arange(len(self.room)), a)
        piece = np.repeat(own, len(bins) + len(others))
        partner = np.tile(np.concatenate([np.full(len(bins), -1), others]), len(own))
        where = np.tile(np.concatenate([bins, self.assignment[others]]), len(own))
        padded = np.concatenate([self.weight, np.zeros((1, 4))])  # -1 is the last row: nothing
        return _Changes(piece, partner, where, self.weight[piece], padded[partner])

    def _do_first(self, a: int, changes: _Changes, order: np.ndarray, able: np.ndarray) -> bool:
        """Makes the first change in `order` that is `able`; False where there is none."""
        best = order[able[order]][:1]
        if not len(best):
            return False
        which = int(best[0])
        b, moved = int(changes.bins[which]), changes.outgoing[which] - changes.incoming[which]
        self.used[a] -= moved
        self.used[b] += moved
        self.assignment[changes.piece[which]] = b
        if changes.partner[which] >= 0:
            self.assignment[changes.partner[which]] = a
        return True

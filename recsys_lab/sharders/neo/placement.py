"""Pieces to bins (ranks, or hosts) so that the costliest bin costs least: the two heuristics of Neo's section 4.1."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np

#: (costs of the pieces [n], what each bin costs without them [m]) -> the bin of each piece [n]. The same every time.
Heuristic = Callable[[Sequence[float], Sequence[float]], list[int]]


def greedy(costs: Sequence[float], bins: Sequence[float]) -> list[int]:
    """In falling cost, each piece to the bin that costs least by then."""
    heap = [(cost, number) for number, cost in enumerate(bins)]
    heapq.heapify(heap)
    assignment = [0] * len(costs)
    for piece in _falling(costs):
        cost, number = heap[0]
        assignment[piece] = number
        heapq.heapreplace(heap, (cost + costs[piece], number))
    return assignment


def karmarkar_karp(costs: Sequence[float], bins: Sequence[float]) -> list[int]:
    """The largest differencing method (Karmarkar and Karp 1982) for m bins.

    A partition is m sums, falling. At the start each piece is one, with m - 1 empty sets, and so are the bins' own costs. The two
    partitions whose largest and smallest sums differ most become one. The largest sum of one joins the smallest of the other, and so on.
    The difference of the differences remains. This goes on until one partition remains. Then each piece is traced to its set, and that to
    its bin.
    """
    m, order = len(bins), np.argsort(-np.asarray(bins, dtype=float), kind="stable")
    sums = [np.asarray(bins, dtype=float)[order]]
    for cost in costs:
        sums.append(np.zeros(m))
        sums[-1][0] = cost
    merged: dict[int, tuple[int, int, np.ndarray]] = {}  # partition -> the two that it was made of, and how their sums were sorted
    heap = [(float(of[-1] - of[0]), number) for number, of in enumerate(sums)]
    heapq.heapify(heap)
    while len(heap) > 1:
        (_, one), (_, other) = heapq.heappop(heap), heapq.heappop(heap)
        together = sums[one] + sums[other][::-1]
        sorting = np.argsort(-together, kind="stable")
        merged[len(sums)] = one, other, sorting
        sums.append(together[sorting])
        heapq.heappush(heap, (float(sums[-1][-1] - sums[-1][0]), len(sums) - 1))
    where = {heap[0][1]: np.arange(m)}  # partition -> in which set of the last one each of its sets ended
    for number in reversed(merged):
        one, other, sorting = merged[number]
        unsorted = np.empty(m, dtype=np.int64)
        unsorted[sorting] = where.pop(number)
        where[one], where[other] = unsorted, unsorted[::-1]
    bin_of = np.empty(m, dtype=np.int64)
    bin_of[where[0]] = order
    return [int(bin_of[where[piece + 1][0]]) for piece in range(len(costs))]


HEURISTICS: dict[str, Heuristic] = {"greedy": greedy, "karmarkar_karp": karmarkar_karp}


def _falling(costs: Sequence[float]) -> list[int]:
    return sorted(range(len(costs)), key=lambda piece: (-costs[piece], piece))

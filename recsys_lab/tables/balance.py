"""Samples dealt out to ranks so that each has as many, and as much work. A pure function: every rank finds the same."""

from __future__ import annotations

import numpy as np


def dealt(work: np.ndarray, ranks: int) -> np.ndarray:
    """Which rank has each sample.

    From the most work to the least, each rank gets one sample at a time: the rank that has least so far gets the largest. Of equal samples,
    and of equal ranks, the first comes first.

    Args:
        work: of each sample [n], finite.
        ranks: how many.

    Returns:
        int64 [n]. Each rank has n // ranks samples, and each of the first n % ranks one more.
    """
    order, rank_of = np.argsort(-work, kind="stable"), np.empty(len(work), np.int64)
    so_far = np.zeros(ranks)
    for start in range(0, len(work), ranks):
        own = order[start : start + ranks]
        takers = np.argsort(so_far[: len(own)], kind="stable")
        rank_of[own] = takers
        so_far[takers] += work[own]
    return rank_of

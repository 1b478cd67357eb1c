"""Features into balanced groups by where they lie: DMT (Luo et al. 2024, arXiv 2403.00877) section 3.3, second half.

Constrained K-means (Bradley, Bennett and Demiriz 2000) is the package k-means-constrained, which solves each assignment exactly as a
minimum-cost flow. What is divided are tables: features that share one are looked up where it is.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np

from recsys_lab.errors import UserError

#: K-means starts from so many seeds for each bound on the sizes, of which one in ten finds eight planted groups. At most so many bounds are
#: tried.
SEEDS, MOST_BOUNDS = 64, 8
#: Among groupings whose inertia is within this factor of the least, the one whose look-ups are most even counts.
INERTIA_SLACK = 1.05


def strided(items: int, groups: int) -> list[list[int]]:
    """The paper's naive baseline (5.2.3): item i is in group i modulo `groups`."""
    check_count(items, groups)
    return [list(range(group, items, groups)) for group in range(groups)]


def dealt(loads: Sequence[Sequence[float]], groups: int) -> list[list[int]]:
    """Items in rounds of falling load, the heaviest of a round to the lightest group, so that sizes differ by one at most.

    `loads` [F, n]: what each item takes of n things, such as bytes and look-ups. A load is the largest share of any; all settle ties.
    """
    check_count(len(loads), groups)
    items = np.asarray(loads, np.float64)
    items = items / np.maximum(items.sum(axis=0), np.finfo(np.float64).tiny)
    order, filled = np.lexsort((-items.sum(axis=1), -items.max(axis=1))), np.zeros((groups, items.shape[1]))
    members: list[list[int]] = [[] for _ in range(groups)]
    for start in range(0, len(order), groups):
        lightest = np.lexsort((filled.sum(axis=1), filled.max(axis=1)))
        for group, item in zip(lightest, order[start : start + groups]):
            members[group].append(int(item))
            filled[group] += items[item]
    return [sorted(group) for group in members]


def in_groups(
    groups: Sequence[Sequence[int]], towers: int, divide: Callable[[Sequence[int], int], Sequence[Sequence[int]]]
) -> list[list[int]]:
    """Each of `groups` divided apart, by its own share of the towers (section 5.2.3, XLRM). `divide(group, n)`: n groups of positions."""
    counts = shares([len(group) for group in groups], towers)
    return [[group[at] for at in part] for group, count in zip(groups, counts) for part in divide(group, count)]


def shares(sizes: Sequence[int], towers: int) -> list[int]:
    """`towers` over groups of `sizes` in proportion, by largest remainder: one each at least. Raises UserError where they are too few."""
    if not len(sizes) <= towers <= sum(sizes):
        raise UserError("each group needs a tower", where="towers", given=towers, allowed=f"{len(sizes)} to {sum(sizes)}")
    exact = [size * towers / sum(sizes) for size in sizes]
    counts = [max(1, int(share)) for share in exact]
    while sum(counts) != towers:
        step = 1 if sum(counts) < towers else -1
        able = [at for at, count in enumerate(counts) if (count < sizes[at] if step > 0 else count > 1)]
        counts[max(able, key=lambda at: step * (exact[at] - counts[at]))] += step
    return counts


def size_bounds(items: int, groups: int, ratio: float) -> list[tuple[int, int]]:
    """(least, most) items of a group, such that the largest has at most `ratio` times as many as the smallest.

    The evenest bounds come last.

    With `ratio` 1 sizes differ by one where `items` cannot be divided evenly, as in the paper's own example.
    """
    check_count(items, groups)
    if not 1 <= ratio < math.inf:
        raise UserError("out of range", where="size ratio", given=ratio, allowed="1 or more")
    even = (items // groups, -(-items // groups))
    wider = [(least, min(int(ratio * least + 1e-9), items)) for least in range(1, even[0] + 1)]
    wider = [(least, most) for least, most in wider if most >= even[1] and (least, most) != even]
    picks = sorted({round(i) for i in np.linspace(0, len(wider) - 1, min(len(wider), MOST_BOUNDS - 1))}) if wider else []
    return [*(wider[i] for i in picks), even]


def balanced_groups(points: np.ndarray, groups: int, ratio: float = 1.0, loads: Sequence[float] | None = None, seed: int = 0):
    """Items by number, list[list[int]], in `groups` groups of points [F, n] that lie together.

    `ratio`: R of the paper, how many times larger the largest group may be than the smallest. `loads` [F]: bytes looked up a sample.
    K-means finds groupings from `SEEDS` seeds. Of those about as tight as the tightest, the one with the smallest greatest load is taken.
    So balance is never bought with coherence. Groups are in the order of their first items.
    """
    from k_means_constrained import KMeansConstrained  # takes a second: only where a partition is made

    points = np.asarray(points, np.float64)
    weights = np.asarray(loads if loads is not None else np.ones(len(points)), np.float64)
    spreads: dict[tuple[tuple[int, ...], ...], float] = {}
    for least, most in size_bounds(len(points), groups, ratio):
        for start in range(SEEDS):
            means = KMeansConstrained(groups, size_min=least, size_max=most, n_init=1, random_state=seed * SEEDS + start, n_jobs=1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about fewer distinct points than groups
                labels = means.fit_predict(points)
            members = tuple(sorted(tuple(np.flatnonzero(labels == group).tolist()) for group in range(groups)))
            spreads[members] = inertia(points, members)
    limit = min(spreads.values()) * INERTIA_SLACK + 1e-12
    best = min((max(weights[list(g)].sum() for g in members), spread, members) for members, spread in spreads.items() if spread <= limit)
    return [list(group) for group in best[2]]


def inertia(points: np.ndarray, members: Sequence[Sequence[int]]) -> float:
    """The sum of squared distances from the points to the mean of their group."""
    return float(sum(np.square(points[list(g)] - points[list(g)].mean(axis=0)).sum() for g in members))


def check_count(items: int, groups: int) -> None:
    """Raises UserError unless every group can have an item."""
    if not 1 <= groups <= items:
        raise UserError("each tower needs a table", where="towers", given=f"{groups} towers, {items} tables", allowed=f"1 to {items}")

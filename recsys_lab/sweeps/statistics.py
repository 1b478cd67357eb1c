"""Compares two configurations over few seeds.

It has exact rank tests, an estimate with its interval, effect sizes, and the number of seeds needed.

Everything is exact for any number of seeds and any ties, by counting: SciPy's exact tests refuse ties. Its permutation tests take a tenth
of a second each, too long for a table of a hundred. The tests hold these functions to SciPy's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np

#: Beyond this, "how many seeds" is no answer that anyone would act on.
MOST_SEEDS = 1000


@dataclass(frozen=True)
class Estimate:
    """A difference with an interval that holds it with probability `confidence` (0 where one pair gives no interval)."""

    value: float
    low: float
    high: float
    confidence: float


def signed_rank_p(differences: Sequence[float]) -> float:
    """Two-sided p of Wilcoxon's signed-rank test of paired `differences`, exact given their ties. Zeros say nothing and are dropped.

    Under the null hypothesis two configurations do not differ. Then each difference is as likely to be -d as d.
    """
    d = np.asarray(differences, dtype=np.float64)
    d = d[d != 0]
    if not d.size:
        return 1.0
    ranks = _doubled_ranks(np.abs(d))
    return _two_sided(_sums_of_any(ranks), int(ranks[d > 0].sum()))


def rank_sum_p(values: Sequence[float], base: Sequence[float]) -> float:
    """Two-sided p of the Mann-Whitney U test of two independent samples, exact given their ties."""
    ranks = _doubled_ranks(np.array([*values, *base]))
    return _two_sided(_sums_of_some(ranks, len(values)), int(ranks[: len(values)].sum()))


def paired_difference(differences: Sequence[float], level: float) -> Estimate:
    """Hodges and Lehmann's estimate (the median of the means of any two) and its distribution-free interval at 1 - `level`.

    Where so few pairs cannot give that much, the widest interval with what it gives: 1 - 2 / 2^n.
    """
    d = np.asarray(differences, dtype=np.float64)
    i, j = np.triu_indices(len(d))
    return _estimate((d[i] + d[j]) / 2, _signed_ranks(len(d)), level)


def unpaired_difference(values: Sequence[float], base: Sequence[float], level: float) -> Estimate:
    """The median of the differences of every value with every value of `base`, and its distribution-free interval."""
    every = np.subtract.outer(np.asarray(values, np.float64), np.asarray(base, np.float64)).ravel()
    return _estimate(every, _rank_sums(len(values), len(base)), level)


def rank_biserial(differences: Sequence[float]) -> float:
    """Matched-pairs rank-biserial correlation (Kerby, 2014): the share of the ranks that go up minus the share that go down."""
    d = np.asarray(differences, dtype=np.float64)
    d = d[d != 0]
    ranks = _doubled_ranks(np.abs(d))
    return float((ranks * np.sign(d)).sum() / ranks.sum()) if d.size else 0.0


def cliffs_delta(values: Sequence[float], base: Sequence[float]) -> float:
    """Chance that a value exceeds one of `base`, minus that it falls below (Cliff, 1993): 2 U / (n m) - 1."""
    return float(np.sign(np.subtract.outer(np.asarray(values), np.asarray(base))).mean())


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted for all being tested at once (Holm, 1979). The family-wise error is at most the level, whatever their dependence."""
    order = np.argsort(p_values, kind="stable")
    adjusted, highest = [1.0] * len(p_values), 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def flipped_together(differences: np.ndarray) -> list[float]:
    """P of each column of paired `differences` [seeds, tests], corrected for all being tested at once. A seed that a test lacks is 0.

    Westfall and Young's step-down of the largest statistic (1993, algorithm 4.1) over all ways to flip the seeds' signs, every test's
    alike. It is exact where the differences are symmetric under the null hypothesis. The family-wise error is then at most the level. Six
    seeds can show a clear difference among any number of tests, unlike with Bonferroni's or Holm's correction of rank tests. The statistic
    is |sum| / root of the sum of squares, which rises with the paired t. Beyond 13 seeds a drawn 8192 ways.
    """
    seeds, tests = differences.shape
    norms = np.sqrt((differences**2).sum(axis=0))
    scaled = differences / np.where(norms > 0, norms, 1.0)
    flips = _flips(seeds)
    statistic = np.abs(scaled.sum(axis=0))
    order = np.argsort(-statistic, kind="stable")
    flipped = np.abs(flips @ scaled[:, order])
    largest = np.maximum.accumulate(flipped[:, ::-1], axis=1)[:, ::-1]  # over this test and those with a smaller statistic
    stepped = np.maximum.accumulate((largest >= statistic[order] * (1 - 1e-12)).mean(axis=0))
    corrected = np.ones(tests)
    corrected[order] = stepped
    return corrected.tolist()


def _flips(seeds: int) -> np.ndarray:
    """Signs [ways, seeds], the first way all +. The first seed's never flips, since only the sum's size counts."""
    if seeds <= 13:
        ways = np.arange(2 ** (seeds - 1))
        return 1.0 - 2.0 * ((ways[:, None] >> np.arange(seeds)[::-1]) & 1)
    signs = np.random.default_rng(0).choice([-1.0, 1.0], (8192, seeds))
    signs[0] = 1.0
    return signs


def least_p(seeds: int, others: int | None = None) -> float:
    """The smallest p that a test of `seeds` flipped pairs can have.

    With `others` it is that of the rank-sum test of so many against so many.
    """
    return min(1.0, 2 / (2**seeds if others is None else math.comb(seeds + others, seeds)))


@cache
def least_seeds(level: float, paired: bool = True) -> int:
    """The fewest seeds of each configuration whose smallest p is at most `level`."""
    return next(n for n in range(1, MOST_SEEDS) if least_p(n, None if paired else n) <= level)


def seeds_needed(values: Sequence[float], base: Sequence[float], level: float, paired: bool, power: float = 0.8) -> int | None:
    """Seeds of each configuration that would show the difference, at `level` with probability `power`.

    The difference is as large beside its spread as the one seen.

    By the normal approximation of the t test with Guenther's correction for few seeds. Unpaired seeds are divided by 3 / pi, the efficiency
    of rank tests (Lehmann, 1975). Never fewer than `least_seeds`. None where nothing differs, or where no spread can be had from so few.
    """
    x, y = np.asarray(values, np.float64), np.asarray(base, np.float64)
    if (len(x) < 2 or len(y) < 2) or x.mean() == y.mean():
        return None
    spread = np.std(x - y, ddof=1) if paired else np.sqrt((np.var(x, ddof=1) + np.var(y, ddof=1)) / 2)
    least = least_seeds(level, paired)
    if spread <= 1e-12 * abs(x.mean() - y.mean()):
        return least
    effect = abs(x.mean() - y.mean()) / spread
    z_level, z_power = -NormalDist().inv_cdf(level / 2), NormalDist().inv_cdf(power)
    groups, correction = (1, z_level**2 / 2) if paired else (2, z_level**2 / 4)
    seeds = (groups * ((z_level + z_power) / effect) ** 2 + correction) * (1 if paired else math.pi / 3)
    return max(least, math.ceil(min(seeds, MOST_SEEDS + 1)))


def _doubled_ranks(values: np.ndarray) -> np.ndarray:
    """Twice the ranks from 1, ties sharing their mean: integers."""
    ordered = np.sort(values)
    return np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1


@cache
def _signed_ranks(n: int) -> np.ndarray:
    """In how many ways the signed-rank statistic of n untied pairs is 0, 1, ... n (n + 1) / 2."""
    return _sums_of_any(np.arange(1, n + 1))


@cache
def _rank_sums(n: int, m: int) -> np.ndarray:
    """In how many ways Mann-Whitney's U of n and m untied values is 0, 1, ... n m."""
    return _sums_of_some(np.arange(1, n + m + 1), n)[n * (n + 1) // 2 :]


def _sums_of_any(ranks: np.ndarray) -> np.ndarray:
    """In how many ways each sum, 0 to all, comes from any subset of `ranks`: the signed-rank statistic's null distribution."""
    counts = np.zeros(ranks.sum() + 1)
    counts[0] = 1
    for rank in ranks:
        counts[rank:] += counts[:-rank].copy()
    return counts


def _sums_of_some(ranks: np.ndarray, some: int) -> np.ndarray:
    """In how many ways each sum comes from `some` of `ranks`: the rank-sum statistic's null distribution."""
    counts = np.zeros((some + 1, np.sort(ranks)[len(ranks) - some :].sum() + 1))
    counts[0, 0] = 1
    for rank in ranks:
        counts[1:, rank:] += counts[:-1, : counts.shape[1] - rank].copy()
    return counts[some]


def _two_sided(counts: np.ndarray, statistic: int) -> float:
    below, above = counts[: statistic + 1].sum(), counts[statistic:].sum()
    return float(min(1.0, 2 * min(below, above) / counts.sum()))


def _estimate(values: np.ndarray, counts: np.ndarray, level: float) -> Estimate:
    """The median of `values` [M], and the interval between the k-th from below and from above; `counts` [M + 1] of the statistic."""
    values = np.sort(values)
    tail = np.cumsum(counts) / counts.sum()
    k = max(1, int(np.searchsorted(tail, level / 2 * (1 + 1e-12), side="right")))
    return Estimate(float(np.median(values)), float(values[k - 1]), float(values[-k]), max(0.0, float(1 - 2 * tail[k - 1])))

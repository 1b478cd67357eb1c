"""Every row of an ablation table against its baseline. There is one exact test a figure, corrected for all of the table's tests at once.

Rows that share their seeds with the baseline: the seeds' signs are flipped for all tests together. The others: Mann-Whitney's U, with
Holm's correction; each kind gets its share of the level by its number of tests. A test that could show nothing, however large the
difference, is not made. That follows from the number of seeds alone, before any figure is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recsys_lab.sweeps import statistics
from recsys_lab.sweeps.figures import Figure
from recsys_lab.sweeps.statistics import Estimate

BETTER, WORSE, NO_EVIDENCE, TOO_FEW, SAME = "better", "worse", "no evidence", "too few", "same"
Key = tuple[int, str]
#: Differences of quality up to this, in every seed, are of the order of sums, whatever a test says of them.
ROUNDING = 1e-6


def equal_within_rounding(values: Sequence[float], within: float = ROUNDING) -> bool:
    """Whether they are apart by no more than `within` times the largest."""
    return max(values) - min(values) <= within * max(map(abs, values))


@dataclass(frozen=True)
class Side:
    """One row's values of a figure by seed."""

    by_seed: Mapping[str, float]
    figure: Figure

    def of(self, seeds: Sequence[str]) -> list[float]:
        """Ratios are compared by their logarithms."""
        return [math.log(self.by_seed[seed]) if self.figure.against == "ratio" else self.by_seed[seed] for seed in seeds]


@dataclass(frozen=True)
class Comparison:
    """A row against its baseline in one figure.

    `estimate`: difference or ratio with its interval, of the paired seeds (`pairs`), or of all where too few are shared (0 pairs). Its
    `confidence` is 0 where so few seeds carry no interval.
    Effect sizes, -1 to 1, are positive where the row is better; `rank_biserial` is of pairs. `p_signed_rank` (of pairs) and
    `p_rank_sum` are each test's own; `p_holm` corrects the first, or without pairs the second, over the table. `p`, corrected too,
    decides; None where so few seeds cannot show anything. `least_seeds`: from so many on they can.
    `seeds_needed`: to show such a change; None also where nothing was tested.
    """

    figure: Figure
    pairs: int
    estimate: Estimate
    rank_biserial: float | None
    cliffs_delta: float
    p_signed_rank: float | None
    p_rank_sum: float
    p_holm: float
    p: float | None
    verdict: str
    least_seeds: int
    seeds_needed: int | None


def compare_all(sides: Mapping[Key, Side], bases: Sequence[int | None], level: float) -> dict[Key, Comparison]:
    """All `sides` (by row and figure) against those of the rows in `bases`. The chance of any false claim is at most `level`."""
    contrasts: dict[Key, tuple[Side, Side]] = {}
    for (row, name), side in sides.items():
        base = bases[row]
        if base is not None and base != row and side.by_seed and sides[base, name].by_seed and _positive(side, sides[base, name]):
            contrasts[row, name] = (side, sides[base, name])
    pairs = {key: key_pairs for key, two in contrasts.items() if (key_pairs := paired(*two))}
    share_paired = level * len(pairs) / max(1, len(contrasts))
    share_unpaired = level - share_paired
    corrected = _corrected_pairs(pairs, share_paired) | _corrected_unpaired(contrasts.keys() - pairs.keys(), contrasts, share_unpaired)
    comparisons = {}
    for key, (side, base_side) in contrasts.items():
        share = share_paired if key in pairs else share_unpaired
        comparisons[key] = _compare(side, base_side, corrected.get(key), share, len(contrasts), level)
    holm = statistics.holm([c.p_rank_sum if c.p_signed_rank is None else c.p_signed_rank for c in comparisons.values()])
    return {key: replace(comparison, p_holm=p) for (key, comparison), p in zip(comparisons.items(), holm)}


def _positive(*sides: Side) -> bool:
    return all(side.figure.against != "ratio" or min(side.by_seed.values()) > 0 for side in sides)


def paired(side: Side, base: Side) -> dict[str, float]:
    """The differences by shared seed.

    There are none where fewer than half of either's seeds are shared: the test should not rest on a few.
    """
    shared = [seed for seed in side.by_seed if seed in base.by_seed]
    if 2 * len(shared) < max(len(side.by_seed), len(base.by_seed)):
        return {}
    return {seed: a - b for seed, a, b in zip(shared, side.of(shared), base.of(shared))}


def _corrected_pairs(pairs: Mapping[Key, Mapping[str, float]], level: float) -> dict[Key, float]:
    """p of the paired tests that can show something at `level`."""
    able = [key for key, differences in pairs.items() if statistics.least_p(len(differences)) <= level]
    if not able:
        return {}
    seeds = list(dict.fromkeys(seed for key in able for seed in pairs[key]))
    table = np.array([[pairs[key].get(seed, 0.0) for key in able] for seed in seeds])
    return dict(zip(able, statistics.flipped_together(table)))


def _corrected_unpaired(keys: Iterable[Key], contrasts: Mapping[Key, tuple[Side, Side]], level: float) -> dict[Key, float]:
    """p of the unpaired tests that can show something among so many at `level`."""
    sizes = {key: (len(contrasts[key][0].by_seed), len(contrasts[key][1].by_seed)) for key in sorted(keys)}
    able = [key for key, size in sizes.items() if statistics.least_p(*size) * len(sizes) <= level]
    values = [[side.of(list(side.by_seed)) for side in contrasts[key]] for key in able]
    return dict(zip(able, statistics.holm([statistics.rank_sum_p(x, y) for x, y in values])))


def _compare(side: Side, base: Side, corrected: float | None, share: float, tests: int, level: float) -> Comparison:
    """`corrected`: p among the tests of its kind, which have `share` of the `level`; None where it was not asked."""
    by_seed, figure = paired(side, base), side.figure
    x, y, differences = side.of(list(side.by_seed)), base.of(list(base.by_seed)), list(by_seed.values())
    estimate = statistics.paired_difference(differences, level) if differences else statistics.unpaired_difference(x, y, level)
    if estimate.confidence < 1 - level:  # so few seeds carry no interval
        estimate = Estimate(estimate.value, estimate.value, estimate.value, 0.0)
    if figure.against == "ratio":
        estimate = Estimate(math.exp(estimate.value), math.exp(estimate.low), math.exp(estimate.high), estimate.confidence)
    rounding = ROUNDING if figure.against == "difference" else 0.0
    sign = 1 if figure.higher_is_better else -1
    delta = sign * statistics.cliffs_delta(x, y)
    p = None if corrected is None else min(1.0, corrected * level / share)
    if differences:
        least, direction = statistics.least_seeds(share), sign * sum(differences)
        seeds = statistics.seeds_needed(side.of(list(by_seed)), base.of(list(by_seed)), level / tests, True)
    else:
        least, direction = statistics.least_seeds(level / tests, False), delta
        seeds = statistics.seeds_needed(x, y, level / tests, False)
    return Comparison(
        figure=figure,
        pairs=len(differences),
        estimate=estimate,
        rank_biserial=sign * statistics.rank_biserial(differences) if differences else None,
        cliffs_delta=delta,
        p_signed_rank=statistics.signed_rank_p(differences) if differences else None,
        p_rank_sum=statistics.rank_sum_p(x, y),
        p_holm=1.0,
        p=p,
        verdict=_verdict(p, level, direction, bool(differences) and max(map(abs, differences)) <= rounding),
        least_seeds=least,
        seeds_needed=None if corrected is None else seeds,
    )


def _verdict(p: float | None, level: float, direction: float, same: bool) -> str:
    if same:
        return SAME
    if p is None:
        return TOO_FEW
    return NO_EVIDENCE if p > level else BETTER if direction > 0 else WORSE

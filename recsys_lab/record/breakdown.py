"""The quality of a split in parts: by what was predicted, by the values of a column, by groups such as users.

Every figure depends on the set of rows alone, to the last bit, not on their order or on the ranks that had them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from recsys_lab.record.metrics import quality_of_part

#: Parts of a reliability diagram, with about as many examples each.
BINS = 10
#: Values of a column with a line of their own.
MOST_VALUES = 1000


@dataclass(frozen=True)
class Bin:
    """Examples with about the same prediction: how many, how many of them are positive, and the mean prediction."""

    examples: int
    positives: int
    predicted: float


@dataclass(frozen=True)
class PartQuality:
    """As metrics.quality_of_part."""

    auc: float | None
    ne: float | None
    log_loss: float
    calibration: float | None
    examples: int


@dataclass(frozen=True)
class OfValue:
    value: str
    quality: PartQuality


@dataclass(frozen=True)
class Others:
    """Of so many rare values together."""

    values: int
    quality: PartQuality


@dataclass(frozen=True)
class ByColumn:
    """The quality of each value of a column, the most frequent first. `others`: those with fewer than `min_rows` rows, and those beyond
    the first MOST_VALUES."""

    min_rows: int
    values: Sequence[OfValue]
    others: Others | None


@dataclass(frozen=True)
class Grouped:
    """GAUC by `column`: of `groups` with both classes and `examples` rows. None where no group has both. The others are left out."""

    column: str
    gauc: float | None
    groups: int
    examples: int
    one_class_groups: int
    one_class_examples: int


@dataclass(frozen=True)
class Breakdown:
    """Of one split. `by`: of each column that was asked for."""

    reliability: Sequence[Bin]
    by: Mapping[str, ByColumn]
    grouped: Grouped | None


def bins_of(examples: np.ndarray, positives: np.ndarray, predicted: np.ndarray) -> tuple[Bin, ...]:
    """Neighbouring cells of a histogram over predictions, int64 [cells] each, put together into at most BINS parts of about equal size.

    `predicted`: the sum of the predictions in each cell. A cell is never divided.
    """
    filled = np.flatnonzero(examples)
    counts = examples[filled]
    middles = np.cumsum(counts) - counts / 2
    part = np.minimum((middles * BINS / counts.sum()).astype(np.int64), BINS - 1)
    starts = np.flatnonzero(np.diff(part, prepend=-1))
    sums = [np.add.reduceat(cells[filled], starts) for cells in (examples, positives, predicted)]
    return tuple(Bin(int(n), int(clicks), float(total / n)) for n, clicks, total in zip(*sums))


def by_values(logits: np.ndarray, labels: np.ndarray, codes: np.ndarray, names: Sequence[str], min_rows: int) -> ByColumn:
    """Quality by the values of a column. Shapes [N]; row i has the value `names[codes[i]]`."""
    counts = np.bincount(codes, minlength=len(names))
    frequent = np.argsort(-counts, kind="stable")[:MOST_VALUES]
    own = frequent[counts[frequent] >= max(min_rows, 1)]
    order, ends = np.argsort(codes, kind="stable"), np.cumsum(counts)
    rows = {code: order[ends[code] - counts[code] : ends[code]] for code in own.tolist()}
    rest = ~np.isin(codes, own)
    others = Others(int(np.count_nonzero(counts)) - len(own), _part(logits, labels, rest)) if rest.any() else None
    return ByColumn(min_rows, tuple(OfValue(str(names[code]), _part(logits, labels, of)) for code, of in rows.items()), others)


def grouped_auc(logits: np.ndarray, labels: np.ndarray, groups: np.ndarray, column: str) -> Grouped:
    """GAUC: the mean of the groups' AUC, each weighted by its examples; groups with one class are left out.

    That is sum(n_g AUC_g) / sum(n_g), with users for groups and impressions for examples (Zhu et al. 2017, "Optimized Cost per Click in
    Taobao Display Advertising", section 4; Zhou et al. 2018, "Deep Interest Network", equation 7). Shapes [N].
    """
    order = np.lexsort((logits, groups))
    z, y, g = logits[order], labels[order] == 1, groups[order]
    new_group = np.diff(g, prepend=g[0] - 1) != 0
    new_score = new_group | (np.diff(z, prepend=z[0]) != 0)
    starts, ties = np.flatnonzero(new_group), np.flatnonzero(new_score)
    sizes = np.diff(starts, append=len(g))
    position = np.arange(len(g)) - np.repeat(starts, sizes)
    first = position[ties]
    # twice a row's rank in its group, from 1, of equal scores the mean: whole numbers until the last division
    twice_rank = np.repeat(2 * first + np.diff(ties, append=len(g)) + 1, np.diff(ties, append=len(g)))
    positives = np.add.reduceat(y.astype(np.int64), starts)
    twice_u = np.add.reduceat(np.where(y, twice_rank, 0), starts) - positives * (positives + 1)
    both = (positives > 0) & (positives < sizes)
    auc = twice_u[both] / (2 * positives[both] * (sizes - positives)[both])
    examples = int(sizes[both].sum())
    return Grouped(
        column=column,
        gauc=float((sizes[both] * auc).sum() / examples) if examples else None,
        groups=int(both.sum()),
        examples=examples,
        one_class_groups=int((~both).sum()),
        one_class_examples=int(sizes[~both].sum()),
    )


def _part(logits: np.ndarray, labels: np.ndarray, rows: np.ndarray) -> PartQuality:
    return PartQuality(**quality_of_part(logits[rows], labels[rows]))  # type: ignore[arg-type]  # by the names of QUALITY

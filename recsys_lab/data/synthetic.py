"""Synthetic clicks with a planted truth, so that the best reachable AUC is known without any download.

The true logit of a row is a sum, and its label a Bernoulli draw from it.

- Every id has an effect, normal for frequent ids and shrinking for rare ones, weighted by feature.
- A few pairs of features have the dot product of two latent vectors, one for each id. Only interactions can express these effects.
- Dense values have effects: linear for all, a bend for some.

Every value is a pure function of (seed_of_truth, split, row, column).

With `groups`, every feature is in one of so many groups. Groups stand for the parts of a catalogue, a user or a context that act together.
Each pair of features of one group interacts, and no others do. An id has one latent value, so within a group the logit is a factorization
machine of rank one. A model that multiplies embeddings does best to turn a group's embeddings into one direction. That is what DMT's tower
partitioner looks for.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path

import numpy as np

from recsys_lab.base.ranges import Count, DenseFeatures, Length, RowCount, RowCountFromZero, Seed
from recsys_lab.data import hashing
from recsys_lab.data.cache import cache_folder, digest, prepared
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.generated import Exponent, Shape, make_features
from recsys_lab.data.protocol import Feature, Rows
from recsys_lab.errors import UserError
from recsys_lab.units import counted

#: The best AUC is computed exactly on the split's first rows, up to this many.
BEST_AUC_ROWS = 200_000
#: And on fewer where a sample has so many look-ups and dense values that these are reached before.
BEST_AUC_VALUES = 2**26
_BLOCK_ROWS = 8_192
_BLOCK_VALUES = 2**22

_BIAS = -1.3
_FREQUENT_RANKS = 30  # ids beyond this rank have smaller and smaller effects
_PAIRS, _LATENT = 4, 1
_DENSE_MEAN, _DENSE_SPREAD = 1.45, 1.0


@dataclass(frozen=True)
class Parts:
    """Standard deviations of the logit's three parts."""

    ids: float
    pairs: float
    dense: float


#: So that the best AUC is about 0.83; with groups, interactions say most.
_PARTS, _GROUPED_PARTS = Parts(1.1, 0.8, 1.0), Parts(0.4, 2.0, 0.5)


@dataclass(frozen=True)
class Truth:
    """The planted click probability of rows of `shape`. `groups`: features by number. Empty for a few pairs instead."""

    shape: Shape
    groups: tuple[tuple[int, ...], ...] = ()

    @property
    def parts(self) -> Parts:
        return _GROUPED_PARTS if self.groups else _PARTS

    def probability(self, ranks: np.ndarray, dense: np.ndarray | None) -> np.ndarray:
        """float64 [B] from ranks [B, L] and dense values [B, K]."""
        fade = _FREQUENT_RANKS / np.maximum(ranks + 1.0, _FREQUENT_RANKS)
        logit = _BIAS + self._id_effects(ranks, fade) + self._pair_effects(ranks, fade)
        if dense is not None:
            logit += self._dense_effects(dense.astype(np.float64))
        return 1.0 / (1.0 + np.exp(-logit))

    @cached_property
    def _feature_weights(self) -> np.ndarray:
        """[F], squares add up to 1: some features say more than others."""
        draws = hashing.uniform(hashing.bits(hashing.key("feature weight", self.shape.seed), np.arange(len(self.shape.features))))
        weights = 0.3 + draws
        return weights / np.sqrt((weights**2).sum())

    @cached_property
    def _of_look_ups(self) -> tuple[np.ndarray, np.ndarray]:
        """[L] each: the stream of a look-up's effects, and the weight of its feature."""
        shape = self.shape
        streams = np.array([hashing.key("id effect", shape.seed, f) for f in range(len(shape.features))], np.uint64)
        return streams[shape.feature_of], (self._feature_weights / np.sqrt(shape.lengths))[shape.feature_of]

    def _id_effects(self, ranks: np.ndarray, fade: np.ndarray) -> np.ndarray:
        streams, weights = self._of_look_ups
        effects = hashing.normal(hashing.bits(streams, ranks))
        effects *= fade
        effects *= weights
        return self.parts.ids * effects.sum(axis=1)

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Features that interact: all within a group.

        Without groups each feature is in at most one pair. Pairs are drawn among the smaller tables of more than two rows, whose ids recur
        often.
        """
        if self.groups:
            return [pair for group in self.groups for pair in combinations(group, 2)]
        by_rows = sorted((i for i, f in enumerate(self.shape.features) if f.rows > 2), key=lambda i: (self.shape.features[i].rows, i))
        several = sorted(by_rows[: max(2 * _PAIRS, len(by_rows) // 2)])
        draws = hashing.bits(hashing.key("pairs", self.shape.seed), np.array(several, np.int64))
        drawn = [several[i] for i in np.argsort(draws, kind="stable")]
        return list(zip(drawn[0::2], drawn[1::2]))[:_PAIRS]

    def _pair_effects(self, ranks: np.ndarray, fade: np.ndarray) -> np.ndarray:
        total = np.zeros(len(ranks))
        for dim in range(_LATENT if self.pairs else 0):
            latent = self._latents(dim, ranks, fade)
            for left, right in self.pairs:
                total += latent[left] * latent[right]
        return self.parts.pairs * total / np.sqrt(max(1, len(self.pairs) * _LATENT))

    @cached_property
    def _paired(self) -> tuple[list[int], np.ndarray, list[np.ndarray]]:
        """The features that are in a pair, the places of their look-ups among the L, and by component of latent vectors their streams."""
        shape, features = self.shape, sorted({feature for pair in self.pairs for feature in pair})
        columns = np.concatenate([np.arange(shape.lengths[f]) + shape.first_look_up[f] for f in features])
        streams = [np.array([hashing.key("latent", shape.seed, f, dim) for f in features], np.uint64) for dim in range(_LATENT)]
        return features, columns, [np.repeat(of, shape.lengths[features]) for of in streams]

    def _latents(self, dim: int, ranks: np.ndarray, fade: np.ndarray) -> dict[int, np.ndarray]:
        """[B] by feature of a pair: one component of its latent vector, the scaled sum over its look-ups. All in one pass."""
        shape, (features, columns, streams) = self.shape, self._paired
        values = hashing.normal(hashing.bits(streams[dim], ranks[:, columns])) * fade[:, columns]
        ends = np.cumsum(shape.lengths[features])
        of_feature = dict(zip(features, np.split(values, ends[:-1], axis=1)))
        return {f: own.sum(axis=1) / np.sqrt(shape.lengths[f]) for f, own in of_feature.items()}

    @cached_property
    def _of_dense(self) -> tuple[np.ndarray, np.ndarray, float]:
        """[K] slopes and bends, and the scale of their sum."""
        columns = np.arange(self.shape.dense_features)
        slopes = hashing.normal(hashing.bits(hashing.key("slope", self.shape.seed), columns))
        bends = 0.5 * hashing.normal(hashing.bits(hashing.key("bend", self.shape.seed), columns)) * (columns % 3 == 0)
        return slopes, bends, self.parts.dense / np.sqrt((slopes**2 + 2 * bends**2).sum())

    def _dense_effects(self, dense: np.ndarray) -> np.ndarray:
        slopes, bends, scale = self._of_dense
        t = np.clip((dense - _DENSE_MEAN) / _DENSE_SPREAD, -3.0, 3.0)
        return scale * (t * slopes + (t * t - 1.0) * bends).sum(axis=1)


@dataclass(frozen=True)
class SyntheticSplit:
    """Rows of one split."""

    truth: Truth
    name: str
    rows: int

    def read(self, rows: np.ndarray) -> Rows:
        ranks, dense, probability = self._draw(rows)
        labels = (self.truth.shape.label_draws(self.name, rows) < probability).astype(np.float32)
        return Rows(labels, dense, self.truth.shape.id_lengths(len(rows)), self.truth.shape.ids(ranks))

    def probability(self, rows: np.ndarray) -> np.ndarray:
        """The true click probability, float64 [B]."""
        return self._draw(rows)[2]

    def _draw(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        ranks = self.truth.shape.ranks(self.name, rows)
        dense = self.truth.shape.dense(self.name, rows)
        return ranks, dense, self.truth.probability(ranks, dense)


def best_auc(split: SyntheticSplit, rows: int) -> float:
    """The exact AUC of the true probability against the drawn labels of the split's first `rows` rows."""
    scores, labels = np.empty(rows), np.empty(rows, bool)
    block = max(1, min(_BLOCK_ROWS, _BLOCK_VALUES // split.truth.shape.values))
    for first in range(0, rows, block):
        these = np.arange(first, min(first + block, rows), dtype=np.int64)
        scores[these] = split.probability(these)
        labels[these] = split.truth.shape.label_draws(split.name, these) < scores[these]
    return exact_auc(scores, labels)


def exact_auc(scores: np.ndarray, labels: np.ndarray) -> float:
    """Of `scores` [N] against `labels`, bool [N]; nan where there is one class only."""
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return float("nan")
    return float((ranks(scores)[labels].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def ranks(scores: np.ndarray) -> np.ndarray:
    """From 1. Equal scores share the mean of theirs."""
    ordered = np.sort(scores)
    return (np.searchsorted(ordered, scores, "left") + np.searchsorted(ordered, scores, "right") + 1) / 2


def open_synthetic(
    wanted: tuple[Feature, ...] | None = None,
    *,
    rows_train: RowCount,
    rows_validation: RowCount,
    rows_test: RowCountFromZero,
    rows_per_table: list[RowCount],
    look_ups: list[Length] | None,
    dense_features: DenseFeatures,
    exponent: Exponent,
    seed_of_truth: Seed,
    cache: str | None,
    groups: Count | None = None,
) -> OpenDataSet:
    """The features that are `wanted`, else one a table. `seed_of_truth` fixes the truth and every draw: another seed, another data set.
    `groups`: how many groups of features interact within themselves only; None: a few pairs interact.

    The best AUC of each split is kept in the cache. Where the cache cannot be written, it is computed each time.
    """
    sizes = {"train": rows_train, "validation": rows_validation, "test": rows_test}
    shape = Shape(make_features(wanted, rows_per_table, look_ups), dense_features, float(exponent), seed_of_truth)
    truth = Truth(shape, draw_groups(shape, groups))
    splits = {name: SyntheticSplit(truth, name, rows) for name, rows in sizes.items() if rows}
    fingerprint = digest(
        ["synthetic", sizes, [asdict(f) for f in shape.features], dense_features, float(exponent), seed_of_truth, _constants(truth)]
    )
    best = _best_aucs(splits, fingerprint, cache_folder(cache))
    notes = ["synthetic clicks with a planted truth"]
    planted = tuple(tuple(shape.features[f].name for f in group) for group in truth.groups)
    if planted:
        notes.append(f"{len(planted)} planted groups of features: {'; '.join(' '.join(group) for group in planted)}")
    for name, auc in best.items():
        if name == "train":  # a model has seen these labels, and may pass it by learning them by heart
            continue
        judged = rows_judged(splits[name])
        part = f" (its first {judged:,} rows)" if splits[name].rows > judged else ""
        notes.append(f"best reachable AUC on {name}: {auc:.4f}{part}")
    return OpenDataSet(
        shape.features,
        dense_features,
        splits,
        shape.access(),
        fingerprint,
        tuple(notes),
        best,
        hottest_by_law=shape.hottest,
        groups=planted,
    )


def draw_groups(shape: Shape, groups: int | None) -> tuple[tuple[int, ...], ...]:
    """Features by number, drawn into `groups` groups of two or more whose sizes differ by one at most. UserError if there are too few."""
    if groups is None:
        return ()
    count = len(shape.features)
    if not 1 <= groups <= count // 2:
        allowed = f"1 to {count // 2} for {count} features, or null" if count > 1 else f"null, of {counted(count, 'feature')}"
        raise UserError("groups of two features or more", where="data.groups", given=groups, allowed=allowed)
    draws = hashing.bits(hashing.key("groups", shape.seed), np.arange(count))
    drawn = np.argsort(draws, kind="stable")
    return tuple(tuple(sorted(drawn[group::groups].tolist())) for group in range(groups))


def rows_judged(split: SyntheticSplit) -> int:
    """Of its first rows, as many as the best AUC is computed on."""
    return min(split.rows, BEST_AUC_ROWS, max(1, BEST_AUC_VALUES // split.truth.shape.values))


def _best_aucs(splits: dict[str, SyntheticSplit], fingerprint: str, cache: Path) -> dict[str, float]:
    def computed() -> dict[str, float]:
        best = {name: best_auc(split, rows_judged(split)) for name, split in splits.items()}
        return {name: auc for name, auc in best.items() if not np.isnan(auc)}  # no AUC where a split has one class only

    try:
        return prepared(cache, "best_auc", fingerprint, lambda _: {"best": computed()})[1]["best"]
    except UserError:  # the cache cannot be written
        return computed()


def _constants(truth: Truth) -> list:
    parts = truth.parts
    known = [parts.ids, parts.pairs, parts.dense, _BIAS, _FREQUENT_RANKS, _PAIRS, _LATENT, _DENSE_MEAN, _DENSE_SPREAD]
    return [*known, truth.groups] if truth.groups else known

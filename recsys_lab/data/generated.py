"""Generated categorical ids and dense values in Criteo's shape. Any row of any split alone, for tables of any size.

A look-up's rank in its table follows the continuous power law of `power_law_access`: P(rank k) is proportional to the integral of
x ** -exponent over [k, k + 1); or the feature's own law. An affine bijection then spreads the ranks over the table's rows, as hashed
ids are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Annotated

import numpy as np
from annotated_types import Interval
from pydantic import Strict

from recsys_lab.data import hashing
from recsys_lab.data.protocol import Feature
from recsys_lab.errors import UserError
from recsys_lab.tables import AccessStatistics, TableAccess, power_law_access

MOST_ROWS = 2**40
#: Of all features of a sample that is generated.
MOST_LOOK_UPS = 2**16
Exponent = Annotated[float, Strict(), Interval(ge=0, le=10)]  # of a power law; 0: uniform
_GOLDEN_RATIO = 0.6180339887498949


@dataclass(frozen=True)
class Shape:
    """What every row looks like. `exponent` 0 means uniform ids. L = all look-ups of a sample, feature after feature."""

    features: tuple[Feature, ...]
    dense_features: int
    exponent: float
    seed: int

    @cached_property
    def lengths(self) -> np.ndarray:
        """[F] look-ups of each feature."""
        return np.array([_whole(f.mean_length) for f in self.features], np.int64)

    @property
    def values(self) -> int:
        """Look-ups and dense values of a sample."""
        return len(self.feature_of) + self.dense_features

    @cached_property
    def first_look_up(self) -> np.ndarray:
        """[F] where the feature's look-ups begin among the L."""
        return np.concatenate([[0], np.cumsum(self.lengths)[:-1]])

    @cached_property
    def feature_of(self) -> np.ndarray:
        """[L] the feature of each look-up."""
        return np.repeat(np.arange(len(self.features)), self.lengths)

    @cached_property
    def table_rows(self) -> np.ndarray:
        """[L] rows of the table of each look-up."""
        return np.array([f.rows for f in self.features], np.int64)[self.feature_of]

    @cached_property
    def _spread(self) -> tuple[np.ndarray, np.ndarray]:
        """[L] factor and shift of the affine bijection rank -> id of each look-up's table."""
        factors, shifts = np.array([self._affine(f) for f in self.features], np.int64).reshape(-1, 2).T
        return factors[self.feature_of], shifts[self.feature_of]

    def _affine(self, feature: Feature) -> tuple[int, int]:
        """Of the feature's table, which it may share."""
        first = [f.table_name for f in self.features].index(feature.table_name)
        return _affine(feature.rows, hashing.key("spread", self.seed, first))

    @cached_property
    def _stretch(self) -> np.ndarray:
        """[L] by which the law of each look-up's table stretches a uniform number."""
        edge = (self.table_rows + 1).astype(np.float64)
        return np.log(edge) if self.exponent == 1.0 else edge ** (1.0 - self.exponent) - 1.0

    def ranks(self, split: str, rows: np.ndarray) -> np.ndarray:
        """int64 [B, L]: 0 is the table's most frequent id."""
        u = hashing.uniform(hashing.bits(hashing.key("ids", self.seed, split), self._counter(rows, len(self.feature_of))))
        if self.exponent == 1.0:
            x = np.exp(u * self._stretch)
        else:
            x = (1.0 + u * self._stretch) ** (1.0 / (1.0 - self.exponent))
        ranks = np.clip(x.astype(np.int64) - 1, 0, self.table_rows - 1)
        for feature, first, length in zip(self.features, self.first_look_up, self.lengths):
            if feature.law is not None:
                these = slice(first, first + length)
                ranks[:, these] = feature.law.scaled(feature.rows).ranks(u[:, these])
        return ranks

    def ids(self, ranks: np.ndarray) -> np.ndarray:
        """int64 [sum of lengths * B] in `Rows` order, from ranks [B, L]."""
        factor, shift = self._spread
        spread = (ranks * factor + shift) % self.table_rows
        if len(self.features) == len(self.feature_of):
            return spread.T.ravel()
        return np.concatenate([spread[:, a : a + n].ravel() for a, n in zip(self.first_look_up, self.lengths)])

    def id_lengths(self, count: int) -> np.ndarray:
        """int32 [F, B]."""
        return np.repeat(self.lengths.astype(np.int32)[:, None], count, axis=1)

    def dense(self, split: str, rows: np.ndarray) -> np.ndarray | None:
        """float32 [B, K]: logs of counts plus one, as from the criteo reader. None when K is 0."""
        if not self.dense_features:
            return None
        z = hashing.normal(hashing.bits(hashing.key("dense", self.seed, split), self._counter(rows, self.dense_features)))
        return np.log1p(np.floor(np.exp(1.5 * z + 1.0))).astype(np.float32)

    def label_draws(self, split: str, rows: np.ndarray) -> np.ndarray:
        """float64 [B] in [0, 1)."""
        return hashing.uniform(hashing.bits(hashing.key("label", self.seed, split), rows))

    def access(self) -> AccessStatistics:
        """Features that share a table follow one law, so their look-ups add up."""
        lengths: dict[str, float] = {}
        for feature in self.features:
            lengths[feature.table_name] = lengths.get(feature.table_name, 0) + _exact(feature.mean_length)
        readers = {feature.table_name: feature for feature in reversed(self.features)}
        return AccessStatistics({table: self._table_access(readers[table], length) for table, length in lengths.items()})

    def _table_access(self, feature: Feature, length: float) -> TableAccess:
        if feature.law is not None:
            return feature.law.access(feature.table_name, feature.rows, length)
        return power_law_access(feature.table_name, feature.rows, length, self.exponent)

    def hottest(self, table: str, rows: int) -> np.ndarray:
        """int64 [rows]: the ids of ranks 0, 1, ... of `table`."""
        feature = next(f for f in self.features if f.table_name == table)
        factor, shift = self._affine(feature)
        return (np.arange(min(rows, feature.rows), dtype=np.int64) * factor + shift) % feature.rows

    @staticmethod
    def _counter(rows: np.ndarray, columns: int) -> np.ndarray:
        return rows.astype(np.int64)[:, None] * columns + np.arange(columns)


def make_features(wanted: tuple[Feature, ...] | None, rows_per_table: list[int], look_ups: list[int] | None) -> tuple[Feature, ...]:
    """The features that the model wants, else C1, C2, ... with the configured rows and look-ups. UserError for impossible numbers."""
    if wanted is None:
        look_ups = list(look_ups) if look_ups is not None else [1] * len(rows_per_table)
        if len(look_ups) != len(rows_per_table):
            raise UserError(
                "one number a table is needed", where="data.look_ups", given=len(look_ups), allowed=f"{len(rows_per_table)} numbers"
            )
        wanted = tuple(Feature(f"C{i}", rows, float(n)) for i, (rows, n) in enumerate(zip(rows_per_table, look_ups), 1))
    if (total := sum(feature.mean_length for feature in wanted)) > MOST_LOOK_UPS:
        raise UserError(
            "too many look-ups to generate", where="data.look_ups", given=f"{total:,.0f} a sample", allowed=f"{MOST_LOOK_UPS:,}"
        )
    for feature in wanted:
        if not 1 <= feature.rows <= MOST_ROWS:
            raise UserError("bad number of rows", where=f"table of {feature.name}", given=feature.rows, allowed=f"1 to {MOST_ROWS}")
        if not feature.mean_length > 0:
            raise UserError("bad number of look-ups", where=f"feature {feature.name}", given=feature.mean_length, allowed="more than 0")
    return wanted


def rounded_note(features: tuple[Feature, ...]) -> tuple[str, ...]:
    """What is to be said where samples cannot have the mean number of ids."""
    rounded = [feature for feature in features if feature.mean_length != _whole(feature.mean_length)]
    if not rounded:
        return ()
    first = rounded[0]
    each = f"such as {first.name}, {_whole(first.mean_length)} instead of {first.mean_length:g}"
    return (f"samples that are drawn have whole numbers of ids: {len(rounded)} features are rounded, {each}; plans count the exact means",)


def _whole(mean_length: float) -> int:
    """Of a sample that is drawn."""
    return max(1, round(mean_length))


def _exact(mean_length: float) -> float:
    """As an int where it is whole."""
    return int(mean_length) if mean_length == int(mean_length) else mean_length


def _affine(rows: int, stream: np.uint64) -> tuple[int, int]:
    """A factor prime to `rows`, near rows times the golden ratio, and a shift.

    For giant tables it is smaller, as rank x factor must fit 63 bits.
    """
    factor = max(1, min(int(rows * _GOLDEN_RATIO), 2**62 // rows))
    while gcd(factor, rows) != 1:
        factor += 1
    return factor, int(stream) % rows

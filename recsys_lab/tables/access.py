"""Access statistics: the chance p that a row appears in one sample, compressed to buckets of rows with (nearly) equal p.

The sum of p over a table's rows is the table's average length L (FlexShard, section 4.2). Where a sample can look a row up twice, p is its
expected number of look-ups and may exceed 1. Every cost follows look-ups, so the sum stays L. No p is cut off at 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class TableAccess:
    """One table's rows in falling order of p: bucket i holds `bucket_rows[i]` rows with mean probability `bucket_p[i]`.

    `alike`: where samples are not drawn but follow one another, as those of one user do: (so many of them, how many drawn ones look up as
    many different rows), rising. Empty: they are drawn. `hottest_row`: the id of the most frequent row, such as that of all unknown ids;
    None: not known.
    """

    table: str
    mean_length: float  # L: look-ups per sample, all features of the table together
    bucket_rows: tuple[int, ...]
    bucket_p: tuple[float, ...]
    origin: str  # measured | formula
    detail: str  # "zipf, exponent 1.05" or "7,200 samples of train.tsv.gz"
    alike: tuple[tuple[int, float], ...] = ()
    hottest_row: int | None = None

    def __hash__(self) -> int:
        """Without the buckets: there are hundreds, and a decision asks caches for what a table's rows cost 200,000 times."""
        return hash((self.table, self.mean_length, self.detail))

    def length_of(self, start: int, stop: int) -> float:
        """L of rows [start, stop) in falling order of p: the sum of their p (FlexShard, equation 2)."""
        ends = np.cumsum(self.bucket_rows)
        begins = ends - np.asarray(self.bucket_rows)
        counts = np.clip(np.minimum(ends, stop) - np.maximum(begins, start), 0, None)
        return float(np.dot(counts, self.bucket_p))

    def between(self, start: int, stop: int) -> TableAccess:
        """Rows [start, stop) in falling order of p, as a table of their own."""
        ends = np.cumsum(self.bucket_rows)
        begins = ends - np.asarray(self.bucket_rows)
        counts = np.clip(np.minimum(ends, stop) - np.maximum(begins, start), 0, None)
        buckets = [(int(rows), p) for rows, p in zip(counts, self.bucket_p) if rows]
        rows, p = tuple(r for r, _ in buckets), tuple(p for _, p in buckets)
        detail = f"{self.detail}, rows {start:,} to {stop:,}"
        return TableAccess(self.table, self.length_of(start, stop), rows, p, self.origin, detail, self.alike)

    def distinct_rows(self, samples: float) -> float:
        """Expected number of different rows that `samples` samples look up: the sum over rows of 1 - (1 - p) ** samples.

        Samples that follow one another count as the drawn ones of `alike`.
        """
        return float(np.dot(np.asarray(self.bucket_rows, dtype=float), self._chance_in(samples)))

    def in_order(self, distinct: Mapping[int, float]) -> TableAccess:
        """The same of samples that follow one another. `distinct`: by number of them, how many different rows they look up."""
        drawn = replace(self, alike=())
        alike = tuple((samples, drawn._samples_with(distinct[samples], samples)) for samples in sorted(distinct))
        return replace(self, alike=alike)

    def _samples_with(self, distinct: float, most: float) -> float:
        """How many drawn samples look up so many different rows. `most`: no more than these."""
        from scipy.optimize import brentq  # takes a moment, which drawn samples need not wait

        return float(brentq(lambda n: self.distinct_rows(n) - distinct, 0.0, most)) if distinct < self.distinct_rows(most) else most

    def _chance_in(self, samples: float) -> np.ndarray:
        """Of a row of each bucket, that one of `samples` samples looks it up."""
        p = np.minimum(np.asarray(self.bucket_p, dtype=float), 1 - 1e-12)
        return -np.expm1(self._drawn(samples) * np.log1p(-p))

    def _drawn(self, samples: float) -> float:
        """The drawn samples of `alike`, between its entries by powers. Above the last one as many a sample as there."""
        if not self.alike or not samples:
            return samples
        points = self.alike if self.alike[0][0] == 1 else ((1, 1.0), *self.alike)
        sizes, drawn = (np.asarray(column, dtype=float) for column in zip(*points))
        share = np.exp(np.interp(np.log(samples), np.log(sizes), np.log(np.maximum(drawn, 1e-12) / sizes)))
        return float(samples * share)

    def once_a_batch(self, samples: int) -> TableAccess:
        """The look-ups that are left where each batch of `samples` samples asks for each of its rows once."""
        p = self._chance_in(samples) / samples
        detail = f"{self.detail}, each row once in {samples:,} samples"
        return replace(self, mean_length=float(np.dot(self.bucket_rows, p)), bucket_p=tuple(p.tolist()), detail=detail, alike=())

    def with_length(self, mean_length: float) -> TableAccess:
        """The same popularity with another number of look-ups a sample. Itself where it has as many."""
        if not self.mean_length or mean_length == self.mean_length:
            return self
        p = tuple(p * mean_length / self.mean_length for p in self.bucket_p)
        return replace(self, mean_length=mean_length, bucket_p=p, detail=f"{self.detail}, {mean_length:,.0f} look-ups a sample")

    def grown(self, mean_length: float, skew: float) -> TableAccess:
        """As many look-ups a sample, of rows whose frequency p became one in proportion to p ** skew."""
        p, rows = np.asarray(self.bucket_p, dtype=float), np.asarray(self.bucket_rows, dtype=float)
        with np.errstate(divide="ignore"):
            powers = np.where(p > 0, np.exp(skew * np.log(p / max(p.max(initial=0.0), 1e-300))), 0.0)  # of the hottest row 1
        total = float(np.dot(rows, powers))
        grown = powers * (mean_length / total if total else 0.0)
        times = f"{mean_length / self.mean_length:.3g}" if self.mean_length else "1"
        return replace(
            self, mean_length=mean_length, bucket_p=tuple(grown.tolist()), detail=f"{self.detail}, {times} times as long, skew {skew:g}"
        )

    def share_of_hottest(self, rows: int) -> float:
        """The share of look-ups that go to the `rows` most frequent rows."""
        covered, hits = 0, 0.0
        for n, p in zip(self.bucket_rows, self.bucket_p):
            count = min(n, rows - covered)
            if count <= 0:
                break
            covered, hits = covered + count, hits + count * p
        total = sum(n * p for n, p in zip(self.bucket_rows, self.bucket_p))
        return hits / total if total else 0.0


@dataclass(frozen=True)
class AccessStatistics:
    """`TableAccess` by table name."""

    tables: dict[str, TableAccess]

    def __getitem__(self, table: str) -> TableAccess:
        return self.tables[table]

    def to_json(self) -> dict:
        """Without what a table does not have."""
        tables = []
        for table in self.tables.values():
            fields = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(table).items()}
            tables.append({name: value for name, value in fields.items() if value not in ([], None)})
        return {"tables": tables}

    @staticmethod
    def from_json(data: dict) -> AccessStatistics:
        tables = []
        for t in data["tables"]:
            columns = {"bucket_rows": tuple(t["bucket_rows"]), "bucket_p": tuple(t["bucket_p"])}
            tables.append(TableAccess(**t | columns | {"alike": tuple((n, drawn) for n, drawn in t.get("alike", ()))}))
        return AccessStatistics({t.table: t for t in tables})


def measured_access(table: str, counts: np.ndarray, samples: int, detail: str) -> TableAccess:
    """From `counts` [E]: how often each row was looked up in `samples` samples. Rows of equal count share a bucket."""
    rows, values = distinct(counts)
    p = values / max(samples, 1)
    return TableAccess(
        table,
        mean_length=float(counts.sum() / max(samples, 1)),
        bucket_rows=tuple(int(n) for n in rows),
        bucket_p=tuple(float(x) for x in p),
        origin="measured",
        detail=detail,
    )


def distinct(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rows, value) of each distinct value of `values` [E], falling. Counts up to E need no sorting."""
    if values.dtype.kind in "iu" and len(values) and values.min() >= 0 and values.max() <= len(values):
        rows = np.bincount(values)
        levels = np.flatnonzero(rows)[::-1]
        return rows[levels], levels
    ordered = np.sort(values)[::-1]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else np.empty(0, np.int64)
    return np.diff(np.append(starts, len(ordered))), ordered[starts]


def compress(values: np.ndarray, buckets: int) -> tuple[np.ndarray, np.ndarray]:
    """(rows int64, mean value float64) of at most `buckets` >= 2 groups of `values` [E] (counts or p, none negative), falling.

    Exact where there are no more distinct values than buckets. Else the values of a group lie within a common factor of each other. It is
    (greatest / least above 0) ** (1 / (buckets - 1)). Zeros have a group of their own. The sum is kept.
    """
    rows, levels = distinct(values)
    if len(levels) > buckets:
        above = int(np.count_nonzero(levels))
        fall = np.log(levels[0] / levels[:above])  # from 0 up
        groups = buckets - 1
        group = np.full(len(levels), groups)
        group[:above] = np.minimum(fall / fall[-1] * groups, groups - 1)
        starts = np.flatnonzero(np.diff(group, prepend=-1))
        sums = np.add.reduceat(rows * levels.astype(np.float64), starts)
        rows = np.add.reduceat(rows, starts)
        levels = sums / rows
    return rows.astype(np.int64), levels.astype(np.float64)


def each_once(rising: np.ndarray) -> np.ndarray:
    """The distinct values of `rising` [E]. As np.unique, which sorts, and whose first call imports `numpy.ma` into each rank."""
    return rising[np.diff(rising, prepend=rising[0] - 1) > 0]


def power_law_access(table: str, rows: int, mean_length: float, exponent: float, buckets: int = 256) -> TableAccess:
    """Zipf: p of the row of rank k is proportional to k ** -exponent. Ranks form `buckets` geometric groups."""
    edges = each_once(np.geomspace(1, rows + 1, num=min(buckets, rows) + 1).astype(np.int64))
    mass = np.diff(_power_integral(edges.astype(np.float64), exponent))
    sizes = np.diff(edges)
    p = mass / mass.sum() * mean_length / sizes
    return TableAccess(
        table,
        mean_length=mean_length,
        bucket_rows=tuple(int(n) for n in sizes),
        bucket_p=tuple(float(x) for x in p),
        origin="formula",
        detail=f"zipf, exponent {exponent:g}" if exponent else "uniform",
    )


def _power_integral(x: np.ndarray, exponent: float) -> np.ndarray:
    return np.log(x) if exponent == 1.0 else x ** (1 - exponent) / (1 - exponent)

"""How look-ups fall over a table's rows by counts. It has the methods of `RankLaw`, and ids can be drawn from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from recsys_lab.tables.access import TableAccess, compress

BUCKETS = 4096


@dataclass(frozen=True)
class CountedLaw:
    """Rows in falling frequency: `bucket_rows[i]` rows have `bucket_share[i]` of the look-ups together. `detail`: what was counted."""

    rows: int
    bucket_rows: tuple[int, ...]
    bucket_share: tuple[float, ...]
    detail: str

    @staticmethod
    def of(counts: np.ndarray, detail: str) -> CountedLaw:
        """Of `counts` [E], how often each row was looked up. Not all zero."""
        rows, values = compress(counts, BUCKETS)
        share = rows * values / float(counts.sum(dtype=np.float64))
        return CountedLaw(int(rows.sum()), tuple(rows.tolist()), tuple(share.tolist()), detail)

    def scaled(self, rows: int) -> CountedLaw:
        """The same shares over a table of another size: each bucket has as large a part of it."""
        if rows == self.rows:
            return self
        ends = np.round(np.cumsum(self.bucket_rows) * (rows / self.rows)).astype(np.int64)
        sizes, shares, begin = [], [], 0
        carry = 0.0
        for end, share in zip(ends.tolist(), self.bucket_share):  # a bucket without rows leaves its share to the next
            carry += share
            if end > begin:
                sizes.append(end - begin)
                shares.append(carry)
                begin, carry = end, 0.0
        return replace(self, rows=rows, bucket_rows=tuple(sizes), bucket_share=tuple(shares))

    def access(self, table: str, rows: int, mean_length: float) -> TableAccess:
        """Access statistics of a table of `rows` rows with `mean_length` look-ups a sample."""
        law = self.scaled(rows)
        p = tuple(share * mean_length / size for share, size in zip(law.bucket_share, law.bucket_rows))
        return TableAccess(table, mean_length, law.bucket_rows, p, "measured", self.detail)

    def ranks(self, u: np.ndarray) -> np.ndarray:
        """Ranks (int64, 0 the most frequent) of uniform draws `u` in [0, 1)."""
        ends, shares = np.cumsum(self.bucket_rows), np.cumsum(self.bucket_share)
        bucket = np.minimum(np.searchsorted(shares, u, side="right"), len(ends) - 1)
        size = np.asarray(self.bucket_rows)[bucket]
        within = (u - (shares[bucket] - np.asarray(self.bucket_share)[bucket])) / np.asarray(self.bucket_share)[bucket]
        return ends[bucket] - size + np.minimum((within * size).astype(np.int64), size - 1)

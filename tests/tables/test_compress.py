"""Frequencies in buckets: exact where they can be, within the promised factor elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_lab.tables import compress, measured_access


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.integers(31, 40))
def test_few_distinct_counts_are_kept_exactly(counts: list[int], buckets: int) -> None:
    rows, values = compress(np.array(counts), buckets)
    assert np.repeat(values, rows).tolist() == sorted(counts, reverse=True)


@given(st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1e3)), min_size=1, max_size=200), st.integers(2, 20))
def test_many_distinct_values_share_buckets_within_the_promised_factor(p: list[float], buckets: int) -> None:
    rows, values = compress(np.array(p), buckets)
    assert len(rows) <= buckets
    assert rows.sum() == len(p)
    assert (rows * values).sum() == pytest.approx(sum(p))
    assert list(values) == sorted(values, reverse=True)
    ordered, above = np.sort(p)[::-1], [x for x in p if x > 0]
    if above:
        factor = (max(above) / min(above)) ** (1 / (buckets - 1)) * (1 + 1e-9)
        for start, stop in zip(np.cumsum(rows) - rows, np.cumsum(rows)):
            group = ordered[start:stop]
            assert group.max() <= factor * group.min() or group.max() == 0


def test_counts_measured_are_in_buckets_of_equal_count_however_large() -> None:
    for scale in (1, 1_000_000_007):  # sorted, and without sorting
        access = measured_access("t", np.array([3, 0, 5, 3, 0]) * scale, 10, "test")
        assert access.bucket_rows == (1, 2, 2)
        assert access.bucket_p == pytest.approx((0.5 * scale, 0.3 * scale, 0.0))
        assert access.mean_length == pytest.approx(1.1 * scale)


def test_no_rows_are_no_buckets() -> None:
    rows, values = compress(np.empty(0, np.int64), 4)
    assert len(rows) == len(values) == 0

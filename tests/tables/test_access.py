"""Access statistics of a few rows, by hand."""

from __future__ import annotations

import json
import zlib
from math import log

import numpy as np
import pytest

from recsys_lab.tables import AccessStatistics, Table, TableAccess, compress, measured_access, power_law_access
from recsys_lab.tables.access import distinct, each_once
from recsys_lab.tables.counted import CountedLaw
from recsys_lab.tables.hot_rows import served_shares
from recsys_lab.tables.spec import ELEMENT_BYTES, READ_BYTES

#: Ten rows: 2 of 0.5, 3 of 0.2, 5 of 0.02; 1.7 look-ups a sample.
TEN = TableAccess("t", 1.7, (2, 3, 5), (0.5, 0.2, 0.02), "formula", "by hand")


@pytest.mark.parametrize(
    ("start", "stop", "length"),
    [(0, 10, 1.7), (1, 4, 0.9), (5, 10, 0.1), (3, 3, 0.0), (7, 20, 0.06), (0, 2, 1.0), (4, 5, 0.2), (10, 12, 0.0)],
)
def test_the_length_of_rows_is_the_sum_of_their_p(start: int, stop: int, length: float) -> None:
    assert TEN.length_of(start, stop) == pytest.approx(length)


@pytest.mark.parametrize("rising", [[3], [1, 1], [-2, -2, 0, 5, 5, 5, 9], list(range(7)), [0.5, 0.5, 2.0]])
def test_each_value_of_a_rising_row_is_kept_once(rising: list[float]) -> None:
    values = np.array(rising)
    assert np.array_equal(each_once(values), np.unique(values)) and each_once(values).dtype == values.dtype


def test_some_rows_are_a_table_of_their_own() -> None:
    part = TEN.between(1, 6)
    assert (part.table, part.bucket_rows, part.bucket_p, part.origin) == ("t", (1, 3, 1), (0.5, 0.2, 0.02), "formula")
    assert part.mean_length == pytest.approx(1.12) and part.detail == "by hand, rows 1 to 6"
    assert TEN.between(5, 10).bucket_rows == (5,) and TEN.between(4, 4).bucket_rows == ()
    assert TEN.between(1000, 2000).detail == "by hand, rows 1,000 to 2,000"


@pytest.mark.parametrize(("samples", "rows"), [(0, 0.0), (1, 1.7), (2, 2 * 0.75 + 3 * 0.36 + 5 * 0.0396), (10**6, 10.0)])
def test_different_rows_of_some_samples(samples: int, rows: float) -> None:
    assert TEN.distinct_rows(samples) == pytest.approx(rows)


def test_a_row_that_is_looked_up_more_than_once_a_sample_is_one_row() -> None:
    assert TableAccess("t", 12.0, (4,), (3.0,), "formula", "").distinct_rows(1) == pytest.approx(4)
    assert TableAccess("t", 0.0, (4,), (0.0,), "formula", "").distinct_rows(9) == 0


@pytest.mark.parametrize(("rows", "share"), [(0, 0.0), (1, 0.5 / 1.7), (2, 1 / 1.7), (3, 1.2 / 1.7), (6, 1.62 / 1.7), (10, 1.0), (99, 1.0)])
def test_the_share_of_the_hottest_rows(rows: int, share: float) -> None:
    assert TEN.share_of_hottest(rows) == pytest.approx(share)
    assert TableAccess("t", 0.0, (4,), (0.0,), "measured", "").share_of_hottest(rows) == 0


def test_statistics_go_into_a_file_and_back() -> None:
    both = AccessStatistics({"t": TEN, "u": power_law_access("u", 100, 2.0, 1.1)})
    assert AccessStatistics.from_json(json.loads(json.dumps(both.to_json()))) == both and both["t"] is TEN


@pytest.mark.parametrize(
    ("values", "rows", "levels"),
    [
        (np.array([3, 0, 3, 1]), [2, 1, 1], [3, 1, 0]),
        (np.array([4, 0, 4, 1]), [2, 1, 1], [4, 1, 0]),
        (np.array([5, 0, 5, 1]), [2, 1, 1], [5, 1, 0]),  # above the number of values: sorted
        (np.array([-1, 2, 2]), [2, 1], [2, -1]),
        (np.array([0.5, 0.25, 0.5]), [2, 1], [0.5, 0.25]),
        (np.array([7]), [1], [7]),
        (np.array([0, 0], np.uint8), [2], [0]),
    ],
)
def test_distinct_values_fall(values: np.ndarray, rows: list[int], levels: list[float]) -> None:
    assert [part.tolist() for part in distinct(values)] == [rows, levels]


def test_groups_are_even_in_the_logarithm_and_zeros_apart() -> None:
    """From 100 down to 1 in two groups: above 10 and not."""
    rows, values = compress(np.array([100, 99, 8, 1, 1, 0, 0]), 3)
    assert rows.tolist() == [2, 3, 2] and values.tolist() == pytest.approx([99.5, 10 / 3, 0.0])
    rows, values = compress(np.array([100, 99, 11, 1, 1]), 3)
    assert rows.tolist() == [3, 2] and values.tolist() == pytest.approx([70.0, 1.0])
    rows, values = compress(np.array([4, 2, 2, 1]), 3)  # no more than there may be
    assert rows.tolist() == [1, 2, 1] and values.tolist() == [4.0, 2.0, 1.0]
    rows, values = compress(np.array([5, 4, 3, 2]), 2)
    assert rows.tolist() == [4] and values.tolist() == [3.5]


def test_measured_counts_are_over_samples() -> None:
    access = measured_access("t", np.array([4, 0, 4, 2]), 5, "five samples")
    assert access == TableAccess("t", 2.0, (2, 1, 1), (0.8, 0.4, 0.0), "measured", "five samples")
    nothing = measured_access("t", np.zeros(3, np.int64), 0, "none")
    assert nothing.mean_length == 0 and nothing.bucket_p == (0.0,)


@pytest.mark.parametrize(
    ("exponent", "shares", "detail"),
    [
        (0.0, (1 / 4, 1 / 4, 1 / 2), "uniform"),
        (1.0, (log(2) / log(5), log(1.5) / log(5), log(5 / 3) / log(5)), "zipf, exponent 1"),
        (2.0, (0.5 / 0.8, 1 / 6 / 0.8, 2 / 15 / 0.8), "zipf, exponent 2"),
    ],
)
def test_a_power_law_in_geometric_groups_of_ranks(exponent: float, shares: tuple[float, ...], detail: str) -> None:
    """Ranks 1 to 4 from 1 to 5: cut near 1.5, 2.2 and 3.3, and so at 2 and 3."""
    access = power_law_access("t", 4, 6.0, exponent)
    assert access.bucket_rows == (1, 1, 2) and (access.mean_length, access.origin, access.detail) == (6.0, "formula", detail)
    assert [n * p for n, p in zip(access.bucket_rows, access.bucket_p)] == pytest.approx([6 * share for share in shares])
    assert power_law_access("t", 4, 6.0, exponent, buckets=2).bucket_rows == (1, 3)
    assert len(power_law_access("t", 10**6, 6.0, exponent).bucket_rows) < 256


def test_hot_rows_are_dealt_one_by_one_and_the_others_evenly() -> None:
    """Of a million rows alike, 16 for each range, and 16,384 at most, lie where they fall: the rest of each share is a range's part."""
    uniform = TableAccess("t", 1e6, (10**6,), (1.0,), "formula", "uniform")
    for ranges, dealt in ((4, 64), (100, 1600), (2000, 16_384)):
        shares = np.array(list(served_shares(uniform, [(10 * i, 10) for i in range(ranges)]).values())) * 1e6
        own = shares - (1e6 - dealt) / ranges
        assert own == pytest.approx(own.round(), abs=1e-5) and own.sum() == pytest.approx(dealt) and own.min() > -1e-5
    few = TableAccess("t", 10.0, (10,), (1.0,), "formula", "uniform")
    own = np.array(list(served_shares(few, [(0, 5), (5, 5)]).values())) * 10
    assert own == pytest.approx(own.round()) and own.sum() == pytest.approx(10)


def test_a_range_gets_hot_rows_as_it_has_rows() -> None:
    """One row in eight: over 400 names the hottest row falls into the small range in about 50, and where is the name's alone."""
    one = {f"t{i}": TableAccess(f"t{i}", 1.0, (1, 7), (1.0, 0.0), "formula", "") for i in range(400)}
    served = [served_shares(access, [(0, 1), (1, 7)]) for access in one.values()]
    assert all(sorted(shares.values()) == [0.0, 1.0] and list(shares) == [0, 1] for shares in served)
    assert 30 < sum(shares[0] for shares in served) < 70
    assert served == [served_shares(access, [(0, 1), (1, 7)]) for access in one.values()]


def test_without_look_ups_or_with_one_range_shares_are_those_of_the_rows() -> None:
    nothing = TableAccess("t", 0.0, (8,), (0.0,), "measured", "")
    assert served_shares(nothing, [(0, 2), (2, 6)]) == {0: 0.25, 2: 0.75}
    assert served_shares(TEN, [(3, 7)]) == {3: 1.0}


@pytest.mark.parametrize(
    ("stored", "size"),
    [("fp32", 4), ("fp16", 2), ("bf16", 2), ("bf16_master", 6), ("split_bf16", 4), ("split_bf16_8", 3)],  # bytes
)
def test_bytes_of_a_table_as_it_is_stored(stored: str, size: int) -> None:
    table = Table("t", 5, 3, ("a",), dtype=stored)
    assert (table.row_bytes, table.weight_bytes, table.parameters) == (3 * size, 15 * size, 15)
    assert table.with_rows(2) == Table("t", 2, 3, ("a",), dtype=stored)
    assert READ_BYTES[stored] == (4 if stored == "fp32" else 2)


def test_bytes_of_what_travels() -> None:
    assert ELEMENT_BYTES == {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "int64": 8, "int32": 4}


def test_all_of_some_samples_read_what_each_looks_up_twice() -> None:
    assert TableAccess("t", 13.0, (4, 10), (3.0, 0.1), "formula", "").distinct_rows(2) == pytest.approx(4 + 10 * 0.19)


def test_counts_of_one_sample_and_of_none() -> None:
    one = measured_access("t", np.array([2, 1, 0]), 1, "test")
    assert (one.mean_length, one.bucket_p) == (3.0, (2.0, 1.0, 0.0))
    assert measured_access("t", np.zeros(3, np.int64), 0, "test").mean_length == 0.0


def test_buckets_of_a_power_law_are_geometric_and_have_their_integral() -> None:
    """Edges of 8 rows in 3: 1, 2.08, 4.33 and 9, cut off. Zipf's 1 / x has the logarithm of their ratio."""
    access = power_law_access("t", 8, 4.0, 1.0, 3)
    assert access.bucket_rows == (1, 2, 5)
    assert access.bucket_p == pytest.approx([4 * log(b / a) / log(9) / (b - a) for a, b in ((1, 2), (2, 4), (4, 9))])
    square = power_law_access("t", 8, 4.0, 2.0, 3)
    assert square.bucket_p == pytest.approx([4 * (1 / a - 1 / b) / (8 / 9) / (b - a) for a, b in ((1, 2), (2, 4), (4, 9))])
    assert power_law_access("t", 3, 3.0, 0.0).bucket_rows == (1, 2)


def test_sixteen_hot_rows_of_each_range_are_dealt_by_the_table_s_name() -> None:
    """32 rows to two ranges of 40 and 60, each in its turn by the table's name; the other 68 by the ranges' sizes."""
    access = TableAccess("dealt", 30.0, (20, 80), (1.0, 0.125), "formula", "")
    on = np.random.default_rng(zlib.crc32(b"dealt")).choice(2, size=32, p=[0.4, 0.6])
    weights = np.array([1.0] * 20 + [0.125] * 12)
    expected = [(weights[on == place].sum() + 68 * 0.125 * part) / 30 for place, part in ((0, 0.4), (1, 0.6))]
    shares = served_shares(access, [(0, 40), (40, 60)])
    assert list(shares) == [0, 40] and list(shares.values()) == pytest.approx(expected)
    assert served_shares(access, [(0, 100)]) == {0: 1.0}
    assert served_shares(TableAccess("none", 0.0, (100,), (0.0,), "formula", ""), [(0, 40), (40, 60)]) == {0: 0.4, 40: 0.6}
    few = TableAccess("few", 3.0, (3,), (1.0,), "formula", "")
    assert all(share * 3 == pytest.approx(round(share * 3)) for share in served_shares(few, [(0, 1), (1, 2)]).values())


def test_buckets_of_a_counted_law_are_scaled() -> None:
    """A bucket that is left without a row leaves its share to the next."""
    law = CountedLaw(10, (1, 3, 6), (0.5, 0.3, 0.2), "by hand")
    assert law.scaled(10) is law
    assert law.scaled(20) == CountedLaw(20, (2, 6, 12), (0.5, 0.3, 0.2), "by hand")
    assert law.scaled(4).bucket_rows == (2, 2) and law.scaled(4).bucket_share == pytest.approx((0.8, 0.2))
    access = law.access("t", 20, 4.0)
    assert (access.table, access.mean_length, access.bucket_rows, access.origin, access.detail) == (
        "t",
        4.0,
        (2, 6, 12),
        "measured",
        "by hand",
    )
    assert access.bucket_p == pytest.approx((1.0, 0.2, 0.8 / 12))


def test_the_hottest_row_lies_where_its_id_says() -> None:
    access = TableAccess("t", 10.0, (1, 99), (8.0, 2 / 99), "formula", "", hottest_row=60)
    shares = served_shares(access, [(0, 25), (25, 25), (50, 25), (75, 25)])
    assert max(shares, key=lambda start: shares[start]) == 50 and sum(shares.values()) == pytest.approx(1)
    assert access.between(0, 50).hottest_row is None, "ids of a part are another order"
    assert AccessStatistics.from_json(AccessStatistics({"t": access}).to_json())["t"] == access


def test_hotter_rows_and_longer_histories_keep_the_order_of_rows_and_multiply_zipf_s_exponent() -> None:
    access = power_law_access("t", 1000, 6.0, 0.8, buckets=1000)
    grown = access.grown(7.5, 1.25)
    assert sum(n * p for n, p in zip(grown.bucket_rows, grown.bucket_p)) == pytest.approx(7.5) and grown.mean_length == 7.5
    steeper = np.log(grown.bucket_p[9] / grown.bucket_p[99]) / np.log(access.bucket_p[9] / access.bucket_p[99])
    assert steeper == pytest.approx(1.25) and grown.share_of_hottest(10) > access.share_of_hottest(10)
    assert access.grown(6.0, 1.0).bucket_p == pytest.approx(access.bucket_p)

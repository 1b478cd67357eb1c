"""Laws of look-ups: the shares, the draws and the buckets are of one and the same curve."""

from __future__ import annotations

from dataclasses import asdict
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_lab.errors import UserError
from recsys_lab.tables import LawOptions, RankLaw, power_law_access, zipf_mandelbrot


@st.composite
def laws(draw) -> RankLaw:
    rows = draw(st.integers(1, 10_000))
    knees = sorted(draw(st.sets(st.integers(1, rows - 1), max_size=3))) if rows > 1 else []
    exponents = draw(st.lists(st.one_of(st.just(1.0), st.floats(0, 3)), min_size=len(knees) + 1, max_size=len(knees) + 1))
    return RankLaw(rows, tuple(exponents), draw(st.floats(0.01, 1000)), tuple(map(float, knees)))


@given(laws())
def test_shares_rise_to_one_and_ever_more_slowly(law: RankLaw) -> None:
    shares = law.share(np.arange(law.rows + 1))
    assert shares[0] == 0 and shares[-1] == pytest.approx(1)
    of_row = np.diff(shares)
    assert (of_row > 0).all()
    assert (np.diff(of_row) <= 1e-9 * of_row.max() + 1e-15).all()


@given(laws(), st.floats(0, 1, exclude_max=True))
def test_a_draw_is_the_row_at_whose_share_it_lies(law: RankLaw, u: float) -> None:
    rank = int(law.ranks(np.array([u]))[0])
    assert law.share(rank) <= u + 1e-9
    assert law.share(rank + 1) >= u - 1e-9


@given(laws(), st.integers(1, 300))
def test_buckets_cover_the_rows_and_keep_the_shares(law: RankLaw, buckets: int) -> None:
    access = law.access("t", law.rows, 7.0, buckets)
    assert sum(access.bucket_rows) == law.rows
    assert len(access.bucket_rows) <= buckets
    assert list(access.bucket_p) == sorted(access.bucket_p, reverse=True)
    ends = np.cumsum(access.bucket_rows)
    assert np.cumsum(np.multiply(access.bucket_rows, access.bucket_p)) == pytest.approx(7.0 * law.share(ends))


def test_the_density_is_the_share_of_a_row_where_rows_are_many() -> None:
    law = RankLaw(1_000_000, (0.6, 1.3), 5.0, (1000.0,))
    rows = np.array([500, 2000, 999_000])
    assert law.density(rows + 0.5) == pytest.approx(np.diff(law.share(np.stack([rows, rows + 1])), axis=0)[0], rel=1e-4)


def test_many_draws_are_distributed_as_the_law_says() -> None:
    law = RankLaw(1000, (0.5, 1.4), 3.0, (50.0,))
    counts = np.bincount(law.ranks(np.random.default_rng(0).random(400_000)), minlength=1000)
    expected = np.diff(law.share(np.arange(1001))) * 400_000
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - 999) < 5 * np.sqrt(2 * 999)


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.0, 1.2])
def test_zipf_is_the_power_law_that_generated_data_follow(exponent: float) -> None:
    access, other = zipf_mandelbrot(5000, exponent, 1.0).access("t", 5000, 3.0, 256), power_law_access("t", 5000, 3.0, exponent)
    for rows in (10, 100, 1000):
        assert access.share_of_hottest(rows) == pytest.approx(other.share_of_hottest(rows), rel=1e-3)
    assert access.detail == other.detail


def test_a_law_keeps_its_shape_when_its_table_is_scaled() -> None:
    law = RankLaw(30_000_000, (0.6, 1.3, 0.9), 14.0, (1e5, 3e5))
    small = law.scaled(30_000)
    for share_of_rows in (0.001, 0.01, 0.5):
        assert small.share(share_of_rows * small.rows) == pytest.approx(law.share(share_of_rows * law.rows))
    assert zipf_mandelbrot(1000, 1.1, 1.0).scaled(10) == zipf_mandelbrot(10, 1.1, 1.0)


@pytest.mark.parametrize(
    ("law", "shares", "densities"),
    [  # of 3 rows, with shift 1: the share of the first 0, 1, 2 and 3, and the density at 0, 1 and 3
        (RankLaw(3, (0.0,)), [0, 1 / 3, 2 / 3, 1], [1 / 3] * 3),
        (RankLaw(3, (1.0,)), [0, 0.5, log(3) / log(4), 1], [1 / log(4), 1 / 2 / log(4), 1 / 4 / log(4)]),
        (RankLaw(3, (2.0,)), [0, 1 / 2 / 0.75, 2 / 3 / 0.75, 1], [1 / 0.75, 1 / 4 / 0.75, 1 / 16 / 0.75]),
        # flat over the first row, then 2 / (1 + x), which is 1 where they meet: 1 and 2 ln 2 look-ups
        (
            RankLaw(3, (0.0, 1.0), knees=(1.0,)),
            [0, 1 / (1 + 2 * log(2)), (1 + 2 * log(1.5)) / (1 + 2 * log(2)), 1],
            [1 / (1 + 2 * log(2)), 1 / (1 + 2 * log(2)), 0.5 / (1 + 2 * log(2))],
        ),
    ],
    ids=str,
)
def test_laws_by_hand(law: RankLaw, shares: list[float], densities: list[float]) -> None:
    assert law.share(np.arange(4)) == pytest.approx(shares) and law.density(np.array([0, 1, 3])) == pytest.approx(densities)
    assert law.share(-1.0) == 0 and law.share(9.0) == pytest.approx(1) and law.density(9.0) == pytest.approx(densities[-1])
    just_before, just_behind = (law.ranks(np.array(shares[1:3]) + step).tolist() for step in (-1e-9, 1e-9))
    assert just_before == [0, 1] and just_behind == [1, 2]
    assert law.ranks(np.array([0.0, 1 - 1e-16, 1.0])).tolist() == [0, 2, 2]


@pytest.mark.parametrize(
    ("law", "words"),
    [
        (RankLaw(9, (0.0,)), "uniform"),
        (RankLaw(9, (0.0,), 2.0), "uniform"),
        (RankLaw(9, (1.05,)), "zipf, exponent 1.05"),
        (RankLaw(9, (1.05,), 2.71828), "zipf-mandelbrot, exponent 1.05, shift 2.718"),
        (RankLaw(9, (0.5, 1.25), knees=(3.0,)), "power law in 2 pieces, exponents 0.5, 1.25"),
    ],
)
def test_a_law_in_words(law: RankLaw, words: str) -> None:
    assert law.describe() == words
    access = law.access("t", 9, 2.0)
    assert (access.detail, access.origin, access.mean_length, access.table) == (words, "formula", 2.0, "t")


def test_a_law_is_scaled_by_rows_but_zipfs_keeps_its_shift() -> None:
    assert RankLaw(10, (0.5, 1.0), 1.0, (4.0,)).scaled(5) == RankLaw(5, (0.5, 1.0), 0.5, (2.0,))
    assert RankLaw(10, (1.0,), 3.0).scaled(20) == RankLaw(20, (1.0,), 6.0)
    assert RankLaw(10, (1.0,)).scaled(20) == RankLaw(20, (1.0,))
    assert RankLaw(10, (1.0,), 3.0).scaled(10) == RankLaw(10, (1.0,), 3.0)


def test_buckets_are_geometric_and_as_many_as_asked() -> None:
    """Edges of 8 rows in 3: 1, 2.08, 4.33 and 9, rounded and less one."""
    uniform = RankLaw(8, (0.0,))
    assert uniform.access("t", 8, 4.0, 3).bucket_rows == (1, 2, 5) and uniform.access("t", 8, 4.0, 3).bucket_p == pytest.approx((0.5,) * 3)
    assert len(uniform.access("t", 10**7, 4.0).bucket_rows) > 2900  # of 4096, those that are not one row


def test_a_law_goes_into_a_config_and_back() -> None:
    law = RankLaw(1000, (0.5, 1.4), 3.0, (50.0,))
    assert RankLaw.from_config(law.to_config()) == law
    assert law.to_config() == {"rows": 1000, "exponents": [0.5, 1.4], "shift": 3.0, "knees": [50.0]}
    assert RankLaw.from_config({"rows": 7, "exponents": [1]}) == RankLaw(7, (1.0,), 1.0, ())


@pytest.mark.parametrize(
    ("given_law", "message"),
    [
        ({"rows": 10, "exponents": [1.0], "shift": 0.0}, "law.shift.*given 0.0; allowed: above 0"),
        ({"rows": 0, "exponents": [1.0]}, "law.rows.*given 0; allowed: 1 or more"),
        ({"rows": 10, "exponents": [1.0, 1.0, 1.0], "knees": [5, 5]}, "law.knees.*rising, between 0 and 10"),
        ({"rows": 10, "exponents": [1.0, 1.0], "knees": [0]}, "law.knees.*rising, between 0 and 10"),
        ({"rows": 10, "exponents": [1.0, 1.0]}, "law.exponents.*allowed: 1, one more than knees"),
        ({"rows": 10, "exponents": [-1.0]}, "falling frequency"),
        ({"rows": 10, "exponents": [1.0, 1.0], "knees": [10]}, "law.knees.*rising, between 0 and 10"),
        ({"rows": 10, "exponent": 1.0}, "law.exponent: no such key"),
        ({"rows": 10, "exponents": [1.0], "a": 1, "b": 2}, "law.a: no such key"),
        ({"exponents": [1.0]}, "law.rows: a value is needed"),
        ({}, "law.exponents: a value is needed"),
    ],
)
def test_a_law_that_cannot_be_is_refused(given_law: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        RankLaw.from_config(given_law)


def test_the_keys_of_a_law_are_the_laws() -> None:
    assert RankLaw.from_config(asdict(LawOptions(rows=10, exponents=[1.5]))) == RankLaw(10, (1.5,), shift=1.0)

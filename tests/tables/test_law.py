"""Laws of look-ups: the shares, the draws and the buckets are of one and the same curve."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.errors import UserError
from recsys_lab.tables import RankLaw, power_law_access, zipf_mandelbrot


@st.composite
def laws(draw) -> RankLaw:
    rows = draw(st.integers(1, 10_000))
    knees = sorted(draw(st.sets(st.integers(1, rows - 1), max_size=3))) if rows > 1 else []
    exponents = draw(st.lists(st.one_of(st.just(1.0), st.floats(0, 3)), min_size=len(knees) + 1, max_size=len(knees) + 1))
    return RankLaw(rows, tuple(exponents), draw(st.floats(0.01, 1000)), tuple(map(float, knees)))


@given(laws())
@settings(deadline=None)
def test_shares_rise_to_one_and_ever_more_slowly(law: RankLaw) -> None:
    shares = law.share(np.arange(law.rows + 1))
    assert shares[0] == 0 and shares[-1] == pytest.approx(1)
    of_row = np.diff(shares)
    assert (of_row > 0).all()
    assert (np.diff(of_row) <= 1e-9 * of_row.max() + 1e-15).all()


@given(laws(), st.floats(0, 1, exclude_max=True))
@settings(deadline=None)
def test_a_draw_is_the_row_at_whose_share_it_lies(law: RankLaw, u: float) -> None:
    rank = int(law.ranks(np.array([u]))[0])
    assert law.share(rank) <= u + 1e-9
    assert law.share(rank + 1) >= u - 1e-9


@given(laws(), st.integers(1, 300))
@settings(deadline=None)
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
    ours, other = zipf_mandelbrot(5000, exponent, 1.0).access("t", 5000, 3.0, 256), power_law_access("t", 5000, 3.0, exponent)
    for rows in (10, 100, 1000):
        assert ours.share_of_hottest(rows) == pytest.approx(other.share_of_hottest(rows), rel=1e-3)
    assert ours.detail == other.detail


def test_a_law_keeps_its_shape_when_its_table_is_scaled() -> None:
    law = RankLaw(30_000_000, (0.6, 1.3, 0.9), 14.0, (1e5, 3e5))
    small = law.scaled(30_000)
    for share_of_rows in (0.001, 0.01, 0.5):
        assert small.share(share_of_rows * small.rows) == pytest.approx(law.share(share_of_rows * law.rows))
    assert zipf_mandelbrot(1000, 1.1, 1.0).scaled(10) == zipf_mandelbrot(10, 1.1, 1.0)


def test_a_law_goes_into_a_config_and_back() -> None:
    law = RankLaw(1000, (0.5, 1.4), 3.0, (50.0,))
    assert RankLaw.from_config(law.to_config()) == law


@pytest.mark.parametrize(
    ("given_law", "message"),
    [
        ({"rows": 10, "exponents": [1.0], "shift": 0.0}, "law.shift.*given 0.0; allowed: above 0"),
        ({"rows": 10, "exponents": [1.0, 1.0]}, "law.exponents.*allowed: 1, one more than knees"),
        ({"rows": 10, "exponents": [-1.0]}, "falling frequency"),
        ({"rows": 10, "exponents": [1.0, 1.0], "knees": [10]}, "law.knees.*rising, between 0 and 10"),
        ({"rows": 10, "exponent": 1.0}, "law.exponent: no such key"),
        ({"exponents": [1.0]}, "law.rows: a value is needed"),
    ],
)
def test_a_law_that_cannot_be_is_refused(given_law: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        RankLaw.from_config(given_law)

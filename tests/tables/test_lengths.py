"""Lengths of histories: what is said of batches and of the longest rank is what brute force gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.errors import UserError
from recsys_lab.tables.lengths import MOST_VALUES, TOKENS, Lengths, Work, expected_most

LAW = Lengths.law(2190, 550, 4086)
QUADRATIC = Work(7, 1000, 1)
SKEWED = Lengths.of(np.random.default_rng(0).lognormal(3, 1, 20_000).astype(int).clip(1, 300))


@given(st.floats(0.05, 0.95), st.floats(0.01, 0.9), st.floats(1, 1e5))
def test_a_law_has_the_mean_and_the_spread_that_it_was_given(share: float, part: float, cap: float) -> None:
    mean = share * cap
    spread = part * min(mean, cap - mean) / 2
    law = Lengths.law(mean, spread, cap)
    assert law.mean == pytest.approx(mean, rel=0.01)
    assert law.spread == pytest.approx(spread, rel=0.02)
    assert law.values[0] >= 0 and law.values[-1] <= cap


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=4000))
@settings(max_examples=30)
def test_measured_lengths_keep_their_moments(lengths: list[int]) -> None:
    of = Lengths.of(np.array(lengths))
    assert len(of.values) <= MOST_VALUES
    assert of.mean == pytest.approx(np.mean(lengths))
    assert of.mean_of_squares == pytest.approx(np.mean(np.square(lengths)), rel=1e-3)
    assert sum(of.shares) == pytest.approx(1)


@pytest.mark.parametrize("lengths", [LAW, SKEWED], ids=["law", "skewed"])
@pytest.mark.parametrize("work", [QUADRATIC, TOKENS], ids=["work", "tokens"])
@pytest.mark.parametrize(("samples", "ranks"), [(64, 4), (256, 32), (1024, 8)])
def test_the_longest_rank_is_that_of_drawn_batches(lengths: Lengths, work, samples: int, ranks: int) -> None:
    drawn = np.random.default_rng(1).choice(lengths.values, (300, ranks, samples), p=lengths.shares)
    at = np.arange(300), work(drawn).sum(2).argmax(1)
    mean, longest = lengths.load(samples), lengths.longest_rank(samples, ranks, work)
    for what, of_ranks in (("events", drawn.sum(2)), ("squares", (drawn**2).sum(2))):
        measured = of_ranks[at].mean()
        assert getattr(longest, what) == pytest.approx(measured, rel=0.015)
        assert getattr(longest, what) - getattr(mean, what) == pytest.approx(measured - getattr(mean, what), rel=0.15)
    assert lengths.longest_of(samples) == pytest.approx(drawn.max(2).mean(), rel=0.01)


def test_a_single_rank_and_equal_samples_wait_for_nobody() -> None:
    assert LAW.longest_rank(64, 1, QUADRATIC) == LAW.load(64, QUADRATIC)
    assert Lengths.equal(90).longest_rank(64, 8, QUADRATIC) == Lengths.equal(90).load(64, QUADRATIC)
    assert Lengths.equal(90).longest_of(64) == 90


def test_a_rank_has_no_more_than_the_longest_samples() -> None:
    two = Lengths.of(np.array([1, 2]))
    assert two.longest_rank(1, 10_000).events <= 2


def test_samples_in_a_row_vary_more_than_drawn_ones() -> None:
    in_row = LAW.in_order({1: LAW.spread, 64: LAW.spread / 2})  # 64 of them as 4
    assert in_row.drawn(64) == pytest.approx(4)
    assert in_row.drawn(8) == pytest.approx(2)
    assert in_row.drawn(128) == pytest.approx(8)


def test_ranks_share_what_long_stretches_have_in_common() -> None:
    """Users of one length each, 100 samples a user: four ranks of 128 samples in a row have six users."""
    draw = np.random.default_rng(0)
    in_row = np.repeat(draw.choice(LAW.values, 4000, p=LAW.shares), 100)
    spreads = {1 << k: float(in_row[: len(in_row) >> k << k].reshape(-1, 1 << k).mean(1).std()) for k in range(13)}
    own = Lengths.of(in_row).in_order(spreads)
    for samples in (128, 512):
        of_ranks = in_row[: len(in_row) // (4 * samples) * 4 * samples].reshape(-1, 4, samples).sum(2)
        measured = of_ranks.max(1).mean() / of_ranks.mean() - 1
        assert own.longest_rank(samples, 4).events / own.load(samples).events - 1 == pytest.approx(measured, rel=0.25)


@pytest.mark.parametrize(("ranks", "published"), [(2, 0.5642), (4, 1.0294), (10, 1.5388), (100, 2.5076)])
def test_the_greatest_of_normal_variables(ranks: int, published: float) -> None:
    """Harter 1961, Biometrika 48, table 1."""
    assert expected_most(ranks) == pytest.approx(published, abs=2e-4)


@pytest.mark.parametrize(("law", "words"), [((5000, 1, 4086), "mean"), ((2000, 4000, 4086), "spread"), ((2000, -1, 4086), "spread")])
def test_lengths_that_cannot_be_are_refused(law: tuple[float, float, float], words: str) -> None:
    with pytest.raises(UserError, match=f"no such lengths.*{words}|{words}"):
        Lengths.law(*law)

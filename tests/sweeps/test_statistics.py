"""The statistics against SciPy's, against their definitions, and by simulation."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.stats import PermutationMethod, mannwhitneyu, somersd, wilcoxon

from recsys_lab.sweeps import statistics as ours

FLOATS = st.floats(-1, 1, allow_nan=False, width=32).map(float)
SAMPLES = st.lists(FLOATS, min_size=2, max_size=9)
TIED = st.lists(st.integers(-3, 3).map(float), min_size=2, max_size=7)


def untied(values: list[float]) -> bool:
    return len({abs(v) for v in values}) == len(values) and 0 not in values


@settings(max_examples=150)
@given(SAMPLES.filter(untied))
def test_the_paired_test_is_scipys(differences):
    assert ours.signed_rank_p(differences) == pytest.approx(wilcoxon(differences, method="exact").pvalue, abs=1e-12)


@settings(max_examples=150)
@given(SAMPLES, SAMPLES)
def test_mann_whitney_is_scipys(a, b):
    if len({*a, *b}) == len(a) + len(b):
        assert ours.rank_sum_p(a, b) == pytest.approx(mannwhitneyu(a, b, method="exact").pvalue, abs=1e-12)
    assert ours.cliffs_delta(a, b) == pytest.approx(2 * mannwhitneyu(a, b).statistic / (len(a) * len(b)) - 1)


@settings(max_examples=25)
@given(TIED, TIED)
def test_with_ties_both_are_scipys_tests_over_all_permutations(a, b):
    every = PermutationMethod(n_resamples=10_000)
    assert ours.rank_sum_p(a, b) == pytest.approx(mannwhitneyu(a, b, method=every).pvalue, abs=1e-12)
    if any(a):
        assert ours.signed_rank_p(a) == pytest.approx(wilcoxon(a, method=every).pvalue, abs=1e-12)


def test_identical_values_give_no_evidence_at_all():
    assert ours.signed_rank_p([0.0, 0.0, 0.0]) == 1 and ours.rank_biserial([0.0, 0.0]) == 0
    assert ours.paired_difference([0.0, 0.0, 0.0], 0.05) == ours.Estimate(0, 0, 0, 0.75)


@settings(max_examples=80)
@given(SAMPLES.filter(untied), st.sampled_from([0.05, 0.2, 0.3]))
def test_the_interval_holds_just_what_the_test_does_not_refuse(differences, level):
    """Its definition: a shift is inside where the test of the shifted differences has p > level."""
    interval = ours.paired_difference(differences, level)
    assert interval.low <= interval.value <= interval.high
    if interval.confidence < 1 - level:  # so few pairs refuse nothing: the interval is the whole range
        assert (interval.low, interval.high) == (min(differences), max(differences))
        return
    gaps = np.diff(np.sort(differences))
    assume(gaps.min() > 1e-6 * gaps.sum())  # so that none are tied once they are shifted
    width = max(differences) - min(differences)
    for edge, out in ((interval.low, -1), (interval.high, 1)):
        outside, inside = edge + out * 1e-9 * width, edge - out * 1e-9 * width
        assert ours.signed_rank_p([d - outside for d in differences]) <= level
        assert ours.signed_rank_p([d - inside for d in differences]) > level or interval.low == interval.high


@settings(max_examples=60)
@given(SAMPLES, SAMPLES, st.sampled_from([0.05, 0.2]))
def test_the_unpaired_interval_is_scipys_test_inverted(a, b, level):
    interval = ours.unpaired_difference(a, b, level)
    assert interval.value == pytest.approx(np.median([x - y for x in a for y in b]))
    if interval.confidence >= 1 - level and len({round(x - y, 6) for x in a for y in b}) == len(a) * len(b):
        outside = interval.high + 1e-7
        assert mannwhitneyu([x - outside for x in a], b, method="exact").pvalue <= level


@pytest.mark.parametrize(("n", "confidence"), [(1, 0.0), (2, 0.5), (3, 0.75), (5, 0.9375), (6, 0.96875)])
def test_few_pairs_say_how_little_their_interval_holds(n, confidence):
    assert ours.paired_difference(list(np.arange(1, n + 1) / 7), 0.05).confidence == pytest.approx(confidence)


def test_intervals_hold_as_often_as_they_say():
    rng = np.random.default_rng(0)
    coverage = {n: np.mean([_holds(ours.paired_difference(d, 0.05)) for d in rng.standard_t(3, (1000, n))]) for n in (3, 6, 9)}
    assert coverage[3] == pytest.approx(0.75, abs=0.05) and coverage[6] == pytest.approx(0.969, abs=0.02) and coverage[9] > 0.93


def _holds(interval: ours.Estimate) -> bool:
    return interval.low <= 0 <= interval.high


@settings(max_examples=60)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closed_test_of_bonferroni(p_values):
    """Its definition: a claim holds where Bonferroni refuses every set of hypotheses that it is in."""
    for index, adjusted in enumerate(ours.holm(p_values)):
        others = [i for i in range(len(p_values)) if i != index]
        sets = [[index, *more] for size in range(len(others) + 1) for more in combinations(others, size)]
        assert adjusted == pytest.approx(max(min(1.0, len(s) * min(p_values[i] for i in s)) for s in sets))


def test_effect_sizes():
    assert ours.rank_biserial([1, 2, 3]) == 1 and ours.rank_biserial([-1, 2, 3]) == pytest.approx(4 / 6)
    assert ours.cliffs_delta([2, 3], [0, 1]) == 1 and ours.cliffs_delta([1, 2], [1, 2]) == 0
    a, b = [3.0, 1, 4, 1], [5.0, 9, 2, 6]
    assert ours.cliffs_delta(a, b) == pytest.approx(somersd([1] * 4 + [0] * 4, a + b).statistic)


@pytest.mark.parametrize(("tests", "paired", "seeds"), [(1, True, 6), (1, False, 4), (33, True, 11), (33, False, 7), (6, True, 8)])
def test_the_fewest_seeds_that_can_show_anything(tests, paired, seeds):
    level = 0.05 / tests
    assert ours.least_seeds(level, paired) == seeds
    rising = list(np.arange(1, seeds + 1) + 0.1)
    p = ours.signed_rank_p(rising) if paired else ours.rank_sum_p(rising, [-v for v in rising])
    fewer = ours.signed_rank_p(rising[1:]) if paired else ours.rank_sum_p(rising[1:], [-v for v in rising[1:]])
    assert p <= level < fewer and p == pytest.approx(ours.least_p(seeds, None if paired else seeds))


@pytest.mark.parametrize("paired", [True, False])
def test_as_many_seeds_as_are_said_to_be_needed_show_it_four_times_in_five(paired):
    rng, effect = np.random.default_rng(1), 1.2
    z = np.array([-1, 0, 1]) * 1.0  # mean 0, deviation 1
    ours_seen, base_seen = (z + effect, [0.0, 0.0, 0.0]) if paired else (z + effect, z)
    seeds = ours.seeds_needed(ours_seen, base_seen, 0.05, paired)
    assert seeds is not None
    x, y = rng.standard_normal((2, 600, seeds))
    p = [ours.signed_rank_p(a + effect) if paired else ours.rank_sum_p(a + effect, b) for a, b in zip(x, y)]
    assert 0.74 < np.mean(np.array(p) <= 0.05) < 0.92


@pytest.mark.parametrize(("effect", "paired", "seeds"), [(1.0, True, 10), (1.0, False, 18), (0.5, True, 34), (0.5, False, 67)])
def test_seeds_by_guenthers_formula(effect, paired, seeds):
    """(1.95996 + 0.84162)^2 = 7.849 over the effect squared, and half of 1.95996^2 = 1.92; unpaired twice and a quarter, times pi / 3."""
    z = np.array([-1.0, 0.0, 1.0])
    assert ours.seeds_needed(z + effect, np.zeros(3) if paired else z, 0.05, paired) == seeds
    assert ours.seeds_needed(np.zeros(3) if paired else z, z + effect, 0.05, paired) == seeds
    assert ours.seeds_needed(1000 * (z + effect), 1000 * (np.zeros(3) if paired else z), 0.05, paired) == seeds


def test_several_tests_at_once_by_hand():
    """Three seeds can be flipped in four ways. 1 1 1 sums to 3 in one of them; every way brings 1 1 -1 to 1 at least."""
    assert ours.flipped_together(np.array([[1.0, 1.0], [1.0, 1.0], [1.0, -1.0]])) == [0.5, 1.0]  # another way brings the second to 3
    assert ours.flipped_together(np.array([[1.0], [1.0], [1.0]])) == [0.25]
    assert ours.flipped_together(np.array([[-2.0], [-2.0], [-2.0]])) == [0.25]
    assert ours.flipped_together(np.zeros((3, 2))) == [1.0, 1.0]
    assert ours.flipped_together(np.array([[0.1], [0.1], [0.3], [0.3]])) == [0.125]


def test_only_the_ratios_of_differences_count():
    each = np.array([[1.0, 1.0], [1.0, 1.0], [1.0, -1.0]])
    assert ours.flipped_together(each * [0.01, 1.0]) == ours.flipped_together(each * 0.001) == [0.5, 1.0]


def test_ways_are_counted():
    assert ours._signed_ranks(3).tolist() == [1, 1, 1, 2, 1, 1, 1] and ours._rank_sums(2, 2).tolist() == [1, 1, 2, 1, 1]
    assert ours._rank_sums(1, 3).tolist() == [1, 1, 1, 1] and ours._rank_sums(2, 1).tolist() == [1, 1, 1]
    assert ours._doubled_ranks(np.array([5.0, 1.0, 5.0, 7.0])).tolist() == [5, 2, 5, 8]
    assert ours._flips(13).shape == (4096, 13) and ours._flips(14).shape == (8192, 14)
    for flips in (ours._flips(3), ours._flips(14)):
        assert (flips[0] == 1).all() and set(np.unique(flips)) == {-1.0, 1.0}
    assert ours._flips(3).tolist() == [[1, 1, 1], [1, 1, -1], [1, -1, 1], [1, -1, -1]]


def test_intervals_by_hand():
    """Of 6 pairs 21 means; 1 of 64 ways is below the first. Of 4 and 4, 16 differences; 1 of 70 ways is below the first."""
    pairs = ours.paired_difference([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], 0.05)
    assert (pairs.low, pairs.high, pairs.confidence) == (1.0, 32.0, pytest.approx(1 - 2 / 64)) and pairs.value == 8.5
    both = ours.unpaired_difference([10.0, 20.0, 40.0, 80.0], [1.0, 2.0, 3.0, 4.0], 0.05)
    assert (both.low, both.high, both.confidence) == (6.0, 79.0, pytest.approx(1 - 2 / 70)) and both.value == 27.5
    wide = ours.paired_difference([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], 0.1)
    assert (wide.low, wide.high, wide.confidence) == (2.0, 20.0, pytest.approx(1 - 2 * 3 / 64))


def test_no_claim_is_surer_than_one_with_a_larger_statistic():
    """1 1 0 has 2 / sqrt 2 = 1.41, reached in two of four ways; 1 .2 .2 has 1.4 / 1.04 = 1.35, reached in one, but comes second."""
    assert ours.flipped_together(np.array([[1.0, 1.0], [0.2, 1.0], [0.2, 0.0]])) == [0.5, 0.5]


def test_without_a_difference_or_a_spread_no_number_is_invented():
    assert ours.seeds_needed([1.0, 2], [1.0, 2], 0.05, True) is None and ours.seeds_needed([1.0], [2.0], 0.05, True) is None
    assert ours.seeds_needed([1.0, 2], [0.5, 1.5], 0.05, True) == 6
    assert ours.seeds_needed([1.0, 2.001], [1.0, 2], 0.001, True) is not None


def test_fewer_wrong_claims_take_more_seeds():
    """At a level of 1e-4: twice (3.8906 + 0.8416)^2 = 22.39, and a quarter of 3.8906^2 = 3.78, times pi / 3."""
    z = np.array([-1.0, 0.0, 1.0])
    assert ours.seeds_needed(z + 1.0, z, 1e-4, paired=False) == 51


def test_small_figures_need_as_many_seeds_as_large_ones():
    x = np.array([0.0, 1.0, 2.0])
    assert ours.seeds_needed(1e-8 * (x + 0.1), 1e-8 * x[::-1], 0.05, paired=True) == ours.seeds_needed(x + 0.1, x[::-1], 0.05, paired=True)

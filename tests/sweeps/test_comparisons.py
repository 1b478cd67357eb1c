"""Verdicts: how often they are false where nothing differs, how often found where something does, and in the right direction."""

from __future__ import annotations

import itertools
from math import comb

import numpy as np
import pytest
from scipy.stats import binom, mannwhitneyu, permutation_test, wilcoxon

from recsys_lab.sweeps import statistics
from recsys_lab.sweeps.comparisons import BETTER, NO_EVIDENCE, SAME, TOO_FEW, WORSE, Side, compare_all
from recsys_lab.sweeps.figures import FIGURES, Figure

AUC, LOSS, SPEED, TIME = (next(f for f in FIGURES if f.name == n) for n in ("validation_auc", "validation_log_loss", *[
    "measured_examples_per_second", "measured_iteration_ms"]))  # fmt: skip
LEVEL = 0.05


def sides(values: dict[Figure, np.ndarray], first_seed: dict[int, int] | None = None) -> dict[tuple[int, str], Side]:
    """Of figures [rows, seeds]; NaN is a missing run. Row i's seeds begin at `first_seed[i]`, else 1."""
    by_key = {}
    for figure, table in values.items():
        for row, line in enumerate(table):
            begin = (first_seed or {}).get(row, 1)
            by_key[row, figure.name] = Side({str(begin + s): float(v) for s, v in enumerate(line) if not np.isnan(v)}, figure)
    return by_key


def verdicts(values, bases=(0, 0), **more) -> dict[tuple[int, str], str]:
    return {key: comparison.verdict for key, comparison in compare_all(sides(values, **more), bases, LEVEL).items()}


def draw(kind: str, rng: np.random.Generator, rows: int, seeds: int) -> dict[Figure, np.ndarray]:
    """A sweep in which no row differs from another: a seed may move all rows alike, and a row's figures hang together."""
    noise = {
        "normal": rng.standard_normal,
        "heavy tails": lambda shape: rng.standard_t(2, shape),
        "skewed": lambda shape: rng.lognormal(0, 1, shape),
        "ties": lambda shape: np.round(rng.standard_normal(shape)),
        "missing": rng.standard_normal,
    }[kind]
    own, of_seed = noise((rows, seeds)), noise((1, seeds))
    auc = 0.8 + 0.001 * (own + of_seed)
    if kind == "missing":
        auc[rng.random(auc.shape) < 0.1] = np.nan
    return {AUC: auc, LOSS: 1.2 - auc + 0.0005 * noise((rows, seeds)), SPEED: np.exp(10 + 0.05 * noise((rows, seeds)))}


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "skewed", "ties", "missing"])
def test_where_nothing_differs_a_sweep_has_a_false_claim_at_most_as_often_as_stated(kind):
    """1,000 sweeps of four rows with seven seeds: those with any claim at all, in nine comparisons, beside the level."""
    rng, sweeps, false = np.random.default_rng(7), 1000 if kind == "normal" else 150, 0
    for _ in range(sweeps):
        claims = verdicts(draw(kind, rng, rows=4, seeds=7), (0, 0, 0, 0))
        false += any(v in (BETTER, WORSE) for v in claims.values())
    assert false <= binom.isf(0.001, sweeps, LEVEL), f"{false} of {sweeps}"
    assert kind != "normal" or false > 0, "a test that never claims anything proves nothing"


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "skewed", "ties"])
def test_over_ten_thousand_sweeps_false_claims_stay_below_the_level(kind):
    rng, false = np.random.default_rng(0), 0
    for _ in range(10_000):
        sample = draw(kind, rng, rows=4, seeds=7)
        values = np.concatenate([sample[AUC], sample[LOSS], np.log(sample[SPEED])])
        differences = np.concatenate([values[4 * i + 1 : 4 * i + 4] - values[4 * i] for i in range(3)])
        false += min(statistics.flipped_together(differences.T)) <= LEVEL
    assert false / 10_000 <= LEVEL


def test_where_nothing_differs_unpaired_sweeps_too():
    rng, false = np.random.default_rng(8), 0
    for _ in range(200):
        claims = verdicts(draw("normal", rng, rows=3, seeds=6), (0, 0, 0), first_seed={1: 100, 2: 4})
        false += any(v in (BETTER, WORSE) for v in claims.values())
    assert false <= binom.isf(0.001, 200, LEVEL)


def test_six_seeds_show_a_clear_difference_among_many_tests_and_nothing_else():
    rng = np.random.default_rng(3)
    auc = 0.8 + 0.0003 * rng.standard_normal((20, 6)) + 0.01 * rng.standard_normal((1, 6))
    auc[7] += 0.004
    auc[8] -= 0.004
    claims = verdicts({AUC: auc}, (0,) * 20)
    assert claims.pop((7, AUC.name)) == BETTER and claims.pop((8, AUC.name)) == WORSE
    assert set(claims.values()) == {NO_EVIDENCE}


def test_pairs_show_what_mann_whitney_cannot():
    """Nine seeds move the AUC by 0.004; one row loses 0.002 in each of them."""
    rng = np.random.default_rng(1)
    auc = 0.97 + 0.004 * rng.standard_normal((1, 9)) + 0.0003 * rng.standard_normal((6, 9))
    auc[5] -= 0.002
    comparisons = compare_all(sides({AUC: auc}), (0,) * 6, LEVEL)
    assert [comparisons[row, AUC.name].verdict for row in range(1, 6)] == [NO_EVIDENCE] * 4 + [WORSE]
    assert statistics.holm([one.p_rank_sum for one in comparisons.values()])[4] > LEVEL


@pytest.mark.parametrize(("figure", "verdict"), [(AUC, BETTER), (LOSS, WORSE), (SPEED, BETTER), (TIME, WORSE)])
def test_more_is_better_only_where_it_is(figure, verdict):
    base = np.linspace(1.0, 1.1, 6)
    assert verdicts({figure: np.array([base, base + 0.3 + base**2 / 100])}) == {(1, figure.name): verdict}
    comparison = compare_all(sides({figure: np.array([base, base + 0.3])}), (0, 0), LEVEL)[1, figure.name]
    assert (comparison.rank_biserial, comparison.cliffs_delta) == ((1, 1) if verdict == BETTER else (-1, -1))


def test_every_figure_has_its_direction():
    assert {f.name for f in FIGURES if not f.higher_is_better} == {
        *("validation_ne", "validation_log_loss", "test_ne", "test_log_loss"),
        *("measured_iteration_ms", "simulated_iteration_ms", "simulated_interval_low_ms", "simulated_interval_high_ms"),
        *(f"simulated_{name}" for name in ("cost_per_1e9", "memory_gb")),
        *(f"simulated_{phase}_ms" for phase in ("compute", "exchange", "sync", "store", "host", "copy", "longest", "other")),
    }


@pytest.mark.parametrize("seeds", [1, 2, 3, 5])
def test_too_few_seeds_are_said_to_be_too_few(seeds):
    table = np.array([np.arange(seeds) / 1000 + 0.7, np.arange(seeds) / 1000 + 0.9])
    comparison = compare_all(sides({AUC: table}), (0, 0), LEVEL)[1, AUC.name]
    assert comparison.verdict == TOO_FEW and comparison.p is None and comparison.least_seeds == 6 and comparison.pairs == seeds
    assert comparison.estimate.value == pytest.approx(0.2)


def test_identical_rows_are_the_same_whatever_the_seeds():
    table = np.array([[0.7, 0.8, 0.75]] * 2)
    assert verdicts({AUC: table}) == {(1, AUC.name): SAME}
    six = np.tile(np.linspace(0.7, 0.8, 6), (3, 1)) + [[0], [5e-9], [5e-6]]
    assert verdicts({AUC: six}, (0, 0, 0)) == {(1, AUC.name): SAME, (2, AUC.name): BETTER}


def test_ratios_are_of_pairs():
    base = np.array([100.0, 200, 400, 800, 1600, 3200])
    comparison = compare_all(sides({SPEED: np.array([base, base * 1.5])}), (0, 0), LEVEL)[1, SPEED.name]
    assert (
        comparison.estimate.value == pytest.approx(1.5) and comparison.estimate.low == pytest.approx(1.5) and comparison.verdict == BETTER
    )
    apart = compare_all(sides({SPEED: np.array([base, base * 1.5])}, {1: 50}), (0, 0), LEVEL)[1, SPEED.name]
    assert apart.pairs == 0 and apart.verdict == NO_EVIDENCE and apart.p_signed_rank is None


def test_seeds_that_are_hardly_shared_are_not_taken_as_pairs():
    table = np.tile(np.linspace(0.7, 0.71, 9), (2, 1)) + [[0], [0.05]]
    comparison = compare_all(sides({AUC: table}, {1: 8}), (0, 0), LEVEL)[1, AUC.name]
    assert comparison.pairs == 0 and comparison.verdict == BETTER and comparison.p == pytest.approx(2 / comb(18, 9))


def test_each_tests_own_p_is_scipys_and_holms_correction_is_over_the_table():
    rng = np.random.default_rng(5)
    values = {AUC: rng.random((5, 6)), SPEED: rng.random((5, 6)) + 1}
    comparisons = compare_all(sides(values), (0,) * 5, LEVEL)
    for (row, name), one in comparisons.items():
        a, b = (values[one.figure] if one.figure is AUC else np.log(values[one.figure]))[[row, 0]]
        assert one.p_signed_rank == pytest.approx(wilcoxon(a - b, method="exact").pvalue)
        assert one.p_rank_sum == pytest.approx(mannwhitneyu(a, b, method="exact").pvalue)
        assert name == one.figure.name
    assert [c.p_holm for c in comparisons.values()] == statistics.holm([c.p_signed_rank for c in comparisons.values()])


def test_flipping_one_tests_signs_is_scipys_permutation_test():
    d = np.random.default_rng(2).standard_normal((8, 1)) + 0.8
    scipys = permutation_test((d[:, 0],), np.mean, permutation_type="samples", n_resamples=2**8).pvalue
    assert statistics.flipped_together(d) == [pytest.approx(scipys)]


def test_flipping_signs_together_is_its_definition():
    """Step-down: a test's p is the largest, over it and all with a larger statistic, of the share of flips whose largest reaches it."""
    d = np.random.default_rng(4).standard_normal((6, 5)) + np.array([3, 0, 0.5, 1, 0])
    size = np.sqrt((d**2).sum(0))
    statistic = np.abs(d.sum(0)) / size
    order = list(np.argsort(-statistic))
    ways = [np.abs((np.array(signs)[:, None] * d).sum(0)) / size for signs in itertools.product([-1, 1], repeat=6)]
    so_far, expected = 0.0, {}
    for place, test in enumerate(order):
        so_far = max(so_far, np.mean([way[order[place:]].max() >= statistic[test] - 1e-12 for way in ways]))
        expected[test] = so_far
    assert statistics.flipped_together(d) == pytest.approx([expected[test] for test in range(5)])


def test_many_seeds_are_drawn_the_same_each_time():
    d = np.random.default_rng(6).standard_normal((20, 3)) + 0.5
    assert statistics.flipped_together(d) == statistics.flipped_together(d)
    one = statistics.flipped_together(d[:, :1])[0]
    assert one == pytest.approx(
        permutation_test((d[:, 0],), np.mean, permutation_type="samples", n_resamples=20000, rng=0).pvalue, abs=0.01
    )

"""Ratios of two runs of one system: which runs are pairs, what cancels, and what the published ones say."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.validation import collectives, emulated, placements
from experiments.validation.fit import CHANGES, Fits, Found, Point, Setting
from experiments.validation.ratios import Choice, Pair, choices_of_fits, line, pairs_of_fits, pairs_of_ratios, picks, summary
from tests.simulate.clusters import cluster, profile

ONE = Setting("torchrec", "dlrm", "torchrec", "fp32", (1, 8), 65536)
TIMES = st.floats(0.1, 1000)


ON = cluster(1, 8)
SOFTWARE = profile(relative_error=0.1, fitted_systems={ON.device.name: 1}, assumed={})


def test_runs_are_a_pair_where_they_differ_in_one_thing() -> None:
    assert ONE.change_to(replace(ONE, sharding="dmt")) == "sharding"
    assert ONE.change_to(replace(ONE, precision="bf16")) == "precision"
    assert ONE.change_to(replace(ONE, hardware="H100")) == "hardware"
    assert ONE.change_to(replace(ONE, scale=(2, 4))) == "scale"
    assert ONE.change_to(replace(ONE, scale=(2, 8))) == "scale"  # strong scaling
    assert ONE.change_to(replace(ONE, scale=(2, 8), batch=2 * 65536)) == "scale"  # weak scaling


@pytest.mark.parametrize(
    "other",
    [
        ONE,
        replace(ONE, batch=1024),
        replace(ONE, sharding="dmt", batch=1024),
        replace(ONE, sharding="dmt", precision="bf16"),
        replace(ONE, sharding="dmt", hardware="H100"),
        replace(ONE, system="hugectr"),
        replace(ONE, sharding="dmt", model="dcn"),
        replace(ONE, scale=(2, 8), batch=4 * 65536),
        replace(ONE, scale=(2, 8), batch=1024),
    ],
)
def test_other_runs_are_no_pair(other: Setting) -> None:
    assert ONE.change_to(other) is None and other.change_to(ONE) is None


def time_of(what: str, setting: Setting | None, published: float, launches: float) -> Point:
    """Of so many launches, on one machine."""
    figures = ("torchrec", what, published, lambda p: launches * p.launch_overhead_us)
    return Point(*figures, cluster=ON, time_ms=lambda p, on: launches * p.launch_overhead_us, setting=setting)


def fits(*given: Point, names: tuple[str, ...] = ()) -> Fits:
    return Fits.of(list(given), SOFTWARE, names, [SOFTWARE.launch_overhead_us for _ in names])


@given(TIMES, TIMES, TIMES, TIMES, st.floats(0.1, 10))
def test_what_both_runs_are_wrong_by_alike_cancels(a: float, b: float, ours: float, other: float, factor: float) -> None:
    two = replace(ONE, sharding="dmt")
    (pair,) = pairs_of_fits(fits(time_of("a", ONE, a, ours), time_of("b", two, b, other)), SOFTWARE)
    (alike,) = pairs_of_fits(fits(time_of("a", ONE, a, factor * ours), time_of("b", two, b, factor * other)), SOFTWARE)
    (turned,) = pairs_of_fits(fits(time_of("b", two, b, other), time_of("a", ONE, a, ours)), SOFTWARE)
    assert math.isclose(pair.error, alike.error, rel_tol=1e-9, abs_tol=1e-9)
    assert math.isclose(pair.error, turned.error, rel_tol=1e-9, abs_tol=1e-9)
    assert pair.p is not None and turned.p is not None and pair.p + turned.p == pytest.approx(1.0, abs=0.02)


def test_the_faster_of_two_runs_is_the_more_probable_the_further_they_are_apart() -> None:
    """Of one machine: two shardings of equal time are as likely; one of a third more time is hardly ever the faster."""
    two = replace(ONE, sharding="dmt")
    p = [pairs_of_fits(fits(time_of("a", ONE, 1, 10), time_of("b", two, 1, other)), SOFTWARE)[0].p for other in (10, 11, 13, 20)]
    assert p[0] == pytest.approx(0.5, abs=0.02) and p == sorted(p) and 0.7 < p[1] < 0.9 < p[2] < 1.0 and p[3] == 1.0


def test_a_pair_is_predicted_by_a_fit_without_both() -> None:
    """The two others say 20 us a launch; these two, that a launch takes twice as long."""
    scales = [replace(ONE, scale=(1, ranks)) for ranks in (8, 4)]
    others = [time_of(str(n), None, 20.0 * n, n) for n in (1, 2)]
    pair_of = [time_of("a", scales[0], 40.0, 1), time_of("b", scales[1], 80.0, 2)]
    made = fits(*others, *pair_of, names=("launch_overhead_us",))
    without = made.without(("a", "b"))
    assert without is not None and without[0].launch_overhead_us == pytest.approx(20.0, rel=1e-2)
    (pair,) = pairs_of_fits(made, SOFTWARE)
    assert pair.left_out == pytest.approx(0.5) and pair.published == 0.5 and pair.picked_right


def test_runs_of_other_batches_are_held_against_each_other_by_their_samples() -> None:
    given = fits(time_of("one host", ONE, 10, 12), time_of("two", replace(ONE, scale=(2, 8), batch=2 * 65536), 10, 30))
    (pair,) = pairs_of_fits(given, SOFTWARE)
    assert pair.published == 2 and pair.simulated == pytest.approx(0.8)
    assert pair.error == pytest.approx(1.5) and not pair.order_right


def test_the_fastest_of_runs_that_differ_in_one_thing_alone_is_picked_or_not() -> None:
    boards = [replace(ONE, hardware=name) for name in ("A", "B", "C")]
    right = [time_of(s.hardware, s, ms, ms) for s, ms in zip(boards, (3.0, 1.0, 2.0))]
    (choice,) = choices_of_fits(fits(*right, time_of("other model", replace(ONE, model="dcn"), 0.1, 0.1)))
    assert (choice.change, choice.runs, choice.right) == ("hardware", 3, True)
    (wrong,) = choices_of_fits(fits(*right[:2], time_of("C", boards[2], 2.0, 0.5)))
    assert not wrong.right


def test_published_ratios_count_and_bounds_and_other_times_do_not() -> None:
    scaling = Found(Point("neo", "16 hosts over 1", 50, lambda p: 40, "%", change="scale"), 40)
    slower = Found(Point("dmt", "exchange", 4.6, lambda p: 4.0, "times", change="sharding"), 4.0)
    bound = Found(replace(time_of("at least", replace(ONE, sharding="dmt"), 1, 2), bound=True), 2)
    pair, other = pairs_of_ratios([scaling, slower, bound])
    assert (pair.published, pair.simulated, pair.change, pair.p) == (0.5, 0.4, "scale", None)
    assert pair.error == pytest.approx(0.25) and other.p == pytest.approx(0.0, abs=1e-6) and other.picked_right


def test_flexshards_twelve_ratios_are_within_6_percent() -> None:
    figures = summary(pairs_of_ratios(collectives.on_file()))
    sharding = figures["changes"]["sharding"]
    assert (sharding["pairs"], sharding["order_right"], figures["pairs"]) == (12, 12, 12)
    assert 0 < sharding["median_error"] < sharding["largest_error"] < 6
    assert list(figures["changes"]) == list(CHANGES) and len(figures["points"]) == 12
    assert line(figures).startswith("ratios of two runs: sharding 12 pairs, median ") and "scale" not in line(figures)


def test_the_place_of_a_large_table_is_told_but_for_a_small_cache() -> None:
    """A cache of 20 % must hold the rows of two batches, and is slower than none; ours does not know that."""
    made = placements.pairs()
    assert len(made) == 6 and [pair.what for pair in made if not pair.picked_right] == [
        "torchrec#4099: the large table in the host's memory / in the host's memory with 20 % cached"
    ]
    best = placements.choice()
    assert best.right and best.runs == 4


def test_pairs_of_the_emulated_network_are_those_that_were_measured() -> None:
    """Six sharders of two models: each two once, and the one that was slower than told is counted as wrong."""
    made = emulated.pairs()
    assert len(made) == 30 and len({pair.what for pair in made}) == 30
    assert [pair.what for pair in made if not pair.picked_right] == ["emulated network, dlrm: dmt_sptt / torchrec"]
    assert [(one.runs, one.right) for one in emulated.choices()] == [(6, True), (6, True)]


def test_no_pair_has_no_figures() -> None:
    figures = summary([])
    assert figures["pairs"] == 0 and figures["median_error"] is None and figures["brier"] is None and figures["pick_best_rate"] is None


def test_scores_and_the_reliability_of_probabilities_by_hand() -> None:
    """Three pairs told 0.95, 0.95 and 0.6; the last came otherwise. A pair without a probability counts for nothing."""
    told = [Pair("a", "scale", 0.5, 0.5, 0.5, p) for p in (0.95, 0.95)]
    other = Pair("c", "scale", 2.0, 0.9, 0.9, 0.6)
    made = picks([*told, other, replace(other, p=None)], [Choice("x", "scale", 2, True), Choice("y", "scale", 3, False)])
    assert made["brier"] == pytest.approx((2 * 0.05**2 + 0.6**2) / 3) and made["pick_best_rate"] == 0.5
    assert made["log_score"] == pytest.approx((2 * math.log(0.95) + math.log(0.4)) / 3)
    by_bin = {one["from"]: (one["pairs"], one["right"]) for one in made["reliability"]}
    assert by_bin == {0.5: (0, None), 0.6: (1, 0.0), 0.7: (0, None), 0.8: (0, None), 0.9: (2, 1.0)}

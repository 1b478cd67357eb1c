"""Ratios of two runs of one system: which runs are pairs, what cancels, and what the published ones say."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.validation import collectives
from experiments.validation.fit import CHANGES, Found, Setting
from experiments.validation.ratios import line, pairs, summary

ONE = Setting("torchrec, A100", "dlrm", "torchrec", "fp32", (1, 8), 65536)
TIMES = st.floats(0.1, 1000)


def run(what: str, setting: Setting | None, published: float, simulated: float, **figures: object) -> Found:
    return Found("torchrec", what, published, simulated, simulated, "ms", True, setting=setting, **figures)


def test_runs_are_a_pair_where_they_differ_in_one_thing() -> None:
    assert ONE.change_to(replace(ONE, sharding="dmt")) == "sharding"
    assert ONE.change_to(replace(ONE, precision="bf16")) == "precision"
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
        replace(ONE, sharding="dmt", system="torchrec, H100"),
        replace(ONE, sharding="dmt", model="dcn"),
        replace(ONE, scale=(2, 8), batch=4 * 65536),
        replace(ONE, scale=(2, 8), batch=1024),
    ],
)
def test_other_runs_are_no_pair(other: Setting) -> None:
    assert ONE.change_to(other) is None and other.change_to(ONE) is None


@given(TIMES, TIMES, TIMES, TIMES, st.floats(0.1, 10))
def test_what_both_runs_are_wrong_by_alike_cancels(a: float, b: float, ours: float, other: float, factor: float) -> None:
    two = replace(ONE, sharding="dmt")
    (pair,) = pairs([run("a", ONE, a, ours), run("b", two, b, other)])
    (alike,) = pairs([run("a", ONE, a, factor * ours), run("b", two, b, factor * other)])
    (turned,) = pairs([run("b", two, b, other), run("a", ONE, a, ours)])
    assert math.isclose(pair.error, alike.error, rel_tol=1e-9, abs_tol=1e-9)
    assert math.isclose(pair.error, turned.error, rel_tol=1e-9, abs_tol=1e-9)
    (exact,) = pairs([run("a", ONE, a, factor * a), run("b", two, b, factor * b)])
    assert exact.error < 1e-9 and exact.independent_error == pytest.approx(math.expm1(math.sqrt(2) * abs(math.log(factor))))


def test_runs_of_other_batches_are_held_against_each_other_by_their_samples() -> None:
    (pair,) = pairs([run("one host", ONE, 10, 12), run("two", replace(ONE, scale=(2, 8), batch=2 * 65536), 10, 30)])
    assert pair.published == 2 and pair.simulated == pytest.approx(0.8)
    assert pair.error == pytest.approx(1.5) and not pair.order_right


def test_published_ratios_count_and_bounds_and_other_times_do_not() -> None:
    scaling = Found("neo", "16 hosts over 1", 50, 40, 40, "%", False, change="scale")
    bound = run("at least", replace(ONE, sharding="dmt"), 1, 2, bound=True)
    (pair,) = pairs([scaling, run("a", ONE, 1, 1), run("b", None, 1, 1), bound])
    assert (pair.published, pair.simulated, pair.change) == (0.5, 0.4, "scale")
    assert pair.error == pytest.approx(0.25) and pair.independent_error is None


def test_flexshards_twelve_ratios_are_within_6_percent() -> None:
    figures = summary([replace(point, left_out=point.simulated) for point in collectives.on_file()])
    sharding = figures["changes"]["sharding"]
    assert (sharding["pairs"], sharding["order_right"], figures["pairs"]) == (12, 12, 12)
    assert 0 < sharding["median_error"] < sharding["largest_error"] < 6
    assert list(figures["changes"]) == list(CHANGES) and len(figures["points"]) == 12
    assert line(figures).startswith("ratios of two runs of one system: sharding 12 pairs, median ") and "scale" not in line(figures)


def test_no_pair_has_no_figures() -> None:
    figures = summary([run("a", ONE, 1, 1)])
    assert figures["pairs"] == 0 and figures["median_error"] is None and figures["order_right"] == 0

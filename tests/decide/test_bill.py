"""The bill of a whole run: by hand, against Daly's published figures, against simulated failures, and what must hold for any run."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_lab.decide.bill import Bill, Costs, best_interval, bill_of, expected_hours

MINUTE = 1 / 60
NO_FAILURES = Costs(checkpoint=0.0, restart=0.0, between_failures=math.inf)
hours = st.floats(0.01, 1e4)
costs_of_any_run = st.builds(Costs, checkpoint=st.floats(1e-5, 0.5), restart=st.floats(0.0, 2.0), between_failures=st.floats(0.5, 1e6))


def test_without_failures_and_checkpoints_it_is_the_plain_time() -> None:
    bill = bill_of(100.0, 0.0, NO_FAILURES, 64, 2.5)
    assert (bill.hours, bill.device_hours, bill.usd) == (100.0, 6400.0, 16000.0)
    assert (bill.evaluation_hours, bill.checkpoint_hours, bill.failure_hours) == (0.0, 0.0, 0.0)
    assert bill_of(100.0, 0.0, NO_FAILURES, 64, None).usd is None


def test_evaluation_and_checkpoints_by_hand() -> None:
    """100 h and 4 h of evaluation, a checkpoint of 0.02 h each 0.5 h: 208 of them."""
    bill = bill_of(100.0, 4.0, replace(NO_FAILURES, checkpoint=0.02, every=0.5), 8, 2.0)
    assert bill.checkpoint_hours == pytest.approx(4.16) and bill.hours == pytest.approx(108.16)
    assert bill.usd == pytest.approx(8 * 2 * 108.16) and (bill.checkpoint_minutes, bill.checkpoint_seconds) == (30.0, 72.0)


def test_failures_by_hand() -> None:
    """M = 10 h, R = 0.1 h, every 0.9 h with 0.1 h of checkpoint: 10 e^0.01 (e^0.1 - 1) 90 / 0.9 = 106.228 h of 90 h."""
    bill = bill_of(90.0, 0.0, Costs(0.1, 0.1, 10.0, every=0.9), 1, 1.0)
    assert bill.hours == pytest.approx(106.2280, abs=1e-3) and bill.checkpoint_hours == pytest.approx(10.0)
    assert bill.failure_hours == pytest.approx(bill.hours - 100.0)


def test_a_rare_failure_costs_a_restart_and_half_an_interval() -> None:
    """To first order in 1/M: as many failures as M fits into the run, each with R + (t + d) / 2."""
    costs = Costs(0.01, 0.2, 1e5, every=0.5)
    plain = 100.0 * (1 + 0.01 / 0.5)
    assert expected_hours(100.0, 0.5, costs) - plain == pytest.approx(plain / 1e5 * (0.2 + 0.51 / 2), rel=1e-3)


@pytest.mark.parametrize(("between", "minutes"), [(24.0, 117.0), (6.0, 57.0), (0.25, 9.1)])
def test_the_interval_is_that_of_dalys_figures_3_to_5(between: float, minutes: float) -> None:
    """500 h of work, checkpoints of 5 minutes, restarts of 10."""
    best = best_interval(500.0, Costs(5 * MINUTE, 10 * MINUTE, between))
    assert best / MINUTE == pytest.approx(minutes, rel=0.01)


def test_youngs_square_root_is_its_first_order() -> None:
    assert best_interval(1e6, Costs(1e-3, 0.1, 1e4)) == pytest.approx(math.sqrt(2 * 1e-3 * 1e4), rel=1e-3)


def test_an_interval_is_at_least_a_minute_and_at_most_the_run() -> None:
    assert best_interval(1.0, Costs(1e-9, 0.1, 1e3)) == MINUTE
    assert best_interval(0.5, Costs(0.1, 0.1, 1e6)) == 0.5 == best_interval(0.5, NO_FAILURES)
    assert bill_of(0.5, 0.0, Costs(0.1, 0.1, math.inf, every=8.0), 1, None).checkpoint_hours == pytest.approx(0.1)


def test_what_fails_faster_than_it_restarts_never_ends() -> None:
    bill = bill_of(100.0, 0.0, Costs(0.1, 1.0, 1e-3), 64, 2.0)
    assert math.isinf(bill.hours) and bill.usd is not None and math.isinf(bill.usd)


@given(hours, costs_of_any_run, st.floats(1.0, 10.0))
def test_more_failures_longer_restarts_and_slower_checkpoints_are_never_cheaper(work: float, costs: Costs, factor: float) -> None:
    def cost(costs: Costs) -> float:
        return bill_of(work, 0.0, costs, 64, 2.5).cost

    base = cost(costs) * (1 - 1e-6)
    assert base <= cost(replace(costs, between_failures=costs.between_failures / factor))
    assert base <= cost(replace(costs, restart=costs.restart * factor))
    assert base <= cost(replace(costs, checkpoint=costs.checkpoint * factor))
    assert work <= cost(replace(costs, between_failures=math.inf)) / 64 / 2.5 <= cost(costs) / 64 / 2.5 * (1 + 1e-6)


@given(hours, costs_of_any_run, st.floats(0.01, 100.0))
def test_no_other_interval_is_cheaper_than_the_best(work: float, costs: Costs, factor: float) -> None:
    best = best_interval(work, costs)
    other = min(max(best * factor, MINUTE), work)
    assert expected_hours(work, best, costs) <= expected_hours(work, other, costs) * (1 + 1e-6)


@given(hours, hours, costs_of_any_run)
def test_the_parts_are_the_whole(training: float, evaluation: float, costs: Costs) -> None:
    bill = bill_of(training, evaluation, costs, 8, 1.0)
    parts = bill.training_hours + bill.evaluation_hours + bill.checkpoint_hours + bill.failure_hours
    assert bill.hours == pytest.approx(parts) or math.isinf(bill.hours)


def test_runs_with_drawn_failures_take_as_long() -> None:
    costs, work, every = Costs(0.1, 0.3, 4.0, every=1.0), 20.0, 1.0
    drawn, runs = random.Random(1), 4000
    mean = sum(_drawn_hours(work, every, costs, drawn) for _ in range(runs)) / runs
    assert mean == pytest.approx(expected_hours(work, every, costs), rel=0.02)


def _drawn_hours(work: float, every: float, costs: Costs, drawn: random.Random) -> float:
    """A run that is walked through, failure by failure."""
    clock, done, left = 0.0, 0.0, drawn.expovariate(1 / costs.between_failures)
    pending = 0.0  # of a restart that comes first
    while done < work:
        segment = pending + every + costs.checkpoint
        if left >= segment:
            clock, left, done, pending = clock + segment, left - segment, done + every, 0.0
        else:
            clock, left, pending = clock + left, drawn.expovariate(1 / costs.between_failures), costs.restart
    return clock


def test_a_bill_is_frozen() -> None:
    bill: Bill = bill_of(1.0, 0.0, NO_FAILURES, 1, None)
    with pytest.raises(AttributeError):
        bill.usd = 1.0  # type: ignore[misc]

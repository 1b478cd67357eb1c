"""DLRMv4's published steps: the times, the parts of one, one layer, and what the predictions on file were made with."""

from __future__ import annotations

import json

import pytest

from experiments.dlrm_v4.predictions import FILE, cases, predicted
from experiments.dlrm_v4.priced import Case, priced, profile, published, time_ms
from experiments.dlrm_v4.times import layer, parts, times
from recsys_lab.plan.memory import missing_bytes


@pytest.fixture(scope="module")
def five() -> dict[str, float]:
    return {line.what: line.ours for line in times().lines if line.unit == "ms"}


def test_all_five_times_are_within_15_percent_by_one_profile(five: dict[str, float]) -> None:
    given = {one["what"]: one["ms"] for one in published()["times"]}
    assert five == pytest.approx(given, rel=0.15) and len(five) == 5


def test_each_part_of_the_traced_step_is_within_30_percent() -> None:
    lines = parts().lines
    assert len(lines) == 5
    assert [line.what for line in lines if line.error is None or abs(line.error) > 0.3] == []


def test_a_last_layer_for_the_candidate_saves_what_is_published_within_20_percent() -> None:
    saved = next(line for line in layer().lines if line.what == "saved")
    assert saved.ours == pytest.approx(saved.published, rel=0.2)


def test_longer_histories_take_longer_by_more_than_their_tokens() -> None:
    """Attention grows with the square, all else with the length."""
    short, long = (priced(Case("mi350x", 1, events)) for events in (1000.0, 2000.0))
    ms = [time_ms(of, profile(), of.cluster) for of in (short, long)]
    assert 1.8 < ms[1] / ms[0] < 2.5


def test_the_published_plan_fits_its_machine() -> None:
    """It ran: tables of 96 GiB at most, and a batch's activations."""
    of = priced(Case("mi350x", 1, published()["events"]["a1"]))
    assert missing_bytes(of.memory, of.cluster)[0] <= 0
    assert max(of.memory.weights) / 2**30 == pytest.approx(95.9, rel=0.01)


@pytest.mark.long
def test_predictions_on_file_are_todays() -> None:
    on_file = json.loads(FILE.read_text())["predictions"]
    assert on_file == [predicted(case) for case in cases()]

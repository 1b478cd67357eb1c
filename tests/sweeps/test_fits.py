"""Whether a plan fits its cluster stands in the tables of a sweep."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from recsys_lab.record.result import Failure
from recsys_lab.simulate.simulated import Interval
from recsys_lab.sweeps.ablation import read_ablation, write_ablation
from recsys_lab.sweeps.cells import change_tables, explained, value_tables
from tests.record.fake_run import failed, make_result, write_run


def test_ends_of_an_interval_are_not_compared(tmp_path: Path) -> None:
    """The ratio of two ends could be taken for the end of the ratio's interval."""
    slow, fast = make_result("simulate"), make_result("simulate")
    assert slow.simulated is not None and fast.simulated is not None
    fast = replace(fast, simulated=replace(fast.simulated, interval_ms=Interval(1.0, 2.0)))
    slow = replace(slow, simulated=replace(slow.simulated, interval_ms=Interval(2.0, 4.0)))
    for number, result in enumerate((slow, fast)):
        write_run(tmp_path / str(number), result, [f"model=m{number}"])
    ablation = read_ablation(tmp_path)
    assert "A change of quality is a difference; x1.2 is 1.2 times the baseline's." in explained(ablation)
    (values,), (changes,) = value_tables(ablation), change_tables(ablation)
    assert "interval low ms \N{DOWNWARDS ARROW}" in values.columns and not [name for name in changes.columns if "interval" in name]


def test_a_plan_that_does_not_fit_says_so_and_has_no_figures(tmp_path: Path) -> None:
    results = [make_result("simulate"), replace(failed(make_result("simulate")), error=Failure("PlanDoesNotFit", "lacks 2.0 GB"))]
    results.append(failed(make_result("simulate")))
    for number, result in enumerate(results):
        write_run(tmp_path / str(number), result, [f"model=m{number}"])
    (table,) = value_tables(read_ablation(tmp_path))
    assert table.title == "Speed (simulated)"
    assert [row[table.columns.index("fits")] for row in table.rows] == ["yes", "no", "not known"]
    assert {"$ per 1e9 \N{DOWNWARDS ARROW}"}.isdisjoint(table.columns)  # no price is known
    phases = ("compute", "exchange", "sync", "host", "copy", "other")
    assert {f"{phase} ms \N{DOWNWARDS ARROW}" for phase in phases} | {"memory GB \N{DOWNWARDS ARROW}"} <= set(table.columns)
    write_ablation(tmp_path)
    with (tmp_path / "ablation.csv").open() as file:
        assert [row["simulated_fits"] for row in csv.DictReader(file)] == ["true", "false", ""]

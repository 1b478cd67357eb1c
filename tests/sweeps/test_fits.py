"""Whether a plan fits its cluster stands in the tables of a sweep."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from recsys_lab.record.result import Failure
from recsys_lab.sweeps.ablation import read_ablation, write_ablation
from recsys_lab.sweeps.cells import value_tables
from tests.record.fake_run import failed, make_result, write_run


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

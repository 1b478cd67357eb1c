"""Quality in parts on the page and in the terminal: from the record alone, whatever is missing in it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import binomtest

from recsys_lab.record.breakdown import Breakdown
from recsys_lab.record.run_folder import Run, read_run
from recsys_lab.report.breakdown import by_column, by_column_charts, gauc, interval, print_breakdown, reliability_charts
from recsys_lab.report.page import write_page
from recsys_lab.report.terminal import console
from tests.record.fake_run import make_breakdown, make_result, write_run
from tests.report.drawn import tips, words


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    splits = {"validation": make_breakdown(), "test": make_breakdown()}
    result = make_result()
    assert result.quality is not None
    quality = {**result.quality, "test": {**result.quality["validation"], "examples": 2000}}
    return read_run(write_run(tmp_path_factory.mktemp("run") / "run", replace(result, breakdown=splits, quality=quality)))


def test_a_table_has_every_value_those_that_are_rare_and_all_rows(run: Run) -> None:
    (table,) = by_column(run.result)
    assert table.title == "Quality by device type, test (measured)" and table.columns[0] == "device type"
    assert [row[0] for row in table.rows] == ["phone", "set-top box of some maker with a long name", "watch", "3 other values", "all"]
    assert table.rows[2] == ("watch", "\N{EN DASH}", "\N{EN DASH}", "0.2000", "\N{EN DASH}", "180")
    assert "fewer than 100 rows" in table.note and "one label" in table.note
    grouped = gauc(run.result)
    assert grouped is not None and grouped.rows[1] == ("test", "0.64000", "70", "1,500", "40", "500")


def test_charts_say_their_figures(run: Run) -> None:
    first, second = reliability_charts(run.result)
    assert (first.name, second.name) == ("reliability-validation", "reliability-test")
    assert "200 examples\npredicted 5.00%\nclicked 5.00% (2.74% to 8.96%)" in tips(first)
    ((auc, calibration),) = by_column_charts(run.result)
    assert tips(auc) == ["phone: auc 0.7100, 1,200 examples", "set-top box of some maker with a long name: auc 0.6600, 600 examples"]
    assert "all rows 0.7731" in words(auc) and "calibrated" in words(calibration) and len(tips(calibration)) == 2


def test_the_interval_is_wilsons() -> None:
    for positives, examples in ((0, 7), (3, 7), (7, 7), (190, 2000)):
        exact = binomtest(positives, examples).proportion_ci(method="wilson")
        assert interval(positives, examples) == pytest.approx((exact.low, exact.high), abs=1e-12)


def test_the_terminal_shows_it_in_80_columns(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    print_breakdown(run.result, console())
    lines = capsys.readouterr().out.splitlines()
    assert (
        max(map(len, lines)) <= 80 and any(line.startswith("phone") for line in lines) and any("GAUC by user_id" in line for line in lines)
    )


def test_a_run_without_it_has_neither(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "run"))
    assert by_column(run.result) == [] and gauc(run.result) is None and reliability_charts(run.result) == []
    bare = replace(make_result(), breakdown={"validation": Breakdown((), {}, None)})
    page = write_page(write_run(tmp_path / "bare", bare)).read_text()
    assert "reliability-" not in page and "GAUC" not in page

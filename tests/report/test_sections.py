"""The tables of a report: only what a run has."""

from __future__ import annotations

import json
from dataclasses import replace

import yaml

from recsys_lab.record.baselines import Baselines
from recsys_lab.record.result import EndedBy
from recsys_lab.record.run_folder import read_run
from recsys_lab.report.page import write_page
from recsys_lab.report.sections import CALIBRATE, absent, collectives, headline, phases
from recsys_lab.report.sections import quality as quality_table
from recsys_lab.report.tiers import tiers
from tests.record.fake_run import make_result, write_run
from tests.report.test_plan_map import tiered
from tests.report.test_timeline_chart import TRACE


def test_a_report_shows_places_where_items_are_held_out_and_no_empty_columns(tmp_path):
    figures = {"hit_rate_10": 0.06, "ndcg_10": 0.03, "hit_rate_10_of_100": None, "ndcg_10_of_100": None, "users": 22_363}
    run = read_run(write_run(tmp_path / "held_out", replace(make_result(), quality={"validation": figures, "test": figures})))
    table = quality_table(run)
    assert table.columns[1:6] == ("hit_rate_10", "ndcg_10", "hit_rate_10_of_100", "ndcg_10_of_100", "users")
    assert table.rows[0][1:6] == ("0.06000", "0.03000", "not known", "not known", "22,363")
    assert ("NDCG@10 among all items, test", "0.0300", "measured") in headline(run).rows
    clicks = quality_table(read_run(write_run(tmp_path / "clicks", make_result())))
    assert "ndcg_10" not in clicks.columns and "auc" in clicks.columns


def test_tiers_are_of_plans_that_have_some(tmp_path):
    run = read_run(write_run(tmp_path / "run"))
    assert tiers(run) is None and tiers(replace(run, plan=None)) is None
    table = tiers(replace(run, plan=tiered()))
    assert table is not None and [row[0] for row in table.rows] == ["replicated", "host_sharded", "row_sharded"]


def test_a_training_of_a_few_steps_is_not_called_no_training():
    trained = {"mode": "auto", "measured": None, "quality": {"validation": {"auc": 0.7}}}
    assert absent(trained, "measured") == "not measured: too few steps, the first 3 are not timed"
    assert absent(trained | {"quality": None, "mode": "plan"}, "measured") == "not trained: mode=plan"


def test_a_simulation_that_is_not_calibrated_does_not_stand_beside_a_measurement(tmp_path):
    folder = write_run(tmp_path / "run")
    (folder / "trace.json").write_text(json.dumps(TRACE))
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config["cluster"] |= {"name": "local", "device": {"name": "CPU", "source": "on file; calibrate was not run on this machine"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    run = read_run(folder)
    assert ("iteration", "not calibrated", f"simulated; {CALIBRATE}") in headline(run).rows
    assert phases(run, "simulated").rows == () and phases(run, "measured").rows != ()
    assert {row[-1] for row in collectives(run, "simulated").rows} == {"not calibrated"}
    page = write_page(folder).read_text()
    assert "phases-measured" in page and "phases-simulated" not in page and 'id="timeline"' not in page and "2.400 ms" not in page


def test_the_best_auc_is_no_bound_on_rows_that_the_model_has_seen(tmp_path):
    result = make_result()
    seen = replace(result, quality={**result.quality, "train": result.quality["validation"]})
    folder = write_run(tmp_path / "seen", seen)
    (folder / "environment.json").write_text(json.dumps({"data": {"best_auc": {"train": 0.71, "validation": 0.7812}}}))
    table = quality_table(read_run(folder))
    assert {row[0]: row[-1] for row in table.rows} == {"train": "", "validation": "0.78120"}
    assert "by chance" in table.note


def test_baselines_stand_beside_quality_and_a_lost_comparison_says_what_to_try(tmp_path):
    better = {"validation": {"auc": 0.9, "ne": 0.8, "log_loss": 0.4, "calibration": 1.0, "examples": 100}}
    base = {"validation": {"auc": 0.5, "ne": 1.0, "log_loss": 0.5, "calibration": 1.0, "examples": 100}}
    result = replace(make_result(), baselines=Baselines(base, better, 0.1, 60_000, 90_000), chosen={"trainer.max_epochs": 100})
    table = quality_table(read_run(write_run(tmp_path / "lost", result)))
    assert [row[:2] for row in table.rows[-2:]] == [("validation, logistic regression", "0.90000"), ("validation, base rate", "0.50000")]
    assert "the model loses to logistic regression by" in table.note and "optimizer.sparse.weight_decay=0.1" in table.note
    assert "chosen by the number of rows: trainer.max_epochs=100" in table.note
    quality = read_run(tmp_path / "lost").result["quality"]
    same = replace(result, baselines=Baselines(quality, quality, 0.1, 90_000, 90_000))
    assert "the model is the logistic regression that it began as" in quality_table(read_run(write_run(tmp_path / "same", same))).note
    cut = replace(result, ended_by=EndedBy("trainer.max_steps", 40, 2450))
    note = quality_table(read_run(write_run(tmp_path / "cut", cut))).note
    assert "loses to logistic regression by" in note and "regularisation" not in note
    assert "not trained to the end: 40 of 2,450 steps (trainer.max_steps)" in note
    stayed = quality_table(read_run(write_run(tmp_path / "stayed", replace(same, ended_by=cut.ended_by)))).note
    assert "not trained to the end" in stayed and "more rows help" not in stayed
    won = replace(result, baselines=Baselines(base, base, 0.1, 90_000, 90_000))
    assert "loses" not in quality_table(read_run(write_run(tmp_path / "won", won))).note

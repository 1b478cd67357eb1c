"""The record, metrics.csv and the environment: to the contract, whole or absent, and read back."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest

from recsys_lab.base.files import write_json, write_text
from recsys_lab.errors import UserError
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.record.environment import environment
from recsys_lab.record.metrics_csv import COLUMNS, MetricsCsv, read_metrics
from recsys_lab.record.result import plan_summary, read_result, write_result
from tests.record.fake_run import WORKLOAD, failed, make_access, make_plan, make_result

KEYS = ["schema", "status", "mode", "seed", "config_fingerprint", "plan_fingerprint", "choices", "quality", "plan", "measured", "simulated"]
PARTS = {
    "choices": "model sharder precision cluster data launcher",
    "plan": "world_size tables rows parameters bytes_per_rank tiers towers fullest_bytes dedup",
    "measured": "backend world_size hosts ranks_per_host examples_per_second iteration_ms phases_ms wire_bytes collectives "
    "peak_memory_bytes data_wait_share",
    "simulated": "cluster world_size profile examples_per_second iteration_ms phases_ms collectives bytes_per_rank feasible "
    "interval_ms cost_per_billion_samples software added_memory_bytes extrapolates price",
}


def test_the_record_has_the_contracts_keys_in_their_order(tmp_path):
    write_result(tmp_path, make_result())
    data = json.loads((tmp_path / "result.json").read_text())
    assert list(data) == KEYS and data["schema"] == 1
    for part, keys in PARTS.items():
        assert list(data[part]) == keys.split(), part
    assert list(data["measured"]["collectives"][0]) == ["name", "kind", "group", "bytes", "ms"]
    assert set(data["measured"]["iteration_ms"]) == {"median", "p95"}
    assert set(data["measured"]["wire_bytes"]) == {"intra_host", "cross_host"}
    assert set(data["simulated"]["phases_ms"]) == {
        "compute", "exposed_embedding_comm", "exposed_dense_sync", "host_launch", "input_copy", "other"
    }  # fmt: skip
    assert set(data["plan"]["tiers"]) == {"replicated", "host_sharded", "row_sharded"}
    assert set(data["quality"]) == {"train", "validation"}
    assert read_result(tmp_path) == data


def test_what_was_not_done_is_null(tmp_path):
    write_result(tmp_path, make_result("simulate"))
    data = read_result(tmp_path)
    assert data["measured"] is None and data["quality"] is None and data["simulated"] is not None
    assert data["plan"]["towers"] is None and "error" not in data


def test_a_failed_run_says_why_and_only_a_failed_one(tmp_path):
    write_result(tmp_path, failed(make_result(), "no room"))
    assert read_result(tmp_path)["error"] == {"type": "UserError", "message": "no room"}
    with pytest.raises(AssertionError):
        replace(make_result(), status="failed")


def test_figures_that_are_not_finite_become_null_and_numpy_becomes_plain(tmp_path):
    write_json(
        tmp_path / "x.json", {"a": float("nan"), "b": np.float32(0.5), "c": (np.int64(3), float("inf")), "d": {1: np.float64("nan")}}
    )
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": None, "b": 0.5, "c": [3, None], "d": {"1": None}}


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    write_text(tmp_path / "x", "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="cannot write: No space left on device"):
        write_text(tmp_path / "x", "new")
    assert [p.name for p in tmp_path.iterdir()] == ["x"] and (tmp_path / "x").read_text() == "old"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no result.json here"),
        ("{", "not JSON"),
        ('{"schema": 2}', "given 2; allowed: 1"),
        ('{"schema": 1}', "incomplete; given no choices"),
    ],
)
def test_a_missing_or_broken_record_is_one_line(tmp_path, content, message):
    if content is not None:
        (tmp_path / "result.json").write_text(content)
    with pytest.raises(UserError, match=message):
        read_result(tmp_path)


@pytest.mark.parametrize(("hosts", "ranks_per_host"), [(1, 1), (2, 2), (8, 8)])
def test_the_plans_summary_agrees_with_the_plan(hosts, ranks_per_host):
    plan = make_plan(hosts, ranks_per_host)
    access = make_access(plan.tables)
    summary = plan_summary(plan, access, WORKLOAD)
    assert summary.rows == sum(t.rows for t in plan.tables) == sum(tier["rows"] for tier in summary.tiers.values())
    assert summary.parameters == 64 * summary.rows and summary.world_size == hosts * ranks_per_host
    replicated = [t.name for t, p in zip(plan.tables, plan.placements) if p.scheme == "data_parallel"]
    lookups = {t.name: access[t.name].mean_length for t in plan.tables}
    assert summary.tiers["replicated"]["access_share"] == pytest.approx(sum(lookups[t] for t in replicated) / sum(lookups.values()))
    assert sum(tier["access_share"] for tier in summary.tiers.values()) == pytest.approx(1)
    bytes_of_rank = bytes_of_ranks(plan, WORKLOAD).lasting
    assert summary.bytes_per_rank.max == max(bytes_of_rank) and summary.bytes_per_rank.mean == sum(bytes_of_rank) / len(bytes_of_rank)
    assert plan_summary(plan, None, None).tiers["replicated"]["access_share"] is None
    assert plan_summary(plan, None, None).bytes_per_rank.max == max(plan.weight_bytes_of_ranks())


def test_metrics_are_rows_with_blanks_where_absent(tmp_path):
    metrics = MetricsCsv(tmp_path)
    metrics.append({"step": 10, "epoch": 0, "train_loss": np.float64(0.1), "examples": np.int64(640)})
    metrics.append({"step": 20, "validation_auc": float("nan"), "learning_rate": np.float32(0.5)})
    lines, none = (tmp_path / "metrics.csv").read_text().splitlines(), "," * (len(COLUMNS) - 4)
    assert lines == [",".join(COLUMNS), f"10,0,640,0.1{none}", f"20,,,,0.5{none[:-1]}"]
    assert read_metrics(tmp_path)[1]["learning_rate"] == 0.5 and read_metrics(tmp_path)[1]["train_loss"] is None


def test_a_resumed_run_has_no_step_twice_and_keeps_the_bits_of_the_rest(tmp_path):
    losses = {step: 1 / step for step in range(3, 40, 3)}
    undisturbed, resumed = tmp_path / "a", tmp_path / "b"
    for folder in (undisturbed, resumed):
        folder.mkdir()
        metrics = MetricsCsv(folder)
        for step, loss in losses.items():
            metrics.append({"step": step, "train_loss": loss})
    with (resumed / "metrics.csv").open("a") as file:
        file.write("42,,,0.0")  # the kill came in the middle of a line
    metrics = MetricsCsv(resumed)
    metrics.truncate_after(20)
    assert [int(row["step"]) for row in read_metrics(resumed)] == [3, 6, 9, 12, 15, 18]
    for step in range(21, 40, 3):
        metrics.append({"step": step, "train_loss": losses[step]})
    assert (resumed / "metrics.csv").read_bytes() == (undisturbed / "metrics.csv").read_bytes()


def test_an_unknown_column_is_our_bug(tmp_path):
    with pytest.raises(AssertionError, match="val_auc"):
        MetricsCsv(tmp_path).append({"step": 1, "val_auc": 0.5})


def test_the_environment_names_code_command_packages_and_hardware():
    made = environment(["run.py", "seed=3"], {"notes": [], "best_auc": {}})
    assert made["argv"] == ["run.py", "seed=3"] and made["data"] == {"notes": [], "best_auc": {}}
    assert made["packages"]["numpy"] == np.__version__
    assert made["hardware"]["cores"] >= 1 and made["hardware"]["memory_bytes"] > 1e8 and isinstance(made["hardware"]["gpus"], list)
    assert (made["commit"] is None) == (made["dirty"] is None)
    assert json.dumps(made, allow_nan=False)


def test_metrics_of_a_folder_that_is_gone(tmp_path):
    metrics = MetricsCsv(tmp_path / "run")
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(UserError, match=r"metrics.csv: cannot write: No such file or directory"):
        metrics.append({"step": 1})

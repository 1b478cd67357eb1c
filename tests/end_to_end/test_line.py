"""The main line leaves a whole run folder, to the contract."""

from __future__ import annotations

import csv
import json
import os
import re

import pytest

from tests.end_to_end.lines import result

FILES = {
    ".hydra",
    "checkpoints",
    "config.yaml",
    "environment.json",
    "metrics.csv",
    "plan.json",
    "plan_here.json",
    "report.html",
    "result.json",
    "trace.json",
}


def test_the_run_folder_is_whole(undisturbed):
    folder, done = undisturbed
    assert set(os.listdir(folder)) >= FILES
    assert json.loads((folder / "plan.json").read_text())["hosts"] == 8
    assert json.loads((folder / "plan_here.json").read_text())["hosts"] == 2
    assert "simulated" in done.out and "measured" in done.out and "best reachable AUC" in done.out


def test_the_record_keeps_the_contract(undisturbed):
    folder, _ = undisturbed
    made = result(folder)
    assert list(made) == [
        "schema", "status", "mode", "seed", "config_fingerprint", "plan_fingerprint", "choices", "quality", "plan", "measured", "simulated",
        "breakdown",
    ]  # fmt: skip
    assert made["choices"] == {
        "model": "dcn", "sharder": "torchrec", "precision": "fp32", "cluster": "h100x64", "data": "synthetic", "launcher": "local",
    }  # fmt: skip
    assert {split: q["examples"] for split, q in made["quality"].items()} == {"validation": 1500, "test": 1500}
    assert set(made["quality"]["test"]) == {"auc", "ne", "log_loss", "calibration", "examples"}
    assert set(made["plan"]) == {
        "world_size", "tables", "rows", "parameters", "bytes_per_rank", "tiers", "towers", "fullest_bytes", "dedup",
    }  # fmt: skip
    assert made["plan"]["world_size"] == made["simulated"]["world_size"] == 64
    measured, simulated = made["measured"], made["simulated"]
    assert set(measured) == {
        "backend", "world_size", "hosts", "ranks_per_host", "examples_per_second", "iteration_ms", "phases_ms", "wire_bytes", "collectives",
        "peak_memory_bytes", "added_memory_bytes", "data_wait_share", "exchange_ms", "transport", "checkpoints",
    }  # fmt: skip
    assert (measured["backend"], measured["world_size"], measured["hosts"], measured["ranks_per_host"]) == ("gloo", 4, 2, 2)
    assert measured["transport"] == "shared_memory"
    assert set(simulated) == {
        "cluster", "world_size", "profile", "examples_per_second", "iteration_ms", "phases_ms", "collectives", "bytes_per_rank", "feasible",
        "interval_ms", "cost_per_billion_samples", "software", "added_memory_bytes", "extrapolates", "price",
        "bound_by", "torchrec_host_ms",
    }  # fmt: skip
    assert set(simulated["phases_ms"]) == {
        "compute", "exposed_embedding_comm", "exposed_dense_sync", "host_launch", "input_copy", "other"
    }  # fmt: skip
    assert simulated["iteration_ms"] == pytest.approx(sum(simulated["phases_ms"].values()))
    for one in (*measured["collectives"], *simulated["collectives"]):
        assert set(one) == {"name", "kind", "group", "bytes", "ms"}


def test_the_record_says_how_long_checkpoints_took(undisturbed):
    folder, _ = undisturbed
    written = result(folder)["measured"]["checkpoints"]
    assert written["count"] >= 8 and written["mean_s"] > 0  # of 46 steps every fifth, and the best weights
    assert written["in_background"] == written["count"] and 0 < written["stall_share"] < 1
    assert written["copy_bytes"] > 0 and written["write_s"] > written["mean_s"] and written["incremental_bytes_share"] is None
    files = (folder / "checkpoints").glob("step=*/rank_*.safetensors")
    assert written["bytes"] == sum(path.stat().st_size for path in files) / len(list((folder / "checkpoints").glob("step=*")))


def test_what_ran_is_what_the_steps_say(undisturbed):
    """The collectives of the record carry the names of steps: every recorded one found its step."""
    folder, _ = undisturbed
    named = [one["name"] for one in result(folder)["measured"]["collectives"]]
    assert named and all("." in name for name in named), named
    assert len(set(named) - {"dense.all_reduce"}) == len([n for n in named if n != "dense.all_reduce"])


def test_the_metrics_file_has_a_row_a_logged_step_and_the_evaluations(undisturbed):
    folder, _ = undisturbed
    rows = list(csv.DictReader((folder / "metrics.csv").open()))
    steps = [int(row["step"]) for row in rows]
    assert steps == sorted(steps)
    assert [row["step"] for row in rows if row["validation_auc"]] == ["24", "48"]
    assert int(rows[-1]["examples"]) == 12000


def test_the_page_asks_nothing_of_anyone(undisturbed):
    page = (undisturbed[0] / "report.html").read_text()
    markup = re.sub(r"<pre>.*?</pre>", "", page, flags=re.DOTALL)  # the config's text may name a page, such as a price's source
    assert markup != page and "http://" not in markup.replace("http://www.w3.org", "") and "https://" not in markup
    assert not re.search(r"<(script|link|img|iframe)[^>]*\s(src|href)=(?!['\"]?data:)", page)

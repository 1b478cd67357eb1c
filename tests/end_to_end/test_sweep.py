"""A sweep survives a failing job and ends in a table, a row a configuration, seeds folded."""

from __future__ import annotations

import csv
import json

import pytest

from tests.end_to_end.lines import SMALL, line


def test_a_sweep_with_a_cell_that_cannot_be(tmp_path, cache):
    words = ("-m", "model=dlrm_large", "data=random", "mode=simulate", "logger=none", "sharder=torchrec_row_wise")
    done = line(*words, "cluster=a100x32,h100x64", "simulate.batch_size=512", f"hydra.sweep.dir={tmp_path}", cache=cache)
    assert done.code == 0, done.err
    assert "job 1" in done.out and "cluster=h100x64" in done.out
    rows = list(csv.DictReader((tmp_path / "ablation.csv").open()))
    assert len(rows) == 2
    assert {(tmp_path / name).is_file() for name in ("ablation.md", "ablation.html")} == {True}
    states = {json.loads((tmp_path / str(n) / "result.json").read_text())["choices"]["cluster"]: n for n in (0, 1)}
    failed = json.loads((tmp_path / str(states["a100x32"]) / "result.json").read_text())
    assert failed["status"] == "failed" and failed["error"]["type"] == "PlanDoesNotFit"
    assert "failed" in (tmp_path / "ablation.md").read_text()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_models_two_sharders_two_seeds(tmp_path, cache):
    words = ("-m", "model=dlrm,dcn", "sharder=torchrec,torchrec_row_wise", "seed=1,2", *SMALL)
    done = line(*words, f"hydra.sweep.dir={tmp_path}", cache=cache, timeout_s=800)
    assert done.code == 0, done.err
    rows = list(csv.DictReader((tmp_path / "ablation.csv").open()))
    assert len(rows) == 4, rows

"""Real clicks through `data=table` without a key that says what the columns are."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from tests.end_to_end.lines import line, result

NAMES = ["label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.skipif("RECSYS_LAB_DATA" not in os.environ, reason="set RECSYS_LAB_DATA to the folder that holds criteo_8k")
def test_criteos_rows_reach_the_logistic_regression(tmp_path: Path) -> None:
    """Which columns are numbers is told by their values: ids or logarithms are worth 0.024 AUC here."""
    stored = gzip.decompress((Path(os.environ["RECSYS_LAB_DATA"]) / "criteo_8k" / "train.tsv.gz").read_bytes()).decode()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "clicks.csv").write_text("\n".join([",".join(NAMES), stored.replace("\t", ",")]))
    words = ("data=table", f"data.root={tmp_path / 'data'}", "logger=none", f"hydra.run.dir={tmp_path / 'run'}")
    done = line(*words, cache=tmp_path / "cache")
    assert done.code == 0, done.err
    run = result(tmp_path / "run")
    regression = run["baselines"]["logistic_regression"]["test"]["auc"]
    assert regression >= 0.72 and run["quality"]["test"]["auc"] >= regression - 0.005

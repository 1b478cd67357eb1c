"""The curve of caches in a run folder: from the least memory that works to all tables in memory, and the plan's own point on it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import run
from recsys_lab.base.store_names import HOST_CACHED
from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.sharders.stores import Stores
from tests.sharders.test_every_sharder import chosen
from tests.sharders.test_stores import cluster, inputs_on

ROWS = "name,rows,dim,mean_ids,pooling,skew\na,300000,64,1,sum,1.05\nb,200000,64,4,sum,1.05\nc,50,64,1,sum,1.0\n"


def simulated(folder: Path, *words: str) -> int:
    (folder / "tables.csv").write_text(ROWS)
    line = ["model=tables", f"model.file={folder / 'tables.csv'}", "data.rows_train=4096", "data.rows_validation=64", "mode=simulate"]
    line += ["logger=none", "sharder=neo_4d", "cluster=a100x8", "simulate.batch_size=256", f"hydra.run.dir={folder / 'run'}"]
    return run.main([*line, *words])


def test_a_run_with_stores_leaves_its_curve(tmp_path: Path) -> None:
    assert simulated(tmp_path, "sharder.memory_budget_gb=0.06") == 0
    points = json.loads((tmp_path / "run" / "stores.json").read_text())["points"]
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    (own,) = [point for point in points if point["chosen"]]
    assert own["memory_gb"] == 0.06 and own["iteration_ms"] == record["simulated"]["iteration_ms"]
    assert own["tables"] == len(record["plan"]["stores"]) > 0
    assert [point["memory_gb"] for point in points] == sorted(point["memory_gb"] for point in points) and len(points) >= 9
    assert points[-1]["cached_share"] == 1.0 and points[-1]["tables"] == 0 and points[0]["cached_share"] < own["cached_share"]
    assert points[0]["iteration_ms"] >= points[-1]["iteration_ms"]
    page = (tmp_path / "run" / "report.html").read_text()
    assert "The smallest cache within 2%" in page


def test_its_ends_are_what_the_plan_works_with() -> None:
    """With less than the first the smallest caches do not fit; with the last no table leaves memory, and with less some does."""
    inputs = inputs_on(cluster("cuda", 16.0))
    plan, stores = chosen("torchrec_row_wise")[1].plan(inputs), Stores(store=HOST_CACHED)
    least, whole = stores.span_gb(inputs, plan)
    assert 0 < least < whole < 16.0
    assert stores.at(inputs, plan, least * 1.0001).has_stores
    with pytest.raises(PlanDoesNotFit):
        stores.at(inputs, plan, least * 0.9999)
    assert not stores.at(inputs, stores.at(inputs, plan, least * 1.0001), whole * 1.0001).has_stores
    assert stores.at(inputs, plan, whole * 0.9999).has_stores


def test_a_run_without_stores_leaves_none(tmp_path: Path) -> None:
    assert simulated(tmp_path) == 0
    assert not (tmp_path / "run" / "stores.json").exists()

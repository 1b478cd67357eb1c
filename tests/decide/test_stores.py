"""Rows whose plan has tables larger than memory say so, and what a faster way to their rows would do."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import run
from recsys_lab.decide.decision import Decision, decide
from recsys_lab.decide.page import page
from recsys_lab.decide.tables import rows_table
from recsys_lab.units import counted

ROWS = "name,rows,dim,mean_ids,pooling,skew\na,3000000,64,20,sum,0.8\nb,2000000,64,20,sum,0.8\nc,50,64,1,sum,1.0\n"


def decided(folder: Path, store: str) -> Decision:
    (folder / "tables.csv").write_text(ROWS)
    words = ["model=tables", f"model.file={folder / 'tables.csv'}", "data.rows_train=4096", "data.rows_validation=64"]
    words += ["sharder.memory_budget_gb=0.18", f"sharder.store={store}", "precisions=fp32", "optimizers=row_wise_adagrad"]
    return decide(*words, clusters="a100x8:1.5", sharders="neo_4d", profiles="hugectr", batch=16384)


@pytest.mark.parametrize(
    ("store", "helps", "where"), [("host", "twice the host link", "in host memory"), ("disk_cached", "twice the disk", "on disk")]
)
def test_rows_say_where_tables_are_and_what_would_help(tmp_path: Path, store: str, helps: str, where: str) -> None:
    found = decided(tmp_path, store)
    (row,) = found.rows
    number = row.stores[store]
    assert row.tables_elsewhere == {where: number} and number > 0
    assert row.memory_there_gb == 0.18 and row.memory_gb is not None and row.memory_gb <= 0.18
    (change,) = [change for change in found.sensitivity if change.name == helps]
    assert change.time_change is not None and change.time_change < 0 and change.ms is not None and row.ms is not None and change.ms < row.ms
    if store == "host":
        assert change.phase == "rows from host memory or disk" and change.phase_ms[1] < change.phase_ms[0]
    table = rows_table(found.rows, found.winner)
    assert f"\n  {number} {where}" in table.rows[0][0] and "tables larger than the memory" in table.note
    assert found.to_json()["rows"][0]["stores"] == {store: number}
    assert f"<td>{counted(number, 'table')} {where}</td>" in page(found)
    assert run.main([*shlex.split(row.command)[2:], "logger=none", f"hydra.run.dir={tmp_path / 'run'}"]) == 0
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert record["simulated"]["iteration_ms"] == row.ms and len(record["plan"]["stores"]) == number


def test_rows_without_stores_say_nothing_of_them() -> None:
    words = ["model=dcn", "data=random", "data.rows_train=4096", "data.rows_validation=64", "precisions=fp32", "optimizers=adam"]
    found = decide(*words, clusters="h100x16:2.5", sharders="torchrec_row_wise", profiles="torchrec", batch=65536)
    table = rows_table(found.rows, found.winner)
    assert found.rows[0].stores == {} and "larger than" not in table.note
    assert "twice the disk" not in {change.name for change in found.sensitivity}

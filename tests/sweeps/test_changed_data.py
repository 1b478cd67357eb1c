"""A sweep that is called again after its data file changed: no table of two states of the data."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import run
from recsys_lab.sweeps import folder as sweep_folder
from recsys_lab.sweeps.ablation import read_ablation


def put(root: Path, users: int) -> None:
    (root / "a.csv").write_text("label,user,item\n" + "".join(f"{i % 2},u{i % users},x{i % 3}\n" for i in range(200)))


def swept(capsys: pytest.CaptureFixture, root: Path, *words: str) -> str:
    line = ["-m", "data=table", f"data.root={root}", f"data.cache={root}/cache", "mode=plan", "logger=none"]
    assert run.main([*line, f"hydra.sweep.dir={root}/sweep", *words]) == 0
    return capsys.readouterr().out


def rows_of_tables(root: Path, name: str) -> int:
    return json.loads((root / "sweep" / name / "result.json").read_text())["plan"]["rows"]


def test_jobs_run_again_where_the_file_has_changed(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    put(tmp_path, 5)
    swept(capsys, tmp_path, "seed=1")
    put(tmp_path, 7)
    said = swept(capsys, tmp_path, "seed=1,2")
    assert said.count("its data have changed since it ran: runs again") == 1 and "not repeated" not in said
    assert [rows_of_tables(tmp_path, name) for name in ("0", "1", "superseded/0-1")] == [14, 14, 12]
    put(tmp_path, 9)
    swept(capsys, tmp_path, "seed=3")
    assert [rows_of_tables(tmp_path, name) for name in "012"] == [14, 14, 16]
    (row,) = read_ablation(tmp_path / "sweep").rows
    assert row.status == "1 of 3 seeds completed" and row.error == "its data have changed since: run the same command again"
    put(tmp_path, 9)  # written again, and the same
    assert swept(capsys, tmp_path, "seed=3").count("not repeated") == 1


@pytest.mark.parametrize("written", ["{}", '{"data": null}', '{"data": {"notes": []}}', "[]", "nonsense", '{"data": {"fingerprint": 3}}'])
def test_a_run_that_does_not_say_passes(tmp_path: Path, written: str) -> None:
    (tmp_path / "environment.json").write_text(written)
    assert not sweep_folder.has_other_data(tmp_path, "a") and not sweep_folder.has_other_data(tmp_path / "none", "a")
    (tmp_path / "environment.json").write_text('{"data": {"fingerprint": "b"}}')
    assert sweep_folder.has_other_data(tmp_path, "a") and not sweep_folder.has_other_data(tmp_path, None)

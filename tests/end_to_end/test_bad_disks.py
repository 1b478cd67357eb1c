"""Rows of tables in files: folders that cannot be, disks that fill, files that others cut. One line, exit code 2, nothing left there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from recsys_lab.train.checkpoint import checked_trainer
from tests.end_to_end.lines import ROOT, environment, line
from tests.end_to_end.stores import BUDGET, contents, table_file, words
from tests.end_to_end.test_mistakes import refused

IN_FILES = ("sharder=neo_4d", BUDGET[2], "optimizer=row_wise_adagrad", "trainer.checkpoint_every_steps=5")


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Of a size that a test names, else one that rows fill after the first checkpoint."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={getattr(request, 'param', '500k')}", "tmpfs", disk], capture_output=True
    ).returncode:
        pytest.skip("no file system can be mounted here")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize(
    ("scratch", "says"),
    [
        ("nowhere/rows", "sharder.scratch: no such folder"),
        pytest.param("tables.csv", "sharder.scratch: no such folder", marks=pytest.mark.long),
        ("/proc", "cannot write the rows"),
    ],
)
def test_a_folder_of_rows_that_cannot_be(scratch: str, says: str, tmp_path: Path, cache: Path) -> None:
    given = (*words(table_file(tmp_path)), *IN_FILES, f"sharder.scratch={tmp_path / scratch}")
    refused(line(*given, f"hydra.run.dir={tmp_path / 'run'}", cache=cache), 2, says)
    assert os.listdir(tmp_path) == ["tables.csv"]


def test_what_is_said_for_one_run_wins_over_the_environment(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECSYS_LAB_SCRATCH", "/proc/of_all_runs")
    given = (*words(table_file(tmp_path), steps=3), *IN_FILES)
    refused(line(*given, f"hydra.run.dir={tmp_path / 'run'}", cache=cache), 2, "/proc/of_all_runs: cannot write the rows")
    done = line(*given, f"sharder.scratch={tmp_path}", f"hydra.run.dir={tmp_path / 'run'}", cache=cache)
    assert done.code == 0, done.err
    assert sorted(os.listdir(tmp_path)) == ["run", "tables.csv"]


@pytest.mark.timeout(300)
def test_a_full_disk_and_another_one_to_go_on_with(small_disk: Path, tmp_path: Path, cache: Path) -> None:
    given = (*words(table_file(tmp_path), steps=40), *IN_FILES)
    done = line(*given, f"sharder.scratch={small_disk}", f"hydra.run.dir={tmp_path / 'run'}", cache=cache)
    refused(done, 2, f"{small_disk}: cannot write the rows of table", "No space left on device", "sharder.scratch=DIR")
    assert os.listdir(small_disk) == [] and any((tmp_path / "run" / "checkpoints").glob("step=*"))
    done = line(f"resume={tmp_path / 'run'}", f"sharder.scratch={tmp_path}", cache=cache)
    assert done.code == 0, done.err
    done = line(*given, f"hydra.run.dir={tmp_path / 'undisturbed'}", cache=cache)
    assert done.code == 0, done.err
    ours, theirs = contents(tmp_path / "run"), contents(tmp_path / "undisturbed")
    assert ours.keys() == theirs.keys() and all(ours[key].equal(theirs[key]) for key in theirs)


@pytest.mark.parametrize("small_disk", ["150k"], indirect=True)
def test_a_disk_that_fills_while_a_checkpoint_is_written(small_disk: Path, tmp_path: Path, cache: Path) -> None:
    given = (*words(table_file(tmp_path), steps=40), *IN_FILES, f"sharder.scratch={tmp_path}")
    refused(line(*given, f"hydra.run.dir={small_disk / 'run'}", cache=cache), 2, "No space left on device")
    assert os.listdir(small_disk) == []


@pytest.mark.parametrize("small_disk", ["7m"], indirect=True)
def test_a_disk_that_fills_beside_training(small_disk: Path, tmp_path: Path, cache: Path) -> None:
    """There is room for two checkpoints. They stay, and nothing else."""
    given = (*words(table_file(tmp_path), steps=40), *IN_FILES[2:])
    refused(line(*given, f"hydra.run.dir={small_disk / 'run'}", cache=cache), 2, "No space left on device")
    assert sorted(os.listdir(small_disk / "run" / "checkpoints")) == ["step=10", "step=5"]
    for step in (5, 10):
        assert checked_trainer(small_disk / "run" / "checkpoints" / f"step={step}")["global_step"] == step


def file_of_rows(folder: Path) -> Path | None:
    """By which a rank holds it: it has no name."""
    for handle in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if os.readlink(handle).startswith(f"{folder}/#"):
                return handle
    return None


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_file_of_rows_that_somebody_cuts(tmp_path: Path, cache: Path) -> None:
    folder = tmp_path / "run"
    given = (*words(table_file(tmp_path), steps=20_000), *IN_FILES, "trainer.max_epochs=1000", f"hydra.run.dir={folder}")
    command = [sys.executable, "run.py", *given]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(cache), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not any(folder.glob("checkpoints/step=*")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        handle = file_of_rows(folder)
        assert handle is not None
        os.truncate(handle, 1000)
        _, err = process.communicate(timeout=100)
    finally:
        process.kill()
    assert process.returncode == 2 and len(err.splitlines()) == 1, err
    assert "the file is shorter than it was; its disk may be failing; resume from the last checkpoint" in err

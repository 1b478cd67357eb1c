"""A sweep survives a failing job and a kill, repeats nothing that finished, and ends in a table, a row a configuration, seeds folded."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.end_to_end.lines import SMALL, killed, line, result

WRITTEN = ("ablation.md", "ablation.html", "ablation.tex", "ablation.csv")


def rows_of(sweep: Path, file: str = "ablation.csv") -> list[dict[str, str]]:
    with (sweep / file).open() as lines:
        return list(csv.DictReader(lines))


def written_at(sweep: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in sweep.glob("*/result.json")}


def test_a_sweep_with_a_cell_that_cannot_be(tmp_path, cache):
    words = ("-m", "model=dlrm_large", "data=random", "mode=simulate", "logger=none", "sharder=torchrec_row_wise", "sharder.store=none")
    words = (*words, "cluster=a100x32,h100x64", "simulate.batch_size=512", f"hydra.sweep.dir={tmp_path}")
    done = line(*words, cache=cache)
    assert done.code == 3, done.err
    assert "job 1" in done.out and "cluster=h100x64" in done.out and "1 of 2 jobs done, 1 failed" in done.out
    assert len(rows_of(tmp_path)) == 2
    assert {(tmp_path / name).is_file() for name in WRITTEN} == {True}
    states = {result(tmp_path / str(n))["choices"]["cluster"]: str(n) for n in (0, 1)}
    refused = result(tmp_path / states["a100x32"])
    assert refused["status"] == "failed" and refused["error"]["type"] == "PlanDoesNotFit"
    assert "failed" in (tmp_path / "ablation.md").read_text()

    before = written_at(tmp_path)
    done = line(*words[:-2], "simulate.batch_size=512", words[-1], "ablation.level=0.1", cache=cache)
    assert done.code == 3, done.err
    assert f"finished before, in folder {states['h100x64']}: not repeated" in done.out
    after = written_at(tmp_path)
    assert after[states["h100x64"]] == before[states["h100x64"]] and after[states["a100x32"]] > before[states["a100x32"]]


def test_a_glob_makes_a_row_of_each_choice_and_seeds_come_first(tmp_path, cache):
    words = ("-m", "sharder=glob(torchrec*)", "seed=range(1,3)", "mode=plan", "logger=none", f"hydra.sweep.dir={tmp_path}")
    done = line(*words, cache=cache)
    assert done.code == 0, done.err
    asked = json.loads((tmp_path / "sweep.json").read_text())["jobs"]
    sharders = ["torchrec", "torchrec_2d", "torchrec_row_wise", "torchrec_strong"]
    every = [(seed, sharder) for seed in ("1", "2") for sharder in sharders]
    assert [(job["seed"], job["sharder"]) for job in asked] == every
    assert [result(tmp_path / str(n))["seed"] for n in range(8)] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert [row["sharder"] for row in rows_of(tmp_path)] == sharders


def test_a_sweep_that_cannot_be_written_is_refused_in_one_line(cache):
    done = line("-m", "seed=1,2", "mode=plan", "logger=none", "hydra.sweep.dir=/proc/sweep", cache=cache)
    assert done.code == 2 and done.err.count("\n") == 1 and "hydra.sweep.dir=DIR" in done.err


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_sweep_that_is_killed_is_finished_by_the_same_line(tmp_path, cache):
    """Twice: within a job, and between two, when the record of one has just been written."""
    words = ("-m", "model=dlrm,dcn", "seed=1,2", *SMALL, "launcher.hosts=1", "launcher.ranks_per_host=1", f"hydra.sweep.dir={tmp_path}")
    killed(*words, cache=cache, when=lambda: (tmp_path / "1/checkpoints/step=5").is_dir(), pause_s=0.2, timeout_s=400)
    before = written_at(tmp_path)
    assert set(before) == {"0"}
    page = (tmp_path / "ablation.html").read_text()
    assert "missing" in page and "1 of 4 jobs completed" in page

    killed(*words, cache=cache, when=lambda: (tmp_path / "1/result.json").is_file(), pause_s=0, timeout_s=400)
    between = written_at(tmp_path)
    assert set(between) == {"0", "1"} and between["0"] == before["0"]
    assert line("ablation", str(tmp_path), cache=cache, program=("-m", "recsys_lab")).code == 0
    assert "2 of 4 jobs completed" in (tmp_path / "ablation.html").read_text()

    done = line(*words, cache=cache, timeout_s=800)
    assert done.code == 0, done.err
    after = written_at(tmp_path)
    assert set(after) == {"0", "1", "2", "3"} and {name: after[name] for name in between} == between
    assert done.out.count("not repeated") == 2
    assert {(tmp_path / name / "report.html").is_file() for name in after} == {True}
    rows = rows_of(tmp_path)
    assert [row["completed"] for row in rows] == ["2", "2"]
    assert not [(name, row) for row in rows for name in row if name.endswith(("_median", "_verdict")) and not row[name]]
    tests = rows_of(tmp_path, "ablation_statistics.csv")
    assert {test["verdict"] for test in tests} == {"too few"} and {test["pairs"] for test in tests} == {"2"}
    assert "failed" not in (tmp_path / "ablation.md").read_text()

"""A user's mistake: one line, exit code 2 (3 where a plan does not fit), and nothing left behind."""

from __future__ import annotations

import os

import pytest

from tests.end_to_end.lines import SMALL, line

FRAPPE_HEADER = "label,user,item,daytime,weekday,isweekend,homework,cost,weather,country,city"
FRAPPE_ROWS = ["0,142,3946,5043,5051,5054,5056,5058,5060,5102,5149", "1,241,4553,5043,5051,5054,5055,5058,5061,5117,5236"]


def refused(done, code: int, *parts: str) -> None:
    assert done.code == code, (done.code, done.err)
    lines = [text for text in done.err.strip().splitlines() if text]
    assert len(lines) == 1 and lines[0].startswith("error: "), done.err
    for part in parts:
        assert part in done.err, (part, done.err)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("data=frappe",), ("data.root",)),
        (("data=frappe", "data.root=/nowhere/at/all"), ("/nowhere/at/all",)),
        (("cluster=h100x64", "sharder.planner.force={cat_99: row_wise}"), ("cat_99",)),
    ],
)
def test_refused_before_anything_is_written(tmp_path, cache, words, parts):
    done = line(*words, "logger=none", f"hydra.run.dir={tmp_path / 'run'}", cache=cache)
    refused(done, 2, *parts)
    assert os.listdir(tmp_path) == []


def test_a_bad_data_line_is_named(tmp_path, cache):
    data = tmp_path / "data"
    data.mkdir()
    (data / "valid.csv").write_text("\n".join([FRAPPE_HEADER, *FRAPPE_ROWS]) + "\n")
    (data / "train.csv").write_text("\n".join([FRAPPE_HEADER, *FRAPPE_ROWS, "1,2,3"]) + "\n")
    done = line("data=frappe", f"data.root={data}", "logger=none", f"hydra.run.dir={tmp_path / 'run'}", cache=cache)
    refused(done, 2, "train.csv:4")
    assert not (tmp_path / "run").exists()


def test_one_class_in_a_split(tmp_path, cache):
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.csv").write_text("\n".join([FRAPPE_HEADER, *FRAPPE_ROWS]) + "\n")
    (data / "valid.csv").write_text("\n".join([FRAPPE_HEADER, FRAPPE_ROWS[0]]) + "\n")
    done = line("data=frappe", f"data.root={data}", "logger=none", f"hydra.run.dir={tmp_path / 'run'}", cache=cache)
    refused(done, 2, "validation", "only label 0")
    assert not (tmp_path / "run").exists()


def test_a_plan_that_does_not_fit(tmp_path, cache):
    words = (
        "model=dlrm_large",
        "data=random",
        "cluster=a100x32",
        "sharder=torchrec_row_wise",
        "sharder.store=none",
        "mode=plan",
        "logger=none",
    )
    done = line(*words, "logger=none", f"hydra.run.dir={tmp_path / 'run'}", cache=cache)
    refused(done, 3, "GB")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("folder", ["/proc/run", "{file}/run"])
def test_a_folder_that_cannot_be_written(tmp_path, cache, folder):
    (tmp_path / "file").write_text("")
    done = line(*SMALL, "mode=plan", f"hydra.run.dir={folder.format(file=tmp_path / 'file')}", cache=cache)
    refused(done, 2, "cannot write")


def test_a_folder_that_was_there_keeps_what_was_in_it(tmp_path, cache):
    (tmp_path / "notes.txt").write_text("mine")
    done = line("data=frappe", "data.root=/nowhere", "logger=none", f"hydra.run.dir={tmp_path}", cache=cache)
    refused(done, 2)
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_resuming_what_is_no_run(tmp_path, cache):
    refused(line(f"resume={tmp_path}", cache=cache), 2, "config.yaml")

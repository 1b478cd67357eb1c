"""One folder, one run: what lies there is neither mixed, nor taken for another run's, nor removed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import run
from recsys_lab import job, pipeline
from recsys_lab.config.command_line import read
from recsys_lab.errors import UserError
from recsys_lab.record.ownership import LOCK_FILE, Ownership
from tests.end_to_end.lines import ROOT, line, result

QUICK = ("data=random", "mode=plan", "logger=none")


@pytest.fixture
def said(capfd: pytest.CaptureFixture[str]):
    """Runs a command line in this process; its exit code and what it said on stderr."""

    def main(*words: str) -> tuple[int, str]:
        capfd.readouterr()
        return run.main(list(words)), capfd.readouterr().err

    return main


def refused(done: tuple[int, str], *parts: str) -> None:
    code, err = done
    assert code == 2, err
    assert err.startswith("error: ") and err.count("\n") == 1, err
    for part in parts:
        assert part in err, err


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_runs_that_begin_in_one_second_have_folders_of_their_own():
    for words in ([], ["-m", "seed=1,2"]):
        assert len({read(words).folder for _ in range(2)}) == 2


def test_of_two_runs_at_once_in_one_folder_one_is_refused(tmp_path, cache):
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(line, *QUICK, f"seed={seed}", f"hydra.run.dir={tmp_path / 'run'}", cache=cache) for seed in (1, 2)]
    done = {each.result().code: each.result() for each in runs}
    assert set(done) == {0, 2}, done
    refused((2, done[2].err), str(tmp_path / "run"))
    assert "job" not in done[0].err and not (tmp_path / "run" / LOCK_FILE).exists()


def test_a_folder_that_is_taken(tmp_path, said):
    with Ownership.of(tmp_path / "run"):
        refused(said(*QUICK, f"hydra.run.dir={tmp_path / 'run'}"), "another run has this folder", f"process {os.getpid()} on ")
        assert os.listdir(tmp_path / "run") == [LOCK_FILE]
    with Ownership.of(tmp_path / "sweep"):
        refused(said("-m", "seed=1,2", *QUICK, f"hydra.sweep.dir={tmp_path / 'sweep'}"), "another run has this folder")
        assert os.listdir(tmp_path / "sweep") == [LOCK_FILE]


def test_the_lock_goes_with_a_process_that_is_killed(tmp_path):
    code = f"from recsys_lab.record.ownership import *; mine = Ownership.of(Path({str(tmp_path)!r})); print(1, flush=True); input()"
    holder = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdout.readline()
    with pytest.raises(UserError, match=f"process {holder.pid} on "):
        Ownership.of(tmp_path)
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    assert os.listdir(tmp_path) == [LOCK_FILE]
    with Ownership.of(tmp_path):
        pass
    assert os.listdir(tmp_path) == []


def test_a_used_folder_is_refused_and_overwrite_removes_what_a_run_wrote_alone(tmp_path, said):
    folder = tmp_path / "run"
    there = f"hydra.run.dir={folder}"
    assert said(*QUICK, there)[0] == 0
    (folder / "thesis").mkdir()
    (folder / "thesis" / "plan.json").write_text("mine")
    (folder / "logs").mkdir()
    (folder / "logs" / "notes.txt").write_text("mine")
    (folder / "metrics.csv").write_text("of the run before")
    before = contents(folder)
    refused(said(*QUICK, there), "this run lies here, and has ended", "overwrite=true", f"show {folder}")
    refused(said(*QUICK, there, "seed=7"), "another run lies here, and has ended", "seed: 1 -> 7")
    (folder / "result.json").unlink()
    refused(said(*QUICK, there), "this run lies here, and was cut short", f"resume={folder}")
    assert contents(folder) == {name: data for name, data in before.items() if name != "result.json"}
    assert said(*QUICK, there, "seed=7", "overwrite=true")[0] == 0
    assert result(folder)["seed"] == 7 and not (folder / "metrics.csv").exists()
    assert (folder / "thesis/plan.json").read_text() == (folder / "logs/notes.txt").read_text() == "mine"


def test_what_no_run_wrote_is_not_written_over(tmp_path, said):
    (tmp_path / "config.yaml").write_text("title: my own\n")
    for more in ((), ("overwrite=true",)):
        refused(said(*QUICK, *more, f"hydra.run.dir={tmp_path}"), "no run wrote them", "config.yaml")
    refused(said(f"resume={tmp_path}"), "not the config of a run")
    assert contents(tmp_path) == {"config.yaml": b"title: my own\n"}
    (tmp_path / "config.yaml").rename(tmp_path / "ablation.csv")
    refused(said("-m", "seed=1,2", *QUICK, f"hydra.sweep.dir={tmp_path}"), "ablation.csv")
    assert os.listdir(tmp_path) == ["ablation.csv"]


def test_what_a_kill_cut_short_is_made_whole(tmp_path, said):
    """A run that was killed before its config was there leaves its folder free; one that was killed before its page is given one."""
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text("- seed=1\n")
    refused(said(*QUICK, f"hydra.run.dir={tmp_path}"), "no run wrote them", ".hydra/overrides.yaml")
    (tmp_path / LOCK_FILE).write_text("process 1 on a host that is gone\n")
    assert said(*QUICK, f"hydra.run.dir={tmp_path}")[0] == 0
    (tmp_path / "report.html").unlink()
    assert said(f"resume={tmp_path}")[0] == 0 and (tmp_path / "report.html").is_file()


def test_a_run_does_not_go_on_as_another(tmp_path, said):
    """The record of run A beside the config of run B."""
    for name, seed in (("a", 1), ("b", 2)):
        assert said(*QUICK, f"seed={seed}", f"hydra.run.dir={tmp_path / name}")[0] == 0
    os.replace(tmp_path / "a" / "result.json", tmp_path / "b" / "result.json")
    refused(said(f"resume={tmp_path / 'b'}"), "the record is another run's", "result.json")
    refused(said(f"resume={tmp_path / 'a'}", "overwrite=true"), "overwrite")
    assert said(f"resume={tmp_path / 'a'}")[0] == 0  # it lacks its record, and makes it again
    assert result(tmp_path / "a")["seed"] == 1


def test_a_refused_run_removes_what_it_made_alone(tmp_path, said, monkeypatch):
    """Somebody writes into its folder while it runs, and some of it lay there before."""
    folder, quiet = tmp_path / "new" / "run", pipeline.quiet_torchrec

    def somebody() -> None:
        quiet()
        (folder / "thesis").mkdir(exist_ok=True)
        (folder / "thesis" / "result.json").write_text("mine")
        (folder / "logs").mkdir(exist_ok=True)
        (folder / "logs" / "notes.txt").write_text("mine")

    monkeypatch.setattr(pipeline, "quiet_torchrec", somebody)
    words = ("data=frappe", "data.root=/nowhere", "logger=none", f"hydra.run.dir={folder}")
    refused(said(*words), "/nowhere")
    assert contents(folder) == {"thesis/result.json": b"mine", "logs/notes.txt": b"mine"}
    monkeypatch.setattr(pipeline, "quiet_torchrec", quiet)
    empty = tmp_path / "was_there"
    for name in ("logs", ".hydra", "wandb"):
        (empty / name).mkdir(parents=True)
    refused(said(*words[:-1], f"hydra.run.dir={empty}"), "/nowhere")
    assert sorted(os.listdir(empty)) == [".hydra", "logs", "wandb"]
    refused(said(*words[:-1], f"hydra.run.dir={tmp_path / 'x' / 'y'}"), "/nowhere")
    assert not (tmp_path / "x").exists()


def test_a_folder_that_is_not_a_runs_own(said):
    before = set(os.listdir())
    refused(said(*QUICK, "hydra.run.dir="), "hydra.run.dir")
    refused(said("-m", "seed=1,2", *QUICK, "hydra.sweep.dir=."), "hydra.sweep.dir")
    assert set(os.listdir()) == before


def test_a_folder_that_cannot_be_written(tmp_path, said):
    (tmp_path / "file").write_text("mine")
    for kind, words in (("run", ()), ("sweep", ("-m", "seed=1,2"))):
        refused(said(*words, *QUICK, f"hydra.{kind}.dir={tmp_path / 'file' / 'run'}"), "cannot write", f"hydra.{kind}.dir=DIR")
    assert contents(tmp_path) == {"file": b"mine"}


def test_something_in_the_way_of_a_file(tmp_path, said):
    """A folder where a run writes a file, and a file where it makes a folder."""
    (tmp_path / "a" / "plan.json" / "inner").mkdir(parents=True)
    refused(said(*QUICK, f"hydra.run.dir={tmp_path / 'a'}"), "plan.json")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / ".hydra").write_text("mine")
    refused(said(*QUICK, f"hydra.run.dir={tmp_path / 'b'}"), ".hydra")
    assert contents(tmp_path) == {"b/.hydra": b"mine"} and (tmp_path / "a/plan.json/inner").is_dir()


def test_what_is_of_a_single_run_is_refused_in_a_sweep(tmp_path, said):
    refused(said("-m", f"resume={tmp_path}", "seed=1,2", *QUICK), "resume", "without -m")
    refused(said("-m", "resume=a,b", *QUICK), "resume", "without -m")
    refused(said("-m", "seed=1,2", "overwrite=true", *QUICK), "overwrite", "ablation.repeat")


def test_a_sweep_with_a_failed_job_says_so_in_its_exit_code(tmp_path, said):
    """3: one of two plans does not fit. What has finished is not run again, and what failed is."""
    words = (
        "-m",
        "model=dlrm_large",
        "data=random",
        "mode=plan",
        "logger=none",
        "sharder=torchrec_row_wise",
        "sharder.store=none",
        "cluster=a100x32,h100x64",
    )
    for _ in range(2):
        assert said(*words, f"hydra.sweep.dir={tmp_path / 'sweep'}")[0] == 3
    states = {name: result(tmp_path / "sweep" / name)["status"] for name in ("0", "1")}
    assert sorted(states.values()) == ["completed", "failed"]
    assert said(*words[:-1], "cluster=h100x64", f"hydra.sweep.dir={tmp_path / 'sweep'}")[0] == 0


def test_a_sweep_keeps_off_folders_that_are_not_its_jobs(tmp_path, said):
    (tmp_path / "sweep" / "0").mkdir(parents=True)
    (tmp_path / "sweep" / "0" / "thesis.tex").write_text("mine")
    assert said("-m", "seed=1,2", *QUICK, f"hydra.sweep.dir={tmp_path / 'sweep'}")[0] == 0
    assert contents(tmp_path / "sweep" / "0") == {"thesis.tex": b"mine"}
    assert {result(tmp_path / "sweep" / name)["seed"] for name in ("1", "2")} == {1, 2}
    refused(said(*QUICK, f"hydra.run.dir={tmp_path / 'sweep' / '1'}"), "lies here")
    refused(said("-m", "seed=1,2", *QUICK, f"hydra.sweep.dir={tmp_path / 'sweep' / '1'}"), "a run lies here, not a sweep")


def test_a_run_keeps_off_the_folder_of_a_sweep(tmp_path, said):
    """Which could not go on beside it."""
    there = f"hydra.sweep.dir={tmp_path / 'sweep'}"
    assert said("-m", "seed=1,2", *QUICK, there)[0] == 0
    before = contents(tmp_path / "sweep")
    for more in ((), ("overwrite=true",)):
        refused(said(*QUICK, *more, f"hydra.run.dir={tmp_path / 'sweep'}"), "a sweep lies here, not a run", "hydra.run.dir=DIR")
    assert contents(tmp_path / "sweep") == before
    assert said("-m", "seed=1,2", *QUICK, there)[0] == 0


def test_a_job_whose_folder_another_process_has_is_left_to_it(tmp_path, said):
    """Such as a job of SLURM that outlived the sweep that sent it."""
    sweep = tmp_path / "sweep"
    assert said("-m", "seed=1,2", *QUICK, f"hydra.sweep.dir={sweep}")[0] == 0
    (sweep / "1" / "result.json").unlink()
    before = contents(sweep / "1")
    with Ownership.of(sweep / "1"):
        code, err = said("-m", "seed=1,2", *QUICK, f"hydra.sweep.dir={sweep}")
        assert code == 2 and "another run has this folder" in err
    after = contents(sweep / "1")
    assert {name for name in after if not name.startswith(".hydra")} == {name for name in before if not name.startswith(".hydra")}


def test_a_folders_config_runs_no_code_that_nobody_named(tmp_path, said, monkeypatch):
    """Of a foreign folder, and of the words in it."""
    folder, module = tmp_path / "run", tmp_path / "elsewhere" / "foreign_module.py"
    module.parent.mkdir()
    module.write_text(f"from recsys_lab.record.loggers import none\nopen({str(tmp_path / 'imported')!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(module.parent))
    assert said(*QUICK, f"hydra.run.dir={folder}")[0] == 0
    (folder / "result.json").unlink()
    whole = (folder / "config.yaml").read_text()
    ours = "_target_: recsys_lab.record.loggers.none"
    assert ours in whole
    (folder / "config.yaml").write_text(whole.replace(ours, "_target_: foreign_module.none"))
    refused(said(f"resume={folder}"), "logger._target_", "foreign_module.none", "hydra.searchpath")
    (folder / "config.yaml").write_text(whole)
    (folder / ".hydra" / "overrides.yaml").write_text(json.dumps([*QUICK, "logger._target_=foreign_module.none"]))
    refused(said(f"resume={folder}", "seed=1"), "logger._target_", "foreign_module.none")
    assert not (tmp_path / "imported").exists()
    (folder / "config.yaml").write_text(whole.replace(ours, "_target_: foreign_module.none"))
    conf = tmp_path / "conf" / "logger"
    conf.mkdir(parents=True)
    (conf / "mine.yaml").write_text("_target_: foreign_module.none\n")
    assert said(f"resume={folder}", f"hydra.searchpath=[file://{tmp_path / 'conf'}]")[0] == 0
    assert (tmp_path / "imported").exists()


@pytest.mark.parametrize("gone", [True, False])
def test_a_folder_that_somebody_removes_is_no_bug_of_ours(tmp_path, capsys, monkeypatch, gone):
    """What is missing elsewhere is one, and has a traceback."""
    folder = tmp_path / "run"

    def work(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", str(folder / "x"))

    monkeypatch.setattr(job, "_work", work)
    if not gone:
        folder.mkdir()
    code = job.run_job(read(["mode=plan"]).config, folder)
    said = capsys.readouterr().err
    assert (code, "Traceback" in said) == ((2, False) if gone else (1, True))
    assert not gone or said.startswith(f"error: {folder / 'x'}: cannot write: No such file or directory;")


def test_what_the_command_line_reads_and_may_not_is_one_line(monkeypatch, capsys):
    def locked() -> str:
        raise PermissionError(13, "Permission denied", "conf")

    monkeypatch.setattr("recsys_lab.config.arguments.conf_here", locked)
    assert run.main(["mode=plan"]) == 2
    assert capsys.readouterr().err == "error: conf: cannot read: Permission denied; check the file and its permissions\n"

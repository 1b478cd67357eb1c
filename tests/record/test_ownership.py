"""A folder is one process's, what cannot be written is said in a line, and only what a run writes is removed."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from recsys_lab.errors import UserError
from recsys_lab.record.ownership import LOCK_FILE, Ownership, written


@pytest.mark.parametrize("name", ["/proc/run", "/sys/run", "{file}", "{file}/run", "{long}", "{long}/run", "a/{long}", "/dev/null", "a\0b"])
def test_a_folder_that_cannot_be_written(name, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError) as caught:
        Ownership.of(tmp_path / name.format(file=tmp_path / "file", long="x" * 300))
    assert "\n" not in str(caught.value) and os.listdir(tmp_path) == ["file"]


def test_it_makes_what_is_missing_and_leaves_what_was_there(tmp_path):
    (tmp_path / "old").mkdir()
    for folder in (tmp_path / "a" / "b", tmp_path / "old" / "c"):
        with Ownership.of(folder) as ownership:
            ownership.begun = True
        assert folder.is_dir() and os.listdir(folder) == []
        with Ownership.of(folder) as ownership:
            ownership.withdraw()
        assert folder.is_dir()
        folder.rmdir()
        with Ownership.of(folder) as ownership:
            ownership.withdraw()
        assert not folder.exists()
    assert sorted(os.listdir(tmp_path)) == ["a", "old"]


def test_an_error_before_a_run_has_begun_leaves_nothing_and_one_after_it_leaves_all(tmp_path):
    for begun in (False, True):
        with pytest.raises(KeyError), Ownership.of(tmp_path / "run") as ownership:
            ownership.begun = begun
            (ownership.folder / "config.yaml").write_text("")
            raise KeyError
        assert (tmp_path / "run" / "config.yaml").is_file() == begun == (tmp_path / "run").is_dir()


def test_a_second_process_is_refused_until_the_first_ends(tmp_path):
    with Ownership.of(tmp_path):
        with pytest.raises(UserError, match=f"another run has this folder; given process {os.getpid()} on"):
            Ownership.of(tmp_path)
        assert (tmp_path / LOCK_FILE).exists()
    with Ownership.of(tmp_path) as ownership:
        assert not ownership.after_kill


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("fcntl.flock", refuse)
    with Ownership.of(tmp_path / "run") as ownership:
        ownership.begun = True
    assert os.listdir(tmp_path / "run") == []


def test_what_is_removed_is_what_runs_write_and_nothing_that_looks_alike(tmp_path):
    own = ["config.yaml", ".hydra/hydra.yaml", "logs/rank3.log", "checkpoints/step=5/rank_0.safetensors", "checkpoints/best/trainer.json"]
    own += ["checkpoints/.partial-step=7/rank_1.safetensors", "wandb/a/b/c.log", ".result.json.77", "tensorboard/events.out.tfevents.1"]
    others = [
        "logs/notes.txt",
        "checkpoints/thesis.pdf",
        "checkpoints/step=5/notes.md",
        "other/config.yaml",
        ".result.json.mine",
        "csv/a.csv",
    ]
    for name in (*own, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "step=1").mkdir()
    with Ownership.of(tmp_path) as ownership:
        ownership.clear()
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == set(others)
    assert not written(tmp_path) and not (tmp_path / ".hydra").exists() and (tmp_path / "elsewhere" / "step=1").is_dir()


def test_a_link_is_removed_and_not_what_it_leads_to(tmp_path):
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    for folder in (run, elsewhere):
        folder.mkdir()
    (elsewhere / "mine").write_text("mine")
    (run / "config.yaml").symlink_to(elsewhere / "mine")
    (run / "wandb").symlink_to(elsewhere)
    with Ownership.of(run) as ownership:
        ownership.clear()
    assert (elsewhere / "mine").read_text() == "mine" and not (run / "config.yaml").exists()


def test_nobody_elses_file_is_emptied_for_the_lock(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / LOCK_FILE).symlink_to(tmp_path / "mine")
    with pytest.raises(UserError, match="cannot write"):
        Ownership.of(tmp_path)
    assert Path(tmp_path / "mine").read_text() == "mine"


def test_what_killed_ranks_left_half_written_goes_when_the_run_ends(tmp_path):
    (tmp_path / ".metrics.csv.mine").write_text("mine")
    with Ownership.of(tmp_path) as ownership:
        ownership.begun = True
        (tmp_path / ".metrics.csv.8386").write_text("half")
    assert os.listdir(tmp_path) == [".metrics.csv.mine"]


def test_a_killed_process_is_known_by_its_lock(tmp_path):
    with Ownership.of(tmp_path) as ownership:
        assert not ownership.after_kill
    (tmp_path / LOCK_FILE).write_text("process 1 on a host")
    with Ownership.of(tmp_path) as ownership:
        assert ownership.after_kill
    assert os.listdir(tmp_path) == []

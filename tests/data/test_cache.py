"""A prepared folder is there whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recsys_lab.data import cache, frappe
from recsys_lab.data.cache import cache_folder, prepared
from recsys_lab.data.frappe import open_frappe
from recsys_lab.errors import UserError
from tests.data.helpers import FRAPPE_HEADER, FRAPPE_LINES, frappe_options, write


def fill(folder: Path) -> dict:
    (folder / "column.bin").write_bytes(b"12345678")
    return {"rows": 8}


def frappe_folder(root: Path) -> Path:
    write(root / "train.csv", [FRAPPE_HEADER, *FRAPPE_LINES])
    write(root / "valid.csv", [FRAPPE_HEADER, *FRAPPE_LINES])
    return root


def test_the_second_time_finds_the_first(tmp_path: Path) -> None:
    calls = []
    for _ in range(3):
        folder, meta = prepared(tmp_path, "thing", {"a": 1}, lambda f: calls.append(f) or fill(f))
        assert meta["rows"] == 8 and (folder / "column.bin").read_bytes() == b"12345678"
    assert len(calls) == 1
    assert prepared(tmp_path, "thing", {"a": 2}, fill)[0] != folder


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("a bug")])
def test_an_interrupted_preparation_leaves_nothing(tmp_path: Path, error: BaseException) -> None:
    def broken(folder: Path) -> dict:
        fill(folder)
        raise error

    with pytest.raises(type(error)):
        prepared(tmp_path, "thing", 1, broken)
    assert list(tmp_path.iterdir()) == []
    assert prepared(tmp_path, "thing", 1, fill)[1]["rows"] == 8


def test_a_full_disk_is_the_users_to_mend(tmp_path: Path) -> None:
    def full(folder: Path) -> dict:
        fill(folder)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "ids.bin"))

    with pytest.raises(UserError, match="No space left on device.*data.cache=DIR"):
        prepared(tmp_path, "thing", 1, full)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["shorter", "gone", "meta"])
def test_a_damaged_folder_is_prepared_anew(tmp_path: Path, damage: str) -> None:
    folder, _ = prepared(tmp_path, "thing", 1, fill)
    if damage == "shorter":
        (folder / "column.bin").write_bytes(b"123")
    elif damage == "gone":
        (folder / "column.bin").unlink()
    else:
        (folder / "meta.json").write_text("{")
    again, meta = prepared(tmp_path, "thing", 1, fill)
    assert again == folder and (folder / "column.bin").read_bytes() == b"12345678"
    assert json.loads((folder / "meta.json").read_text())["sizes"] == {"column.bin": 8}


def test_a_changed_source_is_read_again(tmp_path: Path) -> None:
    root = frappe_folder(tmp_path)
    first = open_frappe(**frappe_options(root))
    assert open_frappe(**frappe_options(root)).fingerprint == first.fingerprint
    write(root / "train.csv", [FRAPPE_HEADER, *FRAPPE_LINES, *FRAPPE_LINES])
    changed = open_frappe(**frappe_options(root))
    assert changed.splits["train"].rows == 8 and changed.fingerprint != first.fingerprint


def test_a_source_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = frappe_folder(tmp_path)
    first = open_frappe(**frappe_options(root))
    monkeypatch.setattr(frappe, "read_columns", lambda *_: pytest.fail("read again"))
    assert open_frappe(**frappe_options(root)).fingerprint == first.fingerprint


PREPARE = """
import os, sys, time
from pathlib import Path
from recsys_lab.data.cache import prepared

def slow(folder):
    time.sleep(0.3)
    (folder / "by").write_text(str(os.getpid()))
    return {"by": os.getpid()}

folder, meta = prepared(Path(sys.argv[1]), "thing", 1, slow)
assert (folder / "by").read_text() == str(meta["by"])
print(meta["by"])
"""


def test_processes_at_once_prepare_once_and_all_succeed(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    started = [subprocess.Popen([sys.executable, "-c", PREPARE, str(tmp_path)], cwd=root, stdout=subprocess.PIPE) for _ in range(4)]
    said = [process.communicate(timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0] * 4
    assert len(set(said)) == 1 and int(said[0]) in [process.pid for process in started]
    assert [p.name for p in tmp_path.iterdir()] == [prepared(tmp_path, "thing", 1, fill)[0].name]


def test_what_a_killed_process_left_is_removed_in_time(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(timeout=60)
    left = tmp_path / f".preparing-{cache.socket.gethostname()}-{child.pid}-0a0a0a0a"
    alive = tmp_path / f".preparing-{cache.socket.gethostname()}-{os.getpid()}-0b0b0b0b"
    left.mkdir()
    alive.mkdir()
    prepared(tmp_path, "thing", 1, fill)
    assert left.exists(), "it may be of another machine's process until it is old"
    for folder in (left, alive):
        os.utime(folder, (1, 1))
    prepared(tmp_path, "thing", 2, fill)
    assert not left.exists() and alive.exists()


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder(None) == tmp_path / "recsys_lab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder(None) == Path.home() / ".cache" / "recsys_lab"
    assert cache_folder("here") == Path("here")

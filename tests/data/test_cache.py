"""A prepared folder is there whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recsys_lab.data import frappe
from recsys_lab.data.cache import cache_folder, prepared
from recsys_lab.data.frappe import open_frappe
from recsys_lab.data.sampled import digest_of_file, pieces
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
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]
    assert prepared(tmp_path, "thing", 1, fill)[1]["rows"] == 8


def test_a_full_disk_is_the_users_to_mend(tmp_path: Path) -> None:
    def full(folder: Path) -> dict:
        fill(folder)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "ids.bin"))

    with pytest.raises(UserError, match="No space left on device.*data.cache=DIR"):
        prepared(tmp_path, "thing", 1, full)
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


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


def rewritten(path: Path, content: bytes) -> None:
    """Another content of the same size, with the times of the old one."""
    before = path.stat()
    assert len(content) == before.st_size
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


NO_CACHES = ("{tmp}/link", "{tmp}/two\nlines", "~nobody-of-this-name/x", "{tmp}/" + "x" * 300, "/proc/nowhere", "/dev/null/x")


@pytest.mark.parametrize("cache", NO_CACHES)
def test_a_cache_that_can_be_none_is_one_line(tmp_path: Path, cache: str) -> None:
    (tmp_path / "link").symlink_to("link")
    frappe_folder(tmp_path)
    with pytest.raises(UserError, match="cache") as caught:
        open_frappe(**frappe_options(tmp_path, cache=cache.format(tmp=tmp_path)))
    assert str(caught.value).isprintable()


def test_a_large_file_is_known_by_samples_from_end_to_end(tmp_path: Path) -> None:
    path, size = tmp_path / "x", 40 << 20
    with path.open("wb") as file:
        file.truncate(size)
    known = digest_of_file(path)
    places = pieces(size)
    assert places[0][0] == 0 and sum(places[-1]) == size and sum(length for _, length in places) == 16 << 20
    assert max(b - a for (a, _), (b, _) in zip(places, places[1:])) < 3 * (64 << 10), "no gap is longer than a seventh of a MiB"
    for at, seen in ((0, True), (size - 1, True), (places[100][0], True), (places[100][0] - 1, False)):
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"1")
        assert (digest_of_file(path) != known) == seen
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"\0")
    with path.open("ab") as file:
        file.write(b"\0")
    assert digest_of_file(path) != known
    assert pieces(100) == [(0, 100)] and pieces(0) == []


def test_a_source_with_the_size_and_the_time_of_another_is_read_again(tmp_path: Path) -> None:
    root = frappe_folder(tmp_path)
    first = open_frappe(**frappe_options(root))
    content = (root / "train.csv").read_bytes()
    rewritten(root / "train.csv", content.replace(b"\n1,0,5,15", b"\n0,0,5,15"))
    assert open_frappe(**frappe_options(root)).fingerprint != first.fingerprint
    rewritten(root / "train.csv", content)
    assert open_frappe(**frappe_options(root)).fingerprint == first.fingerprint


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
    monkeypatch.setattr(frappe, "read_text", lambda *_: pytest.fail("read again"))
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
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [prepared(tmp_path, "thing", 1, fill)[0]]


def test_what_a_killed_process_left_is_removed_when_the_next_one_prepares(tmp_path: Path) -> None:
    folder, _ = prepared(tmp_path, "thing", 1, fill)
    left = folder.rename(folder.with_name(f".preparing-{folder.name}"))
    (left / "half.bin").write_bytes(b"12")
    assert sorted(path.name for path in prepared(tmp_path, "thing", 1, fill)[0].iterdir()) == ["column.bin", "meta.json"]
    assert not left.exists()


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder(None) == tmp_path / "recsys_lab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder(None) == Path.home() / ".cache" / "recsys_lab"
    assert cache_folder("here") == Path("here")

"""A prepared folder is there whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recsys_lab.data import cache, frappe
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


def as_another(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(path, 12345, 12345, follow_symlinks=False)


def rewritten(path: Path, content: bytes) -> None:
    """Another content of the same size, with the times of the old one."""
    before = path.stat()
    assert len(content) == before.st_size
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def other_meta(folder: Path, **changed) -> None:
    """Meta data of another shape under the old seal."""
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | changed))


CHANGES = {
    "other bytes": lambda folder: rewritten(folder / "column.bin", b"12345679"),
    "other rows": lambda folder: other_meta(folder, rows=9),
    "other digests": lambda folder: other_meta(folder, digests={"column.bin": "00"}),
    "no file to look at": lambda folder: other_meta(folder, sizes={}, digests={}),
    "meta of another shape": lambda folder: (folder / "meta.json").write_text('{"sizes": ["column.bin"], "seal": 1}'),
    "meta too deep": lambda folder: (folder / "meta.json").write_text("[" * 100_000),
    "binary meta": lambda folder: (folder / "meta.json").write_bytes(bytes(range(256))),
    "a folder for a file": lambda folder: (folder / "column.bin").unlink() or (folder / "column.bin").mkdir(),
    "a link for a file": lambda folder: (folder / "column.bin").rename(folder / "x") and (folder / "column.bin").symlink_to("x"),
    "a pipe for meta": lambda folder: (folder / "meta.json").unlink() or os.mkfifo(folder / "meta.json"),
    "everybody may write to a file": lambda folder: (folder / "column.bin").chmod(0o666),
    "everybody may write to meta": lambda folder: (folder / "meta.json").chmod(0o666),
    "everybody may write to the folder": lambda folder: folder.chmod(0o777),
    "a file of somebody else": lambda folder: as_another(folder / "column.bin"),
    "a folder of somebody else": as_another,
    "a link for the folder": lambda folder: folder.rename(folder.parent / "x") and folder.symlink_to("x"),
    "a file for the folder": lambda folder: shutil.rmtree(folder) or folder.write_text("x"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_what_was_put_there_is_prepared_anew_and_once(tmp_path: Path, change: str) -> None:
    calls: list[Path] = []

    def prepare(folder: Path) -> dict:
        calls.append(folder)
        return fill(folder)

    folder, first = prepared(tmp_path, "thing", 1, prepare)
    assert prepared(tmp_path, "thing", 1, prepare) == (folder, first) and len(calls) == 1
    CHANGES[change](folder)
    assert prepared(tmp_path, "thing", 1, prepare) == (folder, first)
    assert prepared(tmp_path, "thing", 1, prepare) == (folder, first) and len(calls) == 2
    assert (folder / "column.bin").read_bytes() == b"12345678" and not folder.is_symlink()


def test_nobody_else_can_write_what_is_prepared_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        folder, _ = prepared(tmp_path / "cache", "thing", 1, fill)
    finally:
        os.umask(old)
    assert not [path for path in (folder, *folder.iterdir()) if path.stat().st_mode & 0o002]


def test_the_owner_of_a_shared_cache_is_trusted(tmp_path: Path) -> None:
    folder, _ = prepared(tmp_path, "thing", 1, fill)
    for path in (tmp_path, folder, *folder.iterdir()):
        as_another(path)
    prepared(tmp_path, "thing", 1, lambda _: pytest.fail("prepared again"))


def test_a_cache_that_keeps_no_permissions_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "chmod", lambda *_: None)
    old = os.umask(0)
    try:
        with pytest.raises(UserError, match=r"the data cache keeps no permissions: others may write to it; .*data.cache=DIR"):
            prepared(tmp_path, "thing", 1, fill)
    finally:
        os.umask(old)
    assert list(tmp_path.iterdir()) == []


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
    assert [p.name for p in tmp_path.iterdir()] == [prepared(tmp_path, "thing", 1, fill)[0].name]


def test_what_a_killed_process_left_is_removed_in_time(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait(timeout=60)
    left = tmp_path / f".preparing-{cache.socket.gethostname()}-{child.pid}-0a0a0a0a"
    alive = tmp_path / f".preparing-{cache.socket.gethostname()}-{os.getpid()}-0b0b0b0b"
    ours = left.with_name(f".preparing-{cache.socket.gethostname()}-{child.pid}-{cache._here()}0c0c0c0c")
    other = left.with_name(f".preparing-{cache.socket.gethostname()}-2-{child.pid}-0d0d0d0d")
    for folder in (left, alive, ours, other):
        folder.mkdir()
    prepared(tmp_path, "thing", 1, fill)
    assert not ours.exists()
    assert left.exists(), "it may be of another machine's process until it is old"
    for folder in (left, alive, other):
        os.utime(folder, (1, 1))
    prepared(tmp_path, "thing", 2, fill)
    assert not left.exists() and alive.exists() and other.exists(), "of a machine whose name begins like this one's"


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder(None) == tmp_path / "recsys_lab"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder(None) == Path.home() / ".cache" / "recsys_lab"
    assert cache_folder("here") == Path("here")

"""The cache: a folder a prepared thing, written aside and renamed, so that it is there whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from recsys_lab.errors import UNWRITABLE, UserError

#: Raise it when what is written changes: older folders are then left alone and prepared anew.
FORMAT = 1
META = "meta.json"
_UNFINISHED = ".preparing-"
_STALE_AFTER_S = 3600.0
#: A cache holds rows of tables as int32.
MOST_ROWS = 2**31 - 1


def cache_folder(cache: str | None) -> Path:
    """`data.cache`, or recsys_lab in the user's cache folder."""
    if cache:
        return Path(cache).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "recsys_lab"


def digest(value: Any) -> str:
    """A short fingerprint of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


def prepared(cache: Path, name: str, identity: Any, prepare: Callable[[Path], dict]) -> tuple[Path, dict]:
    """The folder of `name` for this `identity`, and its meta data; `prepare` fills a new folder, and returns them, if there is none.

    Two processes at once: one prepares, the other waits and finds it. After an error nothing is left.
    Raises UserError where the cache cannot be written.
    """
    final = cache / f"{name}-{digest([FORMAT, identity])}"
    meta = _load(final)
    if meta is not None:
        return final, meta
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _lock(cache / f".{final.name}.lock"):
            meta = _load(final)
            return final, meta if meta is not None else _prepare(final, prepare)
    except OSError as error:
        raise _cannot_write(error, cache) from error


def _prepare(final: Path, prepare: Callable[[Path], dict]) -> dict:
    _remove_stale(final.parent)
    folder = final.parent / f"{_UNFINISHED}{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    try:
        meta = prepare(folder)
        meta["sizes"] = {p.name: p.stat().st_size for p in folder.iterdir()}
        (folder / META).write_text(json.dumps(meta, indent=1))
        if final.exists():  # a damaged one: `_load` refused it
            shutil.rmtree(final)
        folder.rename(final)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return meta


def _load(folder: Path) -> dict | None:
    """The meta data of a whole folder; None if there is none, or a file of it is missing or has another size."""
    try:
        meta = json.loads((folder / META).read_text())
        whole = all((folder / name).stat().st_size == size for name, size in meta["sizes"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return meta if whole else None


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process at a time. The lock file goes when it is let go, so a waiter checks that it holds the one that is there."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        with contextlib.suppress(OSError):  # a file system without locks: both prepare, the later one finds the folder and replaces it
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(descriptor).st_ino == path.stat().st_ino:
                break
        os.close(descriptor)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(descriptor)


def _remove_stale(cache: Path) -> None:
    """Unfinished folders of processes of this host that were killed: older than an hour, and the process is gone."""
    for folder in cache.glob(f"{_UNFINISHED}{socket.gethostname()}-*"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(folder.name.rsplit("-", 2)[1])
            if time.time() - folder.stat().st_mtime > _STALE_AFTER_S and not _alive(pid):
                shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _cannot_write(error: OSError, cache: Path) -> Exception:
    if error.errno not in UNWRITABLE:
        return error
    return UserError(
        f"the data cache cannot be written: {error.strerror}",
        where=error.filename or cache,
        remedy="choose a writable folder with free space: data.cache=DIR",
    )

"""The cache: a folder for each prepared thing. It is written aside and renamed, so it is there whole or not at all.

A folder is sealed: its meta data hold a digest of every file and of themselves. One that does not match its seal, or that somebody else
could have changed, is prepared again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import hashlib
import json
import os
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from recsys_lab.base.files import path_of, why_untrusted
from recsys_lab.base.ranges import Range
from recsys_lab.data.sampled import digest_of_file
from recsys_lab.errors import UNWRITABLE, UserError

#: Raise it when what is written changes: older folders are then left alone and prepared again.
FORMAT = 2
META = "meta.json"
SEAL = "seal"
_UNFINISHED = ".preparing-"
_STALE_AFTER_S = 3600.0
#: A cache holds rows of tables as int32.
MOST_ROWS = 2**31 - 1
HashedRows = Annotated[int, Range(1, MOST_ROWS)]


def cache_folder(cache: str | None) -> Path:
    """`data.cache`, or recsys_lab in the user's cache folder. UserError where it can be no folder of ours."""
    if cache:
        return path_of(cache, "data.cache")
    return path_of(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "XDG_CACHE_HOME") / "recsys_lab"


def digest(value: Any) -> str:
    """A short fingerprint of plain data."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]


def prepared(cache: Path, name: str, identity: Any, prepare: Callable[[Path], dict]) -> tuple[Path, dict]:
    """The folder of `name` for this `identity`, and its meta data; `prepare` fills a new folder, and returns them, if there is none.

    Two processes at once: one prepares, the other waits and finds it. After an error nothing is left.
    Raises UserError where the cache cannot be written, or keeps no permissions.
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
    folder = final.parent / f"{_UNFINISHED}{socket.gethostname()}-{os.getpid()}-{_here()}{uuid.uuid4().hex[:8]}"
    folder.mkdir(mode=0o775)
    try:
        meta = _sealed(folder, prepare(folder))
        _discard(final)  # one that `_load` refused
        folder.rename(final)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return meta


def _sealed(folder: Path, meta: dict) -> dict:
    """`meta`, written into `folder` with a digest of every file and of itself. Nothing there can be written by everybody."""
    files = sorted(folder.iterdir())
    meta = meta | {"sizes": {p.name: p.stat().st_size for p in files}, "digests": {p.name: digest_of_file(p) for p in files}}
    meta = json.loads(json.dumps(meta)) | {SEAL: ""}
    meta[SEAL] = _seal(meta)
    (folder / META).write_text(json.dumps(meta, indent=1))
    for path in [*files, folder / META]:
        path.chmod(path.stat().st_mode & 0o775)
        if why := why_untrusted(path, group_may_write=True):
            raise UserError(f"the data cache keeps no permissions: {why}", where=path, remedy="choose another folder: data.cache=DIR")
    return meta


def _seal(meta: dict) -> str:
    return digest([FORMAT, {key: value for key, value in meta.items() if key != SEAL}])


def _discard(path: Path) -> None:
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.exists():
        shutil.rmtree(path)


def _load(folder: Path) -> dict | None:
    """The meta data of a whole folder; None if there is none, it does not match its seal, or others could have changed it."""
    try:
        owners = {folder.parent.stat().st_uid}  # whoever owns the cache that was named
        if any(why_untrusted(path, owners, group_may_write=True) for path in (folder, folder / META)):
            return None
        meta = json.loads((folder / META).read_text())
        whole = meta[SEAL] == _seal(meta) and all(
            why_untrusted(folder / name, owners, group_may_write=True) is None
            and (folder / name).stat().st_size == size
            and digest_of_file(folder / name) == meta["digests"][name]
            for name, size in meta["sizes"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return meta if whole else None


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process at a time. The lock file goes when it is released. So a waiter checks that it holds the one that is there."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o644)
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


def _here() -> str:
    """Within what a number means one process: this machine since it was started, or a container on it. Empty where that is not told."""
    with contextlib.suppress(OSError):
        started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return digest([started, os.stat("/proc/self/ns/pid").st_ino])[:12]
    return ""


def _remove_stale(cache: Path) -> None:
    """Unfinished folders of processes that were killed: of this machine at once, of another of its name after an hour."""
    for folder in cache.glob(f"{_UNFINISHED}{glob.escape(socket.gethostname())}-*"):
        with contextlib.suppress(OSError, ValueError):
            host, pid, machine = folder.name.removeprefix(_UNFINISHED).rsplit("-", 2)
            if host != socket.gethostname():  # one whose name begins so
                continue
            sure = bool(_here()) and machine.startswith(_here())
            if (sure or time.time() - folder.stat().st_mtime > _STALE_AFTER_S) and not _alive(int(pid)):
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
    missing = error.errno == errno.ENOENT and not cache.is_dir()  # it could not be made
    if error.errno not in UNWRITABLE | {errno.ELOOP} and not missing:
        return error
    return UserError(
        f"the data cache cannot be written: {error.strerror}",
        where=error.filename or cache,
        remedy="choose a writable folder with free space: data.cache=DIR",
    )

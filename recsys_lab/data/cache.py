"""The cache: a folder for each prepared thing. It is written aside and renamed, so it is there whole or not at all.

Its meta data hold the size of every file. A folder that lacks a part, such as a copy that was cut short, is prepared again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval
from filelock import FileLock
from pydantic import Strict

from recsys_lab.base.files import path_of
from recsys_lab.base.paths import user_cache
from recsys_lab.errors import UNWRITABLE, UserError

#: Raise it when what is written changes: older folders are then left alone and prepared again.
FORMAT = 2
META = "meta.json"
#: A cache holds rows of tables as int32.
MOST_ROWS = 2**31 - 1
HashedRows = Annotated[int, Strict(), Interval(ge=1, le=MOST_ROWS)]


def cache_folder(cache: str | None) -> Path:
    """`data.cache`, or recsys_lab in the user's cache folder. UserError where it can be no folder of ours."""
    return path_of(cache, "data.cache") if cache else user_cache()


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
        with FileLock(cache / f".{final.name}.lock"):
            meta = _load(final)
            return final, meta if meta is not None else _prepare(final, prepare)
    except OSError as error:
        raise _cannot_write(error, cache) from error


def _prepare(final: Path, prepare: Callable[[Path], dict]) -> dict:
    """Fills a folder beside `final`, and renames it. The caller holds the lock: what lies there is of a process that was killed."""
    folder = final.with_name(f".preparing-{final.name}")
    _discard(folder)
    folder.mkdir()
    try:
        meta = prepare(folder)
        meta = json.loads(json.dumps(meta | {"sizes": {path.name: path.stat().st_size for path in sorted(folder.iterdir())}}))
        (folder / META).write_text(json.dumps(meta, indent=1))
        _discard(final)  # one that `_load` refused
        folder.rename(final)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return meta


def _discard(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _load(folder: Path) -> dict | None:
    """The meta data of a whole folder. None if there is none, or a file has another size than when it was written."""
    try:
        meta = json.loads((folder / META).read_text())
        whole = all((folder / name).stat().st_size == size for name, size in meta["sizes"].items())
    except (OSError, ValueError, KeyError):
        return None
    return meta if whole else None


def _cannot_write(error: OSError, cache: Path) -> Exception:
    missing = error.errno == errno.ENOENT and not cache.is_dir()  # it could not be made
    if error.errno not in UNWRITABLE | {errno.ELOOP, errno.ENOLCK} and not missing:
        return error
    return UserError(
        f"the data cache cannot be written: {error.strerror}",
        where=error.filename or cache,
        remedy="choose a writable folder with free space: data.cache=DIR",
    )

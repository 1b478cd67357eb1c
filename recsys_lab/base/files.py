"""Files that are whole or absent: they are written beside their place, then renamed into it. And names of files that users give."""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import stat
import tempfile
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from recsys_lab.errors import UserError, cannot_read, cannot_write

#: What to do where a file of a run is not there.
A_RUN = "name the folder of a run"
ANOTHER_FILE = "name another file"


def pasted(key: str, folder: Path) -> str:
    """`override_of` to be pasted into a shell: in the shell's quotes too, where it needs them."""
    return shlex.quote(override_of(key, folder))


def pasted_list(key: str, texts: Iterable[str]) -> str:
    """`key=[texts]` to be pasted into a shell. A text that Hydra would read as something else stands in its quotes: `null`, `1`, `a b`."""
    plain = re.compile(r"(?!(?:null|true|false|nan|inf)$)[a-z_][\w.-]*", re.ASCII | re.IGNORECASE)
    words = [text if plain.fullmatch(text) else _in_quotes(text, '"') for text in texts]
    return shlex.quote(f"{key}=[{','.join(words)}]")


def override_of(key: str, folder: Path) -> str:
    """`key=folder` as one word of a command line: in Hydra's quotes, where it needs them."""
    text = str(folder)
    if not re.fullmatch(r"[\w./:+@%-]+", text, re.ASCII):
        text = _in_quotes(text, "'")
    return f"{key}={text}"


def _in_quotes(text: str, quote: str) -> str:
    """As Hydra reads it: backslashes are doubled before a quote alone."""
    escaped = re.sub(rf"(\\*)({quote}|$)", lambda match: match[1] * 2 + (f"\\{quote}" if match[2] else ""), text.replace("${", "\\${"))
    return f"{quote}{escaped}{quote}"


def write_text(path: Path, text: str) -> Path:
    """Write `text` to `path` so that a reader sees the old file or the new one, never half of it. UserError where it cannot be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(error, path) from None
    return path


def out_file(text: str, where: object, suffixes: Sequence[str]) -> Path:
    """The file that a user names at `where` to be written. UserError, before any work, where it could not be.

    It ends in one of `suffixes`: so a slip of the keyboard replaces no file of another kind.
    """
    path = path_of(text, where)
    check_writable(path)
    if path.suffix not in suffixes:
        raise UserError("no file of this kind", where=where, given=text, allowed=f"a name that ends in {', '.join(suffixes)}")
    return path


def out_folder(text: str, where: object) -> Path:
    """The same of a folder, which need not be there."""
    path = path_of(text, where)
    check_writable(path / "x")
    return path


def check_writable(path: Path) -> None:
    """Raises UserError where `write_text` could not write `path`. It is called before the work that ends with that file."""
    if (kind := what_is(path)) not in (None, NOTHING):
        raise UserError("cannot write", where=path, given=kind, remedy=ANOTHER_FILE)
    folder = next(parent for parent in path.absolute().parents if what_is(parent) != NOTHING)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(f"cannot write: {error.strerror}", where=path, remedy=ANOTHER_FILE) from None


def write_json(path: Path, data: Any) -> Path:
    """`data` as strict JSON in the order of its keys. A figure that is not finite becomes null."""
    return write_text(path, json.dumps(plain(data), indent=2, allow_nan=False) + "\n")


def read_json(path: Path, missing: str = A_RUN) -> Any:
    """The JSON in `path`. UserError as `read_text`, and where it is broken; NaN and infinity are no JSON."""
    try:
        return json.loads(read_text(path, missing), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON: {error}", where=path, remedy=RESTORE) from None


def read_text(path: Path, missing: str = A_RUN) -> str:
    """The text in `path`. UserError where it is missing, unreadable, no regular file or not UTF-8.

    `missing`: what to do in the first case.
    """
    try:
        if (kind := what_is(path)) == NOTHING:
            raise UserError("no such file", where=path, remedy=missing)
        if kind is not None:
            raise UserError("not a file that can be read", where=path, given=kind, remedy=RESTORE)
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise cannot_read(error, path) from None
    except UnicodeDecodeError as error:
        given = f"byte 0x{error.object[error.start]:02x}"
        raise UserError("not UTF-8 text", where=path, given=given, remedy=RESTORE) from None


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is no number")


def check_here() -> None:
    """Raises UserError where the current folder is gone, or above it: nothing that is named from it could be found."""
    try:
        os.getcwd()
    except OSError as error:
        raise UserError(f"the current folder cannot be used: {error.strerror}", remedy="cd to another one") from None


def path_of(text: str, where: object) -> Path:
    """The path that a user names at `where`, `~` expanded. UserError for no name, and for one that no report could show."""
    if not text.strip():
        raise UserError("no name of a file or a folder", where=where, given="an empty word", remedy="give one")
    try:
        path = Path(text).expanduser()
    except RuntimeError as error:
        raise UserError(str(error).lower(), where=where, given=text, remedy="name the folder in full") from None
    check_name(path, where)
    return path


def check_name(path: Path, where: object) -> None:
    """UserError for a name that is not UTF-8 or has control characters. Reports, records and the reader of tables need it as text."""
    if any(unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") for c in str(path)):
        what = "the name is not UTF-8, or has control characters in it"
        raise UserError(what, where=where, given=ascii(str(path)), remedy="rename the file or the folder")


#: What to do about a file of ours that is broken.
RESTORE = "restore the file, or run again what wrote it"
#: What `what_is` says where there is no file.
NOTHING, FOLDER = "nothing", "a folder"
_KINDS = (
    (stat.S_ISDIR, FOLDER),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def what_is(path: Path) -> str | None:
    """None of a regular file, or of a link to one. Else what stands there in its place, in words. Nothing is opened, so nothing hangs."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "a link to nothing" if path.is_symlink() else NOTHING
    except OSError as error:
        return (error.strerror or str(error)).lower()
    except ValueError:  # a name with a NUL byte
        return NOTHING
    return next((words for is_kind, words in _KINDS if is_kind(mode)), None)


def why_untrusted(path: Path, owners: Iterable[int] = (), group_may_write: bool = False) -> str | None:
    """Why somebody else could have put or changed what lies at `path`, in words; None where only this user, root and `owners` could."""
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode):
        return "it is a link"
    if not (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)):
        return "it is neither a file nor a folder"
    if info.st_uid not in {0, os.geteuid(), *owners}:
        return f"it belongs to another user ({info.st_uid})"
    others = stat.S_IWOTH if group_may_write else stat.S_IWOTH | stat.S_IWGRP
    return "others may write to it" if info.st_mode & others else None


def plain(value: Any) -> Any:
    """`value` in JSON's own types: NumPy's numbers become Python's, tuples lists, NaN and infinity None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if type(value).__module__ == "numpy" and value.ndim == 0:  # NumPy is not imported for this
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    return value

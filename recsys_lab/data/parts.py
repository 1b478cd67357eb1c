"""A table or a log on disk: one file, or part files in a folder. Names of folders may be columns: day=2024-01-01/part-0.parquet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from recsys_lab.base.files import check_name, what_is
from recsys_lab.errors import UserError

#: Of tables. Logs have more.
SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".ndjson")
#: How Hive names the folder of rows without a value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
#: As Spark and Hadoop name them, also without a suffix.
_PART = re.compile(r"part-[\w.-]*")


@dataclass(frozen=True)
class Part:
    """A file of a table. `keys`: the columns that its path has, with their values."""

    path: Path
    keys: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Source:
    """A table. `path`: its file, or the folder of its `parts`. `names`: of its columns, where files have no header."""

    path: Path
    parts: tuple[Part, ...]
    names: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return self.path.name if len(self.parts) == 1 else f"{self.path.name} ({len(self.parts)} files)"

    @property
    def keys(self) -> list[str]:
        """The columns that the paths of its parts have."""
        return [key for key, _ in self.parts[0].keys]

    def notes(self, what: str) -> list[str]:
        """A note, or none, of several files that are one."""
        if len(self.parts) == 1:
            return []
        names = [part.path.relative_to(self.path) for part in self.parts]
        return [f"{len(names)} files are one {what}: {names[0]} to {names[-1]} (else: data.file=FILE)"]


def source_of(path: Path, names: Sequence[str] | None = None, suffixes: tuple[str, ...] = SUFFIXES) -> Source:
    """The table at `path`, a file, or a folder with part files and nothing else that is a table. UserError where there is none."""
    check_name(path, path)
    columns = None if names is None else tuple(names)
    if not path.is_dir():
        return Source(path, (Part(path),), columns)
    return of_parts(path, tuple(parts_in(path, suffixes)), columns, suffixes)


def of_parts(path: Path, parts: Sequence[Part], names: tuple[str, ...] | None, suffixes: tuple[str, ...]) -> Source:
    """The table of `parts`, of the folder `path`. UserError where they are none, or not of one table."""
    if not parts:
        allowed = f"a file or more that end in {', '.join(suffixes)} [.gz]"
        raise UserError("a folder without rows of a table", where=path, allowed=allowed, remedy="name a file, or the folder of part files")
    kinds = sorted({_suffix_of(part.path, suffixes) for part in parts})
    if len(kinds) > 1:
        given = ", ".join(next(part.path.name for part in parts if _suffix_of(part.path, suffixes) == kind) for kind in kinds)
        raise UserError("part files of several kinds", where=path, given=given, remedy="keep those of one kind, or name a file")
    if odd := next((part for part in parts if [key for key, _ in part.keys] != [key for key, _ in parts[0].keys]), None):
        given = f"{parts[0].path.relative_to(path)} and {odd.path.relative_to(path)}"
        raise UserError("folders of part files have other columns in their names", where=path, given=given, remedy="name one of them")
    return Source(path, tuple(parts), names)


def has_parts(folder: Path) -> bool:
    """Whether a file of a table lies somewhere in `folder`."""
    return next(parts_in(folder), None) is not None


def is_table(path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> bool:
    """Whether the name of a file says that it is a table."""
    ends = path.name.lower().removesuffix(".gz").endswith(suffixes) or is_part(path) and _suffix_of(path, suffixes) == ""
    return ends and not path.name.startswith((".", "_"))


def is_part(path: Path) -> bool:
    """Whether a file is named as a part of a table: part-00000."""
    return _PART.fullmatch(path.name) is not None


def _suffix_of(path: Path, suffixes: tuple[str, ...]) -> str:
    """One of `suffixes`; empty for part-00000."""
    name = path.name.lower().removesuffix(".gz")
    return next((suffix for suffix in suffixes if name.endswith(suffix)), "" if "." not in name else Path(name).suffix)


def parts_in(folder: Path, suffixes: tuple[str, ...] = SUFFIXES, keys: tuple[tuple[str, str], ...] = ()) -> Iterator[Part]:
    """Of `folder` and the folders in it, in the order of their names. What begins with a dot or an underscore is no part."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")):
            continue
        kind = what_is(path)
        if kind is None and is_table(path, suffixes):
            yield Part(path, keys)
        elif path.is_dir():
            key, is_key, value = path.name.partition("=")
            own = ((unquote(key), "" if value == _NO_VALUE else unquote(value)),) if is_key and key else ()
            yield from parts_in(path, suffixes, (*keys, *own))

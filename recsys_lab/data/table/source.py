"""A table as it lies on disk: one file, or part files in a folder. Names of folders may be columns: day=2024-01-01/part-0.parquet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from recsys_lab.base.files import check_name, what_is
from recsys_lab.errors import UserError

SUFFIXES = (".csv", ".tsv", ".parquet")
#: How Hive names the folder of rows without a value.
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


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


def source_of(path: Path, names: Sequence[str] | None = None) -> Source:
    """The table at `path`, a file, or a folder with part files and nothing else that is a table. UserError where there is none."""
    check_name(path, path)
    columns = None if names is None else tuple(names)
    if not path.is_dir():
        return Source(path, (Part(path),), columns)
    parts = tuple(_parts(path, ()))
    if not parts:
        allowed = f"a file or more that end in {', '.join(SUFFIXES)} [.gz]"
        raise UserError("a folder without rows of a table", where=path, allowed=allowed, remedy="name a file, or the folder of part files")
    kinds = sorted({suffix_of(part.path) for part in parts})
    if len(kinds) > 1:
        given = ", ".join(next(part.path.name for part in parts if suffix_of(part.path) == kind) for kind in kinds)
        raise UserError("part files of several kinds", where=path, given=given, remedy="keep those of one kind, or name a file")
    if odd := next((part for part in parts if [key for key, _ in part.keys] != [key for key, _ in parts[0].keys]), None):
        given = f"{parts[0].path.relative_to(path)} and {odd.path.relative_to(path)}"
        raise UserError("folders of part files have other columns in their names", where=path, given=given, remedy="name one of them")
    return Source(path, parts, columns)


def has_parts(folder: Path) -> bool:
    """Whether a file of a table lies somewhere in `folder`."""
    return next(_parts(folder, ()), None) is not None


def is_table(path: Path) -> bool:
    """Whether the name of a file says that it is a table."""
    return path.name.lower().removesuffix(".gz").endswith(SUFFIXES) and not path.name.startswith((".", "_"))


def suffix_of(path: Path) -> str:
    return next(suffix for suffix in SUFFIXES if path.name.lower().removesuffix(".gz").endswith(suffix))


def _parts(folder: Path, keys: tuple[tuple[str, str], ...]) -> Iterator[Part]:
    """Of `folder` and the folders in it, in the order of their names. What begins with a dot or an underscore is no part."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")):
            continue
        kind = what_is(path)
        if kind is None and is_table(path):
            yield Part(path, keys)
        elif path.is_dir():
            key, is_key, value = path.name.partition("=")
            yield from _parts(path, (*keys, (unquote(key), "" if value == _NO_VALUE else unquote(value))) if is_key and key else keys)

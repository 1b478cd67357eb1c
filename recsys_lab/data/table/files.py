"""The files of a table of clicks: which they are, what columns they have, and their text as it stands."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from recsys_lab.data.sources import Splits, find_file, named_file, only_file
from recsys_lab.errors import UserError, did_you_mean

SUFFIXES = (".csv", ".tsv", ".parquet")
_NAMES = {"train": ["train"], "validation": ["valid", "validation"], "test": ["test"]}
_SEPARATORS = (",", "\t", ";", "|")


def split_files(root: Path, splits: Splits, file: str | None) -> dict[str, Path]:
    """A file a split. `file`, or the only table in `root`, stands as train alone: its rows are then divided."""
    if file is not None:
        return {"train": only_file(root, file, SUFFIXES, "data.file")}
    found = {}
    for split, names in _NAMES.items():
        named = getattr(splits, split)
        path = named_file(root, named, split) if named else find_file(root, [f"{n}{s}" for n in names for s in SUFFIXES])
        if path is not None:
            found[split] = path
    return found if "train" in found else {"train": only_file(root, None, SUFFIXES, "data.file")}


def scan(path: Path) -> pl.LazyFrame:
    """The rows of `path`; every column of a text file as text. UserError where it is no such table."""
    try:
        if path.name.endswith(".parquet"):
            frame = pl.scan_parquet(path, glob=False)
        else:
            frame = pl.scan_csv(path, infer_schema=False, separator=separator_of(path), glob=False)
        frame.collect_schema()
    except (pl.exceptions.PolarsError, OSError, EOFError) as error:
        raise unreadable(path, error) from None
    return frame


def first_rows(path: Path, rows: int) -> pl.DataFrame:
    """The first `rows` of `path`. UserError where they cannot be read."""
    try:
        return scan(path).head(rows).collect()
    except pl.exceptions.PolarsError as error:
        raise unreadable(path, error) from None


def separator_of(path: Path) -> str:
    """What a text file's columns are separated by: of comma, tab, semicolon and bar the one that its first line has most of."""
    with _open(path) as file:
        first = file.readline()
    return max(_SEPARATORS, key=first.count)


def unreadable(path: Path, error: Exception) -> UserError:
    """The user's mistake behind what the reader of `path` could not take; names the line where there is one."""
    words = str(error).splitlines()[0] if str(error) else type(error).__name__
    if path.name.endswith(".parquet"):
        return UserError(f"not a Parquet file that can be read ({words})", where=path)
    if isinstance(error, pl.exceptions.NoDataError):
        return UserError("the file is empty", where=path, allowed="a header and a row or more")
    try:
        check_lines(path)
    except UserError as found:
        return found
    return UserError(f"cannot be read as a table ({words})", where=path, allowed="a header, then a row a line, UTF-8")


def check_columns(path: Path, columns: Sequence[str], wanted: Sequence[tuple[str, str]]) -> None:
    """UserError where `path` lacks a column that a key names: (key, column)."""
    for key, column in wanted:
        if column not in columns:
            remedy = did_you_mean(column, columns)
            raise UserError(f"no column '{column}'", where=path, given=f"{key}={column}", allowed=", ".join(columns), remedy=remedy)


def check_lines(path: Path) -> None:
    """UserError for a name that two columns of a text file have, and for its first line with more or fewer fields than its header.

    The reader would give the second column a name of its own, and take what is not there for missing values.
    """
    separator, expected = separator_of(path), 0
    with _open(path) as file:
        for number, line in _whole_lines(file, path):
            if not expected:
                names = _fields(line, separator)
                if twice := [name for name in names if names.count(name) > 1]:
                    raise UserError("two columns have one name", where=f"{path}:{number}", given=twice[0], remedy="rename one of them")
                expected = len(names)
            fields = line.count(separator) + 1 if '"' not in line else len(_fields(line, separator))
            if fields != expected and line.strip():
                what = f"too {'many' if fields > expected else 'few'} fields"
                remedy = "mend the line; a field that holds a separator stands in quotes"
                raise UserError(what, where=f"{path}:{number}", given=fields, allowed=expected, remedy=remedy)


def _fields(line: str, separator: str) -> list[str]:
    return next(csv.reader(io.StringIO(line.rstrip("\r\n").replace("\r", " "), newline=""), delimiter=separator), [])


def _whole_lines(file: io.TextIOWrapper, path: Path) -> Iterator[tuple[int, str]]:
    """(number of its first line, text) of each row: one line, or several where quotes hold a line's end."""
    held: list[str] = []
    began = 0
    for number, line in enumerate(file, 1):
        odd = line.count('"') % 2
        if not held and not odd:
            yield number, line
            continue
        began = began if held else number
        held.append(line)
        if odd and len(held) > 1:
            yield began, "".join(held)
            held = []
    if held:
        remedy = "close it; a quote within a field is doubled"
        raise UserError("a quote is opened and never closed", where=f"{path}:{began}", remedy=remedy)


def _open(path: Path) -> io.TextIOWrapper:
    text = {"encoding": "utf-8", "errors": "replace", "newline": "\n"}
    return gzip.open(path, "rt", **text) if path.name.endswith(".gz") else path.open("rt", **text)  # type: ignore[call-overload]

"""The files of a table of clicks: which they are, what columns they have, and their rows as Parquet."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import polars as pl
from polars import selectors

from recsys_lab.base.files import pasted_list, path_of
from recsys_lab.data.sources import Splits, find_file, missing_file, named_file, names_there, only_file
from recsys_lab.data.table import header
from recsys_lab.data.text import Reading, read_text
from recsys_lab.errors import UserError, did_you_mean

SUFFIXES = (".csv", ".tsv", ".parquet")
_NAMES = {"train": ["train"], "validation": ["valid", "validation"], "test": ["test"]}
_ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)


def split_files(root: Path, splits: Splits, file: str | None) -> dict[str, Path]:
    """A file a split. `file`, or the only table in `root`, stands as train alone: its rows are then divided.

    UserError where `splits` names a file that would not be read then.
    """
    named_ones = {split: name for split in _NAMES if (name := getattr(splits, split))}
    if file is not None:
        for split, name in named_ones.items():
            what, remedy = "not read beside data.file, whose rows are divided", "take one of them out, or name data.splits.train=FILE"
            raise UserError(what, where=f"data.splits.{split}", given=name, remedy=remedy)
        return {"train": only_file(root, file, SUFFIXES, "data.file")}
    files = {}
    for split, names in _NAMES.items():
        named = named_ones.get(split)
        path = named_file(root, named, f"data.splits.{split}") if named else find_file(root, _customary(names))
        if path is not None:
            files[split] = path
    if named_ones and "train" not in files:
        raise missing_file(root, _customary(_NAMES["train"]), "train")
    return files if "train" in files else {"train": only_file(root, None, SUFFIXES, "data.file")}


def test_file(root: str | None, splits: Splits) -> Path:
    """The file of the test split. A relative name is relative to `root`, where that is still there. UserError where there is none."""
    if splits.test is None:
        raise UserError("no file to read", where="data.splits.test", given="null", remedy="name it: data.splits.test=FILE")
    folder = path_of(root, "data.root") if root else Path()
    return named_file(folder if folder.is_dir() else Path(), splits.test, "data.splits.test")


def passed_over(root: Path, splits: Splits, paths: Mapping[str, Path]) -> dict[str, list[str]]:
    """By split, other files of `root` that have a customary name of it, but are not read: `train.parquet` beside `train.csv`."""
    others_by_split = {}
    for split, names in _NAMES.items():
        if getattr(splits, split) or split not in paths or paths[split].name not in (there := names_there(root, _customary(names))):
            continue
        if others := [name for name in there if name != paths[split].name]:
            others_by_split[split] = others
    return others_by_split


def _customary(names: Sequence[str]) -> list[str]:
    return [f"{name}{suffix}" for name in names for suffix in SUFFIXES]


def _is_parquet(path: Path) -> bool:
    return path.name.lower().endswith(".parquet")


def columns_of(path: Path) -> list[str]:
    """The names of the columns of `path`. UserError where it is no table, or its columns have no names of their own."""
    if not _is_parquet(path):
        return list(header.table_format(path).names)
    try:
        names = pl.scan_parquet(path.resolve(), glob=False).collect_schema().names()
    except _ERRORS as error:
        raise _no_parquet(path, error) from None
    return list(header.checked_names(names, path))


def first_rows(path: Path, rows: int) -> pl.DataFrame:
    """At most the first `rows` of `path`. UserError where they cannot be read."""
    if not _is_parquet(path):
        return header.first_rows(path, rows)
    try:
        return pl.scan_parquet(path.resolve(), glob=False).head(rows).collect()
    except _ERRORS as error:
        raise _no_parquet(path, error) from None


def as_parquet(path: Path, columns: Sequence[str], folder: Path) -> list[Path]:
    """The rows of `path`, every column of `columns` as text, in Parquet files of `folder`. UserError, with its line, for a bad row."""
    chosen = selectors.by_name(*columns)  # of `pl.col` a name may be a pattern
    if _is_parquet(path):
        part = folder / "0.parquet"
        try:
            pl.scan_parquet(path.resolve(), glob=False).select(chosen.cast(pl.String)).sink_parquet(part)
        except _ERRORS as error:
            if isinstance(error, OSError) and error.filename == str(part):
                raise
            raise _no_parquet(path, error) from None
        return [part]
    parts: list[Path] = []
    for frame in read_text(path, header.table_format(path), "fail", Reading()):
        parts.append(folder / f"{len(parts)}.parquet")
        frame.select(chosen.replace("", None)).write_parquet(parts[-1])
    return parts


def check_columns(path: Path, columns: Sequence[str], wanted: Sequence[tuple[str, str]]) -> None:
    """UserError where `path` lacks a column that a key names: (key, column)."""
    for key, column in wanted:
        if column not in columns:
            remedy = did_you_mean(column, columns) or (header.NO_HEADER if header.has_numbers(columns) else None)
            raise UserError(f"no column '{column}'", where=path, given=f"{key}={column}", allowed=", ".join(columns), remedy=remedy)


def check_types(path: Path, wanted: Sequence[tuple[str, str]], named: Collection[str], dropped: Sequence[str]) -> None:
    """UserError where a column that is read, (key, column), is of a type of Parquet that is no number, word or date.

    Those that are not `named` in the config can be left out, beside those that are `dropped` already.
    """
    if not _is_parquet(path):
        return
    table = pl.scan_parquet(path.resolve(), glob=False)
    odd = {}
    for key, column in wanted:
        one = table.select(selectors.by_name(column))
        (kind,) = one.collect_schema().dtypes()
        if kind.is_nested() or kind == pl.Duration or (kind == pl.Binary and not _has_words(one)):
            if column in named:
                raise _no_words(path, f"{column}: {kind}", f"take it out of {key}, or name another column there")
            odd[column] = f"{column}: {kind}"
    if odd:
        raise _no_words(path, ", ".join(odd.values()), f"leave out what is none: {pasted_list('data.drop', [*dropped, *odd])}")


def _has_words(table: pl.LazyFrame) -> bool:
    """Whether the bytes of a column are UTF-8, as some programs store words."""
    try:
        table.select(selectors.all().cast(pl.String)).collect()
    except pl.exceptions.PolarsError:
        return False
    return True


def _no_words(path: Path, given: str, remedy: str) -> UserError:
    return UserError("columns of numbers, of words in UTF-8, or of dates are read", where=path, given=given, remedy=remedy)


def _no_parquet(path: Path, error: BaseException) -> UserError:
    return UserError(f"not a Parquet file that can be read ({_first_line(error)})", where=path, remedy="write it again")


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)

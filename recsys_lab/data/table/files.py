"""The files of a table of clicks: which they are, what columns they have, and their rows as Parquet."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import polars as pl
from polars import selectors

from recsys_lab.base.files import pasted_list, path_of, what_is
from recsys_lab.data import parquet
from recsys_lab.data.parquet import is_list, is_parquet
from recsys_lab.data.parts import SUFFIXES, Part, Source, has_parts, is_table, source_of
from recsys_lab.data.sources import Splits, find_file, missing_file, named_file, names_there, only_file
from recsys_lab.data.table import header
from recsys_lab.data.text import Reading, read_text
from recsys_lab.errors import UserError, did_you_mean

_NAMES = {"train": ["train"], "validation": ["valid", "validation"], "test": ["test"]}


def split_files(root: Path, splits: Splits, file: str | None, names: Sequence[str] | None = None) -> dict[str, Source]:
    """The table of each split. `file`, or the only table in `root`, stands as train alone: its rows are then divided.

    `names`: of the columns, where files have no header. UserError where `splits` names a file that would not be read then.
    """
    named_ones = {split: name for split in _NAMES if (name := getattr(splits, split))}
    if file is not None:
        for split, name in named_ones.items():
            what, remedy = "not read beside data.file, whose rows are divided", "take one of them out, or name data.splits.train=FILE"
            raise UserError(what, where=f"data.splits.{split}", given=name, remedy=remedy)
        return {"train": _named(root, file, "data.file", names)}
    found = {}
    for split, words in _NAMES.items():
        if named := named_ones.get(split):
            found[split] = _named(root, named, f"data.splits.{split}", names)
        elif (path := _customary(root, words)) is not None:
            found[split] = source_of(path, names)
    if named_ones and "train" not in found:
        raise missing_file(root, _customary_names(_NAMES["train"]), "train")
    return found if "train" in found else {"train": _only(root, names)}


def test_file(root: str | None, splits: Splits, names: Sequence[str] | None = None) -> Source:
    """The table of the test split. A relative name is relative to `root`, where that is still there. UserError where there is none."""
    if splits.test is None:
        raise UserError("no file to read", where="data.splits.test", given="null", remedy="name it: data.splits.test=FILE")
    folder = path_of(root, "data.root") if root else Path()
    return _named(folder if folder.is_dir() else Path(), splits.test, "data.splits.test", names)


def passed_over(root: Path, splits: Splits, sources: Mapping[str, Source]) -> dict[str, list[str]]:
    """By split, other files of `root` that have a customary name of it, but are not read: `train.parquet` beside `train.csv`."""
    others_by_split = {}
    for split, words in _NAMES.items():
        there = names_there(root, _customary_names(words))
        if getattr(splits, split) or split not in sources or sources[split].path.name not in there:
            continue
        if others := [name for name in there if name != sources[split].path.name]:
            others_by_split[split] = others
    return others_by_split


def _named(root: Path, name: str, key: str, names: Sequence[str] | None) -> Source:
    """The table that the config key `key` names: a file, or a folder of part files."""
    path = root / path_of(name, key)
    return source_of(path if path.is_dir() else named_file(root, name, key), names)


def _customary(root: Path, words: Sequence[str]) -> Path | None:
    """The table of `root` with a customary name. A folder counts where no file has such a name."""
    folders = [root / name for name in (*_customary_names(words), *words) if (root / name).is_dir()]
    if names_there(root, _customary_names(words)) or not folders:
        return find_file(root, _customary_names(words))
    return folders[0]


def _customary_names(words: Sequence[str]) -> list[str]:
    return [f"{word}{suffix}" for word in words for suffix in SUFFIXES]


def _only(root: Path, names: Sequence[str] | None) -> Source:
    """The only table in `root`: a file, a folder with part files, or `root` itself, where all its files have the same columns."""
    files = [path for path in sorted(root.iterdir()) if is_table(path) and what_is(path) is None]
    if len(files) == 1 or not has_parts(root):
        return source_of(only_file(root, files[0].name if files else None, SUFFIXES, "data.file"), names)
    whole = source_of(root, names)
    if not files:  # folders alone: one with parts, or one a value of a column
        return whole if len(whole.parts) > 1 or whole.parts[0].keys else source_of(whole.parts[0].path, names)
    first = sorted(columns_of(source_of(files[0], names)))
    if any(sorted(columns_of(source_of(path, names))) != first for path in files[1:]):
        given = ", ".join(path.name for path in files)
        remedy = "name it: data.file=FILE, or data.splits.train=FILE and the others"
        raise UserError("several tables with different columns", where=root, given=given, allowed="files of one table", remedy=remedy)
    return whole


def columns_of(source: Source) -> list[str]:
    """The names of the columns of a table. UserError where it is none, its columns have no names, or a part has others than the first."""
    of_parts = [_columns_of(part.path, source.names) for part in source.parts]
    for part, columns in zip(source.parts, of_parts):
        if sorted(columns) != sorted(of_parts[0]):
            odd = sorted(set(columns) ^ set(of_parts[0]))
            given = f"{', '.join(odd)}: in one of {source.parts[0].path.name} and {part.path.name} alone"
            raise UserError("part files have different columns", where=part.path, given=given, remedy="name a file: data.file=FILE")
    keys = [key for key, _ in source.parts[0].keys]
    return [*of_parts[0], *(key for key in keys if key not in of_parts[0])]


def _columns_of(path: Path, names: tuple[str, ...] | None) -> list[str]:
    if not is_parquet(path):
        return list(header.table_format(path, names).names)
    stored = list(parquet.types_of(path))
    if names is not None:
        raise UserError("columns of Parquet have names", where=path, given="data.columns", remedy="take it out")
    return list(header.checked_names(stored, path))


def first_rows(source: Source, rows: int) -> pl.DataFrame:
    """At most the first `rows` of a table's first file. UserError where they cannot be read."""
    part = source.parts[0]
    if is_parquet(part.path):
        frame = parquet.collected(part.path, parquet.scanned(part.path).head(rows))
    else:
        frame = header.first_rows(part.path, rows, source.names)
    return frame.with_columns(pl.lit(value).alias(key) for key, value in part.keys if key not in frame.columns)


def said_before(source: Source) -> list[str]:
    """A note, or none, of lines before the header of a table's first file."""
    path = source.parts[0].path
    return [] if is_parquet(path) else header.said_before_rows(path)


def as_parquet(source: Source, columns: Sequence[str], folder: Path) -> list[tuple[Path, list[Path]]]:
    """The rows of `source`, every column of `columns` as text, in Parquet files of `folder`: of each part, its own and those made of it.

    Cells of a column of lists are joined by a sign of their own. UserError, with its line, for a bad row.
    """
    return [(part.path, _part_as_parquet(part, source.names, columns, folder, f"{number}")) for number, part in enumerate(source.parts)]


def _part_as_parquet(part: Part, names: tuple[str, ...] | None, columns: Sequence[str], folder: Path, stem: str) -> list[Path]:
    if is_parquet(part.path):
        made = folder / f"{stem}.parquet"
        try:
            table = parquet.scanned(part.path)
            table.with_columns(_of_path(part, table.collect_schema().names())).select(
                parquet.as_text(name, kind) for name, kind in _chosen(table, part, columns)
            ).sink_parquet(made)
        except parquet.ERRORS as error:
            if isinstance(error, OSError) and error.filename == str(made):
                raise
            raise parquet.no_parquet(part.path, error) from None
        return [made]
    parts: list[Path] = []
    for frame in read_text(part.path, header.table_format(part.path, names), "fail", Reading(may_skip=False)):
        parts.append(folder / f"{stem}_{len(parts)}.parquet")
        whole = frame.with_columns(_of_path(part, frame.columns))
        whole.select(selectors.by_name(*columns).replace("", None)).write_parquet(parts[-1])  # of `pl.col` a name may be a pattern
    return parts


def _of_path(part: Part, columns: Sequence[str]) -> list[pl.Expr]:
    """The columns that the path of a part has, but for those that the file has as well."""
    return [pl.lit(value or None, pl.String).alias(key) for key, value in part.keys if key not in columns]


def _chosen(table: pl.LazyFrame, part: Part, columns: Sequence[str]) -> list[tuple[str, pl.DataType]]:
    kinds = dict.fromkeys((key for key, _ in part.keys), pl.String()) | dict(table.collect_schema())
    return [(name, kinds[name]) for name in columns]


def column_of(source: Source, column: str) -> pl.Series:
    """A column of a table as text. UserError where it cannot be read."""
    return columns_as_text(source, [column]).to_series()


def columns_as_text(source: Source, columns: Sequence[str]) -> pl.DataFrame:
    """Columns of a table as text. UserError where they cannot be read."""
    with tempfile.TemporaryDirectory() as folder:
        made = [file for _, files in as_parquet(source, columns, Path(folder)) for file in files]
        frames = [pl.read_parquet(file, memory_map=False) for file in made]
    return pl.concat(frames) if frames else pl.DataFrame(schema=dict.fromkeys(columns, pl.String))


def check_columns(source: Source, columns: Sequence[str], wanted: Sequence[tuple[str, str]]) -> None:
    """UserError where a table lacks a column that a key names: (key, column)."""
    for key, column in wanted:
        if column not in columns:
            remedy = did_you_mean(column, columns) or (header.NO_HEADER if header.has_numbers(columns) else None)
            raise UserError(f"no column '{column}'", where=source.path, given=f"{key}={column}", allowed=", ".join(columns), remedy=remedy)


def check_types(
    source: Source, wanted: Sequence[tuple[str, str]], named: Collection[str], dropped: Sequence[str], lists: Collection[str]
) -> None:
    """UserError where a column that is read, (key, column), is of a type of Parquet that is no number, word or date.

    Those of `lists` are lists of such, here as in all tables. Those that are not `named` in the config can be left out, beside those that
    are `dropped` already.
    """
    for part in source.parts:
        if is_parquet(part.path):
            _check_types(part, wanted, named, dropped, lists)
        elif lists:
            raise UserError("a column has lists in Parquet alone", where=part.path, given=", ".join(lists), remedy="write Parquet here too")


def list_columns(source: Source) -> set[str]:
    """The columns of a Parquet file whose cells are lists."""
    if not is_parquet(source.parts[0].path):
        return set()
    return {name for name, kind in parquet.types_of(source.parts[0].path).items() if is_list(kind)}


def _check_types(
    part: Part, wanted: Sequence[tuple[str, str]], named: Collection[str], dropped: Sequence[str], lists: Collection[str]
) -> None:
    table = parquet.scanned(part.path)
    odd = {}
    for key, column in wanted:
        if column in dict(part.keys):
            continue
        one = table.select(selectors.by_name(column))
        (kind,) = one.collect_schema().dtypes()
        if column in lists and not is_list(kind):
            raise UserError("a column of lists in other tables", where=part.path, given=f"{column}: {kind}", remedy="write lists here too")
        inner = kind.inner if isinstance(kind, pl.List | pl.Array) and column in lists else kind
        if inner == pl.Binary and inner is not kind or parquet.has_no_words(inner, one):
            if column in named:
                raise _no_words(part.path, f"{column}: {kind}", f"take it out of {key}, or name another column there")
            odd[column] = f"{column}: {kind}"
    if odd:
        raise _no_words(part.path, ", ".join(odd.values()), f"leave out what is none: {pasted_list('data.drop', [*dropped, *odd])}")


def _no_words(path: Path, given: str, remedy: str) -> UserError:
    return UserError(parquet.WORDS, where=path, given=given, remedy=remedy)

"""Opens a table of clicks: which columns are what, which rows are held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import polars as pl
from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.files import pasted_list
from recsys_lab.base.ranges import Count, OneOf, ShareBelowOne
from recsys_lab.data.cache import HashedRows, cache_folder, digest
from recsys_lab.data.columns import ColumnSplit, read_row_counts
from recsys_lab.data.dataset import OpenDataSet, PartOfSplit
from recsys_lab.data.protocol import Feature, Split
from recsys_lab.data.sources import Splits, as_splits, check_root
from recsys_lab.data.table import files
from recsys_lab.data.table.column_checks import notes
from recsys_lab.data.table.encode import SCALES
from recsys_lab.data.table.known import Known, Wanted, keep, kept
from recsys_lab.data.table.prepare import SPLITS, feature_names, prepared_table
from recsys_lab.errors import UserError
from recsys_lab.tables import AccessStatistics

ENCODINGS, HELD_OUT = ("vocabulary", "hashing"), ("last", "random")
_LOOK_ROWS = 1000


def open_table(
    wanted: tuple[Feature, ...] | None = None,
    *,
    root: str | None,
    file: str | None,
    splits: Splits,
    split_column: str | None,
    validation_share: Annotated[float, Strict(), Interval(gt=0, lt=1)],
    test_share: ShareBelowOne,
    held_out: Annotated[str, OneOf(HELD_OUT)],
    label: str,
    dense: list[str] | None,
    categorical: list[str] | None,
    drop: list[str] | None = None,
    dense_scale: Annotated[str, OneOf(SCALES)],
    ids: Annotated[str, OneOf(ENCODINGS)],
    min_count: Count,
    rows_per_table: HashedRows,
    cache: str | None,
    vocabulary: str | None = None,
    only_test: bool = False,
) -> OpenDataSet:
    """CSV, TSV or Parquet in `root`, a row a sample, columns by name. Text also as .gz.

    There is a file for each split (train.*, valid.*, test.*, or `splits`), or one file (`file`, or the only one) whose rows are divided.
    They are divided by the words in `split_column`, or by shares. Then the `held_out` rows are the last or random ones. With `dense` and
    `categorical` null, columns whose first rows are numbers, not all whole, are dense. The others are categorical, less those in `drop`.
    `wanted` is ignored: the data decide the tables. With `vocabulary`, a run's, columns, rows of values and scaling are that run's. With
    `only_test` as well, no other split is read, and the test split needs no labels. Raises UserError for a missing file or column, a label
    other than 0 and 1, a dense value that is no number.
    """
    known = None if vocabulary is None else kept(vocabulary)
    if only_test:
        return _later_rows(files.test_file(root, as_splits(splits)), known, cache_folder(cache))
    if validation_share + test_share >= 1:
        given = f"{validation_share} and test_share {test_share}"
        raise UserError("nothing is left to train", where="data.validation_share", given=given, allowed="together below 1")
    folder_of_files, named = check_root(root), as_splits(splits)
    paths = files.split_files(folder_of_files, named, file)
    passed_over = {} if file is not None else files.passed_over(folder_of_files, named, paths)
    if split_column and len(paths) > 1:
        remedy = "or name one: data.file=FILE"
        raise UserError("the files are the splits already", where="data.split_column", given=split_column, remedy=remedy)
    dropped = _dropped(paths["train"], drop or [], {label, split_column}, [*(dense or []), *(categorical or [])])
    if known is not None:
        dense, categorical = list(known.wanted.dense), list(known.wanted.categorical)
        ids, rows_per_table, dense_scale = known.wanted.ids, known.wanted.rows_per_table, known.wanted.dense_scale
    taken = _columns(paths["train"], {label, split_column}, dense, categorical, dropped)
    table = Wanted(label, *taken, split_column or "", validation_share, test_share, held_out, ids, min_count, rows_per_table, dense_scale)
    names = feature_names(table.categorical)
    own = {label, *([split_column] if split_column else []), *(dense or ()), *(categorical or ())}
    folder, meta = prepared_table(paths, table, cache_folder(cache), own, drop or (), known)
    noted = (
        *_notes(table, dense, categorical, paths, passed_over),
        *notes(meta["column_checks"], {*(dense or ()), *(categorical or ())}, drop or ()),
    )
    return _opened(folder, meta, table, names, noted)


def _later_rows(path: Path, known: Known | None, cache: Path) -> OpenDataSet:
    """The rows of `path` as the test split, for a model that knows values. Labels where it has a column of them."""
    if known is None:
        remedy = "start from a run that trained on data=table: start_from=RUN_FOLDER"
        raise UserError("rows of values are needed", where="data.vocabulary", given="null", remedy=remedy)
    labelled = known.wanted.label in files.columns_of(path)
    table = replace(known.wanted, label=known.wanted.label if labelled else "", split_column="")
    folder, meta = prepared_table({"test": path}, table, cache, (), (), known)
    rows = meta["rows"]["test"]
    counts = ", ".join(f"{name} {count:,}" for name, count in meta["unknown"].items() if count)
    note = f"values of {path.name} that training did not know, or hardly: {counts or 'none'}; of {rows:,} rows"
    return _opened(folder, meta, table, feature_names(table.categorical), (note,) if meta["unknown"] else ())


def _opened(folder: Path, meta: dict, table: Wanted, names: Sequence[str], noted: tuple[str, ...]) -> OpenDataSet:
    whole = ColumnSplit(folder, sum(meta["rows"].values()), len(table.dense), len(names))
    opened: dict[str, Split] = {}
    first = 0
    for split in SPLITS:
        if meta["rows"][split]:
            opened[split] = PartOfSplit(whole, first, meta["rows"][split])
        first += meta["rows"][split]
    return OpenDataSet(
        tuple(Feature(name, rows) for name, rows in zip(names, meta["table_rows"])),
        len(table.dense),
        opened,
        AccessStatistics.from_json(meta["access"]),
        digest(["table", meta["fingerprint"]]),
        noted,
        row_counts=lambda: read_row_counts(folder, meta["table_rows"]),
        chooses_settings=True,
        labelled=bool(table.label),
        keep=partial(keep, folder, meta, table),
    )


def _dropped(path: Path, drop: Sequence[str], own: set[str | None], named: Sequence[str]) -> frozenset[str]:
    """The columns to leave out. UserError for one that is not there, or that another key names."""
    if drop:
        files.check_columns(path, files.columns_of(path), [("data.drop", column) for column in drop])
    for column in drop:
        if column in own or column in named:
            raise UserError("a column is one thing only", where="data.drop", given=column, remedy="take it out of drop")
    return frozenset(drop)


def _columns(
    path: Path, own: set[str | None], dense: Sequence[str] | None, categorical: Sequence[str] | None, dropped: frozenset[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Dense and categorical columns. Those that the config does not name, from the first rows of `path`. `own` are taken otherwise."""
    for key, columns in (("dense", dense), ("categorical", categorical)):
        for column in columns or ():
            if column in own or (key == "categorical" and column in (dense or ())):
                raise UserError("a column is one thing only", where=f"data.{key}", given=column, remedy="take it out of one of them")
            if list(columns or ()).count(column) > 1:
                raise UserError("a column is named twice", where=f"data.{key}", given=column, remedy="name it once")
    if dense is None or categorical is None:
        frame = files.first_rows(path, _LOOK_ROWS)
        others = [c for c in frame.columns if c not in own | dropped and c not in (dense or ()) and c not in (categorical or ())]
        dense = [c for c in others if _is_measure(frame[c])] if dense is None else dense
        categorical = [c for c in others if c not in dense] if categorical is None else categorical
    if not categorical:
        remedy = f"name one or more: {pasted_list('data.categorical', dense[:1])}" if dense else "name one or more"
        raise UserError("categories are needed: they become the tables", where="data.categorical", given="none", remedy=remedy)
    return tuple(dense), tuple(categorical)


def _is_measure(column: pl.Series) -> bool:
    """Whether a column holds numbers that are not ids: all of them numbers, one with a fraction. 3.0 may be an id beside a missing one."""
    if column.dtype == pl.String:
        words = column.str.strip_chars().replace("", None).drop_nulls()
        numbers = words.cast(pl.Float64, strict=False)
        if numbers.has_nulls():
            return False
    elif column.dtype.is_float() or column.dtype.is_decimal():
        numbers = column.cast(pl.Float64)
    else:
        return False
    known = numbers.filter(numbers.is_not_nan())
    return bool((known != known.floor()).any())


def _notes(
    table: Wanted, dense: object, categorical: object, paths: Mapping[str, Path], passed_over: Mapping[str, Sequence[str]]
) -> list[str]:
    notes = [f"{split}: {paths[split].name}, not {', '.join(names)} (else: data.splits.{split})" for split, names in passed_over.items()]
    if dense is None or categorical is None:
        numbers = ", ".join(table.dense) or "none"
        notes.append(f"taken for numbers: {numbers}; for categories: {', '.join(table.categorical)} (else: data.dense, data.categorical)")
    if len(paths) == 1 and not table.split_column:
        held_out = f"{table.validation_share:.0%} validation, {table.test_share:.0%} test, {table.held_out} rows"
        notes.append(f"held out of {paths['train'].name}: {held_out}")
    return notes

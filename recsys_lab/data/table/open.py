"""Opens a table of clicks: which columns are what, which rows are held out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.ranges import Count, OneOf, ShareBelowOne
from recsys_lab.data.cache import HashedRows, cache_folder, digest
from recsys_lab.data.columns import ColumnSplit, read_row_counts
from recsys_lab.data.dataset import OpenDataSet, PartOfSplit
from recsys_lab.data.parquet import LIST_SEPARATOR
from recsys_lab.data.parts import Source
from recsys_lab.data.protocol import Feature, Split
from recsys_lab.data.sources import Splits, as_splits, check_root
from recsys_lab.data.table import files
from recsys_lab.data.table.column_checks import notes
from recsys_lab.data.table.columns import TableColumns
from recsys_lab.data.table.encode import DECIMALS, POOLINGS, SCALES
from recsys_lab.data.table.guess import Columns, checked, guessed
from recsys_lab.data.table.known import Known, Wanted, keep, kept
from recsys_lab.data.table.prepare import SPLITS, feature_names, prepared_table
from recsys_lab.errors import UserError, did_you_mean
from recsys_lab.tables import AccessStatistics

ENCODINGS, HELD_OUT = ("vocabulary", "hashing"), ("last", "random")
_LOOK_ROWS = 1000
TO_PREDICT = "python run.py start_from=RUN mode=predict data.splits.test=FILE predictions=FILE.parquet"


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
    columns: list[str] | None = None,
    dense: list[str] | None,
    categorical: list[str] | None,
    drop: list[str] | None = None,
    lists: dict[str, str] | None = None,
    lists_pooling: Annotated[str, OneOf(POOLINGS)] = "sum",
    decimal: dict[str, str] | None = None,
    dense_scale: Annotated[str, OneOf(SCALES)],
    ids: Annotated[str, OneOf(ENCODINGS)],
    min_count: Count,
    rows_per_table: HashedRows,
    cache: str | None,
    vocabulary: str | None = None,
    only_test: bool = False,
) -> OpenDataSet:
    """Text, JSON lines or Parquet in `root`, a row a sample. Text also as .gz. A table is a file, or a folder of part files.

    There is a table for each split (train.*, valid.*, test.*, or `splits`), or one (`file`, or the only one) whose rows are divided.
    They are divided by the words in `split_column`, or by shares. Then the `held_out` rows are the last or random ones. `columns` are the
    names of columns where files have no header. With `dense` and `categorical` null, columns whose first rows are numbers, not all whole,
    are dense, and whole ones that reach far, by their logarithm. The others are categorical, less those in `drop`.
    `lists`: what separates the values in cells of these columns (json: JSON's arrays). Their vectors are pooled as `lists_pooling` says.
    `decimal`: what stands before the fraction in columns of numbers that are written out, as `$5,690.50` is.
    `wanted` is ignored: the data decide the tables. With `vocabulary`, a run's, columns, rows of values and scaling are that run's. With
    `only_test` as well, no other split is read, and the test split needs no labels. Raises UserError for a missing file or column, a label
    other than 0 and 1, a dense value that is no number.
    """
    known = None if vocabulary is None else kept(vocabulary)
    if only_test:
        return _later_rows(files.test_file(root, as_splits(splits), columns), known, cache_folder(cache))
    if validation_share + test_share >= 1:
        given = f"{validation_share} and test_share {test_share}"
        raise UserError("nothing is left to train", where="data.validation_share", given=given, allowed="together below 1")
    folder_of_files, named = check_root(root), as_splits(splits)
    sources = files.split_files(folder_of_files, named, file, columns)
    passed_over = {} if file is not None else files.passed_over(folder_of_files, named, sources)
    unlabelled = _unlabelled(sources, label, named)
    sources = {split: source for split, source in sources.items() if split != "test" or unlabelled is None}
    if split_column and len(sources) > 1:
        remedy = "or name one: data.file=FILE"
        raise UserError("the files are the splits already", where="data.split_column", given=split_column, remedy=remedy)
    train = sources["train"]
    before = files.said_before(train)
    dropped = _dropped(train, drop or [], {label, split_column}, [*(dense or []), *(categorical or [])])
    if known is not None:
        dense, categorical = list(known.wanted.dense), list(known.wanted.categorical)
        ids, rows_per_table, dense_scale = known.wanted.ids, known.wanted.rows_per_table, known.wanted.dense_scale
    taken = _columns(train, {label, split_column}, dense, categorical, dropped, decimal or {})
    counts, in_lists, pooling, decimals = taken.counts, _lists(train, lists or {}, taken), lists_pooling, _decimals(decimal or {}, taken)
    if known is not None:
        counts, in_lists, pooling, decimals = known.wanted.counts, known.wanted.lists, known.wanted.pooling, known.wanted.decimals
    how = (split_column or "", validation_share, test_share, held_out, ids, min_count, rows_per_table, dense_scale)
    table = Wanted(label, taken.dense, taken.categorical, *how, counts, in_lists, pooling, decimals)
    names = feature_names(table.categorical)
    own = {label, *([split_column] if split_column else []), *(dense or ()), *(categorical or ())}
    folder, meta = prepared_table(sources, table, cache_folder(cache), own, drop or (), known)
    noted = (
        *_notes(table, dense, categorical, sources, passed_over, before, unlabelled or meta["unlabelled"]),
        *notes(meta["column_checks"], meta["separators"], meta["decimals"], {*(dense or ()), *(categorical or ())}, drop or ()),
    )
    return _opened(folder, meta, table, names, noted, sources)


def _unlabelled(sources: Mapping[str, Source], label: str, splits: Splits) -> str | None:
    """Why the test file is for predictions alone: it has no labels. None where it has. UserError where the config names it."""
    if (
        not {"train", "test"} <= set(sources)
        or label in files.columns_of(sources["test"])
        or label not in files.columns_of(sources["train"])
    ):
        return None
    why = f"{sources['test'].name} has no column '{label}'"
    if splits.test:
        raise UserError("labels are needed", where="data.splits.test", given=why, remedy=f"name another file; {TO_PREDICT}")
    return why


def _later_rows(source: Source, known: Known | None, cache: Path) -> OpenDataSet:
    """The rows of `source` as the test split, for a model that knows values. Labels where it has a column of them."""
    if known is None:
        remedy = "start from a run that trained on data=table: start_from=RUN_FOLDER"
        raise UserError("rows of values are needed", where="data.vocabulary", given="null", remedy=remedy)
    labelled = known.wanted.label in files.columns_of(source)
    table = replace(known.wanted, label=known.wanted.label if labelled else "", split_column="")
    folder, meta = prepared_table({"test": source}, table, cache, (), (), known)
    rows = meta["rows"]["test"]
    counts = ", ".join(f"{name} {count:,}" for name, count in meta["unknown"].items() if count)
    note = f"values of {source.name} that training did not know, or hardly: {counts or 'none'}; of {rows:,} rows"
    opened = _opened(folder, meta, table, feature_names(table.categorical), (note,) if meta["unknown"] else (), {"test": source})
    return replace(opened, unknown_values=meta["unknown"])


def _opened(
    folder: Path, meta: dict, table: Wanted, names: Sequence[str], noted: tuple[str, ...], sources: Mapping[str, Source]
) -> OpenDataSet:
    bags = [position for position, column in enumerate(table.categorical) if column in dict(table.lists)]
    whole = ColumnSplit(folder, sum(meta["rows"].values()), len(table.dense), len(names), bags)
    access = AccessStatistics.from_json(meta["access"])
    opened: dict[str, Split] = {}
    first = 0
    for split in SPLITS:
        if meta["rows"][split]:
            opened[split] = PartOfSplit(whole, first, meta["rows"][split])
        first += meta["rows"][split]
    return OpenDataSet(
        tuple(
            Feature(name, rows, access[name].mean_length, table.pooling) if position in bags else Feature(name, rows)
            for position, (name, rows) in enumerate(zip(names, meta["table_rows"]))
        ),
        len(table.dense),
        opened,
        access,
        digest(["table", meta["fingerprint"]]),
        noted,
        row_counts=lambda: read_row_counts(folder, meta["table_rows"]),
        chooses_settings=True,
        labelled=bool(table.label),
        keep=partial(keep, folder, meta, table),
        columns=TableColumns(folder, meta, sources),
    )


def _dropped(source: Source, drop: Sequence[str], own: set[str | None], named: Sequence[str]) -> frozenset[str]:
    """The columns to leave out. UserError for one that is not there, or that another key names."""
    if drop:
        files.check_columns(source, files.columns_of(source), [("data.drop", column) for column in drop])
    for column in drop:
        if column in own or column in named:
            raise UserError("a column is one thing only", where="data.drop", given=column, remedy="take it out of drop")
    return frozenset(drop)


def _columns(
    source: Source,
    own: set[str | None],
    dense: Sequence[str] | None,
    categorical: Sequence[str] | None,
    dropped: frozenset[str],
    written: Collection[str],
) -> Columns:
    """Those that the config names, and others told from the first rows. `own` are taken otherwise. `written` are numbers."""
    for key, columns in (("dense", dense), ("categorical", categorical)):
        for column in columns or ():
            if column in own or (key == "categorical" and column in (dense or ())):
                raise UserError("a column is one thing only", where=f"data.{key}", given=column, remedy="take it out of one of them")
            if list(columns or ()).count(column) > 1:
                raise UserError("a column is named twice", where=f"data.{key}", given=column, remedy="name it once")
    if dense is not None and categorical is not None:
        return checked(Columns(tuple(dense), tuple(categorical)))
    return checked(guessed(files.first_rows(source, _LOOK_ROWS), dense, categorical, own | dropped, written))


def _lists(source: Source, asked: Mapping[str, str], columns: Columns) -> tuple[tuple[str, str], ...]:
    """The columns whose cells hold several values, with what separates these. UserError for one that is no category, and no text."""
    of_parquet = files.list_columns(source)
    for column, separator in asked.items():
        if column not in columns.categorical:
            remedy = did_you_mean(column, columns.categorical) or "name it in data.categorical too"
            raise UserError("no category", where="data.lists", given=column, allowed=", ".join(columns.categorical), remedy=remedy)
        if column in of_parquet:
            raise UserError("a list already", where=f"data.lists.{column}", given=separator, remedy="take it out")
        if not isinstance(separator, str) or not separator:
            allowed = "what separates the values of a cell, such as '|', or json"
            raise UserError("no separator", where=f"data.lists.{column}", given=separator, allowed=allowed)
    return tuple((name, asked.get(name, LIST_SEPARATOR)) for name in columns.categorical if name in asked or name in of_parquet)


def _decimals(asked: Mapping[str, str], columns: Columns) -> tuple[tuple[str, str], ...]:
    """The columns whose numbers are written out, with what stands before their fraction. UserError for one that is not dense."""
    for column, sign in asked.items():
        if column not in columns.dense:
            remedy = did_you_mean(column, [*columns.dense, *columns.categorical]) or "name it in data.dense too"
            raise UserError("no column of numbers", where="data.decimal", given=column, allowed=", ".join(columns.dense), remedy=remedy)
        if sign not in DECIMALS:
            raise UserError("no sign before a fraction", where=f"data.decimal.{column}", given=sign, allowed="'.' or ','")
    return tuple(asked.items())


def _notes(
    table: Wanted,
    dense: object,
    categorical: object,
    sources: Mapping[str, Source],
    passed_over: Mapping[str, Sequence[str]],
    before: Sequence[str],
    unlabelled: str | None,
) -> list[str]:
    notes = [f"{split}: {sources[split].name}, not {', '.join(names)} (else: data.splits.{split})" for split, names in passed_over.items()]
    if dense is None or categorical is None:
        numbers = ", ".join(table.dense) or "none"
        notes.append(f"taken for numbers: {numbers}; for categories: {', '.join(table.categorical)} (else: data.dense, data.categorical)")
    notes += before
    if table.counts:
        notes.append(f"whole numbers, most of them small and some large, so their logarithm is read: {', '.join(table.counts)}")
    if table.lists:
        named = ", ".join(name for name, _ in table.lists)
        notes.append(f"several values a row, whose vectors are {'summed' if table.pooling == 'sum' else 'averaged'}: {named}")
    if unlabelled is not None:
        train = f"train: {sources['train'].name} (else: data.splits.train=FILE)"
        notes.append(f"{unlabelled}: it is for predictions and passed over ({TO_PREDICT}); {train}")
    notes += sources["train"].notes("table")
    if set(sources) - ({"test"} if unlabelled else set()) == {"train"} and not table.split_column:
        held_out = f"{table.validation_share:.0%} validation, {table.test_share:.0%} test, {table.held_out} rows"
        notes.append(f"held out of {sources['train'].name}: {held_out}")
    return notes

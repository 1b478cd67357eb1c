"""Criteo's click logs: the Kaggle challenge's one file, or the days of the terabyte. How they are prepared: prepare.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.ranges import Count, OneOf
from recsys_lab.data.cache import HashedRows, cache_folder, digest
from recsys_lab.data.columns import ColumnSplit, read_row_counts
from recsys_lab.data.criteo.format import COUNTS, VALUES
from recsys_lab.data.criteo.prepare import Encoding, prepared_other, prepared_train
from recsys_lab.data.dataset import OpenDataSet, PartOfSplit, refuse_empty
from recsys_lab.data.protocol import Feature, Split
from recsys_lab.data.sources import Splits, as_splits, check_root, find_file, missing_file, named_file
from recsys_lab.data.text import OnBadLine
from recsys_lab.errors import UserError
from recsys_lab.tables import AccessStatistics

TRAIN_NAMES = ["train.tsv", "train.txt", "train.csv"]
VALIDATION_NAMES = ["valid.tsv", "valid.txt", "valid.csv", "validation.tsv", "validation.txt", "validation.csv"]
DAYS = [f"day_{i}" for i in range(24)]
ENCODINGS = ("vocabulary", "hashing")


@dataclass(frozen=True)
class Files:
    """Which files hold what. `validation` None: the last rows of train."""

    train: tuple[Path, ...]
    validation: Path | None
    test: Path | None


def open_criteo(
    wanted: tuple[Feature, ...] | None = None,
    *,
    root: str | None,
    splits: Splits,
    on_bad_line: OnBadLine,
    cache: str | None,
    validation_share: Annotated[float, Strict(), Interval(gt=0, lt=1)],
    ids: Annotated[str, OneOf(ENCODINGS)],
    min_count: Count,
    rows_per_table: HashedRows,
    rows_of_tables: list[HashedRows] | None,
) -> OpenDataSet:
    """The data set in `root`: train.tsv, .txt or .csv, or day_0 to day_23, each also as .gz.

    Validation: valid.* or validation.*, else day_23, else the last `validation_share` of the train rows in file order. Test: only a file
    named by `splits.test`, as the challenge's own test.txt has no labels. `ids`: vocabulary (of values seen `min_count` times) or hashing
    (into `rows_per_table`, or into the 26 `rows_of_tables`). 26 `wanted` features give the tables' names and rows;
    ids are then hashed. Raises UserError for a missing or bad file.
    """
    names = wanted if wanted is not None and len(wanted) == VALUES else None
    rows = tuple(f.rows for f in names) if names else _configured_rows(ids, min_count, rows_per_table, rows_of_tables)
    files = _files(check_root(root), as_splits(splits))
    encoding = Encoding(rows, 0 if rows else min_count, 0.0 if files.validation else validation_share)
    return _open(files, encoding, names, on_bad_line, cache_folder(cache))


def _open(files: Files, encoding: Encoding, names: tuple[Feature, ...] | None, on_bad_line: str, cache: Path) -> OpenDataSet:
    folder, meta = prepared_train(files.train, encoding, on_bad_line, cache)
    rows, train_rows = meta["rows"], meta["train_rows"]
    refuse_empty("train", train_rows, files.train[0])
    whole = ColumnSplit(folder, rows, COUNTS, VALUES)
    splits: dict[str, Split] = {"train": PartOfSplit(whole, 0, train_rows)}
    notes, prints = list(meta["notes"]), [meta["fingerprint"]]
    unknown: dict[str, int] = {}
    if files.validation is None:
        refuse_empty("validation", rows - train_rows, files.train[-1])
        splits["validation"] = PartOfSplit(whole, train_rows, rows - train_rows)
        notes.append(f"validation: the last {rows - train_rows:,} of {rows:,} rows of {files.train[-1].name}")
    for name, path in (("validation", files.validation), ("test", files.test)):
        if path is not None:
            other, other_meta = prepared_other(path, folder, meta, on_bad_line, cache)
            refuse_empty(name, other_meta["rows"], path)
            splits[name] = ColumnSplit(other, other_meta["rows"], COUNTS, VALUES)
            notes += other_meta["notes"]
            prints.append([name, other_meta["fingerprint"]])
            unknown = other_meta["unknown"] if name == "test" else unknown
    measured = AccessStatistics.from_json(meta["access"]).tables
    if names:
        features = tuple(Feature(f.name, n, 1.0, f.pooling) for f, n in zip(names, meta["table_rows"]))
    else:
        features = tuple(Feature(name, n) for name, n in zip(measured, meta["table_rows"]))
    return OpenDataSet(
        features,
        COUNTS,
        splits,
        AccessStatistics({f.name: replace(table, table=f.name) for f, table in zip(features, measured.values())}),
        digest(["criteo", prints]),
        tuple(notes),
        row_counts=lambda: read_row_counts(folder, meta["table_rows"]),
        unknown_values=unknown,
        own_rows="" if encoding.rows else digest(["criteo", meta["fingerprint"]]),
    )


def _configured_rows(ids: str, min_count: int, rows_per_table: int, rows_of_tables: Sequence[int] | None) -> tuple[int, ...] | None:
    """Of each of the 26 tables when values are hashed; None for a vocabulary."""
    if ids == "vocabulary":
        return None
    rows = tuple(rows_of_tables) if rows_of_tables is not None else (rows_per_table,) * VALUES
    if len(rows) != VALUES:
        raise UserError("one number a table is needed", where="data.rows_of_tables", given=len(rows), allowed=f"{VALUES} numbers")
    return rows


def _files(root: Path, splits: Splits) -> Files:
    days = [path for path in (find_file(root, [day]) for day in DAYS) if path is not None]
    if splits.train:
        train: tuple[Path, ...] = (named_file(root, splits.train, "data.splits.train"),)
    elif one := find_file(root, TRAIN_NAMES):
        train = (one,)
    elif days:
        train = tuple(days)
    else:
        raise missing_file(root, [*TRAIN_NAMES, "day_0"], "train")
    if splits.validation:
        validation: Path | None = named_file(root, splits.validation, "data.splits.validation")
    else:
        validation = find_file(root, VALIDATION_NAMES)
        if validation is None and len(train) > 1 and train[-1].name.startswith(DAYS[-1]):
            validation = train[-1]
    test = named_file(root, splits.test, "data.splits.test") if splits.test else None
    if len(train) > 1:
        train = tuple(path for path in train if path not in (validation, test))
    return Files(train, validation, test)

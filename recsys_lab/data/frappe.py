"""Frappe: which app is used in which context (Baltrunas et al. 2015, arXiv 1505.03014). CSV of ten categorical fields with global ids.

Every field has a table of its own: the id within it is the global id less the field's first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import polars as pl
from annotated_types import Interval
from pydantic import Strict

from recsys_lab.data.cache import MOST_ROWS, cache_folder, digest, prepared
from recsys_lab.data.columns import ColumnSplit, count_rows, read_row_counts, write_columns, write_row_counts
from recsys_lab.data.dataset import OpenDataSet, refuse_empty
from recsys_lab.data.protocol import Feature
from recsys_lab.data.sources import Splits, as_splits, check_root, find_file, missing_file, named_file, source_identity
from recsys_lab.data.text import Check, Columns, OnBadLine, Reading, TextFormat, read_text
from recsys_lab.errors import UserError
from recsys_lab.tables import AccessStatistics, measured_access

NAMES = {"train": ["train.csv"], "validation": ["valid.csv"], "test": ["test.csv"]}


def frappe_format(ranges: Mapping[str, tuple[int, int]]) -> TextFormat:
    """label,field,field,... with a header. `ranges`: [first id, size] by field."""
    names = ("label", *ranges)
    label = Check("label", pl.col("label").str.contains("^0{0,17}[01]$"), "bad label", "0 or 1")
    fields = [
        Check(
            name,
            pl.col(name).str.contains("^[0-9]{1,18}$") & pl.col(name).cast(pl.Int64, strict=False).is_between(first, first + size - 1),
            f"the id of {name} is not in its table",
            f"{first} to {first + size - 1}",
        )
        for name, (first, size) in ranges.items()
    ]
    return TextFormat(names, ",", header=",".join(names), checks=(label, *fields))


def columns_of(frame: pl.DataFrame, ranges: Mapping[str, tuple[int, int]]) -> Columns:
    """Ids within each field's own table."""
    first = np.array([first for first, _ in ranges.values()])
    ids = frame.select(pl.col(list(ranges)).cast(pl.Int64)).to_numpy() - first
    return Columns(frame["label"].str.ends_with("1").cast(pl.UInt8).to_numpy(), None, ids.astype(np.int32))


def open_frappe(
    wanted: tuple[Feature, ...] | None = None,
    *,
    root: str | None,
    splits: Splits,
    on_bad_line: OnBadLine,
    cache: str | None,
    fields: dict[str, list[Annotated[int, Strict(), Interval(ge=0, le=MOST_ROWS)]]],
) -> OpenDataSet:
    """The data set in `root`: train.csv, valid.csv and, where there is one, test.csv, each also as .gz.

    `fields`: the first global id and the size of each field. `wanted` is ignored: the data decide the tables.
    Raises UserError for a missing or bad file.
    """
    folder = check_root(root)
    ranges = _ranges(fields)
    features = tuple(Feature(name, size) for name, (_, size) in ranges.items())
    opened, notes, prints = {}, [], []
    access, counts_folder = None, None
    for split, path in _files(folder, as_splits(splits)).items():
        where, meta = _prepared_file(path, ranges, on_bad_line, cache_folder(cache))
        refuse_empty(split, meta["rows"], path)
        opened[split] = ColumnSplit(where, meta["rows"], 0, len(features))
        prints.append([split, meta["fingerprint"]])
        notes += meta["notes"]
        if split == "train":
            access, counts_folder = AccessStatistics.from_json(meta["access"]), where
    assert access is not None and counts_folder is not None
    train_folder = counts_folder
    return OpenDataSet(
        features,
        0,
        opened,
        access,
        digest(["frappe", prints]),
        tuple(notes),
        row_counts=lambda: read_row_counts(train_folder, [f.rows for f in features]),
    )


def _prepared_file(path: Path, ranges: dict[str, tuple[int, int]], on_bad_line: str, cache: Path) -> tuple[Path, dict]:
    options = {"kind": "frappe", "fields": {k: list(v) for k, v in ranges.items()}, "on_bad_line": on_bad_line}

    def prepare(folder: Path) -> dict:
        reading = Reading()
        counts = [np.zeros(size, np.int64) for _, size in ranges.values()]

        def counted() -> Iterator[Columns]:
            for frame in read_text(path, frappe_format(ranges), on_bad_line, reading):
                block = columns_of(frame, ranges)
                count_rows(counts, block.ids)
                yield block

        rows = write_columns(folder, counted())
        write_row_counts(folder, counts)
        detail = f"{rows:,} samples of {path.name}"
        access = AccessStatistics({name: measured_access(name, c, rows, detail) for name, c in zip(ranges, counts)})
        return {
            "rows": rows,
            "skipped": reading.skipped,
            "notes": reading.notes(),
            "sources": [source_identity(path)],
            "sha256": reading.sha256,
            "options": options,
            "fingerprint": digest([reading.sha256, options]),
            "access": access.to_json(),
        }

    return prepared(cache, "frappe", [source_identity(path), options], prepare)


def _files(root: Path, splits: Splits) -> dict[str, Path]:
    files = {}
    for split, names in NAMES.items():
        name = getattr(splits, split)
        path = named_file(root, name, f"data.splits.{split}") if name else find_file(root, names)
        if path is not None:
            files[split] = path
        elif split != "test":
            raise missing_file(root, names, split)
    return files


def _ranges(fields: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, int]]:
    ranges = {}
    for name, pair in fields.items():
        if len(pair) != 2 or pair[0] < 0 or pair[1] < 1:
            raise UserError("bad field", where=f"data.fields.{name}", given=list(pair), allowed="[first id, size]")
        ranges[str(name)] = (int(pair[0]), int(pair[1]))
    return ranges

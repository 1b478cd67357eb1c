"""Row frequencies in a file. Planners that place tables row by row use them in place of the train split's own.

One .npz: `samples`, and for each table int64 [E], how often each row was looked up in them. Nothing in it is pickled.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from recsys_lab.base.files import path_of, what_is
from recsys_lab.data.cache import digest
from recsys_lab.data.dataset import OpenDataSet, refuse_empty, table_names
from recsys_lab.data.measure import measure_row_counts
from recsys_lab.data.protocol import DataSet
from recsys_lab.data.sources import source_identity
from recsys_lab.errors import UserError, cannot_write
from recsys_lab.tables import AccessStatistics, measured_access

TABLE = "table:"
#: What NumPy raises for a file that is none of its archives, is truncated, or holds objects.
NOT_FREQUENCIES = (ValueError, KeyError, TypeError, AttributeError, EOFError, RuntimeError, MemoryError, BadZipFile, zlib.error)
MOST_LOOK_UPS = 2.0**62
#: Average lengths that differ by more than this factor are those of other features, not of another day.
MOST_LENGTH_RATIO = 2.0
REMEDY = "measure these data: python -m recsys_lab frequencies data=... -o FILE"


def save_frequencies(path: Path, dataset: DataSet, rows: int | None = None) -> int:
    """Counts the first `rows` samples (None: all) of train into `path`, whole or not at all. Returns how many those were.

    UserError where there are none, or `path` cannot be written."""
    samples = dataset.splits["train"].rows if rows is None else min(rows, dataset.splits["train"].rows)
    refuse_empty("train", samples, "data")
    counts = dict(zip(table_names(dataset.features), measure_row_counts(dataset, rows)))
    part = path.with_name(path.name + ".part.npz")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(part, samples=np.int64(samples), **{TABLE + name: count for name, count in counts.items()})  # type: ignore[arg-type]
        os.replace(part, path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise cannot_write(error, path) from None
    return samples


def with_frequencies(dataset: OpenDataSet, file: str) -> OpenDataSet:
    """`dataset` with the access statistics of `file` in place of its own. UserError, in figures, where they are of other tables."""
    path = path_of(file, "data.frequencies")
    samples, counts = _load(path)
    rows_of = {feature.table_name: feature.rows for feature in dataset.features}
    _check_tables(path, rows_of, counts)
    detail = f"{samples:,} samples of {path.name}"
    measured = {name: measured_access(name, counts[name], samples, detail) for name in rows_of}
    for name, access in measured.items():
        expected = dataset.access[name].mean_length
        if not expected / MOST_LENGTH_RATIO <= access.mean_length <= expected * MOST_LENGTH_RATIO:
            raise UserError(
                f"the frequencies do not match the data: table {name} has another average length",
                where=path,
                given=f"{access.mean_length:.4g} look-ups a sample",
                allowed=f"within a factor {MOST_LENGTH_RATIO:g} of the data's {expected:.4g}",
                remedy=REMEDY,
            )
    return replace(
        dataset,
        access=AccessStatistics(measured),
        fingerprint=digest([dataset.fingerprint, "frequencies", source_identity(path)]),
        notes=(*dataset.notes, f"planned with the row frequencies of {path.name}: {samples:,} samples"),
        row_counts=lambda: [counts[name] for name in rows_of],
    )


def _load(path: Path) -> tuple[int, dict[str, np.ndarray]]:
    if (kind := what_is(path)) is not None:
        raise UserError("cannot be read", where=path, given=kind, remedy=REMEDY)
    try:
        with np.load(path, allow_pickle=False) as file:
            counts = {name.removeprefix(TABLE): file[name] for name in file.files if name.startswith(TABLE)}
            samples = file["samples"]
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror or error}", where=path, remedy=REMEDY) from None
    except NOT_FREQUENCIES as error:
        raise UserError(f"these are no row frequencies ({error})", where=path, remedy=REMEDY) from None
    if samples.shape != () or samples.dtype.kind not in "iu" or samples < 1:
        given = f"{samples.dtype} {samples.shape}" if samples.shape else samples
        raise UserError("these are no row frequencies: the number of samples", where=path, given=given, allowed="1 or more", remedy=REMEDY)
    return int(samples), counts


def _check_tables(path: Path, rows_of: dict[str, int], counts: dict[str, np.ndarray]) -> None:
    def refuse(what: str, given: str, allowed: str) -> UserError:
        return UserError(f"the frequencies do not match the data: {what}", where=path, given=given, allowed=allowed, remedy=REMEDY)

    if set(rows_of) != set(counts):
        raise refuse("other tables", _names(counts), _names(rows_of))
    for name, rows in rows_of.items():
        if counts[name].shape != (rows,):
            shape = " x ".join(f"{size:,}" for size in counts[name].shape) or "one number of"
            raise refuse(f"table {name} has another number of rows", f"{shape} rows counted", f"{rows:,}")
        if counts[name].dtype.kind not in "iu" or counts[name].min(initial=0) < 0 or counts[name].sum(dtype=float) > MOST_LOOK_UPS:
            raise refuse(
                f"the counts of table {name} are no counts", str(counts[name].dtype), "whole numbers, 0 or more, below 2^62 in all"
            )


def _names(tables: Sequence[str] | dict) -> str:
    return ", ".join(sorted(tables))

"""What a run knows of its columns: the row of each value, and how numbers are scaled. Kept in its folder, for rows that come later."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

from recsys_lab.base.files import path_of, read_json, write_json
from recsys_lab.data.cache import digest
from recsys_lab.errors import UserError

META_FILE, VALUES_FILE, COUNTS_FILE = "vocabulary.json", "vocabulary.parquet", "row_counts.bin"


@dataclass(frozen=True)
class Wanted:
    """What is made of the columns. `split_column` empty: rows of a single file are divided by the shares.

    `counts`: the dense columns of which the logarithm is read under any `dense_scale`. `lists`: columns with several values a cell, and
    what separates these. `decimals`: the dense columns whose numbers are written out, and what stands before their fraction.
    """

    label: str
    dense: tuple[str, ...]
    categorical: tuple[str, ...]
    split_column: str
    validation_share: float
    test_share: float
    held_out: str  # last | random
    ids: str  # vocabulary | hashing
    min_count: int
    rows_per_table: int
    dense_scale: str
    counts: tuple[str, ...] = ()
    lists: tuple[tuple[str, str], ...] = ()
    pooling: str = "sum"
    decimals: tuple[tuple[str, str], ...] = ()

    def scale_of(self, column: str) -> str:
        return "log" if column in self.counts else self.dense_scale


@dataclass(frozen=True)
class Known:
    """`table_rows`: of each categorical column. `scaling`: mean and spread of each dense one. `access`: of the rows that trained it."""

    folder: Path
    wanted: Wanted
    table_rows: list[int]
    scaling: Mapping[str, tuple[float, float]]
    access: dict[str, Any]
    fingerprint: str

    def values(self, column: str) -> pl.DataFrame:
        """`value` and `row` of each value of a column that has a row of its own."""
        return pl.read_parquet(self.folder / VALUES_FILE).filter(pl.col("column") == column).select("value", "row")


def keep(prepared: Path, meta: Mapping[str, Any], wanted: Wanted, folder: Path) -> None:
    """Copies what a prepared table knows of its columns into `folder`."""
    folder.mkdir(exist_ok=True)
    for name in (VALUES_FILE, COUNTS_FILE):
        if (prepared / name).is_file():  # hashed columns have no values
            shutil.copyfile(prepared / name, folder / name)
    parts = {key: meta[key] for key in ("table_rows", "scaling", "access")}
    write_json(folder / META_FILE, {"wanted": asdict(wanted), **parts})


def kept(text: str) -> Known:
    """What `keep` left in the folder `text`. Raises UserError where it is not there, or is of another shape."""
    folder = path_of(text, "data.vocabulary")
    known = read_json(folder / META_FILE, "name the vocabulary of a run: start_from=RUN_FOLDER")
    try:
        wanted: dict[str, Any] = {key: _as_tuple(value) for key, value in known["wanted"].items()}
        scaling = {name: (float(mean), float(spread)) for name, (mean, spread) in known["scaling"].items()}
        values = (folder / VALUES_FILE).read_bytes() if wanted["ids"] == "vocabulary" else b""
        fingerprint = digest([known, hashlib.sha256(values).hexdigest()])
        return Known(folder, Wanted(**wanted), list(known["table_rows"]), scaling, known["access"], fingerprint)
    except (LookupError, TypeError, ValueError, AttributeError, OSError) as error:
        raise UserError(
            f"no vocabulary that can be read ({type(error).__name__})", where=folder, remedy="copy the whole run folder"
        ) from None


def _as_tuple(value: Any) -> Any:
    """JSON's lists as they were before, tuples."""
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value

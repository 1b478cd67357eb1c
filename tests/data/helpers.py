"""Small data for the tests of this folder."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.protocol import Feature, Rows
from recsys_lab.data.sources import Splits
from recsys_lab.tables import AccessStatistics, measured_access

FRAPPE_FIELDS = {"user": [0, 5], "item": [5, 10], "city": [15, 3]}
FRAPPE_HEADER = "label,user,item,city"
FRAPPE_LINES = ["1,0,5,15", "0,4,14,17", "0,1,6,16", "1,2,7,15"]


def write(path: Path, lines: list[str], end: str = "\n") -> Path:
    """`lines` as a file, gzipped if the name says so."""
    data = "".join(line + end for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def frappe_options(root: Path, **changed) -> dict:
    return {"root": str(root), "splits": Splits(), "on_bad_line": "fail", "cache": str(root / "cache"), "fields": FRAPPE_FIELDS} | changed


def criteo_options(root: Path, **changed) -> dict:
    return {
        "root": str(root),
        "splits": Splits(),
        "on_bad_line": "fail",
        "cache": str(root / "cache"),
        "validation_share": 0.1,
        "ids": "vocabulary",
        "min_count": 2,
        "rows_per_table": 50,
        "rows_of_tables": None,
    } | changed


def criteo_line(label: int | str = 0, counts: list | None = None, values: list | None = None) -> str:
    """A line of the log; shorter lists are filled with empty fields."""
    counts, values = list(counts or []), list(values or [])
    fields = [label, *counts, *[""] * (13 - len(counts)), *values, *[""] * (26 - len(values))]
    return "\t".join(str(f) for f in fields)


class ArraySplit:
    """Rows in memory; row r has r % 3 ids of the first feature and one of the second. Notes every row that is read."""

    def __init__(self, rows: int):
        self.rows = rows
        self.read_rows: list[int] = []

    def read(self, rows: np.ndarray) -> Rows:
        self.read_rows += rows.tolist()
        lengths = np.stack([rows % 3, np.ones_like(rows)]).astype(np.int32)
        ids = np.concatenate([np.repeat(rows, rows % 3), rows * 7]) % 1000
        dense = np.stack([rows, -rows], axis=1).astype(np.float32).reshape(len(rows), 2)
        return Rows((rows % 2).astype(np.float32), dense, lengths, ids.astype(np.int64))


def array_data(rows: int) -> OpenDataSet:
    features = (Feature("a", 1000, 1.0), Feature("b", 1000, 1.0))
    access = AccessStatistics({f.name: measured_access(f.name, np.ones(f.rows, np.int64), rows, "made up") for f in features})
    return OpenDataSet(features, 2, {"train": ArraySplit(rows), "validation": ArraySplit(rows)}, access, "made-up")


def interactions_options(root: Path, **changed) -> dict:
    return {
        "root": str(root),
        "file": None,
        "format": None,
        "columns": None,
        "on_bad_line": "fail",
        "category": None,
        "side": None,
        "lists": None,
        "items_file": None,
        "users_file": None,
        "time": False,
        "event_times": False,
        "objective": "next_item",
        "pooling": "none",
        "max_length": 50,
        "loss": "binary",
        "negatives": None,
        "passes": 1,
        "seed_of_negatives": 1,
        "cache": str(root / "cache"),
    } | changed

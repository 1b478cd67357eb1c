"""A line of Criteo's click logs: label, 13 integer counts, 26 values of up to 8 hex digits, separated by tabs. Empty means missing."""

from __future__ import annotations

import numpy as np
import polars as pl

from recsys_lab.data.text import Check, Columns, TextFormat

COUNTS, VALUES = 13, 26
COUNT_NAMES = [f"I{i}" for i in range(1, COUNTS + 1)]
VALUE_NAMES = [f"C{i}" for i in range(1, VALUES + 1)]
NAMES = ["label", *COUNT_NAMES, *VALUE_NAMES]

CRITEO = TextFormat(
    tuple(NAMES),
    "\t",
    extra_empty=True,
    checks=(
        Check("label", pl.col("label").str.contains("^0{0,17}[01]$"), "bad label", "0 or 1"),
        *(Check(n, pl.col(n).str.contains("^(-?[0-9]{1,18})?$"), f"{n} is not a whole number", "digits, or empty") for n in COUNT_NAMES),
        *(
            Check(n, pl.col(n).str.contains("^[0-9a-fA-F]{0,8}$"), f"{n} is not a hexadecimal id", "1 to 8 hex digits, or empty")
            for n in VALUE_NAMES
        ),
    ),
)


def columns_of(frame: pl.DataFrame) -> Columns:
    """Ids as the 32-bit numbers that they are. Tables come later, when the whole file is known.

    Dense values are log(x + 1). Negative counts (rare, as low as -3) and missing ones count as 0, as in the public DLRM code.
    """
    labels = frame["label"].cast(pl.Int64).cast(pl.UInt8).to_numpy()
    counts = frame.select(pl.col(COUNT_NAMES).cast(pl.Int64, strict=False).fill_null(0).clip(lower_bound=0).cast(pl.Float32)).to_numpy()
    values = frame.select(pl.col(VALUE_NAMES).str.to_integer(base=16, dtype=pl.UInt32, strict=False).fill_null(0)).to_numpy()
    return Columns(labels, np.log1p(counts), np.ascontiguousarray(values), _missing(frame.select(VALUE_NAMES)))


def _missing(values: pl.DataFrame) -> np.ndarray:
    """uint32 [n]: bit f is set where value f is missing."""
    empty = values.select(pl.all() == "").to_numpy()
    return (empty * (np.uint32(1) << np.arange(VALUES, dtype=np.uint32))).sum(axis=1, dtype=np.uint32)

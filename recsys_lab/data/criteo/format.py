"""A line of Criteo's click logs: label, 13 integer counts, 26 values of up to 8 hex digits, separated by tabs. Empty means missing."""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from recsys_lab.data.text import Columns, Complaint, shorten

COUNTS, VALUES = 13, 26
FIELDS = 1 + COUNTS + VALUES
NAMES = ["label", *(f"I{i}" for i in range(1, COUNTS + 1)), *(f"C{i}" for i in range(1, VALUES + 1))]
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_LABEL = re.compile(r"0{0,17}[01]")
_HEX = re.compile(r"[0-9a-fA-F]{1,8}")
_EMPTY_EXTRA = re.compile(rb"^((?:[^\t\n]*\t){39}[^\t\n]*)\t+$", re.MULTILINE)
#: What no good line has, though the parser would take it. It is a minus other than that of a count, or a count of more than 18 digits.
_AMISS = re.compile(rb"(?<!\t)-|-(?![0-9])|[0-9]{19}")
_TAB, _LINE_FEED = ord("\t"), ord("\n")


class CriteoFormat:
    """Ids are parsed to the 32-bit numbers that they are. Tables come later, when the whole file is known.

    Dense values are log(x + 1). Negative counts (rare, as low as -3) and missing ones count as 0, as in the public DLRM code.
    """

    header = None

    def parse(self, block: bytes) -> Columns | None:
        if block.translate(None, b"0123456789abcdefABCDEF-\t\n") or _AMISS.search(block):
            return None
        fewest, most = _tabs_per_line(block)
        if fewest < FIELDS - 1:
            return None
        if most > FIELDS - 1:
            block = _EMPTY_EXTRA.sub(rb"\1", block)
            if _tabs_per_line(block)[1] > FIELDS - 1:
                return None
        schema = {name: pl.String if name.startswith("C") else pl.Int64 for name in NAMES}
        try:
            frame = pl.read_csv(block, has_header=False, separator="\t", quote_char=None, schema=schema)
        except pl.exceptions.PolarsError:
            return None
        labels = frame["label"]
        if labels.null_count() or not labels.is_between(0, 1).all():
            return None
        values = frame.select(f"C{i}" for i in range(1, VALUES + 1))
        if not _all_hex(values):
            return None
        return Columns(labels.to_numpy().astype(np.uint8), _dense(frame), _numbers(values), _missing(values))

    def complaint(self, line: str) -> Complaint | None:
        fields = line.split("\t")
        if len(fields) < FIELDS:
            return Complaint("too few fields", f"{len(fields)}", f"{FIELDS}, separated by tabs (empty ones count)")
        if any(fields[FIELDS:]):
            return Complaint("too many fields", f"{len(fields)}", f"{FIELDS}, separated by tabs")
        if not _LABEL.fullmatch(fields[0]):
            return Complaint("bad label", shorten(fields[0]), "0 or 1")
        for name, text in zip(NAMES[1:], fields[1:]):
            if text and name.startswith("I") and not _INTEGER.fullmatch(text):
                return Complaint(f"{name} is not a whole number", shorten(text), "digits, or empty")
            if text and name.startswith("C") and not _HEX.fullmatch(text):
                return Complaint(f"{name} is not a hexadecimal id", shorten(text), "1 to 8 hex digits, or empty")
        return None


def _tabs_per_line(block: bytes) -> tuple[int, int]:
    """The fewest and the most tabs on any line; (0, 0) without lines."""
    text = np.frombuffer(block, np.uint8)
    ends = np.flatnonzero(text == _LINE_FEED)
    if not ends.size:
        return 0, 0
    tabs = np.diff(np.searchsorted(np.flatnonzero(text == _TAB), ends), prepend=0)
    return int(tabs.min()), int(tabs.max())


def _all_hex(values: pl.DataFrame) -> bool:
    """Whether every value is 1 to 8 long and has no minus sign (the block's alphabet leaves no other offence)."""
    longest = values.select(pl.all().str.len_bytes().max()).row(0)
    return all(length is None or length <= 8 for length in longest) and not any(
        values.select(pl.all().str.contains("-", literal=True).any()).row(0)
    )


def _dense(frame: pl.DataFrame) -> np.ndarray:
    """float32 [n, 13]."""
    counts = frame.select(pl.col(NAMES[1 : 1 + COUNTS]).fill_null(0).clip(lower_bound=0).cast(pl.Float32)).to_numpy()
    return np.log1p(counts)


def _numbers(values: pl.DataFrame) -> np.ndarray:
    """uint32 [n, 26], 0 where missing."""
    numbers = values.select(pl.all().str.to_integer(base=16, dtype=pl.UInt32).fill_null(0))
    return np.ascontiguousarray(numbers.to_numpy())


def _missing(values: pl.DataFrame) -> np.ndarray:
    """uint32 [n]: bit f is set where value f is missing."""
    empty = values.select(pl.all().is_null()).to_numpy()
    return (empty * (np.uint32(1) << np.arange(VALUES, dtype=np.uint32))).sum(axis=1, dtype=np.uint32)

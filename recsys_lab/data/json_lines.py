"""JSON lines: an object a line, as logs are often exported. Cells become text, as those of other text files are."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import polars as pl

#: Numbers that are floats, of which great ones are ids that were rounded. NaN and Infinity, which Python writes, are no JSON.
_ODD = re.compile(rb"\d[eE]\+?\d|\d{16}\.|NaN|Infinity")
_MOST_EXACT = 2.0**53


def names_in(lines: Sequence[str]) -> list[str] | None:
    """The keys of the objects in the first lines, in the order in which they first appear. None where the first line is no object."""
    objects = [value for line in lines if isinstance(value := _value(line), dict)]
    return list(dict.fromkeys(key for value in objects for key in value)) if lines and isinstance(_value(lines[0]), dict) else None


def rows_of(block: bytes, names: Sequence[str]) -> tuple[pl.DataFrame, list[int] | None, dict[int, str]]:
    """Whole lines as a frame of strings, where what is missing is empty; the line of each row, None where a row is a line; and bad lines.

    Blank lines are passed over.
    """
    if not _ODD.search(block) and (frame := _by_polars(block, names)) is not None and frame.height == block.count(b"\n"):
        return frame, None, {}
    lines = block.split(b"\n")[:-1]
    values = {number: _value(line) for number, line in enumerate(lines) if line.strip()}
    good = {number: json.dumps(value).encode() + b"\n" for number, value in values.items() if isinstance(value, dict)}
    frame = _by_polars(b"".join(good.values()), names)
    if frame is None:
        good = {number: line for number, line in good.items() if _by_polars(line, names) is not None}
        frame = _by_polars(b"".join(good.values()), names)
    assert frame is not None
    return frame, list(good), {number: lines[number].decode(errors="replace") for number in values.keys() - good.keys()}


def _value(line: str | bytes) -> object:
    """None where `line` is no JSON. A number that its float has rounded stays as it is written, as text."""
    try:
        return json.loads(line, parse_constant=lambda _: None, parse_float=_exact)
    except (ValueError, RecursionError):
        return None


def _exact(written: str) -> float | str:
    number = float(written)
    return number if abs(number) < _MOST_EXACT else written


def _by_polars(block: bytes, names: Sequence[str]) -> pl.DataFrame | None:
    schema = dict.fromkeys(names, pl.String)
    if not block.strip():
        return pl.DataFrame(schema=schema)
    try:
        return pl.read_ndjson(block, schema=schema).fill_null("")
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        return None

"""A model's tables in a CSV: one line a feature.

    name,rows,dim,mean_ids,pooling,skew,table
    user_id,500000000,128,1,sum,1.05,
    last_clicks,80000000,128,42.5,mean,counts/items.npy,items
    last_likes,80000000,128,7,sum,,items

`mean_ids`: of a sample, on average. `pooling`: sum or mean. Empty: sum. `skew`: the exponent of a power law (0: uniform), or a file. The
file (.npy [rows], beside the CSV) has how often each row was looked up. Empty: as the data choice says. `table`: features that name one
share it. Empty: a table of its own. The last three columns can be left out.

A file that ends in .json is what TorchRec's dry run plans for (torchrec_dry_run.py).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from zipfile import BadZipFile

import numpy as np
from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.files import path_of, what_is
from recsys_lab.base.ranges import Dimension, RowCount
from recsys_lab.base.schema import checked
from recsys_lab.errors import UserError, did_you_mean
from recsys_lab.tables import torchrec_dry_run
from recsys_lab.tables.counted import CountedLaw
from recsys_lab.tables.law import RankLaw

NEEDED, OPTIONAL = ("name", "rows", "dim", "mean_ids"), ("pooling", "skew", "table")
KEY = "model.file"
MeanIds = Annotated[float, Strict(), Interval(gt=0, le=2**16)]
Exponent = Annotated[float, Strict(), Interval(ge=0, le=10)]
Pooling = Literal["sum", "mean"]
MOST_LINES = 100_000


@dataclass(frozen=True)
class TableLine:
    """A feature and its table. `mean_ids`: of a sample. `law`: how they fall over the rows; None: as the data choice says."""

    name: str
    rows: int
    dim: int
    mean_ids: float
    pooling: str
    table: str
    law: RankLaw | CountedLaw | None


def read_table_file(text: str | None) -> tuple[TableLine, ...]:
    """The lines of the file that `model.file` names. Raises UserError with file and line for the first thing wrong with it."""
    remedy = "give a CSV: model.file=tables.csv (docs/decide.md shows one)"
    if text is None:
        raise UserError("a file of tables is needed", where=KEY, given="none", remedy=remedy)
    path = path_of(text, KEY)
    if (kind := what_is(path)) is not None:
        raise UserError("cannot be read", where=f"{KEY}={text}", given=kind, remedy=remedy)
    lines = torchrec_dry_run.read_cells(path) if path.suffix == torchrec_dry_run.SUFFIX else list(_read_cells(path))
    if not 1 <= len(lines) <= MOST_LINES:
        raise UserError("no number of tables for a model", where=path, given=f"{len(lines):,} lines", allowed=f"1 to {MOST_LINES:,}")
    by_name: dict[str, TableLine] = {}
    by_table: dict[str, TableLine] = {}
    for where, cells in lines:
        line = _line(path, where, cells)
        _check_beside(where, line, by_name.get(line.name), by_table.get(line.table))
        by_name[line.name] = by_table[line.table] = line
    return tuple(by_name.values())


def _read_cells(path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Each line of a CSV that has anything: where it stands, and its cells by column."""
    try:
        rows = list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"))))
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=path, remedy="check the file and its permissions") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError("not a CSV in UTF-8", where=path, given=type(error).__name__, remedy="save it as CSV (UTF-8)") from None
    head = [cell.strip() for cell in rows[0]] if rows else []
    _check_head(path, head)
    for number, cells in enumerate(rows[1:], 2):
        where = f"{path} line {number}"
        if any(cell.strip() for cell in cells):
            if len(cells) != len(head):
                allowed = f"{len(head)}: {', '.join(head)}"
                raise UserError("another number of cells than columns", where=where, given=len(cells), allowed=allowed)
            yield where, dict(zip(head, (text.strip() for text in cells)))


def _check_head(path: Path, head: list[str]) -> None:
    where, columns = f"{path} line 1", (*NEEDED, *OPTIONAL)
    for name in head:
        if name not in columns:
            given = f"column {name!r}" if name else "an empty name"
            raise UserError("no such column", where=where, given=given, allowed=", ".join(columns), remedy=did_you_mean(name, columns))
    if lacking := [name for name in NEEDED if name not in head]:
        given = ", ".join(head) or "an empty file"
        raise UserError("a column is missing", where=where, given=given, allowed=", ".join(columns), remedy=f"add {', '.join(lacking)}")
    if len(set(head)) < len(head):
        raise UserError("a column is named twice", where=where, given=", ".join(head))


def _line(path: Path, where: str, cell: Mapping[str, str]) -> TableLine:
    if not cell["name"]:
        raise UserError("a feature has no name", where=where, remedy="give each line a name of its own")
    rows, dim = int(_number(cell["rows"], int, f"{where}, rows")), int(_number(cell["dim"], int, f"{where}, dim"))
    mean_ids, pooling = _number(cell["mean_ids"], float, f"{where}, mean_ids"), cell.get("pooling") or "sum"
    checked(rows, RowCount, f"{where}, rows")
    checked(dim, Dimension, f"{where}, dim")
    checked(mean_ids, MeanIds, f"{where}, mean_ids")
    checked(pooling, Pooling, f"{where}, pooling")
    law = _law(path, where, cell.get("skew", ""), rows)
    return TableLine(cell["name"], rows, dim, mean_ids, pooling, cell.get("table") or cell["name"], law)


def _number(text: str, kind: type[int] | type[float], where: str) -> float:
    try:
        return kind(text.replace("_", ""))
    except ValueError:
        allowed = "a whole number" if kind is int else "a number"
        raise UserError("not a number", where=where, given=text or "nothing", allowed=allowed) from None


def _law(path: Path, where: str, skew: str, rows: int) -> RankLaw | CountedLaw | None:
    """Of an exponent, or of a file beside the CSV."""
    if not skew:
        return None
    try:
        exponent = float(skew)
    except ValueError:
        return _counted(path.parent / path_of(skew, f"{where}, skew"), f"{where}, skew", rows)
    checked(exponent, Exponent, f"{where}, skew")
    return RankLaw(rows, (exponent,))


def _counted(file: Path, where: str, rows: int) -> CountedLaw:
    allowed = "an exponent from 0 to 10, or a .npy of how often each row was looked up"
    if (problem := what_is(file)) is not None:
        raise UserError("cannot be read", where=where, given=f"{file}: {problem}", allowed=allowed)
    try:
        counts = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, BadZipFile, MemoryError, OverflowError):
        raise UserError("no counts in it", where=where, given=file, allowed=allowed) from None
    if (
        not isinstance(counts, np.ndarray)
        or counts.shape != (rows,)
        or counts.dtype.kind not in "iu"
        or counts.min() < 0
        or not counts.any()
    ):
        given = f"{file}: {getattr(counts, 'dtype', 'an archive')} {list(getattr(counts, 'shape', []))}"
        raise UserError("no counts of this table's rows", where=where, given=given, allowed=f"{rows:,} whole numbers, not all 0")
    return CountedLaw.of(counts, f"counts of {file.name}")


def _check_beside(where: str, line: TableLine, same_name: TableLine | None, same_table: TableLine | None) -> None:
    """A line beside those before: a name of its own, and a shared table's own size."""
    if same_name is not None:
        raise UserError("a name stands twice", where=where, given=line.name, remedy="features share a table by the column `table`")
    if same_table is not None and same_table.pooling != line.pooling:
        allowed = f"{same_table.pooling}, as for {same_table.name}"
        raise UserError("one table of two poolings", where=where, given=line.pooling, allowed=allowed)
    if same_table is not None and (same_table.rows, same_table.dim) != (line.rows, line.dim):
        allowed = f"{same_table.rows:,} x {same_table.dim}, as for {same_table.name}"
        raise UserError("one table of two sizes", where=where, given=f"{line.rows:,} x {line.dim}", allowed=allowed)


def dims_of_tables(text: str | None) -> list[int]:
    """The dimension of each table of the CSV, in the order in which tables first appear."""
    return list({line.table: line.dim for line in read_table_file(text)}.values())


def dim_of_tables(text: str | None) -> int:
    """The one dimension of all of them. Raises UserError where there are several: vectors of one dimension interact."""
    dims = sorted(set(dims_of_tables(text)))
    if len(dims) > 1:
        given = f"dimensions {', '.join(map(str, dims))}"
        raise UserError("tables of several dimensions", where=f"{KEY}={text}", given=given, allowed="one", remedy="use model=tables_concat")
    return dims[0]

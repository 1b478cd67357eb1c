"""`metrics.csv`: one row a logged step, written for every choice of logger, and cut back when a run resumes."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from recsys_lab.base.files import NOTHING, plain, read_text, what_is, write_text
from recsys_lab.errors import UserError, cannot_write

METRICS_FILE = "metrics.csv"
#: Beyond it nothing is a figure.
MOST_FIGURE = 1e100
REMEDY = "take the file away, or the line out of it"
COLUMNS = (
    "step",
    "epoch",
    "examples",
    "train_loss",
    "learning_rate",
    "examples_per_second",
    "validation_auc",
    "validation_ne",
    "validation_log_loss",
    "validation_calibration",
    "validation_hit_rate_10",
    "validation_ndcg_10",
    "validation_hit_rate_10_of_100",
    "validation_ndcg_10_of_100",
)


class MetricsCsv:
    """Rows of `folder`/metrics.csv. Opened afresh it keeps the rows that are there, so a resumed run goes on in the same file."""

    def __init__(self, folder: Path):
        self.path = Path(folder) / METRICS_FILE
        if not self.path.exists():
            write_text(self.path, _lines([list(COLUMNS)]))

    def append(self, row: Mapping[str, float | int | None]) -> None:
        """Add one row, on disk when this returns. A column that `row` lacks, or that is not finite, stays blank."""
        assert "step" in row and set(row) <= set(COLUMNS), f"columns are {COLUMNS}, given {tuple(row)}"
        try:
            with self.path.open("a", encoding="utf-8", newline="") as file:
                file.write(_lines([[_cell(row.get(column)) for column in COLUMNS]]))
        except OSError as error:
            raise cannot_write(error, self.path) from None

    def truncate_after(self, step: int) -> None:
        """Drops the rows after `step`, and a last line that a kill cut short. The resumed run writes those steps again."""
        rows = [row for line, row in _whole_rows(self.path) if (_number(row["step"], "step", self.path, line) or 0) <= step]
        write_text(self.path, _lines([list(COLUMNS), *([row[column] for column in COLUMNS] for row in rows)]))


def read_metrics(folder: Path) -> list[dict[str, float | None]]:
    """The rows of `folder`/metrics.csv with numbers, None where blank. Empty where there is no such file."""
    path = Path(folder) / METRICS_FILE
    if what_is(path) == NOTHING:
        return []
    return [{column: _number(value, column, path, line) for column, value in row.items()} for line, row in _whole_rows(path)]


def _number(value: str, column: str, path: Path, line: int) -> float | None:
    try:
        number = float(value) if value or column == "step" else None
        if number is None or abs(number) <= MOST_FIGURE:
            return number
    except ValueError:
        pass
    given, allowed = repr(value[:40]), "a number" + (", or nothing" if column != "step" else "")
    raise UserError(f"{column} is no figure", where=f"{path}:{line}", given=given, allowed=allowed, remedy=REMEDY)


def _whole_rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """The rows, each with its line. A last line that a kill cut short is left out."""
    text = read_text(path)
    try:
        reader = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
        if tuple(reader.fieldnames or ()) != COLUMNS:
            given = f"{len(reader.fieldnames or ())} columns"
            raise UserError("other columns than a metrics file has", where=path, given=given, allowed=", ".join(COLUMNS), remedy=REMEDY)
        rows = [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise UserError(f"not a CSV: {error}", where=path, remedy=REMEDY) from None
    for line, row in rows:
        if None in row or None in row.values():
            raise UserError("more or fewer cells than columns", where=f"{path}:{line}", allowed=len(COLUMNS), remedy=REMEDY)
    return rows


def _cell(value: float | None) -> str:
    number = plain(value)
    return "" if number is None else repr(number)


def _lines(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()

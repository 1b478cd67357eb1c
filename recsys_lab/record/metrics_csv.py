"""`metrics.csv`: one row a logged step, written for every choice of logger, and cut back when a run resumes."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from recsys_lab.errors import UserError, unwritable
from recsys_lab.files import plain, write_text

METRICS_FILE = "metrics.csv"
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
            if mistake := unwritable(error, self.path):
                raise mistake from None
            raise

    def truncate_after(self, step: int) -> None:
        """Drop the rows after `step`, and a last line that a kill cut short: the resumed run writes those steps again."""
        kept = [row for row in _whole_rows(self.path) if int(row["step"]) <= step]
        write_text(self.path, _lines([list(COLUMNS), *([row[column] for column in COLUMNS] for row in kept)]))


def read_metrics(folder: Path) -> list[dict[str, float | None]]:
    """The rows of `folder`/metrics.csv with numbers, None where blank; empty where there is no such file."""
    path = Path(folder) / METRICS_FILE
    if not path.exists():
        return []
    return [{column: float(value) if value else None for column, value in row.items()} for row in _whole_rows(path)]


def _whole_rows(path: Path) -> list[dict[str, str]]:
    text = path.read_text(encoding="utf-8")
    reader = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
    if tuple(reader.fieldnames or ()) != COLUMNS:
        raise UserError("other columns than a metrics file has", where=path, given=reader.fieldnames, allowed=", ".join(COLUMNS))
    return [row for row in reader if None not in row.values()]


def _cell(value: float | None) -> str:
    number = plain(value)
    return "" if number is None else repr(number)


def _lines(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()

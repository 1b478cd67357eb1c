"""Columns that teach a model nothing, or too much: noticed while a table is read, and said in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

#: A date with its hour, as YYMMDDHH or YYYYMMDDHH; times of a day may follow.
_DATE = r"^(?:19|20)?\d{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:[01]\d|2[0-3])(?:[0-5]\d){0,2}$"
#: Of a column with fewer values nothing is said: any few numbers can look like dates.
_LEAST_DATES = 3


@dataclass
class Noticed:
    """Names of columns by what is odd about them."""

    ids: list[str] = field(default_factory=list)
    constant: list[str] = field(default_factory=list)
    label: list[str] = field(default_factory=list)
    dates: list[str] = field(default_factory=list)

    def look(self, name: str, column: pl.Series, labels: np.ndarray) -> None:
        """Takes note of the column `name`, as text, of all rows."""
        words = column.replace("", None)
        values = words.drop_nulls().unique()
        if len(values) + bool(words.null_count()) <= 1:
            self.constant.append(name)
        elif len(values) == 2 and not words.null_count() and _equals(words, labels):
            self.label.append(name)
        elif len(values) >= _LEAST_DATES and values.str.contains(_DATE).all():
            self.dates.append(name)
        elif len(values) == len(words):
            self.ids.append(name)

    def notes(self) -> list[str]:
        """One line, or none."""
        said = [f"{', '.join(names)} {what}" for names, what in self._kinds() if names]
        if not said:
            return []
        useless = [*self.ids, *self.constant, *self.label]
        remedy = f"; without them: 'data.drop=[{','.join(useless)}]'" if useless else ""
        return [f"noticed: {'; '.join(said)}{remedy}"]

    def _kinds(self) -> Sequence[tuple[list[str], str]]:
        return (
            (self.label, "equals the label"),
            (self.ids, "has a value a row"),
            (self.constant, "is constant"),
            (self.dates, "looks like a date with its hour, give hour and weekday as columns"),
        )


def _equals(words: pl.Series, labels: np.ndarray) -> bool:
    """Whether either of the two values stands just where the label is 1."""
    first = (words == words[0]).to_numpy()
    return bool((first == (labels == labels[0])).all())

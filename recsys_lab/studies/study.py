"""What a study hands back: the paper's value and ours, line by line, and where each is from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recsys_lab.report.sections import Table

#: published: the paper prints it. fitted: it follows from a law that was fitted to figures of the paper. simulated: from a model of costs.
#: counted: on the modules that train. measured: on what ran here.
ORIGINS = ("published", "fitted", "simulated", "counted", "measured")


@dataclass(frozen=True)
class Line:
    """`error` is relative where the values are amounts, and a difference in points where they are percentages.

    `by_construction`: a fit used this figure, so that agreement says little. `repeated`: another line has this published figure, in another
    unit or reading. It is shown and not judged.
    """

    what: str
    ours: float
    published: float | None = None
    unit: str = ""
    origin: str = "fitted"
    by_construction: bool = False
    repeated: bool = False

    @property
    def error(self) -> float | None:
        if self.published is None:
            return None
        if self.unit == "%":
            return self.ours - self.published
        return self.ours / self.published - 1 if self.published else None

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "unit": self.unit,
            "published": self.published,
            "ours": self.ours,
            "ours_origin": self.origin,
            "published_origin": None if self.published is None else "published",
            "points" if self.unit == "%" else "relative_error": self.error,
            "by_construction": self.by_construction,
            "repeated": self.repeated,
        }


@dataclass(frozen=True)
class Study:
    """`statements`: what the paper says in words, and whether ours agrees. `data`: more for --json. `draw` writes pictures to a folder.
    Without it the lines are drawn. `shown`: the lines in a closer table, for people.
    """

    name: str
    question: str
    lines: tuple[Line, ...]
    statements: tuple[tuple[str, bool], ...] = ()
    notes: tuple[str, ...] = ()
    data: dict[str, Any] = field(default_factory=dict)
    draw: Callable[[Path], list[Path]] | None = None
    shown: Table | None = None

    def with_reading(self, reading: str | None) -> Study:
        """Itself, with a note of what the text leaves open and how we read it."""
        return replace(self, notes=(*self.notes, f"Our reading: {reading}")) if reading else self

    def to_json(self) -> dict[str, Any]:
        return {
            "study": self.name,
            "question": self.question,
            "lines": [line.to_json() for line in self.lines],
            "statements": [{"published": text, "holds": holds} for text, holds in self.statements],
            "notes": list(self.notes),
            **self.data,
        }

    def table(self) -> Table:
        """For people: `shown`, or every line."""
        if self.shown is not None:
            return self.shown
        rows = tuple(
            (line.what, number(line.published, line.unit), number(line.ours, line.unit), _error(line), _origin(line)) for line in self.lines
        )
        columns = ("", "published", "ours", "off by", "ours is")
        return Table(f"{self.name}: {self.question}", columns, rows, right=columns[1:4])


def number(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit in ("rows", "elements"):
        return f"{value:,.0f}"
    if unit == "%":
        return f"{value:.1f} %"
    return f"{value:,.4g} {unit}".rstrip()


def _error(line: Line) -> str:
    if line.error is None:
        return "–"
    return f"{line.error:+.1f} points" if line.unit == "%" else f"{line.error:+.2%}"


def _origin(line: Line) -> str:
    marks = (("by construction", line.by_construction), ("counted once", line.repeated))
    return ", ".join([line.origin, *(mark for mark, holds in marks if holds)])

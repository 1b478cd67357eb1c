"""A picture of one figure over a sweep. It shows every seed's value, and beside it the change from the baseline with its interval."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from recsys_lab.report.svg import LETTER, PHONE, colour, cut, dots, line, nice_ticks, rect, svg, text, tick_text
from recsys_lab.sweeps.cells import change, heading, title_of
from recsys_lab.sweeps.comparisons import BETTER, WORSE, Comparison, alike
from recsys_lab.sweeps.figures import Figure
from recsys_lab.sweeps.table import Ablation
from recsys_lab.units import human_count

WIDTH, ROW, TOP = 1180.0, 26.0, 44.0
FILLS = {BETTER: colour(2), WORSE: colour(5)}
OTHER = "var(--soft)"


@dataclass(frozen=True)
class _Rows:
    """Where rows of a picture stand: the first begins at `top`, the next `pitch` below. Dots are `dots` below a row's begin."""

    count: int
    top: float
    pitch: float
    dots: float

    def y(self, index: int) -> float:
        return self.top + self.pitch * index + self.dots

    @property
    def bottom(self) -> float:
        return self.top + self.pitch * self.count


def varies(ablation: Ablation, figure: Figure) -> bool:
    """Whether there is anything to see: two values of the figure that are apart by more than rounding."""
    every = [value for row in ablation.rows for value in row.values(figure)]
    return bool(every) and not alike(every, 1e-9)


def picture(ablation: Ablation, figure: Figure) -> str:
    """SVG text, for wide windows and for phones. Rows stand in the table's order. Only measured figures are tested, and have changes."""
    names = [ablation.name(index) for index in range(len(ablation.rows))]
    tested = {index: comparison for (index, name), comparison in ablation.comparisons.items() if name == figure.name}
    words = [f"{name}: median {m:g}" for name, row in zip(names, ablation.rows) if (m := row.median(figure)) is not None]
    label = f"{figure.words} of every seed; " + "; ".join(words)
    return _wide(ablation, figure, names, tested, label) + _phone(ablation, figure, names, tested, label)


def _wide(ablation: Ablation, figure: Figure, names: Sequence[str], tested: dict[int, Comparison], label: str) -> str:
    """Names, seeds and changes side by side."""
    left = min(18 + LETTER * max(map(len, names)), WIDTH * 0.42)
    rows = _Rows(len(names), TOP, ROW, ROW / 2)
    parts = [text(0, 14, f"{title_of(figure)}: {heading(figure)}", css="strong")]
    for index, name in enumerate(names):
        y = rows.y(index)
        parts += [line(0, y + ROW / 2, WIDTH, y + ROW / 2, "grid"), text(0, y + 4, cut(name, left))]
    split = left + (WIDTH - left) * (0.5 if tested else 1.0)
    parts += _seeds(ablation, figure, left + 10, split - 34, rows)
    if tested:
        parts += _changes(tested, figure, split + 34, WIDTH - 150, rows)
        parts += [text(WIDTH - 138, rows.y(index) + 4, words) for index, words in _verdicts(ablation, figure, tested).items()]
    return svg(WIDTH, rows.bottom + 24, parts, label, "wide")


def _phone(ablation: Ablation, figure: Figure, names: Sequence[str], tested: dict[int, Comparison], label: str) -> str:
    """Seeds, then changes, each below its name."""
    rows = _Rows(len(names), TOP, 40, 29)
    parts = [text(0, 14, f"{title_of(figure)}: {heading(figure)}", css="strong"), *_seeds(ablation, figure, 24, PHONE - 24, rows)]
    parts += [text(0, rows.y(index) - 14, cut(name, PHONE)) for index, name in enumerate(names)]
    if tested:
        rows = _Rows(len(names), rows.bottom + 24 + TOP - 14, 40, 29)
        parts += _changes(tested, figure, 24, PHONE - 24, rows)
        verdicts = _verdicts(ablation, figure, tested)
        for index, name in enumerate(names):
            words = verdicts.get(index, "")
            parts += [
                text(0, rows.y(index) - 14, cut(name, PHONE - 12 - LETTER * len(words))),
                text(PHONE, rows.y(index) - 14, words, "end"),
            ]
    return svg(PHONE, rows.bottom + 24, parts, label, "phone")


def _verdicts(ablation: Ablation, figure: Figure, tested: dict[int, Comparison]) -> dict[int, str]:
    """Of each row: its change with the verdict, or that it is the baseline."""
    bases = {base: "baseline" for base in ablation.bases.of_rows if base is not None and base not in tested}
    return bases | {index: f"{change(one.estimate.value, figure)} {one.verdict}" for index, one in tested.items()}


def _seeds(ablation: Ablation, figure: Figure, x0: float, x1: float, rows: _Rows) -> list[str]:
    """A dot a seed, a bar at the median. A row without figures says so."""
    every = [value for row in ablation.rows for value in row.values(figure)]
    ticks = nice_ticks(min(every), max(every))
    parts = [text(x0, rows.top - 10, "each seed, and the median")]

    def at(value: float) -> float:
        return x0 + (x1 - x0) * (value - ticks[0]) / (ticks[-1] - ticks[0])

    parts += _axis(ticks, at, rows, lambda tick: human_count(tick) if ticks[-1] >= 1e6 else tick_text(tick, ticks))
    for index, row in enumerate(ablation.rows):
        y, values = rows.y(index), row.values(figure)
        if not values:
            parts.append(text(x0, y + 4, row.status if not row.completed else "absent"))
            continue
        middle = at(statistics.median(values))
        parts += [rect(middle - 1.5, y - 8, 3, 16, colour(0)), dots([(at(value), y) for value in values], colour(0))]
    return parts


def _changes(tested: dict[int, Comparison], figure: Figure, x0: float, x1: float, rows: _Rows) -> list[str]:
    """Interval and estimate a row, around the line of no change. Ratios stand on a logarithmic scale."""
    ratio = figure.against == "ratio"
    position = math.log if ratio else float
    none = 1.0 if ratio else 0.0
    edges = [value for comparison in tested.values() for value in (comparison.estimate.low, comparison.estimate.high)]
    ticks = (_ratio_ticks if ratio else nice_ticks)(min([*edges, none]), max([*edges, none]), 4)
    low, high = position(min([ticks[0], *edges])), position(max([ticks[-1], *edges]))

    def at(value: float) -> float:
        return x0 + (x1 - x0) * (position(value) - low) / ((high - low) or 1.0)

    title = "ratio to the baseline and its interval" if ratio else "difference from the baseline and its interval"
    parts = [text(x0, rows.top - 10, title)]
    parts += _axis(ticks, at, rows, lambda tick: f"x{tick:g}" if ratio else ("+" if tick > 0 else "") + tick_text(tick, ticks))
    parts.append(line(at(none), rows.top, at(none), rows.bottom, "fullest"))
    for index, comparison in tested.items():
        y, fill, estimate = rows.y(index), FILLS.get(comparison.verdict, OTHER), comparison.estimate
        parts += [rect(at(estimate.low), y - 1.5, at(estimate.high) - at(estimate.low), 3, fill), dots([(at(estimate.value), y)], fill)]
    return parts


def _ratio_ticks(low: float, high: float, most: int) -> list[float]:
    """Round ratios: evenly apart where they are near each other, else 1, 2 and 5 times powers of ten, or those powers alone."""
    if high <= 4 * low:
        return [tick for tick in nice_ticks(low, high, most) if tick > 0]
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in ((1, 2, 5), (1,)):
        ticks = [step * 10.0**power for power in powers for step in steps if 0.9 * low <= step * 10.0**power <= 1.1 * high]
        if 2 <= len(ticks) <= most + 2:
            break
    return ticks or [1.0]


def _axis(ticks, at, rows: _Rows, words) -> list[str]:
    parts = []
    for tick in ticks:
        parts += [line(at(tick), rows.top, at(tick), rows.bottom, "grid"), text(at(tick), rows.bottom + 16, words(tick), "middle")]
    return parts

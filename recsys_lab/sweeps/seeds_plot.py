"""A picture of one figure over a sweep. It shows every seed's value, and beside it the change from the baseline with its interval."""

from __future__ import annotations

import math
import statistics

from recsys_lab.report.svg import colour, dots, line, nice_ticks, rect, svg, text, tick_text
from recsys_lab.sweeps.cells import change, heading, title_of
from recsys_lab.sweeps.comparisons import BETTER, WORSE, Comparison
from recsys_lab.sweeps.figures import Figure
from recsys_lab.sweeps.table import Ablation
from recsys_lab.units import human_count

WIDTH, ROW, TOP, LETTER = 1180.0, 26.0, 44.0, 6.9
FILLS = {BETTER: colour(2), WORSE: colour(5)}
OTHER = "var(--soft)"


def picture(ablation: Ablation, figure: Figure) -> str:
    """SVG text. Rows stand in the table's order. Only measured figures have the right-hand half, only they are tested."""
    names = [ablation.name(index) for index in range(len(ablation.rows))]
    left = min(18 + LETTER * max(map(len, names)), WIDTH * 0.42)
    tested = {index: comparison for (index, name), comparison in ablation.comparisons.items() if name == figure.name}
    bottom = TOP + ROW * len(ablation.rows)
    parts = [text(0, 14, f"{title_of(figure)}: {heading(figure)}", css="strong")]
    for index, name in enumerate(names):
        y = TOP + ROW * (index + 0.5)
        parts += [line(0, y + ROW / 2, WIDTH, y + ROW / 2, "grid"), text(0, y + 4, _cut(name, left))]
    split = left + (WIDTH - left) * (0.5 if tested else 1.0)
    parts += _seeds(ablation, figure, left + 10, split - 34, bottom)
    if tested:
        parts += _changes(tested, figure, split + 34, WIDTH - 150, bottom)
        bases = {base for base in ablation.bases.of_rows if base is not None}
        parts += [text(WIDTH - 138, TOP + ROW * (base + 0.5) + 4, "baseline") for base in sorted(bases - set(tested))]
    words = [f"{name}: median {m:g}" for name, row in zip(names, ablation.rows) if (m := row.median(figure)) is not None]
    return svg(WIDTH, bottom + 24, parts, f"{figure.words} of every seed; " + "; ".join(words))


def _cut(name: str, width: float) -> str:
    most = int(width / LETTER)
    return name if len(name) <= most else name[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def _seeds(ablation: Ablation, figure: Figure, x0: float, x1: float, bottom: float) -> list[str]:
    """A dot a seed, a bar at the median. A row without figures says so."""
    every = [value for row in ablation.rows for value in row.values(figure)]
    ticks = nice_ticks(min(every), max(every))
    parts = [text(x0, 34, "each seed, and the median")]

    def at(value: float) -> float:
        return x0 + (x1 - x0) * (value - ticks[0]) / (ticks[-1] - ticks[0])

    parts += _axis(ticks, at, bottom, lambda tick: human_count(tick) if ticks[-1] >= 1e6 else tick_text(tick, ticks))
    for index, row in enumerate(ablation.rows):
        y, values = TOP + ROW * (index + 0.5), row.values(figure)
        if not values:
            parts.append(text(x0, y + 4, row.status if not row.completed else "absent"))
            continue
        middle = at(statistics.median(values))
        parts += [rect(middle - 1.5, y - 8, 3, 16, colour(0)), dots([(at(value), y) for value in values], colour(0))]
    return parts


def _changes(tested: dict[int, Comparison], figure: Figure, x0: float, x1: float, bottom: float) -> list[str]:
    """Interval, estimate and verdict a row, around the line of no change. Ratios stand on a logarithmic scale."""
    ratio = figure.against == "ratio"
    position = math.log if ratio else float
    none = 1.0 if ratio else 0.0
    edges = [value for comparison in tested.values() for value in (comparison.estimate.low, comparison.estimate.high)]
    ticks = (_ratio_ticks if ratio else nice_ticks)(min([*edges, none]), max([*edges, none]), 4)
    low, high = position(min([ticks[0], *edges])), position(max([ticks[-1], *edges]))

    def at(value: float) -> float:
        return x0 + (x1 - x0) * (position(value) - low) / ((high - low) or 1.0)

    title = "ratio to the baseline and its interval" if ratio else "difference from the baseline and its interval"
    parts = [text(x0, 34, title)]
    parts += _axis(ticks, at, bottom, lambda tick: f"x{tick:g}" if ratio else ("+" if tick > 0 else "") + tick_text(tick, ticks))
    parts.append(line(at(none), TOP, at(none), bottom, "fullest"))
    for index, comparison in tested.items():
        y, fill, estimate = TOP + ROW * (index + 0.5), FILLS.get(comparison.verdict, OTHER), comparison.estimate
        parts.append(rect(at(estimate.low), y - 1.5, at(estimate.high) - at(estimate.low), 3, fill))
        parts.append(dots([(at(estimate.value), y)], fill) + text(x1 + 12, y + 4, f"{change(estimate.value, figure)} {comparison.verdict}"))
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


def _axis(ticks, at, bottom: float, words) -> list[str]:
    parts = []
    for tick in ticks:
        parts += [line(at(tick), TOP, at(tick), bottom, "grid"), text(at(tick), bottom + 16, words(tick), "middle")]
    return parts

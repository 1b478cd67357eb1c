"""Charts of one figure over a sweep: every seed's value, and the change from the baseline with its interval."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from recsys_lab.report.charts import NARROW, RULE, SOFT, Chart, chart, colour, cut, drawing, prefixed, tip
from recsys_lab.sweeps.cells import change, digits_of, heading, interval, title_of
from recsys_lab.sweeps.comparisons import BETTER, WORSE, Comparison, equal_within_rounding
from recsys_lab.sweeps.figures import Figure
from recsys_lab.sweeps.table import Ablation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FILLS = {BETTER: colour(2), WORSE: colour(5)}
#: CSS pixels of a row: its name, and below it what is drawn.
ROW = 40
#: Ratios that are farther apart stand on a logarithmic scale.
FAR = 4


def varies(ablation: Ablation, figure: Figure) -> bool:
    """Whether there is anything to see: two values of the figure that are apart by more than rounding."""
    every = [value for row in ablation.rows for value in row.values(figure)]
    return bool(every) and not equal_within_rounding(every, 1e-9)


def seed_charts(ablation: Ablation, figure: Figure) -> list[Chart]:
    """Every seed, and the changes where the figure is measured and so tested. Rows stand in the table's order."""
    comparisons = {index: comparison for (index, name), comparison in ablation.comparisons.items() if name == figure.name}
    return [_seeds(ablation, figure), *([_changes(ablation, figure, comparisons)] if comparisons else [])]


def _seeds(ablation: Ablation, figure: Figure) -> Chart:
    """A dot a seed, a bar at the median. A row without figures says so."""
    with drawing(height=ROW * len(ablation.rows) + 34, left=24, right=24, top=4, bottom=30) as axes:
        _rows(axes, list(ablation.short_names))
        for index, row in enumerate(ablation.rows):
            values = row.values(figure)
            if not values:
                _text(axes, index + 0.22, row.status if not row.completed else "absent")
                continue
            middle = statistics.median(values)
            axes.plot([middle, middle], [index + 0.02, index + 0.42], color=colour(0), linewidth=2.4)
            (dots,) = axes.plot(values, [index + 0.22] * len(values), "o", color=colour(0), markersize=4.5)
            seeds = ", ".join(digits_of(value, figure) for value in values)
            tip(dots, f"{ablation.short_names[index]}\nmedian {digits_of(middle, figure)}; {seeds}")
        if figure.digits == 0:
            prefixed(axes.xaxis)
        axes.locator_params(axis="x", nbins=5)
        return chart(axes, f"seeds-{figure.name}", f"{title_of(figure)}: {heading(figure)}, each seed and the median")


def _changes(ablation: Ablation, figure: Figure, comparisons: dict[int, Comparison]) -> Chart:
    """Interval and estimate a row, around the line of no change."""
    is_ratio = figure.against == "ratio"
    ends = [end for one in comparisons.values() for end in (one.estimate.low, one.estimate.high)]
    bases = {base for base in ablation.bases.of_rows if base is not None and base not in comparisons}
    with drawing(height=ROW * len(ablation.rows) + 34, left=24, right=24, top=4, bottom=30) as axes:
        if is_ratio and max([*ends, 1.0]) > FAR * min([*ends, 1.0]) > 0:
            axes.set_xscale("log")
        names = []
        for index in range(len(ablation.rows)):
            one = comparisons.get(index)
            words = f"{change(one.estimate.value, figure)} {one.verdict}" if one else "baseline" if index in bases else ""
            _text(axes, index - 0.08, words, at=1)
            names.append(cut(ablation.short_names[index], NARROW - 70 - 6.6 * len(words)))
        _rows(axes, names)
        axes.axvline(1.0 if is_ratio else 0.0, color=SOFT, linestyle="--", linewidth=1)
        for index, one in comparisons.items():
            fill, estimate = FILLS.get(one.verdict, SOFT), one.estimate
            axes.plot([estimate.low, estimate.high], [index + 0.22] * 2, color=fill, linewidth=2.4)
            (dot,) = axes.plot(estimate.value, index + 0.22, "o", color=fill, markersize=5)
            parts = [change(estimate.value, figure), *([interval(estimate, figure)] if estimate.confidence else []), one.verdict]
            tip(dot, f"{ablation.short_names[index]}\n{' '.join(parts)}")
        axes.xaxis.set_major_formatter(lambda value, _: f"x{value:g}" if is_ratio else f"{value:+g}")
        if axes.get_xscale() == "linear":
            axes.locator_params(axis="x", nbins=5)
        words = "ratio to the baseline" if is_ratio else "difference from the baseline"
        words += " and its interval" if any(one.estimate.confidence for one in comparisons.values()) else ""
        return chart(axes, f"changes-{figure.name}", f"{heading(figure)}, {words}")


def _rows(axes: Axes, names: Sequence[str]) -> None:
    """A row a name, the first on top."""
    axes.set(ylim=(len(names) - 0.5, -0.5), yticks=[])
    for index, name in enumerate(names):
        axes.axhline(index + 0.5, color=RULE, linewidth=0.6)
        _text(axes, index - 0.08, cut(name, NARROW - 40))


def _text(axes: Axes, y: float, words: str, at: int = 0) -> None:
    """At the left or the right end of a row."""
    axes.text(at, y, words, transform=axes.get_yaxis_transform(), ha="right" if at else "left", va="bottom" if y % 1 > 0.5 else "center")

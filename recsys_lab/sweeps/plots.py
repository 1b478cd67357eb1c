"""Charts of a whole sweep: learning curves with their band over seeds, and what trades against what."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recsys_lab.errors import UserError
from recsys_lab.record.metrics_csv import read_metrics
from recsys_lab.record.run_folder import value_at
from recsys_lab.report.charts import COLOURS, NARROW, SOFT, Chart, chart, colour, cut, drawing, legend, legend_height, prefixed, tip
from recsys_lab.report.plots import LARGEST_VALUE
from recsys_lab.sweeps.comparisons import equal_within_rounding
from recsys_lab.sweeps.rows import Row
from recsys_lab.sweeps.table import Ablation
from recsys_lab.units import human_bytes, human_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: So many rows have a colour of their own. Of more, the first are drawn as curves, and those on a Pareto line are named.
MOST_ROWS = 2 * len(COLOURS)
CURVES = {
    "train_loss": "training loss",
    "validation_auc": "validation AUC",
    "validation_ne": "validation NE",
    "validation_ndcg_10": "validation NDCG@10",
}
MOST_CURVES = 3
#: What tells lines and points apart that lie on each other.
DASHES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (8, 3)))
MARKS = "osD^PX*"
#: Points of a curve that are marked.
MOST_MARKS = 12
#: Of a curve's steps, the first that may leave the picture.
STEEP = 0.2
#: step -> least, median and most over the seeds.
Curve = dict[float, tuple[float, float, float]]


@dataclass(frozen=True)
class Axis:
    """A figure of a row, the median over its seeds. Which way it is better. How it is written."""

    path: str
    words: str
    higher: bool
    written: Callable[[float], str] | None = None

    def text(self, value: float) -> str:
        return self.written(value) if self.written else f"{value:.5f}"

    def of(self, row: Row) -> float | None:
        values = [value_at(job.result, self.path) for job in row.completed]
        figures = [float(value) for value in values if value is not None]
        return statistics.median(figures) if figures else None


_QUALITY = (
    Axis("quality.validation.auc", "validation AUC (measured)", True),
    Axis("quality.validation.ndcg_10", "validation NDCG@10 (measured)", True),
)
_MEASURED = Axis("measured.examples_per_second", "examples/s (measured)", True, human_count)
_SIMULATED = Axis("simulated.examples_per_second", "examples/s (simulated)", True, human_count)
_BYTES = Axis("plan.bytes_per_rank.max", "bytes of the fullest rank (of the plan)", False, human_bytes)


def learning_bands(ablation: Ablation) -> list[Chart]:
    """A line a row, the median over its seeds at each logged step, in the band from least to most. None where nothing was logged.

    Lines that coincide are distinguishable: each has a dash and a mark of its own, and those drawn first are wider.
    """
    rows = [(index, row) for index, row in enumerate(ablation.rows) if row.completed][:MOST_ROWS]
    charts = []
    for column, title in CURVES.items():
        curves = {ablation.short_names[index]: _curve(row, column) for index, row in rows}
        if any(len(curve) > 1 for curve in curves.values()):
            charts.append(_curves(f"curves-{column}", title, curves))
    return charts[:MOST_CURVES]


def _curve(row: Row, column: str) -> Curve:
    """step -> least, median and most over the seeds that logged it. Only steps that all of them have."""
    by_step: dict[float, list[float]] = {}
    for job in row.completed:
        try:
            logged = read_metrics(job.folder) if job.folder else []
        except (UserError, OSError):
            continue
        for line_of in logged:
            step, value = line_of["step"], line_of.get(column)
            if step is not None and value is not None and abs(value) < LARGEST_VALUE:
                by_step.setdefault(step, []).append(value)
    most = max((len(values) for values in by_step.values()), default=0)
    return {step: (min(v), statistics.median(v), max(v)) for step, v in sorted(by_step.items()) if len(v) == most}


def _curves(name: str, title: str, curves: dict[str, Curve]) -> Chart:
    names = [cut(words, NARROW - 40) for words in curves]
    below = 42 + legend_height(names)
    with drawing(height=260 + below, bottom=below) as axes:
        for place, (words, curve) in enumerate(curves.items()):
            if curve:
                _band(axes, curve, place, len(curves), words)
        axes.set(xlabel="step", xlim=(0, None), ylim=_later(curves))
        legend(axes, names)
        return chart(axes, name, title)


def _later(curves: dict[str, Curve]) -> tuple[float, float] | None:
    """Ends of an axis without the steep start, below which lines would be one: of all values but those of the first steps."""
    ends = [(least, most) for curve in curves.values() for step, (least, _, most) in curve.items() if step >= STEEP * max(curve)]
    low, high = min(least for least, _ in ends), max(most for _, most in ends)
    return (low - 0.06 * (high - low), high + 0.06 * (high - low)) if high > low else None


def _band(axes: Axes, curve: Curve, place: int, of: int, name: str) -> None:
    steps, (least, median, most) = list(curve), zip(*curve.values())
    look = {"color": colour(place), "linestyle": DASHES[place % len(DASHES)], "marker": MARKS[place % len(MARKS)], "markersize": 5}
    width, every = 1.3 + min(3.6, 0.6 * of) * (of - 1 - place) / max(of - 1, 1), max(1, len(steps) // MOST_MARKS)
    axes.fill_between(steps, least, most, color=colour(place), alpha=0.16, linewidth=0)
    (line,) = axes.plot(steps, median, linewidth=width, markevery=every, label=cut(name, NARROW - 40), **look)
    span = f" ({least[-1]:.5f} to {most[-1]:.5f})" if most[-1] > least[-1] else ""
    tip(line, f"{name}\nstep {steps[-1]:,.0f}: {median[-1]:.5f}{span}")


def pareto(ablation: Ablation) -> list[Chart]:
    """Two figures of each row against each other. On the line are rows that no other beats in both. None where rows have not two.

    Quality against throughput and bytes. Where nothing was trained, throughput against bytes. Not where all rows have the same.
    """
    panels = []
    for x, y in _pairs(ablation):
        points = {i: (a, b) for i, row in enumerate(ablation.rows) if (a := x.of(row)) is not None and (b := y.of(row)) is not None}
        if len(set(points.values())) > 1 and not equal_within_rounding([up for _, up in points.values()]):
            panels.append((x, y, points, frontier(points, x.higher, y.higher)))
    on_line = {index for *_, best in panels for index in best}
    named = sorted(on_line if len(ablation.rows) > MOST_ROWS else range(len(ablation.rows)))
    return [_scatter(f"pareto-{place}", ablation, named, *panel) for place, panel in enumerate(panels)]


def same_in_all(ablation: Ablation) -> list[str]:
    """What `pareto` does not draw, in words: all rows have one value of it."""
    axes = dict.fromkeys(y for _, y in _pairs(ablation))
    of_rows = {axis: [value for row in ablation.rows if (value := axis.of(row)) is not None] for axis in axes}
    return [axis.words for axis, values in of_rows.items() if len(values) > 1 and equal_within_rounding(values)]


def _pairs(ablation: Ablation) -> list[tuple[Axis, Axis]]:
    quality = next((axis for axis in _QUALITY if any(axis.of(row) is not None for row in ablation.rows)), None)
    return [(x, quality) for x in (_MEASURED, _SIMULATED, _BYTES)] if quality else [(_BYTES, _SIMULATED)]


def frontier(points: dict[int, tuple[float, float]], higher_x: bool, higher_y: bool) -> list[int]:
    """Those that no other point is at least as good as in both and better in one, from left to right."""
    signed = {i: (x if higher_x else -x, y if higher_y else -y) for i, (x, y) in points.items()}

    def beaten(i: int) -> bool:
        return any(a >= signed[i][0] and b >= signed[i][1] and (a, b) != signed[i] for a, b in signed.values())

    return sorted((i for i in points if not beaten(i)), key=lambda i: points[i])


def _scatter(
    name: str, ablation: Ablation, named: Sequence[int], x: Axis, y: Axis, points: dict[int, tuple[float, float]], best: Sequence[int]
) -> Chart:
    names = [cut(ablation.short_names[i], NARROW - 40) for i in named]
    below = 42 + legend_height(names)
    with drawing(height=250 + below, bottom=below) as axes:
        axes.plot(*zip(*(points[i] for i in best)), color=SOFT, linewidth=1)
        for i, point in points.items():
            look: dict[str, Any] = (
                {"color": colour(i), "label": cut(ablation.short_names[i], NARROW - 40)} if i in named else {"color": SOFT}
            )
            (mark,) = axes.plot(*point, MARKS[i % len(MARKS)], markersize=8 if i in best else 5, zorder=3, **look)
            tip(mark, f"{ablation.short_names[i]}\n" + "\n".join(f"{axis.words}: {axis.text(value)}" for axis, value in zip((x, y), point)))
        for axis, scale in ((x, axes.xaxis), (y, axes.yaxis)):
            if axis.written is not None:
                prefixed(scale, "B" if axis is _BYTES else "")
        axes.locator_params(axis="x", nbins=5)
        axes.margins(0.08)
        axes.set_xlabel(f"{x.words}, {'more' if x.higher else 'less'} is better")
        legend(axes, names)
        return chart(axes, name, f"{y.words} against {x.words}")

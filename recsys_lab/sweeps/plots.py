"""Pictures of a whole sweep: learning curves with their band over seeds, and what trades against what. SVG text."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from recsys_lab.errors import UserError
from recsys_lab.record.metrics_csv import read_metrics
from recsys_lab.record.run_folder import value_at
from recsys_lab.report.charts import LEGEND, Chart, words
from recsys_lab.report.svg import COLOURS, LETTER, PHONE, colour, cut, dots, legend, line, nice_ticks, polyline, svg, text, tick_text
from recsys_lab.sweeps.comparisons import alike
from recsys_lab.sweeps.rows import Row
from recsys_lab.sweeps.table import Ablation
from recsys_lab.units import human_bytes, human_count

WIDTH, _TALL = 1180.0, 250.0
#: So many rows have a colour of their own, solid or dashed. Of more, the first are drawn as curves, and those on a Pareto line are named.
MOST_ROWS = 2 * len(COLOURS)
CURVES = {
    "train_loss": "training loss",
    "validation_auc": "validation AUC",
    "validation_ne": "validation NE",
    "validation_ndcg_10": "validation NDCG@10",
}
#: What tells lines apart that lie on each other.
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
MARKS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
#: step -> least, median and most over the seeds.
Curve = dict[float, tuple[float, float, float]]


@dataclass(frozen=True)
class Axis:
    """A figure of a row, the median over its seeds. Which way it is better. How it is written."""

    path: str
    words: str
    higher: bool
    written: Callable[[float], str] | None = None

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
    panels = []
    for column, title in CURVES.items():
        curves = {index: curve for index, row in rows if (curve := _curve(row, column))}
        if any(len(curve) > 1 for curve in curves.values()):
            panels.append((column, title, curves))
    names = [ablation.name(index) for index, _ in rows]
    places = {index: place for place, (index, _) in enumerate(rows)}
    return [_curves(column, title, curves, places, names) for column, title, curves in panels[:3]]


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
            if step is not None and value is not None:
                by_step.setdefault(step, []).append(value)
    most = max((len(values) for values in by_step.values()), default=0)
    return {step: (min(v), statistics.median(v), max(v)) for step, v in sorted(by_step.items()) if len(v) == most}


def _curves(column: str, title: str, curves: dict[int, Curve], places: dict[int, int], names: Sequence[str]) -> Chart:
    data = [trace for index, curve in curves.items() for trace in _traces(curve, places[index], len(places), words(names[places[index]]))]
    axes = {"xaxis": {"title": {"text": "step"}, "rangemode": "tozero"}, "hovermode": "x unified", "hoverlabel": {"namelength": -1}}
    layout = {**axes, "showlegend": True, "legend": LEGEND}
    return Chart(f"curves-{column}", title, data, layout, tall=330 + 19 * len(curves))


def _traces(curve: Curve, place: int, of: int, name: str) -> list[dict[str, Any]]:
    """The band and the median. A click on the median's entry hides both."""
    steps, low, high = list(curve), [three[0] for three in curve.values()], [three[2] for three in curve.values()]
    own: dict[str, Any] = {"type": "scatter", "legendgroup": str(place), "name": name}
    fill = COLOURS[place % len(COLOURS)]
    band = {"x": [*steps, *reversed(steps)], "y": [*low, *reversed(high)], "fill": "toself", "fillcolor": f"{fill}29", "mode": "none"}
    line = {"color": fill, "dash": DASHES[place % len(DASHES)], "width": 1.6 + 4.0 * (of - 1 - place) / max(of - 1, 1)}
    spans = [f" ({a:.5f} to {b:.5f})" if b > a else "" for a, b in zip(low, high)]
    median = {
        "mode": "lines+markers",
        "x": steps,
        "y": [three[1] for three in curve.values()],
        "customdata": spans,
        "line": line,
        "marker": {"symbol": MARKS[place % len(MARKS)], "size": 7, "maxdisplayed": 12},
        "hovertemplate": "%{y:.5f}%{customdata}",
    }
    return [own | band | {"showlegend": False, "hoverinfo": "skip"}, own | median]


def pareto(ablation: Ablation) -> str | None:
    """Two figures of each row against each other. On the line are rows that no other beats in both. None where rows have not two.

    Quality against throughput and bytes. Where nothing was trained, throughput against bytes. Not where all rows have the same.
    """
    panels = []
    for x, y in _pairs(ablation):
        points = {i: (a, b) for i, row in enumerate(ablation.rows) if (a := x.of(row)) is not None and (b := y.of(row)) is not None}
        if len(set(points.values())) > 1 and not alike([up for _, up in points.values()]):
            panels.append((x, y, points, frontier(points, x.higher, y.higher)))
    if not panels:
        return None
    on_line = {index for *_, best in panels for index in best}
    labels = sorted(on_line if len(ablation.rows) > MOST_ROWS else range(len(ablation.rows)))
    names = [(f"{i + 1}  {ablation.name(i)}", colour(i)) for i in labels]
    label = "; ".join(f"{y.words} against {x.words}" for x, y, *_ in panels)
    wide = WIDTH / max(len(panels), 2)
    key, key_height = legend(0, _TALL + 42, names, WIDTH)
    side_by_side = [_scatter(place * wide, wide - 24, *panel) for place, panel in enumerate(panels)]
    whole = svg(WIDTH, _TALL + 34 + key_height, [*side_by_side, key], label, "wide")
    tall = _TALL + 22
    below = [f'<g transform="translate(0 {place * tall:g})">{_scatter(0, PHONE, *panel)}</g>' for place, panel in enumerate(panels)]
    names = [(cut(words, PHONE - 4 * LETTER), fill) for words, fill in names]
    key, key_height = legend(0, len(panels) * tall + 14, names, PHONE)
    return whole + svg(PHONE, len(panels) * tall + 8 + key_height, [*below, key], label, "phone")


def same_in_all(ablation: Ablation) -> list[str]:
    """What `pareto` does not draw, in words: all rows have one value of it."""
    axes = dict.fromkeys(y for _, y in _pairs(ablation))
    of_rows = {axis: [value for row in ablation.rows if (value := axis.of(row)) is not None] for axis in axes}
    return [axis.words for axis, values in of_rows.items() if len(values) > 1 and alike(values)]


def _pairs(ablation: Ablation) -> list[tuple[Axis, Axis]]:
    quality = next((axis for axis in _QUALITY if any(axis.of(row) is not None for row in ablation.rows)), None)
    return [(x, quality) for x in (_MEASURED, _SIMULATED, _BYTES)] if quality else [(_BYTES, _SIMULATED)]


def frontier(points: dict[int, tuple[float, float]], higher_x: bool, higher_y: bool) -> list[int]:
    """Those that no other point is at least as good as in both and better in one, from left to right."""
    signed = {i: (x if higher_x else -x, y if higher_y else -y) for i, (x, y) in points.items()}

    def beaten(i: int) -> bool:
        return any(a >= signed[i][0] and b >= signed[i][1] and (a, b) != signed[i] for a, b in signed.values())

    return sorted((i for i in points if not beaten(i)), key=lambda i: points[i])


def _scatter(left: float, wide: float, x: Axis, y: Axis, points: dict[int, tuple[float, float]], best: Sequence[int]) -> str:
    xs, ys = zip(*points.values())
    frame = _Frame(left, wide, nice_ticks(min(xs), max(xs), 4), nice_ticks(min(ys), max(ys)), x.written, y.written)
    better = f"{x.words}, {'more' if x.higher else 'less'} is better"
    parts = [frame.as_svg(y.words, better), polyline([frame.at(*points[i]) for i in best], "var(--soft)")]
    at = {index: frame.at(*point) for index, point in points.items()}
    labels = label_places([at[i] for i in at], [str(i + 1) for i in at])
    for (index, point), (left_of, baseline) in zip(at.items(), labels):
        parts.append(dots([point], colour(index)) + text(left_of, baseline, str(index + 1), css="strong" if index in best else ""))
    return "".join(parts)


#: A label's size: the width of a digit and the height of one.
DIGIT, HIGH = 8.0, 10.0


def label_places(points: Sequence[tuple[float, float]], words: Sequence[str]) -> list[tuple[float, float]]:
    """Where the words of each point begin (left, baseline).

    They are as near to it as leaves the points and the words before it uncovered.
    """
    covered = [(x - 3, y - 3, x + 3, y + 3) for x, y in points]
    places = []
    for (x, y), word in zip(points, words):
        wide = DIGIT * len(word)
        boxes = [(x + dx, y + dy, x + dx + wide, y + dy + HIGH) for dx, dy in _around(wide)]
        box = min(boxes, key=lambda one: sum(_overlap(one, other) for other in covered))
        covered.append(box)
        places.append((box[0], box[3]))
    return places


def _around(wide: float) -> list[tuple[float, float]]:
    """Offsets of a box of width `wide` from its point, the nearest first.

    They go right above, right below, left, then to rings further out.
    """
    rings = [(4 + ring * (wide + 2), 4 + ring * (HIGH + 1)) for ring in range(4)]
    return [
        offset
        for across, down in rings
        for right, left, above, below in [(across, -across - wide, -down - HIGH, down)]
        for offset in ((right, above), (right, below), (left, above), (left, below), (right, -HIGH / 2), (left, -HIGH / 2))
    ]


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> float:
    """The area that two boxes (left, top, right, bottom) share."""
    return max(0.0, min(one[2], other[2]) - max(one[0], other[0])) * max(0.0, min(one[3], other[3]) - max(one[1], other[1]))


class _Frame:
    """Axes of a panel whose scales are `xs` and `ys`."""

    def __init__(
        self,
        left: float,
        wide: float,
        xs: Sequence[float],
        ys: Sequence[float],
        written_x: Callable[[float], str] | None = None,
        written_y: Callable[[float], str] | None = None,
    ):
        self.x0, self.x1, self.y0, self.y1 = left + 66, left + wide - 16, _TALL - 36, 28.0
        self.xs, self.ys = xs, ys
        self.written_x = written_x or (lambda tick: tick_text(tick, xs))
        self.written_y = written_y or (lambda tick: tick_text(tick, ys))

    def at(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.xs[0]) / (self.xs[-1] - self.xs[0])
        up = (y - self.ys[0]) / (self.ys[-1] - self.ys[0])
        return self.x0 + (self.x1 - self.x0) * across, self.y0 - (self.y0 - self.y1) * up

    def as_svg(self, title: str, below: str) -> str:
        parts = [text(self.x0, 14, title, css="strong"), line(self.x0, self.y0, self.x1, self.y0, "axis")]
        for tick in self.ys:
            y = self.at(self.xs[0], tick)[1]
            parts += [line(self.x0, y, self.x1, y, "grid"), text(self.x0 - 6, y + 4, self.written_y(tick), "end")]
        for tick in self.xs:
            parts.append(text(self.at(tick, self.ys[0])[0], self.y0 + 16, self.written_x(tick), "middle"))
        middle = min((self.x0 + self.x1) / 2, self.x1 + 12 - LETTER * len(below) / 2)
        return "".join([*parts, text(middle, self.y0 + 32, below, "middle")])

"""The picture of a study that has none of its own. It shows how far each figure is from the published one, or the figures themselves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from recsys_lab.report.charts import INK
from recsys_lab.studies.pictures import BLUE, GREY, ORANGE, picture, written
from recsys_lab.studies.study import Line, Study, number

ROW_INCHES, LEAST_INCHES = 0.2, 2.2
LONGEST = 70  # letters of a line's name


def draw_compared(study: Study, folder: Path) -> list[Path]:
    """A panel for amounts and one for percentages. A hollow point is there by construction."""
    compared = [line for line in study.lines if line.error is not None]
    if not compared:
        return _draw_ours(study, folder)
    panels = [lines for lines in ([x for x in compared if x.unit != "%"], [x for x in compared if x.unit == "%"]) if lines]
    height = LEAST_INCHES + ROW_INCHES * max(map(len, panels))
    with picture(folder / f"{study.name}.svg", len(panels), width=9.0 if len(panels) == 1 else 15.0, height=height) as (figure, axes):
        for axis, lines in zip(axes, panels):
            _errors(axis, lines)
        if any(line.by_construction for line in compared):
            axes[0].plot([], [], "o", color=BLUE, markersize=5, label="judged")
            axes[0].plot([], [], "o", color=ORANGE, markersize=5, markerfacecolor="none", label="by construction: a fit used it")
            figure.legend(loc="outside lower center", ncols=2)
        figure.suptitle(f"{study.name}: {study.question}", fontsize=11)
    return written(folder, study.name)


def _errors(axis: Axes, lines: Sequence[Line]) -> None:
    in_points = lines[0].unit == "%"
    sizes = [(line.error or 0.0) * (1 if in_points else 100) for line in lines]
    for place, (line, size) in enumerate(zip(lines, sizes)):
        axis.plot([0, size], [place, place], color=GREY, linewidth=1)
        colour = ORANGE if line.by_construction else BLUE
        axis.plot(size, place, "o", color=colour, markersize=5, markerfacecolor="none" if line.by_construction else colour)
    axis.axvline(0, color=INK, linewidth=0.8)
    widest = max(map(abs, sizes)) or 1.0
    axis.set_xlim(-1.1 * widest, 1.1 * widest)
    axis.set_xlabel("off the published figure, " + ("percentage points" if in_points else "per cent"))
    _name(axis, [line.what for line in lines])


def _draw_ours(study: Study, folder: Path) -> list[Path]:
    """The figures of the commonest unit as bars."""
    unit, _ = Counter(line.unit for line in study.lines).most_common(1)[0]
    lines = [line for line in study.lines if line.unit == unit]
    with picture(folder / f"{study.name}.svg", height=LEAST_INCHES + 1.4 * ROW_INCHES * len(lines)) as (figure, (axis,)):
        bars = axis.barh(range(len(lines)), [line.ours for line in lines], color=BLUE)
        axis.bar_label(bars, [number(line.ours, unit) for line in lines], padding=3, fontsize=8)
        axis.margins(x=0.12)
        axis.set_xlabel(f"{', '.join(dict.fromkeys(line.origin for line in lines))}{f', {unit}' if unit else ''}")
        _name(axis, [line.what for line in lines])
        figure.suptitle(f"{study.name}: {study.question}", fontsize=11)
    return written(folder, study.name)


def _name(axis: Axes, names: Sequence[str]) -> None:
    """Names down the left side, the first on top."""
    axis.set_yticks(range(len(names)), [name if len(name) <= LONGEST else name[: LONGEST - 1] + "…" for name in names], fontsize=8)
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.grid(visible=False, axis="y")

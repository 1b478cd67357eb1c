"""Charts of `decide.html`: cost against time, where the milliseconds go, and what would help most."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from recsys_lab.decide.rows import Change, Row
from recsys_lab.report.charts import (
    LETTER,
    LONG_NOTE,
    NARROW,
    SOFT,
    Chart,
    bar,
    box,
    chart,
    colour,
    cut,
    drawing,
    legend,
    legend_height,
    limit_of,
    tip,
)
from recsys_lab.units import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: How rows of the first cluster are drawn, those of the second, ...
SHAPES = {"circles": "o", "squares": "s", "diamonds": "D", "triangles": "^", "crosses": "P", "pentagons": "p"}
#: An axis is logarithmic where its most is over so many times its least.
FAR = 10
#: Stars that differ by less are one label.
NEAR = 0.03
#: CSS pixels of a row whose phases are shown.
ROW = 40


def is_paid(rows: Sequence[Row]) -> bool:
    return any(row.usd_per_1e9 is not None for row in rows)


def cost_words(rows: Sequence[Row]) -> str:
    return "dollars per 1e9 samples" if is_paid(rows) else "device-hours per 1e9 samples"


def priced(rows: Sequence[Row], profile: str) -> list[Row]:
    """Rows of a profile that have a cost of the kind that is compared, the cheapest first."""
    paid = is_paid(rows)
    own = [row for row in rows if row.profile == profile and row.ms is not None and (not paid or row.usd_per_1e9 is not None)]
    return sorted(own, key=lambda row: row.cost)


def front_of(rows: Sequence[Row]) -> list[Row]:
    """The Pareto-optimal ones, the fastest first."""
    return sorted((row for row in rows if row.pareto), key=lambda row: (_ms(row), row.cost))


def _ms(row: Row) -> float:
    """Of a row that has figures."""
    assert row.ms is not None
    return row.ms


def of_profile(rows: Sequence[Row], profile: str, values: Mapping[str, Sequence[str]], classes: Mapping[int, str]) -> list[Chart]:
    """Cost against time, and the phases of Pareto-optimal rows and of each sharder's cheapest on each cluster. None without a cost."""
    own, words = priced(rows, profile), cost_words(rows)
    if not own:
        return []
    cheapest = {(row.cluster, row.sharder): row for row in reversed(own)}
    shown = [row for row in own if row.phases_ms and (row.pareto or row is cheapest[row.cluster, row.sharder])]
    return [_scatter(own, words, values, classes), *([_phases(shown, classes)] if shown else [])]


def _class_of_profile(rows: Sequence[Row], classes: Mapping[int, str]) -> str:
    return classes[id(rows[0])].split()[-1]


def _scatter(rows: Sequence[Row], words: str, values: Mapping[str, Sequence[str]], classes: Mapping[int, str]) -> Chart:
    sharders = [sharder for sharder in values["sharder"] if any(row.sharder == sharder for row in rows)]
    shapes, front, below = list(SHAPES.values()), front_of(rows), 42 + legend_height(sharders)
    with drawing(height=330 + below, bottom=below) as axes:
        _scales(axes, rows)
        axes.plot([_ms(row) for row in front], [row.cost for row in front], color=SOFT, linestyle=":", linewidth=1)
        for row in rows:
            if row.pareto and row.cost_interval is not None:
                axes.plot([_ms(row)] * 2, row.cost_interval, color=SOFT, linewidth=1, alpha=0.7)
            shape = "*" if row.pareto else shapes[values["cluster"].index(row.cluster) % len(shapes)]
            fill = colour(values["sharder"].index(row.sharder))
            (point,) = axes.plot(_ms(row), row.cost, shape, color=fill, markersize=12 if row.pareto else 5, alpha=1 if row.pareto else 0.75)
            tip(point, row_words(row, words), classes[id(row)])
        for row, label in zip(front, star_labels(front)):
            axes.annotate(label, (_ms(row), row.cost), (5, 4), textcoords="offset points")
        axes.set(xlabel="ms an iteration")
        legend(axes, sharders, [colour(values["sharder"].index(sharder)) for sharder in sharders])
        own = _class_of_profile(rows, classes)
        return chart(axes, f"cost-{own}", f"{words} against time, profile {rows[0].profile}", classes=own)


def _scales(axes: Axes, rows: Sequence[Row]) -> None:
    """From zero, or logarithmic where the figures lie far apart."""
    from matplotlib.ticker import LogLocator, NullFormatter

    for scale, set_scale, set_limit, values in (
        (axes.xaxis, axes.set_xscale, axes.set_xlim, [_ms(row) for row in rows]),
        (axes.yaxis, axes.set_yscale, axes.set_ylim, [row.cost for row in rows]),
    ):
        if max(values) <= FAR * min(values):
            set_limit(0, 1.08 * max(values))
            continue
        set_scale("log")
        set_limit(0.85 * min(values), 1.2 * max(values))
        scale.set_major_locator(LogLocator(subs=(1, 2, 5)))
        scale.set_major_formatter(lambda value, _: f"{value:g}")
        scale.set_minor_formatter(NullFormatter())


def star_labels(front: Sequence[Row]) -> list[str]:
    """The numbers of stars from 1. Those of stars that lie on each other are one label, at the first of them."""
    labels = [""] * len(front)
    for number, row in enumerate(front, start=1):
        first = next(i for i, other in enumerate(front) if _near(row, other))
        labels[first] += f", {number}" if labels[first] else str(number)
    return labels


def _near(one: Row, other: Row) -> bool:
    return abs(_ms(one) / _ms(other) - 1) < NEAR and abs(one.cost / other.cost - 1) < NEAR


def _phases(rows: Sequence[Row], classes: Mapping[int, str]) -> Chart:
    """A bar a row, divided into its phases; its name stands above it. Filters of clusters and sharders hide it."""
    phases = list(dict.fromkeys(phase for row in rows for phase in row.phases_ms))
    names = [phase.replace("_", " ") for phase in phases]
    below = 42 + legend_height(names)
    with drawing(height=10 + ROW * len(rows) + below, left=14, bottom=below) as axes:
        for place, row in enumerate(rows):
            words, own = f"{row.ms:.2f} ms", " ".join(classes[id(row)].split()[:2])  # its cluster and its sharder
            text = axes.text(0, place - 0.1, f"{cut(row.name, NARROW - 28 - 7 * len(words))}, {words}", va="bottom")
            tip(text, f"{row.name}, {words}", own)
            begin = 0.0
            for i, phase in enumerate(phases):
                ms = row.phases_ms.get(phase, 0.0)
                box(axes, begin, place - 0.05, ms, 0.4, colour(i), f"{row.name}\n{names[i]}: {ms:.3f} ms", own)
                begin += ms
        axes.set(xlabel="ms", yticks=[], xlim=(0, max(sum(row.phases_ms.values()) for row in rows)), ylim=(len(rows) - 0.5, -0.55))
        legend(axes, names, [colour(i) for i in range(len(names))])
        own = _class_of_profile(rows, classes)
        title = f"where the milliseconds go, the cheapest of each sharder, profile {rows[0].profile}"
        return chart(axes, f"phases-{own}", title, classes=own)


def tornado(changes: Sequence[Change], name: str) -> list[Chart]:
    """What each change would do to a sample's time, the most helpful on top. None where no change fits."""
    fitting = [change for change in changes if change.fits and change.time_change is not None]
    if not fitting:
        return []
    left = 16 + LETTER * max(len(change.name) for change in fitting)
    percents = [100 * (change.time_change or 0.0) for change in fitting]
    limit = limit_of(percents)
    with drawing(height=52 + 24 * len(fitting), left=left, bottom=42) as axes:
        for place, (change, percent) in enumerate(zip(fitting, percents)):
            words = f"{change.name}: {percent:+.1f} % time a sample\n{change.phase} {change.phase_ms[0]:.2f} to {change.phase_ms[1]:.2f} ms"
            bar(axes, place, percent, limit, colour(2 if percent < 0 else 5), words, f"{percent:+.0f} %")
        low, high = max(min(0.0, *percents), -limit), min(max(0.0, *percents), limit)
        below, above = ((0.45 if cut_off else 0.05) * (high - low or 1) for cut_off in (min(percents) < low, max(percents) > high))
        axes.set(xlabel="% time a sample", xlim=(low - below, high + above), ylim=(len(fitting) - 0.5, -0.5))
        axes.set_yticks(range(len(fitting)), [change.name for change in fitting])
        axes.axvline(0, color=SOFT, linewidth=1)
        axes.grid(visible=False, axis="y")
        return [chart(axes, "changes", f"what would help most: changes of {name}", "" if limit == math.inf else LONG_NOTE)]


def row_words(row: Row, words: str) -> str:
    """Figures and choices of a row, a line each."""
    stores = f", {stores_words(row)}" if row.stores else ""
    lines = [
        f"{row.sharder} on {row.cluster}",
        f"{row.precision}, {row.optimizer}",
        f"{row.ms:.2f} ms ({span(row.ms_interval)})",
        f"{row.cost:.2f} {words}",
        f"{row.memory_gb:.1f} of {row.memory_there_gb:g} GB{stores}",
        f"mostly {row.bound}",
        *(f"{phase.replace('_', ' ')} {ms:.3f} ms" for phase, ms in row.phases_ms.items()),
    ]
    if row.price:
        lines.append(f"{row.price.usd_per_device_hour:.2f} $ a device-hour ({row.price.origin})")
    return "\n".join(lines)


def stores_words(row: Row) -> str:
    """Such as `64 tables in host memory`."""
    return ", ".join(f"{counted(number, 'table')} {place}" for place, number in row.tables_elsewhere.items())


def span(interval: tuple[float, float] | None) -> str:
    return f"{interval[0]:.2f} to {interval[1]:.2f}" if interval else "not known"

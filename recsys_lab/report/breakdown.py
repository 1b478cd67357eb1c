"""Quality in parts: reliability, GAUC, and quality by the values of a column, as charts and as tables of text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

from rich.console import Console

from recsys_lab.record.breakdown import MOST_VALUES
from recsys_lab.report.charts import LETTER, NARROW, SOFT, Chart, chart, colour, cut, drawing, legend, legend_height, tip
from recsys_lab.report.sections import Table, number
from recsys_lab.report.terminal import print_table
from recsys_lab.units import counted

#: The normal quantile of a 95 % interval.
Z = NormalDist().inv_cdf(0.975)
#: Values of a column on a chart, in a table of the page, and in the terminal.
MOST_DRAWN, MOST_LISTED, MOST_PRINTED = 20, 100, 20
#: CSS pixels of the names beside a chart.
LONGEST_NAME = 150

Record = Mapping[str, Any]


def reliability_charts(result: Record) -> list[Chart]:
    """For each split, the rate of clicks against the mean prediction, in parts with about as many examples each."""
    return [_reliability(split, of["reliability"]) for split, of in (result.get("breakdown") or {}).items() if of["reliability"]]


def _reliability(split: str, bins: Sequence[Mapping[str, Any]]) -> Chart:
    names, rates = ["95 % interval", "as predicted"], [one["positives"] / one["examples"] for one in bins]
    ends = [interval(one["positives"], one["examples"]) for one in bins]
    top = min(1.0, 1.05 * max([high for _, high in ends] + [one["predicted"] for one in bins]))
    with drawing(height=300, bottom=42 + legend_height(names)) as axes:
        for one, rate, (low, high) in zip(bins, rates, ends):
            words = f"{one['examples']:,} examples\npredicted {one['predicted']:.2%}\nclicked {rate:.2%} ({low:.2%} to {high:.2%})"
            (line,) = axes.plot([one["predicted"]] * 2, [low, high], color=colour(0), linewidth=1.5, label=names[0] * (one is bins[0]))
            (mark,) = axes.plot(one["predicted"], rate, "o", markersize=5, color=colour(0))
            tip(line, words)
            tip(mark, words)
        axes.plot([0, top], [0, top], color=SOFT, linestyle="--", linewidth=1.2, label=names[1])
        axes.set(xlabel="predicted", ylabel="clicked", xlim=(0, top), ylim=(0, top))
        for scale in (axes.xaxis, axes.yaxis):
            _percent(scale, top)
        legend(axes, names)
        examples = sum(one["examples"] for one in bins)
        note = f"{examples:,} examples in {counted(len(bins), 'part')} of about equal size, by their prediction."
        return chart(axes, f"reliability-{split}", f"{split}: clicked against predicted", note)


def interval(positives: int, examples: int) -> tuple[float, float]:
    """The 95 % interval of a rate (Wilson 1927)."""
    rate, square = positives / examples, Z * Z / examples
    middle, half = rate + square / 2, Z * math.sqrt(rate * (1 - rate) / examples + square / (4 * examples))
    return max(0.0, (middle - half) / (1 + square)), min(1.0, (middle + half) / (1 + square))


def _percent(scale: Any, top: float) -> None:
    from matplotlib.ticker import PercentFormatter

    scale.set_major_formatter(PercentFormatter(1.0, decimals=0 if top > 0.1 else 1))


def gauc(result: Record) -> Table | None:
    """GAUC of each split. None where no column groups its rows."""
    grouped = {split: of["grouped"] for split, of in (result.get("breakdown") or {}).items() if of["grouped"]}
    if not grouped:
        return None
    columns = ("split", "gauc", "groups", "examples", "left out", "their examples")
    rows = [
        (split, number(g["gauc"], 5), *(f"{g[key]:,}" for key in ("groups", "examples", "one_class_groups", "one_class_examples")))
        for split, g in grouped.items()
    ]
    note = "the mean of each group's AUC, weighted by its examples; groups with one label are left out"
    return Table(f"GAUC by {next(iter(grouped.values()))['column']} (measured)", columns, tuple(rows), note, columns[1:])


def by_column(result: Record) -> list[Table]:
    """A table for each column, of the test split, or of validation where there is no test."""
    columns = ("", "auc", "ne", "log_loss", "calibration", "examples")
    return [
        Table(f"Quality by {column}, {split} (measured)", (column, *columns[1:]), _rows(of, split, result), _note(of), columns[1:])
        for split, column, of in _closest(result)
    ]


def by_column_charts(result: Record) -> list[list[Chart]]:
    """For each column the AUC and the calibration of its most frequent values, as dots."""
    charts = []
    for split, column, of in _closest(result):
        both = (_dots(column, split, of, metric, at) for metric, at in (("auc", _whole(result, split)["auc"]), ("calibration", 1.0)))
        charts.append([chart for chart in both if chart is not None])
    return charts


def _closest(result: Record) -> list[tuple[str, str, Mapping[str, Any]]]:
    """(split, column, its quality) of the split that is farthest from training."""
    breakdown = result.get("breakdown") or {}
    split = next((name for name in ("test", "validation") if name in breakdown), "")
    return [(split, column, of) for column, of in breakdown[split]["by"].items()] if split else []


def _whole(result: Record, split: str) -> Mapping[str, Any]:
    whole: Mapping[str, Any] = result["quality"][split]
    return whole


def _rows(of: Mapping[str, Any], split: str, result: Record) -> tuple[tuple[str, ...], ...]:
    shown = [(one["value"], one["quality"]) for one in of["values"][:MOST_LISTED]]
    if others := of["others"]:
        shown.append((f"{counted(others['values'], 'other value')}", others["quality"]))
    return tuple((name, *_cells(quality)) for name, quality in [*shown, ("all", _whole(result, split))])


def _cells(quality: Mapping[str, Any]) -> tuple[str, ...]:
    figures = (quality[name] for name in ("auc", "ne", "log_loss", "calibration"))
    return (*("\N{EN DASH}" if figure is None else number(figure, 4) for figure in figures), f"{quality['examples']:,}")


def _note(of: Mapping[str, Any]) -> str:
    notes = []
    if of["others"]:
        few = counted(of["min_rows"], "row")
        notes.append(f"other values have fewer than {few} each (evaluate.min_rows), or come after the first {MOST_VALUES:,}")
    if (beyond := len(of["values"]) - MOST_LISTED) > 0:
        notes.append(f"result.json has {beyond} more")
    if any(one["quality"]["auc"] is None for one in [*of["values"], *([of["others"]] if of["others"] else [])]):
        notes.append("\N{EN DASH}: one label alone")
    return "; ".join(notes)


def _dots(column: str, split: str, of: Mapping[str, Any], metric: str, middle: float | None) -> Chart | None:
    """A dot for each value, its area by the examples, and a line at `middle`. None where no value has the metric."""
    values = [(one["value"], one["quality"]) for one in of["values"] if one["quality"][metric] is not None][:MOST_DRAWN]
    if not values:
        return None
    label = {"auc": f"all rows {middle:.4f}", "calibration": "calibrated"}[metric]
    left = 16 + min(LONGEST_NAME, LETTER * max(len(name) for name, _ in values))
    most = max(quality["examples"] for _, quality in values)
    with drawing(NARROW, 52 + 24 * len(values) + legend_height([label]), left=left, bottom=42 + legend_height([label])) as axes:
        if middle is not None:
            axes.axvline(middle, color=SOFT, linestyle="--", linewidth=1.2, label=label)
        for place, (name, quality) in enumerate(values):
            size = 4 + 6 * math.sqrt(quality["examples"] / most)
            (dot,) = axes.plot(quality[metric], place, "o", markersize=size, color=colour(0))
            tip(dot, f"{name}: {metric} {quality[metric]:.4f}, {quality['examples']:,} examples")
        axes.set(xlabel=metric, ylim=(len(values) - 0.5, -0.5))
        axes.margins(x=0.08)
        axes.set_yticks(range(len(values)), [cut(name, LONGEST_NAME) for name, _ in values])
        axes.locator_params(axis="x", nbins=5)
        legend(axes, [label])
        more = len(of["values"]) - len(values)
        note = f"Larger dots have more examples.{f' The {len(values)} most frequent values.' if more else ''}"
        return chart(axes, f"by-{metric}-{_plain(column)}", f"{split}: {metric} by {column}", note)


def _plain(column: str) -> str:
    return "".join(sign if sign.isalnum() else "-" for sign in column)


def print_breakdown(result: Record, out: Console) -> None:
    """GAUC and the tables by column in the terminal."""
    for table in ([] if (grouped := gauc(result)) is None else [grouped]) + by_column(result):
        print_table(out, table, MOST_PRINTED)

"""`decide.html`: the rows as a page to look at. It requests nothing. Filters need no script; a click on a column sorts with a short one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from recsys_lab.base.files import write_text
from recsys_lab.decide import charts
from recsys_lab.decide.answer import Winner
from recsys_lab.decide.assumptions import assumption_words
from recsys_lab.decide.bill_words import bill_table
from recsys_lab.decide.decision import Decision
from recsys_lab.decide.price_words import price_words
from recsys_lab.decide.rows import Change, Row
from recsys_lab.decide.sensitivity import advice, bound_of
from recsys_lab.decide.tables import clusters_table
from recsys_lab.report import html
from recsys_lab.report.charts import side_by_side
from recsys_lab.report.memory import MEMORY, MEMORY_PARTS, gb
from recsys_lab.units import GB

STYLE = """
.filters { display: flex; flex-wrap: wrap; gap: 6px 22px; margin: 10px 0; }
.filters fieldset { border: 0; padding: 0; margin: 0; min-width: 0; } .filters legend { color: var(--soft); font-size: 12.5px; padding: 0; }
.filters label { margin-right: 10px; white-space: nowrap; font-size: 13.5px; }
ol { font-size: 13.5px; margin: 4px 0; padding-left: 28px; } td { white-space: nowrap; } td.words { white-space: normal; }
table:not(#rows) td { white-space: pre; }
body.wide th { cursor: pointer; white-space: nowrap; } tr.pareto td:first-child { font-weight: 600; }
"""
#: Figures come before what has none.
SORT = """
for (const head of document.querySelectorAll("#rows th")) head.onclick = () => {
  const body = document.querySelector("#rows tbody"), down = head.dataset.down = head.dataset.down ? "" : "1";
  const value = row => row.cells[head.cellIndex].dataset.value ?? row.cells[head.cellIndex].textContent;
  const order = (a, b) => (a === "") - (b === "") || a.localeCompare(b, "en", { numeric: true }) * (down ? 1 : -1);
  body.append(...[...body.rows].sort((a, b) => isNaN(value(a) || NaN) || isNaN(value(b) || NaN)
    ? order(value(a), value(b)) : (value(a) - value(b)) * (down ? 1 : -1)));
};
"""
FILTERS = ("cluster", "sharder", "precision", "optimizer")
#: What the reader chooses one of.
PROFILE = "profile"


def write_decision(decision: Decision, path: Path) -> Path:
    """Writes the page, whole or not at all. UserError where it cannot be written."""
    return write_text(path, page(decision))


def page(decision: Decision) -> str:
    """The page's text."""
    rows, winner = decision.rows, decision.winner
    where = ", ".join(dict.fromkeys(f"{row.cluster} ({row.batch_per_rank:,} samples a device)" for row in rows))
    values = {key: list(dict.fromkeys(getattr(row, key) for row in rows)) for key in FILTERS}
    profiles = list(dict.fromkeys(row.profile for row in rows if row.ms is not None))
    first = winner.row.profile if winner.row else next(iter(profiles), "")
    names, said = values | {PROFILE: profiles}, advice(decision.sensitivity)
    classes = {id(row): _classes(row, names) for row in rows}
    drawn = [chart for profile in profiles for chart in charts.of_profile(rows, profile, values, classes)]
    if winner.row:
        drawn += charts.tornado(decision.sensitivity, winner.row.name)
    body = [
        f"<style>{STYLE}{_hiding(names)}</style>",
        "<h1>Which sharding and precision to pay for</h1>",
        *_verdict(winner.verdict),
        *([f"<p><b>{escape(decision.target.words)}</b></p>"] if decision.target else []),
        *_cards(winner.row, decision.sensitivity),
        *([html.table(clusters_table(decision.of_clusters, winner))] if winner.row and len(decision.of_clusters) > 1 else []),
        f'<p class="soft">Batch {rows[0].batch:,} over {escape(where)}. Simulated, not measured.</p>',
        *map(_paragraph, (*([winner.details] if winner.details else []), *(line for line in decision.sentences if line not in said))),
        *([_paragraph(assumption_words(decision.assumptions, decision.evidence))] if decision.assumptions else []),
        *([f'<p class="soft">{escape(" ".join(words))}</p>'] if (words := price_words(rows)) else []),
        *([html.table(bill_table(decision), level=2)] if decision.run else []),
        _filters(names, first),
        "<h2>Cost against time, and where the milliseconds go</h2>",
        side_by_side(drawn),
        *(_front(rows, profile, names, classes) for profile in profiles),
        '<p class="note">Each point is a combination; hover for its figures. Numbered stars are Pareto-optimal: '
        "no row is both faster and cheaper. Bars are their 90 % intervals. An axis that spans more than ten times its least is logarithmic."
        f"{escape(_shapes(values['cluster']) + _not_drawn(winner))}</p>",
        "<h2>All rows</h2>",
        _table(rows, classes),
    ]
    return html.document("decide: recsys_lab", body, wide=True, script=SORT)


def _verdict(words: str) -> list[str]:
    """Its sentences, and the lines of a shell that they name."""
    lines = words.split("\n")
    said = [f"<p><b>{escape(line)}</b></p>" for line in lines if not line.startswith(" ")]
    return [*said, *(f"<pre>{escape(line.strip())}</pre>" for line in lines if line.startswith(" "))]


def _cards(best: Row | None, changes: Sequence[Change]) -> list[str]:
    """Time, cost and memory of the chosen row, and what bounds it."""
    if best is None:
        return []
    assert best.ms is not None and best.memory_gb is not None and best.memory_there_gb is not None
    figures = [
        ("an iteration", f"{best.ms:.2f} ms", f"simulated, 90 %: {charts.span(best.ms_interval)}"),
        (
            f"{'dollars' if best.usd_per_1e9 is not None else 'device-hours'} per 1e9 samples",
            f"{best.cost:.2f}{' $' * (best.usd_per_1e9 is not None)}",
            f"simulated, 90 %: {charts.span(best.cost_interval)}",
        ),
        (MEMORY, f"{gb(best.memory_gb * GB)} of {best.memory_there_gb:g} GB", f"counted: {MEMORY_PARTS}"),
    ]
    if (bound := bound_of(changes)) is not None:
        part, change = bound
        figures.append(("bound by", part, f"simulated: {-(change.time_change or 0.0):.0%} less time at twice the speed"))
    return [html.cards(figures), *(f"<p>{escape(sentence)}</p>" for sentence in advice(changes))]


def _paragraph(words: str) -> str:
    """Lines that begin with spaces become a list."""
    lines = "".join(f"<li>{escape(line.strip())}</li>" if line.startswith(" ") else f"<p>{escape(line)}</p>" for line in words.split("\n"))
    return re.sub(r"((?:<li>.*?</li>)+)", r"<ul>\1</ul>", lines)


def _classes(row: Row, names: dict[str, list[str]]) -> str:
    """What hides the row, or its point. A row without figures is that of every profile."""
    keys = [key for key in names if key != PROFILE or row.ms is not None]
    return " ".join(f"{key}-{names[key].index(getattr(row, key))}" for key in keys)


def _hiding(names: dict[str, list[str]]) -> str:
    every = [f"{key}-{place}" for key, values in names.items() for place in range(len(values))]
    return "\n".join(f"body:has(#{one}:not(:checked)) .{one} {{ display: none; }}" for one in every)


def _filters(names: dict[str, list[str]], first: str) -> str:
    """Of each axis its values, of which any are shown, and the profiles, of which one is."""
    parts = []
    for key, values in names.items():
        kind = 'type="radio" name="profile"' if key == PROFILE else 'type="checkbox"'
        boxes = "".join(
            f'<label><input {kind} id="{key}-{place}"{" checked" if key != PROFILE or value == first else ""}> {escape(value)}</label>'
            for place, value in enumerate(values)
        )
        parts.append(f"<fieldset><legend>{'software profile' if key == PROFILE else key}</legend>{boxes}</fieldset>")
    return f'<div class="filters">{"".join(parts)}</div>'


def _front(rows: Sequence[Row], profile: str, names: dict[str, list[str]], classes: dict[int, str]) -> str:
    """The Pareto-optimal rows, numbered as their stars."""
    lines = "".join(
        f'<li class="{classes[id(row)]}">{escape(row.name)}: {row.ms:.2f} ms, {row.cost:.2f} {charts.cost_words(rows)}</li>'
        for row in charts.front_of(charts.priced(rows, profile))
    )
    return f'<ol class="{PROFILE}-{names[PROFILE].index(profile)}">{lines}</ol>'


def _shapes(clusters: Sequence[str]) -> str:
    """Which cluster has which shape. Nothing where there is one cluster."""
    each = ", ".join(f"{list(charts.SHAPES)[place % len(charts.SHAPES)]} {cluster}" for place, cluster in enumerate(clusters))
    return f" Colours are sharders, shapes are clusters: {each}." if len(clusters) > 1 else ""


def _not_drawn(winner: Winner) -> str:
    free = ", ".join(winner.without_price)
    return f" Without a price, and so not in this chart: {free}." if free else ""


def _table(rows: Sequence[Row], classes: dict[int, str]) -> str:
    """Every row, the cheapest first. Columns in which no row has a value are named below."""
    ordered = sorted(rows, key=lambda row: (row.ms is None, row.cost_order if row.ms is not None else (False, 0.0)))
    cells = [_cells(row, charts.is_paid(rows)) for row in ordered]
    columns = list(cells[0])
    shown = [column for column in columns if any(one[column][0] for one in cells)]
    empty = [column for column in columns if column not in shown]
    lines = []
    for row, one in zip(ordered, cells):
        css = f"{classes[id(row)]}{' pareto' if row.pareto else ''}"
        lines.append(f'<tr class="{css}" title="{escape(row.command)}">{"".join(_cell(*one[column]) for column in shown)}</tr>')
    head = "".join(f'<th title="sort">{escape(column)}</th>' for column in shown)
    left_out = f" Left out, as no row has a value: {', '.join(empty)}." if empty else ""
    return (
        f'<p class="note">A click on a column sorts.{escape(left_out)}</p><div class="scroll"><table id="rows">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )


def _cell(words: str, value: float | None) -> str:
    css = ' class="words"' if len(words) > 40 else ' class="right"' if value is not None else ""
    return f"<td{css}{'' if value is None else f' data-value={chr(34)}{value:.9g}{chr(34)}'}>{escape(words)}</td>"


def _cells(row: Row, paid: bool) -> dict[str, tuple[str, float | None]]:
    """Column -> its words, and the figure that it is sorted by."""
    plain = {key: (getattr(row, key), None) for key in FILTERS}
    priced = row.usd_per_1e9 if paid else row.device_hours_per_1e9
    cost = ("no price", None) if paid and row.ms is not None and priced is None else _figure(priced)
    interval = ("", None) if row.ms is None else (charts.span(row.ms_interval), row.ms_interval[0] if row.ms_interval else None)
    samples = ("", None) if row.samples_per_second is None else (f"{row.samples_per_second:,.0f}", row.samples_per_second)
    return plain | {
        "ms": _figure(row.ms),
        "90 % ms": interval,
        "samples/s": samples,
        "$ per 1e9" if paid else "device-hours per 1e9": cost,
        "GB": _figure(row.memory_gb),
        "larger than memory": (charts.stores_words(row), None),
        "exposed ms": _figure(row.exposed_ms),
        "mostly": (row.bound or "", None),
        "Pareto": ("yes" if row.pareto else "", None),
        "under every profile": ("yes" if row.robust else "", None),
        "what fits": ("" if row.ms is not None else row.fix or row.why_not or "", None),
    }


def _figure(value: float | None) -> tuple[str, float | None]:
    return ("", None) if value is None else (f"{value:.2f}", value)

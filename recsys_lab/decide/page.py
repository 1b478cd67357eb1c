"""`decide.html`: the rows as a page to look at. Plotly's script is embedded from the installed package. The page requests nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from html import escape
from pathlib import Path

from recsys_lab.base.files import plain, write_text
from recsys_lab.decide.answer import Winner
from recsys_lab.decide.decision import Decision
from recsys_lab.decide.price_words import price_words
from recsys_lab.decide.rows import Row
from recsys_lab.report import html

#: How page.js draws rows of the first cluster, the second, ...
SHAPES = ("circles", "squares", "diamonds", "triangles", "crosses", "pentagons")
SCRIPT = Path(__file__).with_name("page.js")
STYLE = """
.filters { display: flex; flex-wrap: wrap; gap: 6px 22px; margin: 10px 0; }
.filters fieldset { border: 0; padding: 0; margin: 0; min-width: 0; } .filters legend { color: var(--soft); font-size: 12.5px; padding: 0; }
.filters label { margin-right: 10px; white-space: nowrap; font-size: 13.5px; }
.chart { height: 400px; } .chart.tall { height: 460px; } @media (max-width: 700px) { .chart.tall { height: 600px; } }
#front { font-size: 13.5px; margin: 4px 0; padding-left: 28px; } #rows td { white-space: nowrap; } #rows td.words { white-space: normal; }
select { max-width: 100%; font: inherit; font-size: 13.5px; } th[data-key] { cursor: pointer; }
tr.pareto td:first-child { font-weight: 600; }
"""


def write_decision(decision: Decision, path: Path) -> Path:
    """Writes the page, whole or not at all. UserError where it cannot be written."""
    return write_text(path, page(decision))


def page(decision: Decision) -> str:
    """The page's text."""
    first, winner = decision.rows[0], decision.winner
    data = json.dumps(plain(decision.to_json())).replace("</", "<\\/")
    where = ", ".join(dict.fromkeys(f"{row.cluster} ({row.batch_per_rank:,} samples a device)" for row in decision.rows))
    body = [
        f"<style>{STYLE}</style>",
        "<h1>Which sharding and precision to pay for</h1>",
        *(f"<p><b>{escape(line)}</b></p>" for line in winner.verdict.split("\n")),
        f'<p class="soft">Batch {first.batch:,} over {escape(where)}. Simulated, not measured.</p>',
        *map(_paragraph, (*([winner.details] if winner.details else []), *decision.sentences)),
        *([f'<p class="soft">{escape(" ".join(words))}</p>'] if (words := price_words(decision.rows)) else []),
        '<div class="filters" id="filters"></div>',
        '<h2>Cost against time</h2><div class="chart tall" id="scatter"></div><ol id="front"></ol>',
        '<p class="note">Each point is a combination; hover for its figures, click to compare it. Numbered stars are Pareto-optimal: '
        "no row is both faster and cheaper. Bars are their 90 % intervals. An axis that spans more than ten times its least is logarithmic."
        f"{escape(_shapes(decision.rows) + _not_drawn(winner))}</p>",
        '<div class="charts"><div><h2>Where the milliseconds go</h2>'
        '<label>first <select id="left"></select></label><br><label>second <select id="right"></select></label>'
        '<div class="chart" id="phases"></div></div>',
        f"<div><h2>What would help most</h2><p class='note'>Changes of {escape(winner.row.name if winner.row else 'no row')}.</p>"
        '<div class="chart" id="tornado"></div></div></div>',
        '<h2>All rows</h2><p class="note" id="count"></p><div class="scroll"><table id="rows"></table></div>',
        f'<script type="application/json" id="data">{data}</script>',
    ]
    return html.document("decide: recsys_lab", body, wide=True, scripts=[SCRIPT.read_text(encoding="utf-8")])


def _paragraph(words: str) -> str:
    """Lines that begin with spaces become a list."""
    lines = "".join(f"<li>{escape(line.strip())}</li>" if line.startswith(" ") else f"<p>{escape(line)}</p>" for line in words.split("\n"))
    return re.sub(r"((?:<li>.*?</li>)+)", r"<ul>\1</ul>", lines)


def _shapes(rows: Sequence[Row]) -> str:
    """Which cluster has which shape. Nothing where there is one cluster."""
    clusters = list(dict.fromkeys(row.cluster for row in rows))
    each = ", ".join(f"{SHAPES[place % len(SHAPES)]} {cluster}" for place, cluster in enumerate(clusters))
    return f" Colours are sharders, shapes are clusters: {each}." if len(clusters) > 1 else ""


def _not_drawn(winner: Winner) -> str:
    free = ", ".join(winner.without_price)
    return f" Without a price, and so not in this chart: {free}." if free else ""

"""Charts by Plotly on pages that ask nothing of the network. A page has the script of the installed package and the figures, compressed."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

from recsys_lab.base.files import plain

SCRIPT = Path(__file__).with_name("charts.js")
#: Eight colours that stay apart for the colour-blind too (Okabe and Ito, 2008), repeated where there are more kinds.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#7f7f7f")
#: Below a chart, its entries from left to right.
LEGEND = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0}
#: No width: Plotly takes names that differ in it for two.
APART = "\N{ZERO WIDTH SPACE}"
NO_SCRIPT = '<noscript><p class="note">The charts need JavaScript. The tables have the figures.</p></noscript>'


@dataclass(frozen=True)
class Chart:
    """A figure of Plotly: `data` and `layout` as Plotly's schema has them. `name`: of its element. Words in it are escaped (`words`)."""

    name: str
    title: str
    data: list[dict[str, Any]]
    layout: dict[str, Any] = field(default_factory=dict)
    tall: int = 320
    note: str = ""


def colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def words(text: str) -> str:
    """`text` as Plotly shows it letter by letter: what looks like a tag is none."""
    return escape(text, quote=False)


def element(chart: Chart) -> str:
    """The chart with its title and its note, as HTML."""
    note = f'<p class="note">{escape(chart.note)}</p>' if chart.note else ""
    figure = json.dumps(plain({"data": chart.data, "layout": chart.layout}), separators=(",", ":"))
    return (
        f'<figure><figcaption>{escape(chart.title)}</figcaption><div class="chart" id="{escape(chart.name)}" role="img" '
        f'aria-label="{escape(chart.title)}" style="height: {chart.tall}px"></div>{note}'
        f'<script type="application/gzip" data-chart="{escape(chart.name)}">{packed(figure)}</script></figure>'
    )


def side_by_side(charts: Sequence[Chart]) -> str:
    """Charts in a row, which become a column where the window is narrow."""
    return f'<div class="charts">{"".join(map(element, charts))}</div>' if charts else ""


def packed(text: str) -> str:
    """What `unpacked` of charts.js reads."""
    return b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


@cache
def plotly() -> str:
    """Plotly's script, of the installed package."""
    return (package_files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


@cache
def plotly_element() -> str:
    """Plotly's script, compressed, as an element that the browser does not run."""
    return f'{NO_SCRIPT}\n<script type="application/gzip" id="plotly">{packed(plotly())}</script>'

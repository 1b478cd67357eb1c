"""`python -m docs.generator.pictures [NAME ...]`: the drawn pictures of README.md and docs, as the code makes them now. Two minutes.

They lie in docs/images as SVG, so that pages show them on the site and in the repository alike.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from docs.generator.coverage import coverage_figure
from docs.generator.figures import plan_figures
from docs.generator.flow import PHONE, flow_figure
from docs.generator.hot_ranks import hot_rank_figure
from docs.generator.timelines import timeline_figure
from recsys_lab.base.files import write_text
from recsys_lab.decide.decision import decide
from recsys_lab.decide.rows import Row
from recsys_lab.report.charts import COLOURS, DARK, style, svg_text

IMAGES = Path(__file__).resolve().parents[1] / "images"
#: The question of docs/decide.md.
MODEL = ("model=tables", "model.file=docs/tables.csv")
CLUSTERS, BATCH = "h100x64:2.50,a100x128:1.50", 65_536


def write_pictures(names: Sequence[str] = ()) -> None:
    """All pictures, or those of `names`. Raises UserError where one cannot be drawn."""
    IMAGES.mkdir(exist_ok=True)
    for kind, draw in PICTURES.items():
        if names and kind not in names:
            continue
        for name, svg in draw().items():
            write_text(IMAGES / f"{name}.svg", tidy(svg))


def tidy(svg: str) -> str:
    """`svg` as it is kept: no spaces at the ends of lines."""
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def decide_pictures() -> dict[str, str]:
    """The answer of docs/decide.md, for light pages and for dark ones."""
    answer = decide(*MODEL, clusters=CLUSTERS, batch=BATCH, profiles="torchrec")
    light = cost_of_sharders([row for row in answer.rows if row.usd_per_1e9 is not None and row.usd_interval is not None])
    dark = light
    for colour, other in DARK.items():
        dark = dark.replace(colour, other)
    return {"decide_light": light, "decide_dark": dark}


def cost_of_sharders(rows: Sequence[Row]) -> str:
    """SVG text: a line a sharder, a point a cluster with its 90 % interval: the cheapest precision and table optimizer of both."""
    cheapest: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=_dollars):
        cheapest.setdefault((row.sharder, row.cluster), row)
    sharders = list(dict.fromkeys(sharder for sharder, _ in cheapest))
    widest = max(row.usd_interval[1] for row in cheapest.values() if row.usd_interval is not None)
    with rc_context(style(11, "decide")):
        figure = Figure(figsize=(7.6, 4.4))
        panel = figure.subplots()
        for number, cluster in enumerate(dict.fromkeys(row.cluster for row in rows)):
            _points(panel, [(sharders.index(s), row) for (s, on), row in cheapest.items() if on == cluster], number, cluster)
        panel.set(
            xlabel="dollars per 1e9 samples, simulated; bars: 90 % interval", xlim=(0, 1.16 * widest), ylim=(len(sharders) - 0.5, -0.5)
        )
        panel.set_yticks(range(len(sharders)), sharders)
        panel.grid(linewidth=0.5, axis="x")
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(left=False)
        panel.legend(loc="upper right", frameon=False)
        figure.subplots_adjust(left=0.21, right=0.98, top=0.98, bottom=0.13)
        return svg_text(figure, "decide")


def _points(panel: Axes, placed: Iterable[tuple[int, Row]], number: int, cluster: str) -> None:
    for at, (line, row) in enumerate(placed):
        assert row.usd_interval is not None and row.ms is not None
        y, dollars = line - 0.18 + 0.36 * number, _dollars(row)
        colour, label = COLOURS[number % len(COLOURS)], cluster if at == 0 else None
        panel.plot(row.usd_interval, (y, y), color=colour, linewidth=1.8, alpha=0.55)
        panel.plot(dollars, y, "o", color=colour, markersize=6, label=label)
        panel.annotate(f"{row.ms:.1f} ms", (row.usd_interval[1], y), xytext=(5, -3.5), textcoords="offset points", fontsize=9.5)


def _dollars(row: Row) -> float:
    assert row.usd_per_1e9 is not None
    return row.usd_per_1e9


#: What can be drawn, by the name that the command line takes. Each gives file name -> SVG text.
PICTURES: dict[str, Callable[[], dict[str, str]]] = {
    "architecture": lambda: {"architecture": flow_figure(), "architecture_phone": flow_figure(PHONE)},
    "plans": plan_figures,
    "coverage": lambda: {"coverage": coverage_figure()},
    "timeline": lambda: {"timeline": timeline_figure()},
    "decide": decide_pictures,
    "hot_ranks": lambda: {"hot_ranks": hot_rank_figure()},
}

if __name__ == "__main__":
    write_pictures(sys.argv[1:])

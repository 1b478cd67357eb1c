"""`python -m docs.generator.pictures`: the pictures of README.md, drawn from what `decide` says now. A minute on two cores.

One file for light pages and one for dark ones, in docs/images.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recsys_lab.decide.decision import decide
from recsys_lab.decide.rows import Row

IMAGES = Path(__file__).resolve().parents[1] / "images"
#: The question of docs/decide.md.
MODEL = ("model=tables", "model.file=docs/tables.csv")
CLUSTERS, BATCH = "h100x64:2.50,a100x128:1.50", 65_536
THEMES = {"light": ("#1f2328", "#d0d7de"), "dark": ("#e6edf3", "#3d444d")}  # ink, rules
COLOURS = ("#0072b2", "#e69f00")


def write_pictures() -> None:
    """Raises UserError where the question cannot be answered."""
    answer = decide(*MODEL, clusters=CLUSTERS, batch=BATCH, profiles="torchrec")
    rows = [row for row in answer.rows if row.usd_per_1e9 is not None and row.usd_interval is not None]
    IMAGES.mkdir(exist_ok=True)
    for theme, (ink, rule) in THEMES.items():
        (IMAGES / f"decide_{theme}.svg").write_text(cost_of_sharders(rows, ink, rule), encoding="utf-8")


def cost_of_sharders(rows: Sequence[Row], ink: str, rule: str) -> str:
    """SVG text: a line a sharder, a point a cluster with its 90 % interval: the cheapest precision and table optimizer of both."""
    style = {"svg.hashsalt": "decide", "svg.fonttype": "none", "font.size": 9, "text.color": ink, "axes.labelcolor": ink}
    style |= {"axes.edgecolor": rule, "xtick.color": ink, "ytick.color": ink, "font.family": "sans-serif"}
    cheapest: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=_dollars):
        cheapest.setdefault((row.sharder, row.cluster), row)
    sharders = list(dict.fromkeys(sharder for sharder, _ in cheapest))
    widest = max(row.usd_interval[1] for row in cheapest.values() if row.usd_interval is not None)
    with rc_context(style):
        figure = Figure(figsize=(8.4, 3.6))
        panel = figure.subplots()
        for number, cluster in enumerate(dict.fromkeys(row.cluster for row in rows)):
            _points(panel, [(sharders.index(s), row) for (s, on), row in cheapest.items() if on == cluster], number, cluster)
        panel.set(
            xlabel="dollars per 1e9 samples, simulated; bars: 90 % interval", xlim=(0, 1.16 * widest), ylim=(len(sharders) - 0.5, -0.5)
        )
        panel.set_yticks(range(len(sharders)), sharders)
        panel.grid(color=rule, linewidth=0.5, axis="x")
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(left=False)
        panel.legend(loc="upper right", frameon=False)
        figure.subplots_adjust(left=0.17, right=0.98, top=0.98, bottom=0.13)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return out.getvalue()


def _points(panel: Axes, placed: Iterable[tuple[int, Row]], number: int, cluster: str) -> None:
    for at, (line, row) in enumerate(placed):
        assert row.usd_interval is not None and row.ms is not None
        y, dollars = line - 0.16 + 0.32 * number, _dollars(row)
        colour, label = COLOURS[number % len(COLOURS)], cluster if at == 0 else None
        panel.plot(row.usd_interval, (y, y), color=colour, linewidth=1.5, alpha=0.5)
        panel.plot(dollars, y, "o", color=colour, markersize=6, label=label)
        panel.annotate(
            f"{row.ms:.1f} ms, {row.precision}", (row.usd_interval[1], y), xytext=(5, -3), textcoords="offset points", fontsize=7.5
        )


def _dollars(row: Row) -> float:
    assert row.usd_per_1e9 is not None
    return row.usd_per_1e9


if __name__ == "__main__":
    write_pictures()

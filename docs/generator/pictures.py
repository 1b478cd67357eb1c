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

from recsys_lab.decide import decide
from recsys_lab.decide.prices import Row

IMAGES = Path(__file__).resolve().parents[1] / "images"
#: The question of docs/decide.md.
MODEL = ("model=tables", "model.file=docs/tables.csv")
CLUSTERS, BATCH = "h100x64:2.50,a100x128:1.50", 65_536
THEMES = {"light": ("#1f2328", "#d0d7de"), "dark": ("#e6edf3", "#3d444d")}  # ink, rules
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b8a800", "#7f7f7f")
MARKERS = {"fp32": "o", "fp16_comms": "s", "bf16": "^"}


def write_pictures() -> None:
    """Raises UserError where the question cannot be answered."""
    rows = [row for row in decide(*MODEL, clusters=CLUSTERS, batch=BATCH).rows if row.usd_per_1e9 is not None]
    IMAGES.mkdir(exist_ok=True)
    for theme, (ink, rule) in THEMES.items():
        (IMAGES / f"decide_{theme}.svg").write_text(cost_against_time(rows, ink, rule), encoding="utf-8")


def cost_against_time(rows: Sequence[Row], ink: str, rule: str) -> str:
    """SVG text: a panel a cluster, a point a combination. Filled points are Pareto-optimal: none is both faster and cheaper."""
    style = {"svg.hashsalt": "decide", "svg.fonttype": "none", "font.size": 9, "text.color": ink, "axes.labelcolor": ink}
    style |= {"axes.edgecolor": rule, "xtick.color": ink, "ytick.color": ink, "font.family": "sans-serif"}
    sharders = list(dict.fromkeys(row.sharder for row in sorted(rows, key=lambda row: row.ms)))
    with rc_context(style):
        figure = Figure(figsize=(8.4, 3.6))
        clusters = list(dict.fromkeys(row.cluster for row in rows))
        panels = figure.subplots(1, len(clusters), sharex=True, sharey=True, squeeze=False)[0]
        for panel, cluster in zip(panels, clusters):
            _points(panel, [row for row in rows if row.cluster == cluster], sharders)
            panel.set(title=cluster, xscale="log", yscale="log", xlabel="ms an iteration")
            panel.xaxis.set(major_formatter="{x:g}", minor_formatter="{x:g}")
            panel.yaxis.set(major_formatter="{x:g}", minor_formatter="{x:g}")
            panel.grid(color=rule, linewidth=0.5, which="both")
            panel.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("dollars per 1e9 samples")
        _legend(figure, sharders, ink)
        figure.subplots_adjust(left=0.08, right=0.8, top=0.9, bottom=0.15, wspace=0.08)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return out.getvalue()


def _points(panel: Axes, rows: Iterable[Row], sharders: Sequence[str]) -> None:
    for row in rows:
        colour = COLOURS[sharders.index(row.sharder) % len(COLOURS)]
        fill = colour if row.pareto else "none"
        panel.plot(row.ms, row.usd_per_1e9, MARKERS.get(row.precision, "D"), color=colour, markerfacecolor=fill, markersize=6)


def _legend(figure: Figure, sharders: Sequence[str], ink: str) -> None:
    panel = figure.axes[0]
    lines = [panel.plot([], [], "o", color=COLOURS[at % len(COLOURS)], label=name)[0] for at, name in enumerate(sharders)]
    lines += [panel.plot([], [], marker, color=ink, markerfacecolor="none", label=name)[0] for name, marker in MARKERS.items()]
    figure.legend(handles=lines, loc="center right", frameon=False, handletextpad=0.3)


if __name__ == "__main__":
    write_pictures()

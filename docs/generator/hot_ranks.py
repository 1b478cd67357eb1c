"""The picture of docs/dlrm_v4.md: memory by rank of three plans of DLRMv4 on 32 MI350X, of which one is refused."""

from __future__ import annotations

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recsys_lab.decide.decision import decide
from recsys_lab.decide.rows import Row
from recsys_lab.report.charts import COLOURS, style, svg_file

WORDS = ("model=dlrm_v4", "clusters=mi350x32", "batch=32768", "profiles=torchrec", "precisions=dlrm_v4", "optimizers=row_wise_adagrad")
#: By sharder, what the plan is.
PLANS = {
    "torchrec_row_wise": "every table row-wise: refused",
    "by_hand/dlrm_v4": "by hand: albums and artists by columns",
    "flexshard_3tier": "flexshard_3tier",
}


def hot_rank_figure() -> str:
    """SVG text."""
    rows = {row.sharder: row for row in decide(*WORDS, sharders=list(PLANS)).rows}
    limit = next(row.memory_there_gb for row in rows.values() if row.memory_there_gb is not None)
    with rc_context(style(11, "hot_ranks")):
        figure = Figure(figsize=(7.6, 3.6))
        panels = figure.subplots(1, len(PLANS), sharey=True)
        for panel, (sharder, title), colour in zip(panels, PLANS.items(), COLOURS):
            _bars(panel, rows[sharder], colour)
            panel.axhline(limit, color="#b42318", linewidth=1.2)
            panel.set_title(title.replace(": ", ":\n"), fontsize=10.5, loc="left")
            panel.set(xlabel="rank", xlim=(-1, 32))
            panel.spines[["top", "right"]].set_visible(False)
        panels[0].set(ylabel="GB, counted")
        panels[0].annotate(f"{limit:g} GB", (31, limit), xytext=(0, 3), textcoords="offset points", ha="right", color="#b42318")
        figure.subplots_adjust(left=0.08, right=0.99, top=0.86, bottom=0.15, wspace=0.08)
        return svg_file(figure, "hot_ranks")


def _bars(panel: Axes, row: Row, colour: str) -> None:
    panel.bar(range(row.ranks), row.memory_of_ranks_gb, width=0.8, color=colour)

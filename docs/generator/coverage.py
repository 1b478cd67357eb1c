"""What share of look-ups the most frequent rows of a table get, and where FlexShard's tiers end on that curve."""

from __future__ import annotations

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

from docs.generator.figures import plan_of
from recsys_lab.plan.tiers import tier_rows
from recsys_lab.report.charts import INK, style, svg_file
from recsys_lab.report.plan_map import KINDS
from recsys_lab.tables.access import power_law_access

#: The largest table of the maps, and its exponent among others.
TABLE, EXPONENT = 4, 1.15
OTHERS = ((1.4, ":"), (1.0, "--"), (0.6, "-."))


def coverage_figure() -> str:
    """SVG text: share of look-ups over rows in falling frequency, with the tiers of sharder=flexshard_3tier as grounds."""
    plan = plan_of("sharder=flexshard_3tier")
    table, tiers = plan.tables[TABLE], tier_rows(plan.placements[TABLE])
    rows = np.unique(np.geomspace(1, table.rows, 200).astype(np.int64))
    with rc_context(style(11, "coverage")):
        figure = Figure(figsize=(6.6, 4.1), layout="constrained")
        panel = figure.subplots()
        left = 1
        for tier, count in tiers.items():
            if not count:
                continue
            right = min(max(left + count, 1), table.rows)
            words, fill = KINDS[tier]
            panel.axvspan(left, right, color=fill, alpha=0.22, linewidth=0)
            panel.text(np.sqrt(left * right), 1.03, f"{words}\n{count:,} rows", ha="center", va="bottom", size=10)
            left = right
        for exponent, dash in (*OTHERS, (EXPONENT, "-")):
            access = power_law_access(table.name, table.rows, 1.0, exponent, buckets=2048)
            shares = [access.share_of_hottest(int(n)) for n in rows]
            panel.plot(rows, shares, dash, color=INK, linewidth=2 if exponent == EXPONENT else 1.1, label=f"exponent {exponent:g}")
        panel.set(xscale="log", xlim=(1, table.rows), ylim=(0, 1), xlabel="rows, the most frequent first", ylabel="share of look-ups")
        panel.grid(linewidth=0.5)
        panel.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower center", ncols=4, frameon=False)
        return svg_file(figure)

"""Figure 6: how much less the global all-to-all carries than row-wise: planned, and counted on batches."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np

from experiments.flexshard.models import MODELS, law, mean_length, paper_options, plan, published, table, tier_rows, tier_shares
from recsys_lab.report.sections import Table
from recsys_lab.studies.pictures import BLUE, GREEN, GREY, ORANGE, picture, written
from recsys_lab.studies.study import Line, Study
from recsys_lab.tables.remap import Remap

QUESTION = "how much less the global all-to-all carries, predicted and observed"
SAMPLES = 512  # an eighth of a rank's batch: half a million look-ups, which a share of them is good to 0.1 points of
SEED = 20230105
PLANNED, COUNTED = "planned, against predicted", "counted on drawn batches, against observed"


def counted(model: str, rows: dict[str, int]) -> float:
    """The share of drawn look-ups that the plan's remapping does not send through the global all-to-all, in percent.

    Ids as a data set has them: the law's ranks, spread over the table by a bijection; sequences of Poisson lengths around the mean.
    """
    rng, total = np.random.default_rng(SEED), table(model).rows
    factor = int(total * 0.6180339887) | 1
    while np.gcd(factor, total) != 1:
        factor += 2
    hot = rows["replicated"] + rows["host_sharded"]
    ids = law(model).ranks(rng.random(int(rng.poisson(mean_length(model), SAMPLES).sum()))) * factor % total
    hot_ids = np.arange(hot, dtype=np.int64) * factor % total
    remap = Remap.of("history", hot_ids, rows["replicated"], rows["host_sharded"], published().setting.ranks_per_host, total)
    return 100 * float(np.mean(remap.to_row(ids) < hot))


def run(name: str) -> Study:
    lines, shown = [], []
    for model in MODELS:
        for sharding, tiers in (("2-tier", 2), ("3-tier", 3)):
            rows = tier_rows(plan(model, tiers, **paper_options()))
            planned = 100 * (1 - tier_shares(model, rows)["row_sharded"])
            drawn = counted(model, rows)
            predicted = 100 - published().table5[model][sharding].share.row_sharded
            observed = published().table6[model][sharding].reduction
            lines.append(Line(f"{model} {sharding}: {PLANNED}", planned, predicted, "%", by_construction=tiers == 2))
            lines.append(Line(f"{model} {sharding}: {COUNTED}", drawn, observed, "%", "measured"))
            figures = [f"{value:.1f} %" for value in (predicted, planned, observed, drawn)]
            shown.append((f"{model} {sharding}", *figures, f"{drawn - observed:+.1f}"))
    best = max(line.ours for line in lines if line.origin == "measured")
    gaps = [abs(line.error) for line in lines if line.origin == "measured" and line.error is not None]
    statements = (
        ("global all-to-all traffic is reduced by over 85 % (abstract)", best > 100 * published().text.traffic_reduction_over),
        ("the analytical model predicts the reduction well (section 6.2): all within 2.5 points of what was observed", max(gaps) < 2.5),
    )
    notes = (
        "Observed, ours: one look-up after another of batches drawn here from the fitted laws, through the plan's remapping. It shows that "
        "the plan does with drawn data what it predicts; the paper's observed figures are of production data, which are not public.",
    )
    columns = ("", "predicted, published", "planned", "observed, published", "counted on drawn batches", "points")
    table = Table(f"figure6: {QUESTION}", columns, tuple(shown), right=columns[1:])
    return Study(name, QUESTION, tuple(lines), statements, notes, {}, partial(draw, {line.what: line for line in lines}), table)


def draw(lines: dict[str, Line], folder: Path) -> list[Path]:
    places = np.arange(len(MODELS))
    with picture(folder / "figure6.svg", 2) as (figure, axes):
        for axis, name in zip(axes, ("2-tier", "3-tier")):
            plans = [lines[f"{m} {name}: {PLANNED}"] for m in MODELS]
            draws = [lines[f"{m} {name}: {COUNTED}"] for m in MODELS]
            bars = (
                ("predicted, published", [line.published or 0 for line in plans], GREY),
                ("planned", [line.ours for line in plans], BLUE),
                ("observed, published", [line.published or 0 for line in draws], ORANGE),
                ("counted on drawn batches", [line.ours for line in draws], GREEN),
            )
            for i, (label, values, color) in enumerate(bars):
                drawn = axis.bar(places + 0.2 * i - 0.3, values, 0.18, color=color, label=label)
                axis.bar_label(drawn, fmt="%.0f", fontsize=8)
            axis.set(title=name, xticks=places, xticklabels=MODELS, ylim=(0, 100))
            axis.grid(visible=False, axis="x")
        axes[0].set_ylabel("less global all-to-all than row-wise (%)")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return written(folder, "figure6")

"""Maps of the plans of one small model, made now by the planners themselves."""

from __future__ import annotations

import math

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.experiment import of_words
from recsys_lab.plan import Placement, ShardingPlan
from recsys_lab.plan.tiers import is_tiered, tier_of_shard
from recsys_lab.planning import plan_for
from recsys_lab.report.charts import style, svg_file
from recsys_lab.report.plan_map import KINDS
from recsys_lab.tables import Table
from recsys_lab.units import human_count

#: Six tables of a DLRM on two hosts of four A100s: the line that a reader can run.
LINE = (
    "mode=plan model=dlrm cluster=a100 cluster.hosts=2 cluster.ranks_per_host=4 data=random "
    "data.rows_per_table=[200000,3000000,50000,1000,8000000,400000] data.exponent=1.15"
)
EMPTY = "#88888822"
#: File name -> what is added to the line.
SHARDERS = {
    "torchrec": "sharder=torchrec",
    "torchrec_columns": "sharder=torchrec_strong",
    "torchrec_row_wise": "sharder=torchrec_row_wise",
    "neo_4d": "sharder=neo_4d",
    "flexshard_2tier": "sharder=flexshard_2tier",
    "flexshard_3tier": "sharder=flexshard_3tier",
    "dmt": "sharder=dmt",
}


def plan_figures() -> dict[str, str]:
    """A map a sharder, as the text of an SVG file, and for phones one with fewer tables beside each other."""
    quiet_torchrec()
    figures = {}
    for name, words in SHARDERS.items():
        plan = plan_of(words)
        figures |= {f"plan_{name}": plan_figure(plan, words), f"plan_{name}_phone": plan_figure(plan, words, across=3, wide=4.4)}
    return figures


def plan_of(sharder: str) -> ShardingPlan:
    """Of the tables of LINE."""
    experiment = of_words([*LINE.split(), *sharder.split()], where="docs/generator/figures.py")
    return plan_for(experiment, experiment.open_data()).plan


def plan_figure(plan: ShardingPlan, title: str, across: int | None = None, wide: float = 8) -> str:
    """SVG text: a column a table, a line a rank. A table's rows lie from left to right, its columns from top to bottom of the line.

    Rows of a table in tiers are in falling frequency and on a logarithmic scale: of a large table the few that are read most matter.
    `across`: tables beside each other, None for all. `wide`: inches, of which a rank's name takes 0.8.
    """
    across = across or len(plan.tables)
    with rc_context(style(11, title)):
        heads = [_head(table, placement) for table, placement in zip(plan.tables, plan.placements, strict=True)]
        head, map_tall, lines = 0.15 * max(head.count("\n") + 1 for head in heads), 0.25 * plan.world_size, math.ceil(len(heads) / across)
        above, between = 0.55 + head, 0.2 + head
        kinds = {tier_of_shard(placement, shard) for placement in plan.placements for shard in placement.shards}
        below = 0.35 if across == len(heads) else 0.15 + 0.24 * len(kinds)  # their names stand below one another on a phone
        tall = above + below + lines * map_tall + (lines - 1) * between
        figure = Figure(figsize=(wide, tall))
        panels = figure.subplots(lines, across, sharey=True, squeeze=False).flatten()
        for number, panel in enumerate(panels[: len(heads)]):
            _table(panel, plan, number, first=number % across == 0)
            panel.set_title(heads[number], loc="left", size=10)
        for panel in panels[len(heads) :]:
            panel.set_axis_off()
        panels[0].set_yticks(range(plan.world_size), [_rank_words(plan, rank) for rank in range(plan.world_size)])
        marks = [Patch(color=fill, label=words) for kind, (words, fill) in KINDS.items() if kind in kinds]
        figure.legend(handles=marks, loc="lower left", ncols=3 if across == len(heads) else 1, frameon=False)
        figure.suptitle(title, x=0.01, ha="left", weight="bold", size=12)
        bottom = (below - 0.03) / tall
        figure.subplots_adjust(left=0.8 / wide, right=0.99, top=1 - above / tall, bottom=bottom, wspace=0.1, hspace=between / map_tall)
        return svg_file(figure)


def _table(panel: Axes, plan: ShardingPlan, number: int, first: bool) -> None:
    """`first`: of its line, where ranks are named."""
    table, placement = plan.tables[number], plan.placements[number]
    scaled = math.log1p if is_tiered(placement) else float
    for rank in range(plan.world_size):
        panel.add_patch(Rectangle((0, rank - 0.4), 1, 0.8, color=EMPTY, linewidth=0))
    for shard in placement.shards:
        left, right = (scaled(row) / scaled(table.rows) for row in (shard.row_start, shard.row_stop))
        top, tall = 0.8 * shard.col_start / table.dim, 0.8 * shard.cols / table.dim
        for rank in shard.ranks:
            place = (left, rank - 0.4 + top)
            panel.add_patch(Rectangle(place, right - left, tall, color=KINDS[tier_of_shard(placement, shard)][1], linewidth=0))
    panel.set(xlim=(0, 1), ylim=(plan.world_size - 0.5, -0.5), xticks=[])
    panel.tick_params(left=False, labelleft=first)
    panel.set_frame_on(False)


def _head(table: Table, placement: Placement) -> str:
    """What stands above a table's column, in lines that are no wider than the column."""
    scheme = placement.scheme.replace("_wise", "-wise").replace("table_", "table ").replace("_", " ").replace("tower ", "tower\n")
    return f"{table.name}\n{human_count(table.rows)} rows\n{scheme}"


def _rank_words(plan: ShardingPlan, rank: int) -> str:
    return f"host {rank // plan.ranks_per_host}: {rank}" if rank % plan.ranks_per_host == 0 else str(rank)

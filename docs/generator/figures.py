"""Maps of the plans of one small model, made now by the planners themselves."""

from __future__ import annotations

import math

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from docs.generator.themes import style, svg_of
from recsys_lab.experiment import of_words
from recsys_lab.plan import Placement, ShardingPlan
from recsys_lab.plan.tiers import is_tiered, tier_of_shard
from recsys_lab.planning import plan_for
from recsys_lab.quiet import quiet_torchrec
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
    """A map a sharder, as the text of an SVG file."""
    quiet_torchrec()
    return {f"plan_{name}": plan_figure(plan_of(words), words) for name, words in SHARDERS.items()}


def plan_of(sharder: str) -> ShardingPlan:
    """Of the tables of LINE."""
    experiment = of_words([*LINE.split(), *sharder.split()], where="docs/generator/figures.py")
    return plan_for(experiment, experiment.open_data()).plan


def plan_figure(plan: ShardingPlan, title: str) -> str:
    """SVG text: a column a table, a line a rank. A table's rows lie from left to right, its columns from top to bottom of the line.

    Rows of a table in tiers are in falling frequency and on a logarithmic scale: of a large table the few that are read most matter.
    """
    with rc_context(style(11, title)):
        heads = [_head(table, placement) for table, placement in zip(plan.tables, plan.placements, strict=True)]
        above = 0.55 + 0.15 * max(head.count("\n") + 1 for head in heads)
        tall = above + 0.35 + 0.25 * plan.world_size
        figure = Figure(figsize=(8, tall))
        panels = figure.subplots(1, len(plan.tables), sharey=True, squeeze=False)[0]
        for number, panel in enumerate(panels):
            _table(panel, plan, number)
            panel.set_title(heads[number], loc="left", size=10)
        panels[0].set_yticks(range(plan.world_size), [_rank_words(plan, rank) for rank in range(plan.world_size)])
        kinds = {tier_of_shard(placement, shard) for placement in plan.placements for shard in placement.shards}
        marks = [Patch(color=fill, label=words) for kind, (words, fill) in KINDS.items() if kind in kinds]
        figure.legend(handles=marks, loc="lower left", ncols=3, frameon=False)
        figure.suptitle(title, x=0.01, ha="left", weight="bold", size=12)
        figure.subplots_adjust(left=0.1, right=0.99, top=1 - above / tall, bottom=0.32 / tall, wspace=0.1)
        return svg_of(figure)


def _table(panel: Axes, plan: ShardingPlan, number: int) -> None:
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
    panel.tick_params(left=False, labelleft=number == 0)
    panel.set_frame_on(False)


def _head(table: Table, placement: Placement) -> str:
    """What stands above a table's column, in lines that are no wider than the column."""
    scheme = placement.scheme.replace("_wise", "-wise").replace("table_", "table ").replace("_", " ").replace("tower ", "tower\n")
    return f"{table.name}\n{human_count(table.rows)} rows\n{scheme}"


def _rank_words(plan: ShardingPlan, rank: int) -> str:
    return f"host {rank // plan.ranks_per_host}: {rank}" if rank % plan.ranks_per_host == 0 else str(rank)

"""The plan as a map: which rows and columns of which table lie on which rank."""

from __future__ import annotations

from itertools import pairwise

from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.sharding_plan import Placement, Shard
from recsys_lab.plan.tiers import tier_of_shard
from recsys_lab.report.charts import Chart, box, chart, colour, drawing, legend, legend_height
from recsys_lab.tables import Table
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED, ROW_SHARDED
from recsys_lab.units import human_bytes, human_count

#: How often a part is stored, with its colour.
KINDS = {
    REPLICATED: ("on every rank", colour(4)),
    HOST_SHARDED: ("once in every host", colour(1)),
    ROW_SHARDED: ("once", colour(0)),
}
#: Of more tables the largest are shown; beyond so many cells a line stands for a host, its first rank.
MOST_TABLES, MOST_CELLS = 100, 60_000
#: Of more ranks, those beside each other that hold parts of one table are one box.
MOST_BOXES = 16
MOST_TICKS = 32
LONGEST_NAME = 20


def plan_map(plan: ShardingPlan, name: str) -> Chart:
    """A line a rank and a column a table, or one a tier of a table in tiers. Colours say how often a part is stored."""
    order = sorted(range(len(plan.tables)), key=lambda i: -plan.tables[i].weight_bytes)
    shown = sorted(order[:MOST_TABLES])
    columns = [(i, tier) for i in shown for tier in _tiers(plan.placements[i])]
    by_host = plan.world_size * len(columns) > MOST_CELLS
    ranks = range(0, plan.world_size, plan.ranks_per_host if by_host else 1)
    heads = [_head(plan, i, tier) for i, tier in columns]
    kinds = {kind: words for kind, words in KINDS.items() if any(kind == tier for _, tier in columns)}
    names = [words for words, _ in kinds.values()]
    above, below = 16 + 6.4 * max(map(len, heads)), 10 + legend_height(names)
    width = max(440, 74 + 16 * len(columns))
    tall = min(620, max(120, (6 if len(ranks) > 32 else 14) * len(ranks)))
    with drawing(width, above + tall + below, top=above, bottom=below) as axes:
        for place, (i, tier) in enumerate(columns):
            for run in _runs(_parts(plan.placements[i], tier, ranks), len(ranks) > MOST_BOXES, ranks.step):
                first, last = min(run), max(run)
                tall_box = last - first + 0.92 * ranks.step
                box(axes, place - 0.42, first - 0.46 * ranks.step, 0.84, tall_box, KINDS[tier][1], _words(plan, i, tier, run))
        axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(plan.world_size - 1 + 0.5 * ranks.step, -0.5 * ranks.step), ylabel="rank")
        axes.set_xticks(range(len(columns)), heads, rotation=90)
        axes.tick_params(axis="x", labeltop=True, labelbottom=False)
        axes.spines["bottom"].set_visible(False)
        axes.set_yticks(range(0, plan.world_size, _tick_step(plan)))
        axes.grid(visible=False)
        legend(axes, names, [fill for _, fill in kinds.values()])
        lines = "a line a host, its first rank" if by_host else "a line a rank"
        some = f"the {len(shown)} largest of {len(plan.tables)} tables" if len(shown) < len(plan.tables) else "every table"
        note = f"{some[0].upper()}{some[1:]}, {lines}. Hover for rows, columns and bytes."
        return chart(axes, name, "where the rows lie", note)


def _tick_step(plan: ShardingPlan) -> int:
    """Where hosts begin, at most `MOST_TICKS` of them. Of one host every rank."""
    return plan.ranks_per_host * max(1, -(-plan.hosts // MOST_TICKS)) if plan.hosts > 1 else 1


def _tiers(placement: Placement) -> list[str]:
    """Those of its parts, the most frequent copies first."""
    present = {tier_of_shard(placement, shard) for shard in placement.shards}
    return [tier for tier in KINDS if tier in present]


def _head(plan: ShardingPlan, index: int, tier: str) -> str:
    name = plan.tables[index].name
    name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}\N{HORIZONTAL ELLIPSIS}"
    return f"{name}, {KINDS[tier][0]}" if len(_tiers(plan.placements[index])) > 1 else name


def _parts(placement: Placement, tier: str, ranks: range) -> dict[int, list[Shard]]:
    """Rank -> its shards of this tier, for those of `ranks` that have any, in their order."""
    parts: dict[int, list[Shard]] = {}
    for shard in placement.shards:
        if tier_of_shard(placement, shard) == tier:
            for rank in set(ranks).intersection(shard.ranks):
                parts.setdefault(rank, []).append(shard)
    return dict(sorted(parts.items()))


def _runs(parts: dict[int, list[Shard]], joined: bool, step: int) -> list[dict[int, list[Shard]]]:
    """`parts` a rank each, or `joined` where ranks follow one another."""
    runs = [{rank: shards} for rank, shards in parts.items()][:1]
    for before, rank in pairwise(parts):
        if joined and rank == before + step:
            runs[-1][rank] = parts[rank]
        else:
            runs.append({rank: parts[rank]})
    return runs


def _words(plan: ShardingPlan, index: int, tier: str, run: dict[int, list[Shard]]) -> str:
    """What hovering over a box says: the table, the ranks, and every part that is on them; of more ranks, of the first and the last."""
    table, placement = plan.tables[index], plan.placements[index]
    lines = [f"{table.name}, {human_count(table.rows)} rows x {table.dim}, {placement.scheme.replace('_', ' ')}, {KINDS[tier][0]}"]
    for rank in dict.fromkeys((min(run), max(run))):
        lines.append(f"rank {rank}, host {rank // plan.ranks_per_host}: {'; '.join(_part(table, shard) for shard in run[rank])}")
    return "\n".join(lines)


def _part(table: Table, shard: Shard) -> str:
    size = human_bytes(shard.rows * shard.cols * table.row_bytes // table.dim)
    columns = "" if shard.cols == table.dim else f", columns {shard.col_start} to {shard.col_stop}"
    return f"rows {shard.row_start:,} to {shard.row_stop:,}{columns}, {size}"

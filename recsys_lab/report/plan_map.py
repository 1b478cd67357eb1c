"""The plan as a map: which rows and columns of which table lie on which rank."""

from __future__ import annotations

from typing import Any

from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.sharding_plan import Placement, Shard
from recsys_lab.plan.tiers import tier_of_shard
from recsys_lab.report.charts import APART, LEGEND, Chart, colour, words
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
LONGEST_NAME = 20


def plan_map(plan: ShardingPlan, name: str) -> Chart:
    """A line a rank and a column a table, or one a tier of a table in tiers. Colours say how often a part is stored."""
    order = sorted(range(len(plan.tables)), key=lambda i: -plan.tables[i].weight_bytes)
    shown = sorted(order[:MOST_TABLES])
    columns = [(i, tier) for i in shown for tier in _tiers(plan.placements[i])]
    by_host = plan.world_size * len(columns) > MOST_CELLS
    ranks = list(range(0, plan.world_size, plan.ranks_per_host if by_host else 1))
    by_column = [_cells(plan, plan.tables[i], plan.placements[i], tier, set(ranks)) for i, tier in columns]
    heads = [_head(plan, i, tier) + APART * place for place, (i, tier) in enumerate(columns)]
    places = dict(zip(KINDS, range(len(KINDS))))
    heat = {
        "type": "heatmap",
        "z": [[places[tier] if rank in own else None for own, (_, tier) in zip(by_column, columns)] for rank in ranks],
        "customdata": [[own.get(rank, "") for own in by_column] for rank in ranks],
        "x": heads,
        "y": ranks,
        "zmin": -0.5,
        "zmax": len(KINDS) - 0.5,
        "colorscale": [
            stop for i, (_, fill) in enumerate(KINDS.values()) for stop in ((i / len(KINDS), fill), ((i + 1) / len(KINDS), fill))
        ],
        "showscale": False,
        "hoverongaps": False,
        "xgap": 2,
        "ygap": 1 if len(ranks) <= 128 else 0,
        "hovertemplate": "%{customdata}<extra></extra>",
    }
    entries = [
        {"type": "scatter", "mode": "markers", "x": [None], "y": [None], "name": KINDS[kind][0]}
        | {"marker": {"color": KINDS[kind][1], "symbol": "square", "size": 11}, "hoverinfo": "skip"}
        for kind in KINDS
        if any(kind == tier for _, tier in columns)
    ]
    layout: dict[str, Any] = {
        "xaxis": {"type": "category", "tickangle": -90, "tickfont": {"size": 11}, "showgrid": False, "zeroline": False},
        "yaxis": {"title": {"text": "rank"}, "autorange": "reversed", "showgrid": False, "zeroline": False, **_ticks(plan)},
        "showlegend": True,
        "legend": LEGEND | {"itemclick": False, "itemdoubleclick": False},
    }
    lines = "a line a host, its first rank" if by_host else "a line a rank"
    some = f"the {len(shown)} largest of {len(plan.tables)} tables" if len(shown) < len(plan.tables) else "every table"
    note = f"{some[0].upper()}{some[1:]}, {lines}. Hover for rows, columns and bytes; drag to zoom."
    tall = 240 + min(620, max(120, (6 if len(ranks) > 32 else 14) * len(ranks)))
    return Chart(name, "where the rows lie", [heat, *entries], layout, tall, note)


def _ticks(plan: ShardingPlan) -> dict[str, Any]:
    """Where hosts begin, at most thirty-two of them. Of one host every rank."""
    every = plan.ranks_per_host * max(1, -(-plan.hosts // 32)) if plan.hosts > 1 else 1
    return {"tickmode": "linear", "tick0": 0, "dtick": every}


def _tiers(placement: Placement) -> list[str]:
    """Those of its parts, the most frequent copies first."""
    there = {tier_of_shard(placement, shard) for shard in placement.shards}
    return [tier for tier in KINDS if tier in there]


def _head(plan: ShardingPlan, index: int, tier: str) -> str:
    name = plan.tables[index].name
    name = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}\N{HORIZONTAL ELLIPSIS}"
    return words(f"{name}, {KINDS[tier][0]}" if len(_tiers(plan.placements[index])) > 1 else name)


def _cells(plan: ShardingPlan, table: Table, placement: Placement, tier: str, ranks: set[int]) -> dict[int, str]:
    """Rank -> what hovering over its cell says: every part of this tier."""
    head = f"<b>{words(table.name)}</b>, {human_count(table.rows)} rows x {table.dim}, {placement.scheme.replace('_', ' ')}"
    cells: dict[int, str] = {}
    for shard in placement.shards:
        if tier_of_shard(placement, shard) == tier:
            part = _part(table, shard, tier)
            for rank in ranks.intersection(shard.ranks):
                before = cells.get(rank, f"{head}<br>rank {rank}, host {rank // plan.ranks_per_host}")
                cells[rank] = f"{before}<br>{part}"
    return cells


def _part(table: Table, shard: Shard, tier: str) -> str:
    held = human_bytes(shard.rows * shard.cols * table.row_bytes // table.dim)
    columns = "" if shard.cols == table.dim else f", columns {shard.col_start} to {shard.col_stop}"
    return f"rows {shard.row_start:,} to {shard.row_stop:,}{columns}, {held}, {KINDS[tier][0]}"

"""The plan as a map: which rows and columns of which table lie on which ranks. SVG text."""

from __future__ import annotations

import math

from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.sharding_plan import Placement, Shard
from recsys_lab.plan.tiers import is_tiered, tier_of_shard
from recsys_lab.report.svg import colour, legend, line, rect, svg, text
from recsys_lab.tables import Table
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED, ROW_SHARDED
from recsys_lab.units import human_bytes, human_count

WIDTH = 860.0
#: Of more tables the largest are drawn, of more ranks the first: a map is to be read, not to be whole.
MOST_TABLES, MOST_RANKS = 12, 32
_LEFT, _GAP, _HEAD = 92.0, 12.0, 68.0
_FILLS = {REPLICATED: colour(4), HOST_SHARDED: colour(1), ROW_SHARDED: colour(0)}
_WORDS = {REPLICATED: "on every rank", HOST_SHARDED: "in every host once", ROW_SHARDED: "once"}


def plan_map(plan: ShardingPlan, title: str = "") -> str:
    """A column a table, a line a rank: a table's rows lie from left to right, its columns from top to bottom of the line.

    Under FlexShard rows are in falling frequency and on a logarithmic scale: of a large table the few that are read most matter.
    Colours say how often a part is there: on every rank, once a host, or once.
    """
    order = sorted(range(len(plan.tables)), key=lambda i: -plan.tables[i].weight_bytes)
    shown = sorted(order[:MOST_TABLES])
    ranks = min(plan.world_size, MOST_RANKS)
    tall = max(9.0, min(20.0, 300.0 / ranks))
    gap = 5.0 if plan.hosts > 1 else 0.0
    tops = [_HEAD + rank * tall + rank // plan.ranks_per_host * gap for rank in range(ranks)]
    wide = (WIDTH - _LEFT - _GAP * (len(shown) - 1)) / len(shown)
    parts = [text(0, 12, title, css="strong")] if title else []
    for index, top in enumerate(tops):
        parts.append(text(_LEFT - 8, top + tall / 2 + 4, _rank_words(plan, index), "end"))
    tiers: set[str] = set()
    for place, index in enumerate(shown):
        x = _LEFT + place * (wide + _GAP)
        table, placement = plan.tables[index], plan.placements[index]
        parts += _head(table, placement, x, wide)
        parts += [rect(x, top + 1, wide, tall - 2, "var(--empty, #8882)") for top in tops]
        for shard in placement.shards:
            tier = tier_of_shard(placement, shard)
            tiers.add(tier)
            for rank in (rank for rank in shard.ranks if rank < ranks):
                parts.append(_part(table, placement, shard, (x, tops[rank] + 1, wide, tall - 2), rank, _FILLS[tier]))
        parts.append(line(x, tops[0] - 2, x + wide, tops[0] - 2, "axis"))
    bottom = tops[-1] + tall
    entries = [(_WORDS[tier], fill) for tier, fill in _FILLS.items() if tier in tiers]
    drawn, took = legend(_LEFT, bottom + 20, entries, WIDTH - _LEFT)
    bottom += 12 + took
    if left := _left_out(plan, len(shown), ranks):
        bottom += 14
        parts.append(text(_LEFT, bottom, left))
    return svg(WIDTH, bottom + 8, [*parts, drawn], f"{title or 'plan'}: where the rows of {len(shown)} tables lie on {ranks} ranks")


def _head(table: Table, placement: Placement, x: float, wide: float) -> list[str]:
    """Name, size and scheme, each cut to the column."""
    most = max(4, int(wide / 6.4))
    words = (table.name, f"{human_count(table.rows)} rows", placement.scheme.replace("_", " "))
    cut = (word if len(word) <= most else word[: most - 1] + "\N{HORIZONTAL ELLIPSIS}" for word in words)
    return [text(x, 32 + 13 * i, word) for i, word in enumerate(cut)]


def _part(table: Table, placement: Placement, shard: Shard, frame: tuple[float, ...], rank: int, fill: str) -> str:
    x, y, wide, tall = frame
    held = human_bytes(shard.rows * shard.cols * table.row_bytes // table.dim)
    tip = (
        f"{table.name}, rank {rank}: rows {shard.row_start:,} to {shard.row_stop:,}, columns {shard.col_start} to {shard.col_stop}, {held}"
    )
    scaled = math.log1p if is_tiered(placement) else float
    left, right = (wide * scaled(row) / scaled(table.rows) for row in (shard.row_start, shard.row_stop))
    top, bottom = (tall * column / table.dim for column in (shard.col_start, shard.col_stop))
    return rect(x + left, y + top, max(right - left, 1.0), max(bottom - top, 1.0), fill, tip)


def _rank_words(plan: ShardingPlan, rank: int) -> str:
    local = rank % plan.ranks_per_host
    return f"host {rank // plan.ranks_per_host}: {rank}" if local == 0 and plan.hosts > 1 else f"rank {rank}" if rank == 0 else str(rank)


def _left_out(plan: ShardingPlan, tables: int, ranks: int) -> str:
    more = []
    if len(plan.tables) > tables:
        more.append(f"the {tables} largest of {len(plan.tables)} tables")
    if plan.world_size > ranks:
        more.append(f"the first {ranks} of {plan.world_size} ranks")
    return f"Shown: {', '.join(more)}." if more else ""

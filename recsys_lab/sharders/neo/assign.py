"""Puts the pieces of all tables on their ranks.

First come the pieces that all ranks hold, then those of hosts, then those of single ranks around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.neo.bound import bound_of_placement
from recsys_lab.sharders.neo.costs import Cost, RankCosts, Setting, costs_of_ranks
from recsys_lab.sharders.neo.cuts import Cut, Piece, Size
from recsys_lab.sharders.neo.placement import Heuristic
from recsys_lab.sharders.neo.repair import repaired
from recsys_lab.sharders.neo.shards import exchanged_together, placements_of
from recsys_lab.tables import Table


@dataclass(frozen=True)
class PricedPlan:
    """A plan, its ranks' costs, and whether its pieces found memory.

    Also the least cost of these pieces, and of any plan of these tables.
    """

    plan: ShardingPlan
    costs: RankCosts
    fits: bool
    pieces: int
    bound_of_pieces_ms: float
    bound_ms: float


def priced_plan(
    tables: tuple[Table, ...], cuts: Sequence[Cut], setting: Setting, room: Size, heuristic: Heuristic, bound_ms: float, even_out: bool
) -> PricedPlan:
    """The plan with these cuts; `room`: of a rank, `bound_ms`: of any plan of the tables."""
    cluster = setting.cluster
    everywhere = [cut.pieces[0] for cut in cuts if cut.of_all]
    replica_size = sum((piece.size for piece in everywhere), Size())
    costs = [sum((piece.cost for piece in everywhere), Cost())] * cluster.world_size
    rooms = [_room_beside(room, replica_size)] * cluster.world_size
    of_hosts = [piece for cut in cuts if cut.of_hosts for piece in cut.pieces]
    of_ranks = [piece for cut in cuts if not cut.of_hosts and not cut.of_all for piece in cut.pieces]
    first = [host * cluster.ranks_per_host for host in range(cluster.hosts)]

    hosts, hosts_fit = _assigned(of_hosts, [costs[r] for r in first], [rooms[r] for r in first], heuristic, even_out)
    for piece, host in zip(of_hosts, hosts):
        for rank in cluster.ranks_of_host(host):
            costs[rank] += piece.cost
            rooms[rank] = _room_beside(rooms[rank], piece.size)
    ranks, ranks_fit = _assigned(of_ranks, costs, rooms, heuristic, even_out)

    where: dict[int, list[tuple[Piece, int]]] = {}
    for piece, number in [*zip(of_hosts, hosts), *zip(of_ranks, ranks)]:
        where.setdefault(piece.table, []).append((piece, number))
    placements = [placements_of(table, cut, where.get(index, []), cluster) for index, (table, cut) in enumerate(zip(tables, cuts))]
    plan = ShardingPlan("neo_4d", cluster.hosts, cluster.ranks_per_host, tables, exchanged_together(tables, placements))
    bound_of_pieces = bound_of_placement([piece.cost_ms for piece in of_ranks], [cost.total for cost in costs])
    pieces = len(everywhere) + len(of_hosts) + len(of_ranks)
    return PricedPlan(
        plan, costs_of_ranks(plan, setting), hosts_fit and ranks_fit and replica_size.fits(room), pieces, bound_of_pieces, bound_ms
    )


def room_of_rank(inputs: PlanInputs) -> Size:
    """What a rank has for tables: beside the reserve for what lasts, and in all for that and what passes."""
    cluster = inputs.cluster
    without = bytes_of_ranks(ShardingPlan("", cluster.hosts, cluster.ranks_per_host, inputs.tables, ()), inputs.workload)
    return Size(cluster.usable_memory_bytes - without.lasting[0], int(cluster.device.memory_gb * 1e9) - without.totals[0])


def _assigned(
    pieces: Sequence[Piece], costs: Sequence[Cost], room: Sequence[Size], heuristic: Heuristic, even_out: bool
) -> tuple[list[int], bool]:
    """The bin of each piece, and whether all have memory for their own."""
    bins = heuristic([piece.cost_ms for piece in pieces], [cost.total for cost in costs])
    moved = repaired(pieces, bins, [Cost(0.0, cost.load) for cost in costs], room, even_out)  # others' exchanges are not theirs
    return (bins, False) if moved is None else (moved, True)


def _room_beside(room: Size, size: Size) -> Size:
    return Size(room.lasting - size.lasting, room.passing - size.lasting - size.passing)

"""Neo's planner (arXiv 2104.05158, section 4.1): each table cut in one of seven ways, the pieces placed so that ranks cost alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from recsys_lab.cluster import Cluster
from recsys_lab.errors import UserError, did_you_mean
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.plan.memory import bytes_of_ranks, check_fits
from recsys_lab.precision import Precision
from recsys_lab.sharders.neo.bound import bound_of_placement, bound_of_plans
from recsys_lab.sharders.neo.choose import LIMITS, chosen, smallest
from recsys_lab.sharders.neo.costs import Cost, RankCosts, Setting, Weights, costs_of_ranks
from recsys_lab.sharders.neo.cuts import Cut, Piece, Size, cuts_of
from recsys_lab.sharders.neo.levels import SCHEMES
from recsys_lab.sharders.neo.placement import HEURISTICS, Heuristic
from recsys_lab.sharders.neo.repair import repaired
from recsys_lab.sharders.neo.shards import exchanged_together, placements_of
from recsys_lab.tables import AccessStatistics, Table


@dataclass(frozen=True)
class Made:
    """A plan, its ranks' costs, whether its pieces found memory, and what they and any plan of these tables cost at least."""

    plan: ShardingPlan
    costs: RankCosts
    fits: bool
    pieces: int
    bound_of_pieces_ms: float
    bound_ms: float


def plan(
    tables: tuple[Table, ...],
    access: AccessStatistics,
    cluster: Cluster,
    precision: Precision,
    workload: Workload,
    *,
    placement: str = "karmarkar_karp",
    schemes: list[str] | None = None,
    communication_weight: float = 1.0,
    load_weight: float = 4.0,
    even_out: bool = True,
) -> ShardingPlan:
    """The plan whose slowest ranks cost least, of those with pieces below each of a few limits (`choose.LIMITS`).

    `placement`: greedy | karmarkar_karp. `schemes`: those that tables may have (null: all seven). The weights are of the two costs in ms.
    `even_out`: pieces are moved after the heuristic, so that both costs are even, not their sum alone (`repair`).

    Raises UserError for options that cannot be, PlanDoesNotFit where a rank cannot hold its part.
    """
    made = best(tables, access, cluster, precision, workload, placement, schemes, Weights(communication_weight, load_weight), even_out)
    check_fits(made.plan, workload, cluster)
    return made.plan


def best(
    tables: tuple[Table, ...],
    access: AccessStatistics,
    cluster: Cluster,
    precision: Precision,
    workload: Workload,
    placement: str,
    schemes: list[str] | None,
    weights: Weights,
    even_out: bool = True,
) -> Made:
    """The plan and its costs, whether it fits or not."""
    _check("placement", [placement], tuple(HEURISTICS))
    _check("schemes", schemes or [], SCHEMES)
    for name in ("communication", "load"):
        if getattr(weights, name) < 0:
            raise UserError("a weight", where=f"sharder.planner.{name}_weight", given=getattr(weights, name), allowed="0 or more")
    given = Setting(access, cluster, precision, workload.batch_size, weights)
    options = [cuts_of(index, table, schemes or SCHEMES, given, workload) for index, table in enumerate(tables)]
    for table, cuts in zip(tables, options):
        if not cuts:
            raise UserError(
                "this table can be cut in none of the ways that are allowed",
                where="sharder.planner.schemes",
                given=f"{', '.join(schemes or SCHEMES)} for table {table.name}",
                remedy="allow table_wise or row_wise too",
            )
    bound, room = bound_of_plans(options, cluster.world_size), _room(tables, cluster, workload)
    even = sum(min(cut.total_ms for cut in cuts) for cuts in options) / cluster.world_size
    without_hosts = [[cut for cut in cuts if not cut.of_hosts] or cuts for cuts in options]
    tried: list[list[Cut]] = []
    found: list[Made] = []
    for of_tables, limit in product((options, without_hosts), LIMITS):  # what is a host's is one exchange more: worth it or not only in all
        cuts = chosen(of_tables, limit * even, room)
        evenly = sum(cut.total_ms for cut in cuts) / cluster.world_size
        if cuts in tried:
            continue
        tried.append(cuts)
        if all(evenly < made.costs.worst_ms or not made.fits for made in found):  # else no placement of these pieces is better
            found.append(_placed(tables, cuts, given, room, HEURISTICS[placement], bound, even_out))
    if not any(made.fits for made in found):
        found.append(_placed(tables, smallest(options), given, room, HEURISTICS[placement], bound, even_out))
    return min(found, key=lambda made: (not made.fits, made.costs.worst_ms, made.pieces))


def _placed(
    tables: tuple[Table, ...], cuts: Sequence[Cut], given: Setting, room: Size, heuristic: Heuristic, bound_ms: float, even_out: bool
) -> Made:
    """The plan with these cuts: what all ranks hold first, then pieces of hosts, then those of single ranks around them."""
    cluster = given.cluster
    everywhere = [cut.pieces[0] for cut in cuts if cut.of_all]
    taken = sum((piece.size for piece in everywhere), Size())
    costs = [sum((piece.cost for piece in everywhere), Cost())] * cluster.world_size
    left = [_less(room, taken)] * cluster.world_size
    of_hosts = [piece for cut in cuts if cut.of_hosts for piece in cut.pieces]
    of_ranks = [piece for cut in cuts if not cut.of_hosts and not cut.of_all for piece in cut.pieces]
    first = [host * cluster.ranks_per_host for host in range(cluster.hosts)]

    hosts, hosts_fit = _assigned(of_hosts, [costs[r] for r in first], [left[r] for r in first], heuristic, even_out)
    for piece, host in zip(of_hosts, hosts):
        for rank in cluster.ranks_of_host(host):
            costs[rank] += piece.cost
            left[rank] = _less(left[rank], piece.size)
    ranks, ranks_fit = _assigned(of_ranks, costs, left, heuristic, even_out)

    where: dict[int, list[tuple[Piece, int]]] = {}
    for piece, number in [*zip(of_hosts, hosts), *zip(of_ranks, ranks)]:
        where.setdefault(piece.table, []).append((piece, number))
    placements = [placements_of(table, cut, where.get(index, []), cluster) for index, (table, cut) in enumerate(zip(tables, cuts))]
    made = ShardingPlan("neo_4d", cluster.hosts, cluster.ranks_per_host, tables, exchanged_together(placements))
    bound_of_pieces = bound_of_placement([piece.cost_ms for piece in of_ranks], [cost.total for cost in costs])
    pieces = len(everywhere) + len(of_hosts) + len(of_ranks)
    return Made(made, costs_of_ranks(made, given), hosts_fit and ranks_fit and taken.fits(room), pieces, bound_of_pieces, bound_ms)


def _assigned(
    pieces: Sequence[Piece], costs: Sequence[Cost], room: Sequence[Size], heuristic: Heuristic, even_out: bool
) -> tuple[list[int], bool]:
    """The bin of each piece, and whether all have memory for their own."""
    found = heuristic([piece.cost_ms for piece in pieces], [cost.total for cost in costs])
    moved = repaired(pieces, found, [Cost(0.0, cost.load) for cost in costs], room, even_out)  # others' exchanges are not theirs
    return (found, False) if moved is None else (moved, True)


def _room(tables: tuple[Table, ...], cluster: Cluster, workload: Workload) -> Size:
    """What a rank has for tables: beside the reserve for what lasts, and in all for that and what passes."""
    without = bytes_of_ranks(ShardingPlan("", cluster.hosts, cluster.ranks_per_host, tables, ()), workload)
    return Size(cluster.usable_memory_bytes - without.lasting[0], int(cluster.device.memory_gb * 1e9) - without.totals[0])


def _less(room: Size, taken: Size) -> Size:
    return Size(room.lasting - taken.lasting, room.passing - taken.lasting - taken.passing)


def _check(option: str, given: Sequence[str], allowed: Sequence[str]) -> None:
    for value in given:
        if value not in allowed:
            where = f"sharder.planner.{option}"
            raise UserError("unknown choice", where=where, given=value, allowed=", ".join(allowed), remedy=did_you_mean(value, allowed))

"""Tables that a plan leaves whole beside those that it places by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recsys_lab.cluster import Cluster
from recsys_lab.plan import Placement
from recsys_lab.schemes.replicated.placement import DATA_PARALLEL, on_every_rank
from recsys_lab.schemes.row_blocks.placement import ROW_WISE, in_row_blocks
from recsys_lab.schemes.whole.placement import TABLE_WISE, on_rank
from recsys_lab.sharders.options import forced_schemes
from recsys_lab.tables import Table

WHOLE = (DATA_PARALLEL, ROW_WISE, TABLE_WISE)


def schemes_of_whole(tables: Sequence[Table], force: Mapping[str, str] | None) -> dict[str, str]:
    """Table name -> scheme, of the tables that `force` leaves whole. UserError for a pattern without a table and another scheme."""
    return forced_schemes(tables, force, WHOLE, "no scheme for a whole table")


def whole_placements(tables: Sequence[Table], schemes: Mapping[str, str], cluster: Cluster) -> dict[str, Placement]:
    """Placements of the tables that have a scheme. A table-wise table goes to the rank that has the fewest bytes of such tables yet."""
    bytes_of_rank = [0] * cluster.world_size
    placements = {}
    for table in tables:
        scheme = schemes.get(table.name)
        if scheme == TABLE_WISE:
            rank = bytes_of_rank.index(min(bytes_of_rank))
            bytes_of_rank[rank] += table.weight_bytes
            placements[table.name] = on_rank(table, rank)
        elif scheme == ROW_WISE:
            placements[table.name] = in_row_blocks(table, cluster.ranks)
        elif scheme == DATA_PARALLEL:
            placements[table.name] = on_every_rank(table, cluster.ranks)
    return placements

"""Tables that a plan leaves whole beside those that it places by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recsys_lab.cluster import Cluster
from recsys_lab.plan import Placement, Shard
from recsys_lab.sharders.options import forced_schemes
from recsys_lab.sharders.torchrec_row_wise import row_blocks
from recsys_lab.tables import Table

WHOLE = ("data_parallel", "row_wise", "table_wise")


def schemes_of_whole(tables: Sequence[Table], force: Mapping[str, str] | None) -> dict[str, str]:
    """Table name -> scheme, of the tables that `force` leaves whole. UserError for a pattern without a table and another scheme."""
    return forced_schemes(tables, force, WHOLE, "no scheme for a whole table")


def whole_placements(tables: Sequence[Table], schemes: Mapping[str, str], cluster: Cluster) -> dict[str, Placement]:
    """Placements of the tables that have a scheme. A table-wise table goes to the rank that has the fewest bytes of such tables yet."""
    held = [0] * cluster.world_size
    placements = {}
    for table in tables:
        scheme = schemes.get(table.name)
        if scheme == "table_wise":
            rank = held.index(min(held))
            held[rank] += table.weight_bytes
            placements[table.name] = Placement(table.name, scheme, (Shard((rank,), 0, table.rows, 0, table.dim),))
        elif scheme == "row_wise":
            placements[table.name] = Placement(table.name, scheme, row_blocks(table, cluster.ranks))
        elif scheme == "data_parallel":
            placements[table.name] = Placement(table.name, scheme, (Shard(cluster.ranks, 0, table.rows, 0, table.dim),))
    return placements

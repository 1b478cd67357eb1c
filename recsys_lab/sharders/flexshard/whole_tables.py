"""Tables that a plan leaves whole beside those that it places by row."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence

from recsys_lab.cluster import Cluster
from recsys_lab.errors import UserError, did_you_mean
from recsys_lab.plan import Placement, Shard
from recsys_lab.sharders.row_wise import row_blocks
from recsys_lab.tables import Table

WHOLE = ("data_parallel", "row_wise", "table_wise")


def forced_schemes(tables: Sequence[Table], force: Mapping[str, str]) -> dict[str, str]:
    """Table name -> forced scheme. UserError for a pattern without a table and for a scheme that is not one of `WHOLE`."""
    names, found = [table.name for table in tables], {}
    for pattern, scheme in force.items():
        where = f"sharder.planner.force.{pattern}"
        if scheme not in WHOLE:
            raise UserError(
                "no scheme for a whole table", where=where, given=scheme, allowed=", ".join(WHOLE), remedy=did_you_mean(scheme, WHOLE)
            )
        matches = fnmatch.filter(names, pattern)
        if not matches:
            shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
            raise UserError("no such table", where=where, given=pattern, allowed=shown, remedy=did_you_mean(pattern, names))
        found.update(dict.fromkeys(matches, scheme))
    return found


def whole_placements(tables: Sequence[Table], schemes: Mapping[str, str], cluster: Cluster) -> dict[str, Placement]:
    """Placements of the tables that have a scheme. A table-wise table goes to the rank that has the fewest bytes of such tables yet."""
    held = [0] * cluster.world_size
    found = {}
    for table in tables:
        scheme = schemes.get(table.name)
        if scheme == "table_wise":
            rank = held.index(min(held))
            held[rank] += table.weight_bytes
            found[table.name] = Placement(table.name, scheme, (Shard((rank,), 0, table.rows, 0, table.dim),))
        elif scheme == "row_wise":
            found[table.name] = Placement(table.name, scheme, row_blocks(table, cluster.ranks))
        elif scheme == "data_parallel":
            found[table.name] = Placement(table.name, scheme, (Shard(cluster.ranks, 0, table.rows, 0, table.dim),))
    return found

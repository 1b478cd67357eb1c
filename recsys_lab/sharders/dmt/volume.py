"""What a table in a tower moves for one sample, by how it is cut. It compares the paper's specialisations (section 3.1.3) by bytes.

| cut | ids, over all ranks | pooled rows, inside the site |
|---|---|---|
| n column shards (n = 1: the whole table) | sent n times | each once, by all-to-all |
| row blocks on M ranks | sent once; a length for each block | M times, by reduce-scatter: parts that are yet to be summed |

Rows travel forward and their gradients backward. So row blocks pay where bags are long. A bag that is looked up L times sends 8 L bytes to
each column shard.
"""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.cluster import Cluster
from recsys_lab.precision import Precision
from recsys_lab.tables import Table
from recsys_lab.tables.spec import ELEMENT_BYTES

ID_BYTES, LENGTH_BYTES = ELEMENT_BYTES["int64"], ELEMENT_BYTES["int32"]


@dataclass(frozen=True)
class Links:
    """GB/s of a rank: for what travels between sites, and inside one."""

    between_gb_s: float
    inside_gb_s: float

    @staticmethod
    def of(cluster: Cluster, ranks_of_site: int) -> Links:
        cross = cluster.cross_host.bandwidth_gb_s if cluster.hosts > 1 else cluster.near.bandwidth_gb_s
        return Links(cross, cross if ranks_of_site > cluster.ranks_per_host else cluster.near.bandwidth_gb_s)


@dataclass(frozen=True)
class Volume:
    """Bytes for one sample: of ids and lengths, and of pooled rows both ways."""

    ids: float
    rows: float

    def cost(self, links: Links) -> float:
        """Bytes over bandwidths: what a sample takes of the links, in nanoseconds of one rank."""
        return self.ids / links.between_gb_s + self.rows / links.inside_gb_s


def column_shards(table: Table, length: float, shards: int, precision: Precision) -> Volume:
    """`length`: look-ups of the table for a sample."""
    features = len(table.features)
    ids = shards * (length * ID_BYTES + features * LENGTH_BYTES)
    return Volume(ids, precision.both_ways_bytes(features * table.dim, shards))


def row_blocks(table: Table, length: float, ranks: int, precision: Precision) -> Volume:
    """Over `ranks` of a site."""
    features = len(table.features)
    ids = length * ID_BYTES + ranks * features * LENGTH_BYTES
    return Volume(ids, ranks * precision.both_ways_bytes(features * table.dim, 1, summed=True))

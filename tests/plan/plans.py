"""Plans by hand, for tests: each scheme's shards as TorchRec lays them."""

from __future__ import annotations

import math

from recsys_lab.plan import Placement, Shard, ShardingPlan, Workload
from recsys_lab.precision import Precision
from recsys_lab.tables import AccessStatistics, Table, TableAccess

FP32 = Precision("fp32")
COMMS = Precision("fp16_comms", forward_comm="fp16", backward_comm="bf16", dense_comm="bf16")
#: Each kind of exchange in a format of its own size.
UNLIKE = Precision("unlike", forward_comm="bf16", backward_comm="fp32", dense_comm="fp16")
#: Look-ups per sample of each feature.
LENGTHS = {"a": 1, "b": 2, "c": 3, "d": 5, "e": 1, "f": 4}
TABLES = (
    Table("t0", 40, 16, ("a",)),
    Table("t1", 33, 16, ("b", "c"), "mean"),
    Table("t2", 3, 8, ("d",)),
    Table("t3", 50, 16, ("e",)),
    Table("t4", 21, 8, ("f",)),
)


def workload(batch_size: int = 6, dense_parameters: int = 77, **changes) -> Workload:
    figures = {
        "batch_size": batch_size,
        "dense_parameters": dense_parameters,
        "forward_flops_per_sample": 1e6,
        "backward_flops_per_sample": 2e6,
        "activation_bytes_per_sample": 4e3,
        "sparse_optimizer": "adagrad",
        "dense_optimizer": "adam",
    }
    return Workload(**figures | changes)


def access(tables: tuple[Table, ...], lengths: dict[str, float]) -> AccessStatistics:
    made = {}
    for table in tables:
        length = float(sum(lengths[f] for f in table.features))
        made[table.name] = TableAccess(table.name, length, (table.rows,), (length / table.rows,), "formula", "uniform")
    return AccessStatistics(made)


def placement(table: Table, scheme: str, index: int, hosts: int, ranks_per_host: int) -> Placement:
    """`index` spreads the tables over ranks and hosts."""
    world, host = hosts * ranks_per_host, index % hosts
    on_host = [host * ranks_per_host + local for local in range(ranks_per_host)]
    if scheme == "data_parallel":
        shards = [Shard(tuple(range(world)), 0, table.rows, 0, table.dim)]
    elif scheme == "table_wise":
        shards = [Shard(((index * 3 + 1) % world,), 0, table.rows, 0, table.dim)]
    elif scheme == "flexshard":
        return flexshard(table, table.rows // 5, table.rows // 4, hosts, ranks_per_host)
    elif scheme == "row_wise":
        shards = _rows(table, list(range(world)), 0, table.dim)
    elif scheme == "column_wise":
        shards = [Shard(((index + i) % world,), 0, table.rows, *cols) for i, cols in enumerate(_halves(table))]
    elif scheme == "table_row_wise":
        shards = _rows(table, on_host, 0, table.dim)
    elif scheme == "table_column_wise":
        shards = [Shard((on_host[i % ranks_per_host],), 0, table.rows, *cols) for i, cols in enumerate(_halves(table))]
    else:
        shards = []
        for i, cols in enumerate(_halves(table)):
            other = (host + i) % hosts
            shards += _rows(table, [other * ranks_per_host + local for local in range(ranks_per_host)], *cols)
    return Placement(table.name, scheme, tuple(shards))


def flexshard(table: Table, replicated: int, host_sharded: int, hosts: int, ranks_per_host: int) -> Placement:
    """The table row by row: its hottest rows on every rank, the next once a host, the rest over all ranks."""
    world = list(range(hosts * ranks_per_host))
    shards: list[Shard] = []
    if replicated:
        shards.append(Shard(tuple(world), 0, replicated, 0, table.dim, "replicated"))
    for tier, begin, stop, holders in (
        ("host_sharded", replicated, replicated + host_sharded, [tuple(world[local::ranks_per_host]) for local in range(ranks_per_host)]),
        ("row_sharded", replicated + host_sharded, table.rows, [(rank,) for rank in world]),
    ):
        block = math.ceil((stop - begin) / len(holders))
        edges = [min(begin + i * block, stop) for i in range(len(holders) + 1)]
        shards += [Shard(ranks, *edges[i : i + 2], 0, table.dim, tier) for i, ranks in enumerate(holders) if stop > begin]
    return Placement(table.name, "flexshard", tuple(shards))


def plan(schemes: tuple[str, ...], hosts: int, ranks_per_host: int, tables: tuple[Table, ...] = TABLES) -> ShardingPlan:
    """The tables under `schemes` in turn."""
    placements = tuple(placement(t, schemes[i % len(schemes)], i, hosts, ranks_per_host) for i, t in enumerate(tables))
    return ShardingPlan("by_hand", hosts, ranks_per_host, tables, placements)


def _halves(table: Table) -> list[tuple[int, int]]:
    return [(0, table.dim // 2), (table.dim // 2, table.dim)]


def _rows(table: Table, ranks: list[int], col_start: int, col_stop: int) -> list[Shard]:
    block = math.ceil(table.rows / len(ranks))
    edges = [min(i * block, table.rows) for i in range(len(ranks) + 1)]
    return [Shard((rank,), edges[i], edges[i + 1], col_start, col_stop) for i, rank in enumerate(ranks)]

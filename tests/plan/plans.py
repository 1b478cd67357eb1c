"""Plans by hand, for tests: each scheme's shards as TorchRec lays them."""

from __future__ import annotations

from dataclasses import replace

from torchrec.distributed.types import ShardingType

from recsys_lab.plan import Placement, ShardingPlan, Workload
from recsys_lab.plan.scheme import known_schemes
from recsys_lab.precision import Precision
from recsys_lab.schemes.tiers.placement import in_tiers
from recsys_lab.tables import AccessStatistics, Table, TableAccess

#: The schemes inside recsys_lab: another test of the same process may have made others known.
SCHEMES = {name: scheme for name, scheme in known_schemes().items() if scheme.execution.startswith("recsys_lab.")}
#: The schemes whose tables may stand beside any others, and those of them that TorchRec exchanges.
FLAT_SCHEMES = tuple(name for name, scheme in SCHEMES.items() if not scheme.family)
TORCHREC_SCHEMES = tuple(name for name in FLAT_SCHEMES if name in {kind.value for kind in ShardingType})
FP32 = Precision("fp32")
COMMS = Precision("fp16_comms", forward_comm="fp16", backward_comm="bf16", dense_comm="bf16")
#: Each kind of exchange in a format of its own size.
UNLIKE = Precision("unlike", forward_comm="bf16", backward_comm="fp32", dense_comm="fp16")
FP8 = Precision("fp8_comms", forward_comm="fp8", backward_comm="fp8", dense_comm="bf16")
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
    by_name = {}
    for table in tables:
        length = float(sum(lengths[f] for f in table.features))
        by_name[table.name] = TableAccess(table.name, length, (table.rows,), (length / table.rows,), "formula", "uniform")
    return AccessStatistics(by_name)


def placement(table: Table, scheme: str, index: int, hosts: int, ranks_per_host: int) -> Placement:
    """As the scheme's reference plan has the table; `index` spreads tables over ranks and hosts."""
    earlier = tuple(replace(table, name=f"before_{i}", features=(f"before_{i}",)) for i in range(index))
    reference = next(iter(known_schemes()[scheme].reference_cases((*earlier, table), hosts, ranks_per_host)))
    return reference.placements[index]


def flexshard(table: Table, replicated: int, host_sharded: int, hosts: int, ranks_per_host: int) -> Placement:
    """The table row by row: its hottest rows on every rank, the next once a host, the rest over all ranks."""
    return in_tiers(table, replicated, host_sharded, hosts, ranks_per_host)


def plan(schemes: tuple[str, ...], hosts: int, ranks_per_host: int, tables: tuple[Table, ...] = TABLES) -> ShardingPlan:
    """The tables under `schemes` in turn."""
    placements = tuple(placement(t, schemes[i % len(schemes)], i, hosts, ranks_per_host) for i, t in enumerate(tables))
    return ShardingPlan("by_hand", hosts, ranks_per_host, tables, placements)

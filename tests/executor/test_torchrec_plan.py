"""Plans go from TorchRec to us and back unchanged."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torchrec.distributed import sharding_plan as tr
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.types import EmbeddingModuleShardingPlan

from recsys_lab.executor.torchrec_plan import to_torchrec
from recsys_lab.plan import ShardingPlan
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.torchrec import TorchRec
from recsys_lab.sharders.torchrec.search import from_torchrec
from recsys_lab.tables import Table
from tests.executor.reference import Concat
from tests.executor.sharded import FP32, small_cluster, statistics, workload
from tests.plan.plans import TORCHREC_SCHEMES as SCHEMES

TABLES = (Table("odd", 11, 16, ("f_odd",)), Table("tiny", 3, 8, ("f_tiny",)))
SHAPES = [(1, 1), (1, 4), (2, 2), (4, 1)]


def theirs_of(plan: ShardingPlan, kind: str) -> EmbeddingModuleShardingPlan:
    return to_torchrec(plan.placements, plan.ranks_per_host, kind)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize(("hosts", "ranks_per_host"), SHAPES)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_ours_to_torchrecs_and_back(scheme: str, hosts: int, ranks_per_host: int, kind: str) -> None:
    inputs = PlanInputs(TABLES, statistics(TABLES), small_cluster(hosts, ranks_per_host, kind), FP32, workload())
    plan = TorchRec(force={"*": scheme}).plan(inputs)
    torchrec_plan = theirs_of(plan, kind)
    assert from_torchrec(TABLES, torchrec_plan) == plan.placements


def by_torchrec(tables: tuple[Table, ...], scheme: str, hosts: int, ranks_per_host: int) -> EmbeddingModuleShardingPlan:
    """A plan from TorchRec's own constructors."""
    world = hosts * ranks_per_host
    how = {
        "data_parallel": lambda: tr.data_parallel(),
        "table_wise": lambda: tr.table_wise(rank=world - 1, compute_kernel="dense"),
        "row_wise": lambda: tr.row_wise(compute_kernel="dense"),
        "column_wise": lambda: tr.column_wise(ranks=[world - 1, 0], compute_kernel="dense"),
        "table_row_wise": lambda: tr.table_row_wise(host_index=hosts - 1),
        "grid_shard": lambda: tr.grid_shard(host_indexes=list(range(hosts))),
    }[scheme]
    bags = Concat(tables, 1, torch.device("meta")).embeddings
    return tr.construct_module_sharding_plan(
        bags, {t.name: how() for t in tables}, EmbeddingBagCollectionSharder(), ranks_per_host, world, device_type="cpu"
    )


@pytest.mark.parametrize(("hosts", "ranks_per_host"), SHAPES)
@pytest.mark.parametrize("scheme", [s for s in SCHEMES if s != "table_column_wise"])  # TorchRec has no constructor of that one
def test_torchrecs_to_ours_and_back(scheme: str, hosts: int, ranks_per_host: int) -> None:
    tables = tuple(replace(t, dim=128 * hosts) for t in TABLES)  # TorchRec's column blocks are 128 wide
    torchrec_plan = by_torchrec(tables, scheme, hosts, ranks_per_host)
    plan = ShardingPlan("torchrec", hosts, ranks_per_host, tables, from_torchrec(tables, torchrec_plan))
    back = theirs_of(plan, "cpu")
    for name in torchrec_plan:
        assert (back[name].sharding_type, back[name].ranks, back[name].compute_kernel) == (scheme, torchrec_plan[name].ranks, "dense")
        assert (back[name].sharding_spec is None) == (torchrec_plan[name].sharding_spec is None)
        if torchrec_plan[name].sharding_spec is not None:
            assert back[name].sharding_spec.shards == torchrec_plan[name].sharding_spec.shards

"""How many kernels look tables up: as many as TorchRec makes of FBGEMM's, by its own grouping."""

from __future__ import annotations

import pytest
from torchrec.distributed.embedding_sharding import group_tables
from torchrec.distributed.embedding_types import EmbeddingComputeKernel, ShardedEmbeddingTable
from torchrec.modules.embedding_configs import DataType, PoolingType

from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.context import Context
from recsys_lab.plan.table_work import table_steps
from recsys_lab.tables import AccessStatistics, Table, power_law_access
from tests.plan.plans import FP32, workload

KINDS = [("fp32", "sum"), ("fp16", "sum"), ("fp32", "mean")]
STORES = [EmbeddingComputeKernel.FUSED, EmbeddingComputeKernel.FUSED_UVM, EmbeddingComputeKernel.FUSED_UVM_CACHING]


@pytest.mark.parametrize("kinds", [1, 2, 3])
def test_tables_of_all_widths_are_one_kernel_and_data_types_and_poolings_are_not(kinds: int) -> None:
    of_tables = [KINDS[number % kinds] for number in range(9)]
    tables = [Table(f"t{n}", 10, 4 * (n + 1), (f"f{n}",), dtype=dtype, pooling=pooling) for n, (dtype, pooling) in enumerate(of_tables)]
    placements = [Placement(table.name, "table_wise", (Shard((0,), 0, 10, 0, table.dim),)) for table in tables]
    access = AccessStatistics({table.name: power_law_access(table.name, 10, 1.0, 1.0) for table in tables})
    whole = ShardingPlan("by_hand", 1, 1, tuple(tables), tuple(placements))
    ours = table_steps(Context("s", whole, tuple(zip(tables, placements)), access, FP32, workload(3)), (), ())
    theirs = [
        ShardedEmbeddingTable(
            num_embeddings=10,
            embedding_dim=table.dim,
            local_cols=table.dim,
            name=table.name,
            data_type=DataType[table.dtype.upper()],
            pooling=PoolingType[table.pooling.upper()],
            compute_kernel=STORES[number // 3],
        )
        for number, table in enumerate(tables)
    ]
    assert [step.kernels for step in ours] == [kinds, kinds] == [len(group_tables([theirs])[0])] * 2

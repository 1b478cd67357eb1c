"""The look-up of sequences on the CPU: a row for each id, which FBGEMM's own does not give there."""

from __future__ import annotations

import pytest
import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_common import PoolingMode
from fbgemm_gpu.split_table_batched_embeddings_ops_training import DenseTableBatchedEmbeddingBagsCodegen
from torchrec.modules.embedding_configs import EmbeddingConfig
from torchrec.modules.embedding_modules import EmbeddingCollection

from recsys_lab.errors import UserError
from recsys_lab.interop import torchrec_plans
from recsys_lab.lightning.rows import _rows
from recsys_lab.plan import Placement, Shard, ShardingPlan

DIM = 4
ROWS = [5, 0, 7]
#: Features in the order of their tables; the second has no ids, as its table has no rows here.
TABLE_OF = [0, 0, 1, 2]
BAGS = [[[0, 4], [1]], [[2], [3, 3, 0]], [[], []], [[6], []]]


def kernel() -> DenseTableBatchedEmbeddingBagsCodegen:
    embedding_kernel = DenseTableBatchedEmbeddingBagsCodegen(
        [(rows, DIM) for rows in ROWS], TABLE_OF, pooling_mode=PoolingMode.NONE, use_cpu=True
    )
    with torch.no_grad():
        embedding_kernel.weights.copy_(torch.arange(embedding_kernel.weights.numel()))
    return embedding_kernel


def ids() -> tuple[torch.Tensor, torch.Tensor]:
    bags = [bag for feature in BAGS for bag in feature]
    return torch.tensor([one for bag in bags for one in bag]), torch.tensor([0, *torch.tensor([len(bag) for bag in bags]).cumsum(0)])


def test_each_id_has_its_row_and_its_gradient() -> None:
    embedding_kernel, (indices, offsets) = kernel(), ids()
    tables = embedding_kernel.weights.detach().clone().split([rows * DIM for rows in ROWS])
    whole = [table.view(-1, DIM).requires_grad_() for table in tables]
    expected = torch.cat([whole[table][[one for bag in feature for one in bag]] for table, feature in zip(TABLE_OF, BAGS)])
    actual = _rows(embedding_kernel, indices, offsets)
    assert torch.equal(actual, expected)
    weight = torch.linspace(-1, 2, actual.numel()).view_as(actual)
    (actual * weight).sum().backward()
    (expected * weight).sum().backward()
    grads = [torch.zeros(0) if table.grad is None else table.grad.flatten() for table in whole]
    assert torch.equal(embedding_kernel.weights.grad, torch.cat(grads))


def test_a_batch_without_ids_has_no_rows() -> None:
    assert _rows(kernel(), torch.empty(0, dtype=torch.int64), torch.zeros(9, dtype=torch.int64)).shape == (0, DIM)
    assert _rows(kernel(), torch.empty(0, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)).shape == (0, DIM)


def test_fbgemms_own_adds_up_bags() -> None:
    """Where this fails, FBGEMM gives rows, and lightning/rows.py is not needed any more."""
    embedding_kernel = DenseTableBatchedEmbeddingBagsCodegen([(5, DIM)], pooling_mode=PoolingMode.NONE, use_cpu=True)
    actual = embedding_kernel(torch.tensor([0, 4, 1]), torch.tensor([0, 2, 3]))
    assert actual.shape == (2, DIM)
    torch.testing.assert_close(actual[0], embedding_kernel.weights.view(5, DIM)[[0, 4]].sum(0))


def test_torchrecs_own_model_parallel_gets_no_sequences_on_the_cpu() -> None:
    model = EmbeddingCollection([EmbeddingConfig(4, DIM, name="t", feature_names=["f"])], device=torch.device("meta"))
    (table,) = torchrec_plans.tables_of(model)
    plan = ShardingPlan("torchrec", 1, 1, (table,), (Placement("t", "table_wise", (Shard((0,), 0, 4, 0, DIM),)),))
    assert torchrec_plans.to_torchrec(plan, model, "cuda").plan
    with pytest.raises(UserError, match="the model: FBGEMM's dense look-up adds up sequences on the CPU; train with"):
        torchrec_plans.to_torchrec(plan, model, "cpu")

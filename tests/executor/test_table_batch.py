"""The look-up and its gradients against torch's EmbeddingBag, the updates against torch's optimizers, in one process."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import embedding_bag

from recsys_lab.errors import UserError
from recsys_lab.executor.sparse_optim import STATES, SparseOptimizer
from recsys_lab.executor.table_batch import HeldShard, TableBatch
from recsys_lab.kernels import Rule, available, why_not

CPU = torch.device("cpu")
SIZES, WIDTH = (7, 0, 4), 8  # one shard without rows
FEATURES = (0, 0, 2)  # the shard that each feature reads


def batch_of(mode: str, format: str = "fp32") -> TableBatch:
    shards = [HeldShard(f"t{number}", 0, rows, 0, WIDTH, FEATURES.count(number), format, mode) for number, rows in enumerate(SIZES)]
    made = TableBatch(shards, CPU)
    made.fill(lambda table, a, b, c, d: torch.randn(b - a, d - c))
    return made


bags = st.integers(1, 5).flatmap(
    lambda rows: st.tuples(*(st.lists(st.lists(st.integers(0, SIZES[t] - 1), max_size=4), min_size=rows, max_size=rows) for t in FEATURES))
)


def flat(features: tuple[list[list[int]], ...]) -> tuple[torch.Tensor, torch.Tensor, int]:
    lengths = torch.tensor([0] + [len(bag) for feature in features for bag in feature])
    return torch.tensor([i for f in features for bag in f for i in bag], dtype=torch.int64), lengths.cumsum(0), len(features[0])


@settings(max_examples=60)
@given(bags, st.sampled_from(["sum", "mean"]))
def test_look_up_and_row_gradients_equal_embedding_bag(features: tuple[list[list[int]], ...], mode: str) -> None:
    torch.manual_seed(0)
    batch = batch_of(mode)
    weights = [batch.weights.read(batch.part(shard)).clone().requires_grad_() for shard in batch.shards]
    expected = []
    for shard, feature in zip(FEATURES, features):
        ids, offsets, _ = flat((feature,))
        expected.append(embedding_bag(ids, weights[shard], offsets[:-1], mode=mode))
    ids, offsets, rows = flat(features)
    pooled = batch.look_up(ids, offsets, rows)
    torch.testing.assert_close(pooled, torch.cat(expected, dim=1))
    gradient = torch.randn_like(pooled)
    pooled.backward(gradient)
    torch.cat(expected, dim=1).backward(gradient)
    touched, sums = batch.summed(next(batch.gradients()))
    assert touched.tolist() == sorted(
        {offset + i for t, f in zip(FEATURES, features) for bag in f for i in bag for offset in [batch.shards[t].offset]}
    )
    dense = torch.zeros_like(batch.weights.model).index_add(0, touched, sums)
    for shard, weight in zip(batch.shards, weights):
        torch.testing.assert_close(dense[batch.part(shard)], torch.zeros_like(weight) if weight.grad is None else weight.grad)


def two_passes(batch: TableBatch, seed: int) -> torch.Tensor:
    """Two backward passes of other batches; returns the dense gradient of both, by torch."""
    random = torch.Generator().manual_seed(seed)
    whole = batch.weights.model.clone().requires_grad_()
    for _ in range(2):
        ids, offsets = torch.randint(0, 4, (12,), generator=random), torch.tensor([0, 2, 2, 5, 8, 9, 12])
        gradient = torch.randn(2, 3 * WIDTH, generator=random)
        batch.look_up(ids, offsets, 2).backward(gradient)
        base = batch.feature_offsets.repeat_interleave(offsets[::2].diff())
        embedding_bag(base + ids, whole, offsets[:-1], mode="sum").view(3, 2, WIDTH).transpose(0, 1).reshape(2, -1).backward(gradient)
    assert whole.grad is not None
    return whole.grad


ORACLES = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-8),
    "adam": lambda p: torch.optim.SparseAdam(p, lr=0.1, eps=1e-8),
}


@pytest.mark.parametrize("name", sorted(ORACLES))
def test_updates_equal_torchs_optimizers(name: str) -> None:
    """Also with gradients accumulated over two backward passes."""
    torch.manual_seed(0)
    batch = batch_of("sum")
    optimizer = SparseOptimizer([batch], Rule(name, 0.1), CPU)
    weight = batch.weights.model.clone().requires_grad_()
    oracle = ORACLES[name]([weight])
    for step in range(4):
        gradient = two_passes(batch, seed=step)
        weight.grad = gradient.to_sparse(1) if name == "adam" else gradient
        optimizer.step()
        oracle.step()
        torch.testing.assert_close(batch.weights.model, weight.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("row_update", ["reference", "atomic", "race_free"])
def test_the_papers_algorithms_train_as_sgd_does(row_update: str) -> None:
    if not available():
        pytest.skip(why_not())
    torch.manual_seed(0)
    batch = batch_of("sum")
    optimizer = SparseOptimizer([batch], Rule("sgd", 0.1), CPU, row_update)
    weight = batch.weights.model.clone().requires_grad_()
    oracle = ORACLES["sgd"]([weight])
    for step in range(3):
        weight.grad = two_passes(batch, seed=step)
        optimizer.step()
        oracle.step()
        torch.testing.assert_close(batch.weights.model, weight.detach(), rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match=r"row_update.*adam"):
        SparseOptimizer([batch], Rule("adam", 0.1), CPU, row_update)


@pytest.mark.parametrize(("name", "oracle"), [("sgd", torch.optim.SGD), ("adagrad", torch.optim.Adagrad), ("adam", torch.optim.Adam)])
def test_weight_decay_is_torchs_on_the_rows_that_move_and_nothing_elsewhere(name: str, oracle: type) -> None:
    torch.manual_seed(0)
    batch = batch_of("sum")
    before = batch.weights.model.clone()
    weight = before.clone().requires_grad_()
    optimizer = SparseOptimizer([batch], Rule(name, 0.1, weight_decay=0.3), CPU)
    weight.grad = two_passes(batch, seed=5)
    moved = weight.grad.any(dim=1)
    assert 0 < moved.sum() < len(moved)
    optimizer.step()
    oracle([weight], lr=0.1, weight_decay=0.3).step()
    torch.testing.assert_close(batch.weights.model[moved], weight.detach()[moved], rtol=1e-5, atol=1e-6)
    assert torch.equal(batch.weights.model[~moved], before[~moved])


def test_adam_lets_a_row_rest_whose_gradients_cancel() -> None:
    torch.manual_seed(0)
    batch = batch_of("sum")
    optimizer = SparseOptimizer([batch], Rule("adam", 0.1), CPU)
    ids, offsets = torch.tensor([3, 3, 1, 2]), torch.tensor([0, 1, 2, 3, 4, 4, 4])
    batch.look_up(ids, offsets, 2).sum().backward()
    optimizer.step()
    before = batch.weights.model.clone()
    gradient = torch.ones(2, 3 * WIDTH)
    gradient[1] = -1  # row 3 gets +1 and -1
    batch.look_up(ids, offsets, 2).backward(gradient)
    optimizer.step()
    assert (before != batch.weights.model).any(dim=1).nonzero().flatten().tolist() == [1, 2]


@pytest.mark.parametrize("name", sorted(STATES))
def test_half_precision_tables_are_updated_in_fp32_and_rounded_once(name: str) -> None:
    torch.manual_seed(0)
    half, full = batch_of("sum", "bf16"), batch_of("sum")
    full.weights.write(half.weights.read())
    two_passes(full, seed=1)
    half.touched = list(full.touched)
    for batch in (half, full):
        SparseOptimizer([batch], Rule(name, 0.1), CPU).step()
    assert torch.equal(half.weights.model, full.weights.model.to(torch.bfloat16))

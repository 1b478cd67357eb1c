"""Rows in a GPU's unified memory, as far as FBGEMM shows it without a GPU.

What FBGEMM allocates is read from its modules on the meta device, which have the buffers of a GPU without their bytes. What its kernels
compute is compared where it has them on CPUs, without a cache: look-ups and three optimizers. Adam's formula is compared on paper.
"""

from __future__ import annotations

import pytest
import torch
from fbgemm_gpu.split_table_batched_embeddings_ops_common import CacheAlgorithm, EmbeddingLocation

from recsys_lab.errors import UserError
from recsys_lab.executor.sparse_optim import STATES, SparseOptimizer
from recsys_lab.executor.store.check import MOST_SETS, check_stores
from recsys_lab.executor.store.managed import WAYS, ManagedRows, arguments, eps_of, sets_of
from recsys_lab.executor.table_batch import HeldShard, TableBatch
from recsys_lab.kernels import Rule
from recsys_lab.plan import Placement, Shard, ShardingPlan
from recsys_lab.plan.store import DISK_CACHED, HOST, HOST_CACHED, HOST_PAGED, LFU, LRU, Store
from recsys_lab.tables import Table

CPU, GPU, META = torch.device("cpu"), torch.device("cuda"), torch.device("meta")
ROWS, WIDTH, FEATURES, SAMPLES = 100, 8, 2, 6
CACHED = Store(HOST_CACHED, 0.3, LRU)


@pytest.mark.parametrize(
    ("store", "location", "algorithm"),
    [
        (Store(HOST), EmbeddingLocation.MANAGED, CacheAlgorithm.LFU),
        (Store(HOST_CACHED, 0.3, LRU), EmbeddingLocation.MANAGED_CACHING, CacheAlgorithm.LRU),
        (Store(HOST_CACHED, 0.3, LFU), EmbeddingLocation.MANAGED_CACHING, CacheAlgorithm.LFU),
    ],
)
def test_a_plan_says_where_rows_are_and_what_leaves_the_cache(store: Store, location: int, algorithm: CacheAlgorithm) -> None:
    how = arguments(store, ROWS, WIDTH, "fp16", "sum", Rule("sgd", 0.1), GPU)
    assert how["embedding_specs"][0][2] == location and how["cache_algorithm"] == algorithm
    assert how["cache_precision"] == how["weights_precision"] and how["weights_precision"].as_dtype() == torch.float16
    assert how["stochastic_rounding"] is False


@pytest.mark.parametrize(("share", "rows"), [(0.0, 100), (0.3, 100), (0.32, 100), (1.0, 100), (0.5, 10**9), (0.25, 12_345)])
def test_the_cache_has_the_share_of_the_rows_and_less_than_a_set_more(share: float, rows: int) -> None:
    ways = sets_of(Store(HOST_CACHED, share), rows) * WAYS
    assert ways == WAYS or 0 <= ways - share * rows < WAYS + 0.5


@pytest.mark.parametrize("optimizer", sorted(STATES))
@pytest.mark.parametrize("store", [Store(HOST), Store(HOST_CACHED, 0.3, LRU), Store(HOST_CACHED, 0.3, LFU)], ids=str)
def test_what_fbgemm_allocates_for_a_gpu(optimizer: str, store: Store) -> None:
    rows = ManagedRows(store, ROWS, WIDTH, "fp32", "sum", META)
    weights = rows.open(Rule(optimizer, 0.1))
    assert weights.shape == (ROWS, WIDTH) and weights.model.dtype == torch.float32
    expected = {"weight": (ROWS, WIDTH), "row": (ROWS,)}
    states = rows.states(list(STATES[optimizer]))
    assert {name: tuple(state.shape) for name, state in states.items()} == {n: expected[kind] for n, kind in STATES[optimizer].items()}
    buffers = {name: tuple(buffer.shape) for name, buffer in rows._kernels.named_buffers()}
    slots = 0 if store.kind == HOST else sets_of(store, ROWS) * WAYS
    assert buffers["weights_uvm"] == (ROWS * WIDTH,) and buffers["weights_dev"] == (0,)
    assert buffers["lxu_cache_weights"] == ((slots, WIDTH) if slots else (0, 0))
    if slots:
        assert slots == 32 and buffers["lxu_cache_state"] == (1, WAYS)
        assert buffers["lxu_state"] == ((ROWS + 1,) if store.policy == LFU else (1, WAYS))


def batches_of(mode: str, rule: Rule) -> tuple[TableBatch, TableBatch]:
    """(by FBGEMM, in memory), with the same weights."""
    pair = [TableBatch([HeldShard("t", 0, ROWS, 0, WIDTH, FEATURES, mode=mode)], CPU) for _ in range(2)]
    pair[0].managed = ManagedRows(CACHED, ROWS, WIDTH, "fp32", mode, CPU)
    pair[0].weights = pair[0].managed.open(rule)
    for batch in pair:
        random = torch.Generator().manual_seed(7)
        batch.fill(lambda _, a, b, c, d, random=random: torch.randn(b - a, d - c, generator=random))
    return pair[0], pair[1]


def look_ups(steps: int, passes: int) -> list[list[tuple[torch.Tensor, torch.Tensor]]]:
    """By step and pass, ids and offsets; one pass has no ids. Few rows, so that some come more than once."""
    random = torch.Generator().manual_seed(3)
    lengths = [torch.randint(0, 4, (FEATURES * SAMPLES,), generator=random) for _ in range(steps * passes)]
    lengths[1].zero_()
    offsets = [torch.cat([torch.zeros(1, dtype=torch.int64), length.cumsum(0)]) for length in lengths]
    drawn = [(torch.randint(0, 30, (int(offset[-1]),), generator=random), offset) for offset in offsets]
    return [drawn[first : first + passes] for first in range(0, len(drawn), passes)]


RULES = [Rule("sgd", 0.1), Rule("adagrad", 0.1, 1e-6), Rule("row_wise_adagrad", 0.1, 1e-6)]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
@pytest.mark.parametrize("mode", ["sum", "mean", "none"])
def test_fbgemm_trains_what_memory_trains(mode: str, rule: Rule) -> None:
    pair = batches_of(mode, rule)
    optimizers = [SparseOptimizer([batch], rule, CPU) for batch in pair]
    for number, passes in enumerate([*look_ups(4, 1), *look_ups(2, 2)]):
        for ids, offsets in passes:
            rows = [batch.look_up(ids, offsets, SAMPLES) for batch in pair]
            torch.testing.assert_close(*rows)
            gradient = torch.randn(rows[0].shape, generator=torch.Generator().manual_seed(number))
            for own in rows:
                own.backward(gradient)
        for batch, optimizer in zip(pair, optimizers):
            batch.look_up(torch.arange(3), torch.tensor([0, 3, *[3] * (FEATURES * SAMPLES - 1)]), SAMPLES)  # an evaluation
            optimizer.set_lr(0.1 / (1 + number))
            optimizer.step()
        assert pair[0].managed is not None
        pair[0].managed.settle()
        torch.testing.assert_close(pair[0].weights.read(), pair[1].weights.read())
        for name, state in optimizers[0].states[0].items():
            torch.testing.assert_close(state, optimizers[1].states[0][name])


def test_adam_s_eps_makes_fbgemm_s_formula_ours() -> None:
    for step in (1, 2, 100, 100_000):
        rule, m, v = Rule("adam", 0.1, 1e-3, step=step), 0.02, 3e-6
        theirs = rule.lr * m / (1 - rule.beta1**step) / ((v / (1 - rule.beta2**step)) ** 0.5 + eps_of(rule))
        assert theirs == pytest.approx(rule.rate * m / (v**0.5 + rule.eps), rel=1e-9)
    assert eps_of(Rule("lamb", 0.1, 1e-3, step=5)) == 1e-3


def plan_of(dtype: str = "fp32", dim: int = 8, store: Store = CACHED, rows: int = ROWS) -> ShardingPlan:
    table = Table("t", rows, dim, ("f",), dtype=dtype)
    return ShardingPlan("by_hand", 1, 1, (table,), (Placement("t", "table_wise", (Shard((0,), 0, rows, 0, dim),), store),))


@pytest.mark.parametrize(
    ("plan", "rule", "says"),
    [
        (plan_of(store=Store(DISK_CACHED, 0.3)), Rule("sgd", 0.1), "not of a disk"),
        (plan_of(store=Store(HOST_PAGED)), Rule("sgd", 0.1), "priced, not trained"),
        (plan_of("bf16"), Rule("sgd", 0.1), "given bf16; allowed: fp32 or fp16"),
        (plan_of("split_bf16"), Rule("sgd", 0.1), "given split_bf16; allowed: fp32 or fp16"),
        (plan_of(dim=6), Rule("sgd", 0.1), "given 6 columns"),
        (plan_of(rows=2 * WAYS * MOST_SETS, store=Store(HOST_CACHED, 0.9, LFU)), Rule("sgd", 0.1), "sharder.cache_policy=lru"),
        (plan_of(), Rule("adam", 0.1, weight_decay=0.1), "optimizer.sparse.weight_decay=0"),
        (plan_of("fp16"), Rule("sgd", 0.1, stochastic=True), "precision.rounding=nearest"),
    ],
)
def test_what_fbgemm_s_kernels_do_not_take_is_refused(plan: ShardingPlan, rule: Rule, says: str) -> None:
    with pytest.raises(UserError, match=says) as refused:
        check_stores(plan, GPU, rule)
    assert "table t, store" in str(refused.value)
    if plan.placements[0].store.kind == HOST_CACHED and plan.tables[0].rows == ROWS:  # type: ignore[union-attr]
        check_stores(plan, CPU, rule)


@pytest.mark.parametrize("store", [Store(HOST), CACHED, Store(HOST_CACHED, 0.3, LFU)], ids=str)
@pytest.mark.parametrize("optimizer", sorted(STATES))
def test_all_else_trains(store: Store, optimizer: str) -> None:
    for dtype in ("fp32", "fp16"):
        check_stores(plan_of(dtype, store=store), GPU, Rule(optimizer, 0.1))

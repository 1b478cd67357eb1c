"""Weights in other formats than FP32: what is stored, what is read, what it takes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.executor.sparse_optim import STATES, SparseOptimizer
from recsys_lab.executor.table_batch import HeldShard, TableBatch
from recsys_lab.kernels import Rule
from recsys_lab.kernels.halves import join, split
from recsys_lab.kernels.stored import StoredWeights
from recsys_lab.tables.spec import READ_BYTES, STORED_BYTES

CPU = torch.device("cpu")
#: Any FP32 number, those with an exponent of all zeros or all ones often: zeros, denormals, infinities, NaNs.
BITS = st.one_of(
    st.integers(0, 2**32 - 1),
    st.builds(
        lambda sign, ones, rest: sign << 31 | (0xFF if ones else 0) << 23 | rest, st.booleans(), st.booleans(), st.integers(0, 2**23 - 1)
    ),
)


def floats(bits: list[int]) -> torch.Tensor:
    return torch.tensor(bits, dtype=torch.int64).to(torch.int32).view(torch.float32)


@settings(max_examples=200)
@given(st.lists(BITS, min_size=1, max_size=40))
def test_halves_join_to_the_same_bits(bits: list[int]) -> None:
    weight = floats(bits)
    high, low = split(weight)
    assert [int(h) & 0xFFFF for h in high.view(torch.int16)] == [b >> 16 for b in bits]
    assert torch.equal(join(high, low).view(torch.int32), weight.view(torch.int32))
    high, low = split(weight, torch.uint8)
    assert [int(b) & 0xFFFFFFFF for b in join(high, low).view(torch.int32)] == [b & ~0xFF for b in bits]


@pytest.mark.parametrize("format", sorted(STORED_BYTES))
def test_what_is_written_is_read_wherever_it_stands(format: str) -> None:
    torch.manual_seed(0)
    weights = StoredWeights.empty(format, (6, 4), CPU)
    assert weights.nbytes == 24 * STORED_BYTES[format] and weights.model.element_size() == READ_BYTES[format]
    values, exact = torch.randn(6, 4), format in ("fp32", "bf16_master", "split_bf16")
    weights.write(values)
    first = weights.read().clone()
    assert torch.equal(first, values) if exact else torch.allclose(first, values, rtol=2**-8)
    new = torch.randn(2, 2)
    for where in (torch.tensor([4, 1]), slice(2, 4), (slice(2, 4), slice(0, 2)), (torch.tensor([5, 0]), slice(1, 3))):
        here = new if isinstance(where, tuple) else torch.randn(2, 4)
        weights.write(here, where)
        first[where] = here if exact else StoredWeights(format, *_stored(format, here)).read()
        assert torch.equal(weights.read(), first) and torch.equal(weights.read(where), first[where])
    assert torch.equal(weights[1:3].read(), first[1:3])


def _stored(format: str, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    weights = StoredWeights.empty(format, tuple(values.shape), CPU)
    weights.write(values)
    return weights.model, weights.rest


def test_the_model_is_cut_off_in_halves_and_rounded_beside_a_master() -> None:
    third = torch.tensor([[1 / 3, -2 / 3]])  # BF16 rounds both up
    halves, master = (StoredWeights.empty(format, (1, 2), CPU) for format in ("split_bf16", "bf16_master"))
    for weights in (halves, master):
        weights.write(third)
    assert torch.equal(master.model, third.to(torch.bfloat16))
    assert (halves.model.float().abs() < third.abs()).all() and (master.model.float().abs() > third.abs()).all()


def batch_of(format: str) -> TableBatch:
    batch = TableBatch([HeldShard("a", 0, 50, 0, 8, 1, format), HeldShard("b", 10, 40, 0, 8, 2, format)], CPU)
    batch.fill(lambda table, a, b, c, d: torch.randn(b - a, d - c, generator=torch.Generator().manual_seed(len(table) + a)))
    return batch


@pytest.mark.parametrize("name", sorted(STATES))
def test_halves_take_what_fp32_takes_and_begin_with_its_values(name: str) -> None:
    sizes = {}
    for format in ("fp32", "split_bf16"):
        batch = batch_of(format)
        states = SparseOptimizer([batch], Rule(name, 0.1), CPU).states
        sizes[format] = batch.weights.nbytes + sum(state.nbytes for by_name in states for state in by_name.values())
    assert sizes["split_bf16"] == sizes["fp32"]
    assert torch.equal(batch_of("split_bf16").weights.read(), batch_of("fp32").weights.read())


@pytest.mark.parametrize("name", sorted(STATES))
@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_an_update_of_halves_is_fp32s_to_the_last_bit(name: str, decay: float) -> None:
    """Given the same gradients, over several steps; beside a master too. Plain formats are FP32's update rounded once."""
    torch.manual_seed(0)
    batches = {format: batch_of(format) for format in ("fp32", "split_bf16", "bf16_master", "split_bf16_8", "bf16", "fp16")}
    optimizers = {f: SparseOptimizer([b], Rule(name, 0.1, weight_decay=decay), CPU) for f, b in batches.items()}
    for step in range(4):
        ids, offsets = torch.randint(0, 30, (40,)), torch.arange(0, 41, 40 // 12)[:13].clamp(max=40)
        offsets[-1] = 40
        gradient = torch.randn(4, 24)
        first = {format: batch.weights.read().clone() for format, batch in batches.items()}
        for format, batch in batches.items():
            batch.look_up(ids, offsets, 4).backward(gradient)
            optimizers[format].step()
        full = batches["fp32"].weights.read()
        for format in ("split_bf16", "bf16_master"):
            assert torch.equal(batches[format].weights.read(), full), format
        if step == 0:  # from then on they have other weights
            moved = (full != first["fp32"]).any(dim=1)
            for format in ("split_bf16_8", "bf16", "fp16"):
                alone = batch_of("fp32")
                alone.weights.write(first[format])
                one = SparseOptimizer([alone], Rule(name, 0.1, weight_decay=decay), CPU)
                alone.look_up(ids, offsets, 4).backward(gradient)
                one.step()
                expected = StoredWeights(format, *_stored(format, alone.weights.read())).read()
                assert torch.equal(batches[format].weights.read()[moved], expected[moved]), format
                assert torch.equal(batches[format].weights.read()[~moved], first[format][~moved]), format


@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16])
def test_a_look_up_sums_the_models_half_in_fp32_and_rounds_once(out: torch.dtype) -> None:
    torch.manual_seed(0)
    batch = batch_of("split_bf16")
    batch.out_dtype = out
    ids, offsets = torch.randint(0, 30, (40,)), torch.tensor([0, 5, 5, 12, 20, 33, 40])
    rows = batch.look_up(ids, offsets, 2)
    high = batch.weights.model.float()
    base = batch.feature_offsets.repeat_interleave(offsets[::2].diff())
    expected = torch.nn.functional.embedding_bag(base + ids, high, offsets[:-1], mode="sum").view(3, 2, 8).transpose(0, 1).reshape(2, 24)
    assert rows.dtype == out and torch.equal(rows, expected.to(out))

"""Split-SGD-BF16 (CPU DLRM, section VII): an update of the two halves is the FP32 update of the joined weights, bit for bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.kernels import Lookups, Rule, available, join, split, torch_embedding, update, why_not
from tests.kernels.cases import same_bits

DIM = 52  # two vectors at once, a whole one and a part of one
#: Any 32 bits, and those where mistakes are likely: zeros, denormals, the edges of rounding and of the range, infinities, NaNs.
ODD = (0x0, 0x80000000, 0x1, 0x80000001, 0x7FFFFF, 0x800000, 0xFFFF, 0x10000, 0x3F80FFFF, 0x7F7FFFFF, 0x7F800000, 0xFF800000, 0x7F800001)
BITS = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from((*ODD, 0x7FC00000, 0xFFFFFFFF, 0x7F80FFFF)))
ROWS = st.lists(BITS, min_size=3 * DIM, max_size=3 * DIM)


def floats(bits: list[int]) -> torch.Tensor:
    return torch.tensor([b - 2**32 if b >= 2**31 else b for b in bits], dtype=torch.int32).view(torch.float32).view(-1, DIM)


@pytest.mark.skipif(not available(), reason=f"no C++ kernels: {why_not()}")
@settings(max_examples=150)
@given(
    ROWS,
    ROWS,
    st.sampled_from([0.5, 0.1, 1.0, 1e-30, 1e30]),
    st.sampled_from([0.0, 0.01]),
    st.sampled_from(["sgd", "row_wise_adagrad", "adagrad", "adam"]),
)
def test_halves_move_as_fp32_does(weights: list[int], grads: list[int], lr: float, decay: float, name: str) -> None:
    start, grad, rule = floats(weights), floats(grads), Rule(name, lr, weight_decay=decay)
    lookups = Lookups(torch.tensor([2, 0, 2]))
    state = None if name == "sgd" else torch.ones(3) if name == "row_wise_adagrad" else torch.ones(3, DIM)
    whole, defined = start.clone(), start.clone()
    high, low = split(start)
    assert torch.equal(join(high, low).view(torch.int32), start.view(torch.int32))
    states = [None if state is None else state.clone() for _ in range(3)]
    squares = [torch.ones(3, DIM) if name == "adam" else None for _ in range(3)]
    update(whole, lookups, grad, rule, state=states[0], squares=squares[0])
    update(high, lookups, grad, rule, low=low, state=states[1], squares=squares[1])
    torch_embedding.update(defined, None, states[2], lookups, grad, rule, squares[2])
    assert torch.equal(join(high, low).view(torch.int32), whole.view(torch.int32))  # NaNs too, with what they carry
    assert same_bits(whole, defined)
    assert same_bits(states[0], states[2])
    assert same_bits(states[1], states[2])
    assert same_bits(squares[0], squares[2])
    assert same_bits(squares[1], squares[2])
    assert torch.equal(whole[1].view(torch.int32), start[1].view(torch.int32))  # not looked up


def test_eight_low_bits_lose_what_is_below_them() -> None:
    """The paper's negative result in one number: steps below a weight's 16th fraction bit are lost for ever, and with 16 bits none is."""
    start, grad, rule = torch.ones(1, 16), torch.full((1, 16), -1.0), Rule("sgd", 2.0**-20)
    moved = {}
    for dtype in (torch.int16, torch.uint8):
        high, low = split(start, dtype)
        for _ in range(16):
            update(high, Lookups(torch.tensor([0])), grad, rule, low=low)
        moved[dtype] = float((join(high, low) - start)[0, 0])
    assert moved == {torch.int16: 2.0**-16, torch.uint8: 0.0}

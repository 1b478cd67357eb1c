"""HSTU's attention in Triton against its formula in FP64: on a GPU where there is one, else in Triton's interpreter.

Triton comes with torch for CUDA; `make test-triton` brings it to a CPU machine and has it interpret. Elsewhere these are skipped.
"""

from __future__ import annotations

import importlib.util
import os

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu

from recsys_lab.kernels import attention
from recsys_lab.kernels.attention import by_triton
from recsys_lab.models.hstu import network
from tests.models.sequences import NEXT_ITEM, drawn, keyed
from tests.models.test_hstu import built

if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: it comes with torch for CUDA, or by make test-triton", allow_module_level=True)
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = pytest.mark.skipif(not INTERPRETED and not torch.cuda.is_available(), reason="no GPU, and TRITON_INTERPRET is not 1")
#: The interpreter multiplies the bits of BF16 numbers as integers.
FORMATS = [torch.float32] if INTERPRETED else [torch.float32, torch.bfloat16]
HEADS, DIVISOR = 2, 40
#: lengths, distances told apart, columns of a head's queries and of its values
CASES = (((5, 0, 17, 1), 12, 3, 5), ((70, 130, 64), 100, 16, 16), ((33,), 300, 20, 8), ((0, 0), 4, 8, 8))


def by_formula(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, lengths: tuple[int, ...]) -> Tensor:
    """One sequence after another, in the format of the arguments."""
    found = []
    for own in zip(*(part.split(list(lengths)) for part in (q, k, v)), strict=True):
        queries, keys, values = (part.unflatten(1, (HEADS, -1)).transpose(0, 1) for part in own)
        places = torch.arange(len(own[0]))
        scores = queries @ keys.transpose(1, 2) + bias[(places[:, None] - places).clamp(0, len(bias) - 1)]
        found.append(((silu(scores) / DIVISOR).tril() @ values).transpose(0, 1).flatten(1))
    return torch.cat(found)


@pytest.mark.parametrize("dtype", FORMATS, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_it_is_its_formula_forward_and_backward(case: tuple, dtype: torch.dtype) -> None:
    """Columns of wider tensors, sequences that end within a block, and more distances than are told apart."""
    lengths, distances, dim, value_dim = case
    torch.manual_seed(0)
    whole = torch.randn(sum(lengths), HEADS * (2 * dim + value_dim)).to(dtype)
    bias, grad = torch.randn(distances), torch.randn(sum(lengths), HEADS * value_dim).to(dtype)
    found, expected = [], []
    for results, rows, its_bias in ((found, whole.to(DEVICE), bias.to(DEVICE)), (expected, whole.double(), bias.double())):
        leaves = rows.clone().requires_grad_(), its_bias.clone().requires_grad_()
        q, k, v = leaves[0].split([HEADS * dim, HEADS * dim, HEADS * value_dim], dim=1)
        if results is found:
            out = by_triton(q, k, v, leaves[1], torch.tensor(lengths, device=DEVICE), max(lengths), HEADS, DIVISOR)
        else:
            out = by_formula(q, k, v, leaves[1], lengths)
        out.backward(grad.to(out))
        results += [out.detach().cpu().double(), *(leaf.grad.cpu().double() for leaf in leaves)]
    for ours, theirs in zip(found, expected, strict=True):
        most = float(theirs.abs().max()) if theirs.numel() else 0.0
        torch.testing.assert_close(ours, theirs, rtol=0, atol=most * (2e-6 if dtype == torch.float32 else 1e-2))


def test_a_models_scores_and_gradients_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for fused in (False, True):
        monkeypatch.setattr(network, "fuses_attention", lambda rows, columns: fused)  # noqa: B023
        model = built().to(DEVICE)
        logits = model(None, keyed(drawn(NEXT_ITEM, [11, 0, 1, 8])).to(torch.device(DEVICE)))
        logits.square().sum().backward()
        results.append([logits, *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)


def test_every_call_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    rows, bias = torch.randn(90, 96, device=DEVICE), torch.randn(50, device=DEVICE)
    found = []
    for _ in range(2):
        leaves = rows.clone().requires_grad_(), bias.clone().requires_grad_()
        by_triton(*leaves[0].split(32, dim=1), leaves[1], torch.tensor([60, 30], device=DEVICE), 60, HEADS, 60).square().sum().backward()
        found.append([leaf.grad for leaf in leaves])
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


def test_distances_are_the_diagonals_of_squares() -> None:
    squares = torch.randint(0, 9, (3, 4, 4)).float()
    squares[0] = squares[0].tril()
    for distances in (1, 5, 12, 40):
        expected = torch.zeros(distances)
        for far in range(3):
            for row in range(4):
                for column in range(4):
                    if far * 4 + row >= column:
                        expected[min(far * 4 + row - column, distances - 1)] += squares[far, row, column]
        assert torch.equal(attention._by_distance(squares, distances), expected)

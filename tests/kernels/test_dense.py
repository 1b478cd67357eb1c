"""The dense part's kernels against their definitions in torch, in FP64."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.kernels import available, dense, why_not

pytestmark = pytest.mark.skipif(not available(), reason=why_not())
ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


def close(found, exact):
    atol = ROUNDING[found.dtype] * max(1.0, float(exact.abs().max()) if exact.numel() else 0.0)
    torch.testing.assert_close(found.double(), exact, rtol=ROUNDING[found.dtype], atol=atol)


def both(x, weight):
    """(dots, gradient of x) in FP64."""
    x = x.double().requires_grad_()
    dots = torch.stack([(a * b).sum(1) for a, b in combinations(x.unbind(1), 2)], 1)
    (dots * weight.double()).sum().backward()
    return dots.detach(), x.grad


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9), st.integers(2, 12), st.integers(1, 150), st.sampled_from(dense.FORMATS), st.integers(0, 2**31))
def test_pair_dots(samples, vectors, dim, dtype, seed):
    torch.manual_seed(seed)
    x, grad = torch.randn(samples, vectors, dim).to(dtype), torch.randn(samples, vectors * (vectors - 1) // 2 + 3).to(dtype)[:, 3:]
    dots, of_x = both(x, grad)
    found, back = dense.pair_dots(x.unbind(1)), dense.pair_dots_backward(x.unbind(1), grad)
    assert found.dtype == back.dtype == dtype and back.shape == x.shape
    close(found, dots)
    close(back, of_x)


def test_vectors_may_lie_anywhere():
    """In matrices of other widths, and turned."""
    pieces = [torch.randn(7, 20)[:, 3:11], torch.randn(8, 7).t(), torch.randn(7, 8)]
    whole = torch.stack(pieces, 1)
    grad = torch.randn(3, 7).t()
    assert torch.equal(dense.pair_dots(pieces), dense.pair_dots(whole.unbind(1)))
    assert torch.equal(dense.pair_dots_backward(pieces, grad), dense.pair_dots_backward(whole.unbind(1), grad.contiguous()))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 70), st.integers(1, 70), st.sampled_from(dense.FORMATS), st.integers(0, 2**31))
def test_relu_backward(rows, cols, dtype, seed):
    torch.manual_seed(seed)
    grad, made = torch.randn(rows, cols).to(dtype), torch.randn(rows, cols).relu().to(dtype)
    found, sums = dense.relu_backward(grad, made)
    expected = torch.ops.aten.threshold_backward(grad, made, 0)
    assert torch.equal(found, expected)
    close(sums, expected.double().sum(0))


@pytest.mark.parametrize(("rows", "cols"), [(16, 16), (272, 48), (17, 16), (16, 5), (0, 16)])
def test_a_turned_gradient_is_the_transpose(rows, cols):
    grad, made = torch.randn(rows, cols), torch.randn(rows, cols).relu()
    found, turned, sums = dense.relu_backward_turned(grad, made)
    assert torch.equal(found, dense.relu_backward(grad, made)[0])
    assert torch.equal(turned, found.t()) and turned.is_contiguous()
    close(sums, found.double().sum(0))


@pytest.mark.parametrize("dtype", dense.FORMATS)
def test_the_number_of_threads_changes_no_bit(dtype):
    torch.manual_seed(5)
    x, grad = torch.randn(301, 5, 48).to(dtype), torch.randn(301, 10).to(dtype)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            dots = dense.pair_dots(x.unbind(1))
            found.append([dots, dense.pair_dots_backward(x.unbind(1), grad), *dense.relu_backward(grad, dots.relu())])
            if dtype == torch.float32:
                found[-1] += dense.relu_backward_turned(x.flatten(1)[:288], x.flatten(1)[:288].relu())
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))

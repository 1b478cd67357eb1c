"""The dense part's kernels against their definitions in torch, in FP64."""

from __future__ import annotations

from itertools import combinations
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.kernels import available, dense, why_not

pytestmark = pytest.mark.skipif(not available(), reason=why_not())
needs_tiles = pytest.mark.skipif(not dense.has_tiles(), reason="the processor has no tiles (AMX)")
ROUNDING = {torch.float32: 1e-5, torch.bfloat16: 1e-2}


def close(found, exact):
    atol = ROUNDING[found.dtype] * max(1.0, float(exact.abs().max()) if exact.numel() else 0.0)
    torch.testing.assert_close(found.double(), exact, rtol=ROUNDING[found.dtype], atol=atol)


def both(x, weight, lead):
    """(dots, gradient of x) in FP64."""
    x = x.double().requires_grad_()
    dots = torch.stack([(a * b).sum(1) for a, b in combinations(x.unbind(1), 2)], 1)
    dots = torch.cat([x[:, 0], dots], 1) if lead else dots
    (dots * weight.double()).sum().backward()
    return dots.detach(), x.grad


@settings(max_examples=25)
@given(
    *(st.integers(0, 9), st.integers(2, 70), st.integers(1, 300), st.sampled_from(dense.FORMATS), st.booleans(), st.booleans()),
    st.integers(0, 2**31),
)
def test_pair_dots(samples, vectors, dim, dtype, lead, tiles, seed):
    """In the processor's tiles, where it has them, and without."""
    torch.manual_seed(seed)
    x, width = torch.randn(samples, vectors, dim).to(dtype), vectors * (vectors - 1) // 2 + (dim if lead else 0)
    grad = torch.randn(samples, width + 3).to(dtype)[:, 3:]
    dots, of_x = both(x, grad, lead)
    cut = seed % (vectors - 1) + 1
    parts = [x[:, :cut], x[:, cut:]]
    with mock.patch.object(dense, "has_tiles", return_value=tiles and dense.has_tiles()):
        found, back = dense.pair_dots(parts, lead=lead), dense.pair_dots_backward(parts, grad, lead=lead)
    assert found.dtype == dtype and [(b.dtype, b.shape) for b in back] == [(dtype, p.shape) for p in parts]
    close(found, dots)
    close(torch.cat(back, 1), of_x)


@pytest.mark.parametrize("dtype", dense.FORMATS)
@pytest.mark.parametrize("tiles", [True, False])
def test_one_vector_alone_is_its_own_lead(dtype, tiles):
    x, grad = torch.randn(5, 1, 33).to(dtype), torch.randn(5, 33).to(dtype)
    with mock.patch.object(dense, "has_tiles", return_value=tiles and dense.has_tiles()):
        found, (back,) = dense.pair_dots([x], lead=True), dense.pair_dots_backward([x], grad, lead=True)
    assert torch.equal(found, x[:, 0]) and torch.equal(back[:, 0], grad)


def test_nothing_beside_the_results_is_written():
    """Kernels write whole registers into memory of their own only: what lies beside a short vector stays."""
    for dtype in dense.FORMATS:
        x, grad = torch.randn(3, 3, 5).to(dtype), torch.randn(3, 8).to(dtype)
        room = torch.full((3, 40), 7.0, dtype=dtype)
        vectors = dense._vectors([x], True)
        dense._functions().pair_dots(vectors, room.data_ptr(), 40, 2)
        assert torch.equal(room[:, :8], dense.pair_dots([x], lead=True)) and (room[:, 8:] == 7).all()
        room = torch.full((3, 3, 40), 7.0, dtype=dtype)
        addresses = dense._addresses([room])
        dense._functions().pair_dots_backward(vectors, grad.data_ptr(), 8, *addresses, 2)
        assert torch.equal(room[:, :, :5], dense.pair_dots_backward([x], grad, lead=True)[0]) and (room[:, :, 5:] == 7).all()


def test_vectors_may_lie_anywhere():
    """In matrices of other widths, and transposed."""
    pieces = [torch.randn(7, 20)[:, 3:11], torch.randn(8, 7).t(), torch.randn(7, 8)]
    whole, apart = [torch.stack(pieces, 1)], [piece.unsqueeze(1) for piece in pieces]
    grad = torch.randn(3, 7).t()
    assert torch.equal(dense.pair_dots(apart), dense.pair_dots(whole))
    assert torch.equal(torch.cat(dense.pair_dots_backward(apart, grad), 1), dense.pair_dots_backward(whole, grad.contiguous())[0])


@settings(max_examples=25)
@given(st.integers(0, 70), st.integers(1, 70), st.sampled_from(dense.FORMATS), st.integers(0, 2**31))
def test_relu_backward(rows, cols, dtype, seed):
    torch.manual_seed(seed)
    grad, made = torch.randn(rows, cols).to(dtype), torch.randn(rows, cols).relu().to(dtype)
    found, sums = dense.relu_backward(grad, made)
    expected = torch.ops.aten.threshold_backward(grad, made, 0)
    assert torch.equal(found, expected)
    close(sums, expected.double().sum(0))
    if dtype == torch.bfloat16:
        wide, alike = dense.relu_backward_widened(grad, made)
        assert torch.equal(wide, expected.float()) and torch.equal(alike, sums)
    in_place, again = dense.relu_backward(grad, made, in_place=True)
    assert in_place is grad and torch.equal(grad, found) and torch.equal(again, sums)


@pytest.mark.parametrize("dtype", dense.FORMATS)
@pytest.mark.parametrize(("rows", "cols"), [(16, 16), (272, 48), (1296, 32), (17, 16), (16, 5), (0, 16), (1, 1), (67, 97)])
def test_a_transposed_gradient_is_the_transpose(rows, cols, dtype):
    grad, made = torch.randn(rows, cols).to(dtype), torch.randn(rows, cols).relu().to(dtype)
    found, transposed, sums = dense.relu_backward_transposed(grad, made)
    assert torch.equal(found, dense.relu_backward(grad, made)[0])
    assert torch.equal(transposed, found.t()) and transposed.is_contiguous()
    close(sums, found.double().sum(0))
    in_place, *others = dense.relu_backward_transposed(grad, made, in_place=True)
    assert in_place is grad and all(torch.equal(a, b) for a, b in zip((grad, *others), (found, transposed, sums)))


@settings(max_examples=25)
@given(st.integers(0, 70), st.integers(1, 70), st.sampled_from(dense.FORMATS), st.integers(0, 2**31))
def test_the_way_back_through_a_layer_with_one_output(rows, cols, dtype, seed):
    torch.manual_seed(seed)
    grad, x, weight = torch.randn(rows, 1).to(dtype), torch.randn(rows, cols).to(dtype), torch.randn(1, cols).to(dtype)
    of_x, of_weight = dense.to_one_backward(grad, x, weight)
    assert torch.equal(of_x, grad * weight)
    close(of_weight, grad.double().t() @ x.double())


@pytest.mark.parametrize("dtype", dense.FORMATS)
def test_the_number_of_threads_changes_no_bit(dtype):
    torch.manual_seed(5)
    x, grad = torch.randn(301, 5, 48).to(dtype), torch.randn(301, 10).to(dtype)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            dots = dense.pair_dots([x])
            found.append([dots, *dense.pair_dots_backward([x], grad), *dense.relu_backward(grad, dots.relu())])
            found[-1] += dense.to_one_backward(grad[:, :1], dots, grad[:1])
            found[-1] += dense.relu_backward_transposed(x.flatten(1)[:288], x.flatten(1)[:288].relu())
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@needs_tiles
@settings(max_examples=40)
@given(
    rows=st.integers(1, 600), outputs=st.integers(1, 1100), inputs=st.integers(1, 130), swapped=st.booleans(), seed=st.integers(0, 2**31)
)
def test_a_product_by_weights_in_tiles(rows, outputs, inputs, swapped, seed):
    """Within half a unit of the last place and FP32's rounding of each sum; the same bits by any number of threads and from any view."""
    torch.manual_seed(seed)
    if swapped:
        outputs, inputs = inputs, outputs
    room = torch.randn(rows, outputs + inputs + 5).bfloat16()
    grad, x = room[:, 2 : 2 + outputs], room[:, 5 + outputs :]
    found = [by_threads(threads, dense.product_by_weights, grad, x) for threads in (1, 2, 3, 7)]
    assert all(torch.equal(found[0], other) for other in found[1:])
    assert torch.equal(found[0], dense.product_by_weights(grad.t().contiguous().t(), x.contiguous()))
    exact, sizes = grad.double().t() @ x.double(), grad.double().abs().t() @ x.double().abs()
    assert ((found[0].double() - exact).abs() <= exact.abs() * 2**-8 + sizes * rows * 2**-24).all()


def by_threads(threads, call, *operands):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return call(*operands)
    finally:
        torch.set_num_threads(before)


@needs_tiles
def test_a_product_in_tiles_writes_only_its_result_and_passes_on_what_is_no_number():
    grad, x = torch.ones(40, 33).bfloat16(), torch.ones(40, 17).bfloat16()
    grad[3, 32], x[5, 16] = float("nan"), float("inf")
    room = torch.full((35 * 17,), 7.0, dtype=torch.bfloat16)
    dense._functions().product_by_weights(grad.data_ptr(), 33, x.data_ptr(), 17, 40, 33, 17, room[17:].data_ptr(), 2)
    assert (room[:17] == 7).all() and (room[34 * 17 :] == 7).all()
    found = room[17 : 34 * 17].view(33, 17)
    assert found[32].isnan().all() and (found[:32, 16] == float("inf")).all() and (found[:32, :16] == 40).all()

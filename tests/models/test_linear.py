"""Layers that oneDNN computes against torch's own; an MLP against the layers that it is made of."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from recsys_lab.kernels import dense
from recsys_lab.kernels.cpu import products
from recsys_lab.models import linear as module
from recsys_lab.models.layers import mlp
from recsys_lab.models.linear import MLP, Linear, linear, product

NO_BF16 = "oneDNN has no BF16 product on this processor"
needs_bf16 = pytest.mark.skipif(not products.multiplies_bf16(), reason=NO_BF16)
needs_tiles = pytest.mark.skipif(not dense.has_tiles(), reason="the processor has no tiles (AMX)")
EXACT = {torch.float32: {"rtol": 2e-5, "atol": 2e-5}, torch.bfloat16: {"rtol": 2e-2, "atol": 2e-2}}


@pytest.fixture
def all_are_large(monkeypatch):
    monkeypatch.setattr(module, "LEAST_WORK", dict.fromkeys(module.LEAST_WORK, 1))


def gradients(layer, x):
    """Of x, weight and bias, and the output itself."""
    x = x.detach().clone().requires_grad_()
    layer.zero_grad()
    y = layer(x)
    (y * torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view_as(y)).sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize(("dtype", "other_way"), list(itertools.product((torch.float32, torch.bfloat16), (False, True))))
def test_a_large_layer_is_torchs_linear_layer(all_are_large, monkeypatch, dtype, other_way, relu, bias, kernels):
    """In FP64, what torch gives: within the format's rounding. `other_way`: as another machine may multiply."""
    if dtype == torch.bfloat16 and not other_way and not products.multiplies_bf16():
        pytest.skip(NO_BF16)
    for question in ("widened", "by_torch"):
        monkeypatch.setattr(module, question, lambda: other_way)
    monkeypatch.setattr(module, "by_tiles", lambda: False)
    monkeypatch.setattr(module, "by_transposing", lambda: other_way)
    monkeypatch.setattr(module, "WIDE", 1)
    if not kernels:
        monkeypatch.setattr(module, "available", lambda: False)
    torch.manual_seed(1)
    layer_of_ours = Linear(37, 19, bias=bias).to(dtype)
    exact = nn.Linear(37, 19, bias=bias).double()
    exact.load_state_dict(layer_of_ours.state_dict())
    x = torch.randn(53, 37).to(dtype)
    assert module.large(x, layer_of_ours.weight)
    result = gradients(_With(layer_of_ours, relu), x)
    expected = gradients(nn.Sequential(exact, nn.ReLU() if relu else nn.Identity()), x.double())
    for one, other in zip(result, expected, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one.double(), other, rtol=EXACT[dtype]["rtol"], atol=EXACT[dtype]["atol"] * float(other.abs().max()))


@needs_tiles
@pytest.mark.parametrize("relu", [True, False])
def test_a_large_layers_gradient_by_tiles_is_torchs(all_are_large, monkeypatch, relu):
    """Of the weight alone: all else is what it is without tiles."""
    monkeypatch.setattr(module, "widened", lambda: False)
    torch.manual_seed(1)
    layer, x = Linear(37, 19).bfloat16(), torch.randn(53, 37).bfloat16()
    ways = []
    for tiles in (True, False):
        monkeypatch.setattr(module, "by_tiles", lambda tiles=tiles: tiles)
        ways.append(gradients(_With(layer, relu), x))
    for number, (one, other) in enumerate(zip(*ways, strict=True)):
        torch.testing.assert_close(one, other, **(EXACT[torch.bfloat16] if number == 2 else {"rtol": 0, "atol": 0}))


@needs_bf16
@pytest.mark.parametrize("width", [64, 37])
def test_a_wide_layers_gradient_by_the_transpose_is_torchs(all_are_large, monkeypatch, width):
    """Of the weight alone; and the transpose is made just for a layer that is wide enough."""
    monkeypatch.setattr(module, "widened", lambda: False)
    monkeypatch.setattr(module, "by_tiles", lambda: False)
    monkeypatch.setattr(module, "WIDE", 19 * 64)
    torch.manual_seed(1)
    layer, x, transposes, ways = Linear(width, 19).bfloat16(), torch.randn(53, width).bfloat16(), [], []
    kernel = dense.relu_backward_transposed
    monkeypatch.setattr(dense, "relu_backward_transposed", lambda *a, **k: transposes.append(1) or kernel(*a, **k))
    for turning in (True, False):
        monkeypatch.setattr(module, "by_transposing", lambda turning=turning: turning)
        ways.append(gradients(_With(layer, True), x))
    assert len(transposes) == (width == 64)
    for number, (one, other) in enumerate(zip(*ways, strict=True)):
        torch.testing.assert_close(one, other, **(EXACT[torch.bfloat16] if number == 2 else {"rtol": 0, "atol": 0}))


class _With(nn.Module):
    def __init__(self, layer, relu):
        super().__init__()
        self.layer, self.relu = layer, relu

    def forward(self, x):
        return self.layer(x, relu=self.relu)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("width", [37, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_layer_with_one_output_is_torchs(monkeypatch, dtype, width, bias, kernels):
    """To the last bit where there is no sum, or torch's own; where our kernel adds in another order, within the format's rounding."""
    monkeypatch.setattr(module, "LEAST_TO_ONE", 1)
    if not kernels:
        monkeypatch.setattr(module, "available", lambda: False)
    torch.manual_seed(1)
    layer_of_ours = Linear(width, 1, bias=bias).to(dtype)
    torchs = nn.Linear(width, 1, bias=bias).to(dtype)
    torchs.load_state_dict(layer_of_ours.state_dict())
    x = torch.randn(53, width).to(dtype)
    assert type(layer_of_ours(x.requires_grad_()).grad_fn).__name__ == "_ToOneBackward"
    result, expected = gradients(layer_of_ours, x), gradients(torchs, x)
    of_weight = 2  # y, x, weight and bias
    torch.testing.assert_close(result.pop(of_weight), expected.pop(of_weight), **EXACT[dtype])
    for one, other in zip(result, expected, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("outputs", [1, 5])
def test_other_formats_are_torchs(all_are_large, monkeypatch, outputs):
    monkeypatch.setattr(module, "LEAST_TO_ONE", 1)
    layer, x = Linear(8, outputs).double(), torch.randn(6, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(layer, (x,))


def test_the_first_layers_input_gets_no_gradient(all_are_large):
    layer, x = Linear(8, 4), torch.randn(6, 8)
    output = layer(x, relu=True)
    assert output.grad_fn is not None and not x.requires_grad
    output.sum().backward()
    assert x.grad is None and layer.weight.grad is not None


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
@pytest.mark.parametrize(("dtype", "widened"), [(torch.float32, False), (torch.bfloat16, False), (torch.bfloat16, True)])
def test_a_product_of_views_is_that_of_their_values(monkeypatch, dtype, widened, transposed):
    monkeypatch.setattr(module, "widened", lambda: widened)
    a, b = torch.randn(5, 7).to(dtype), torch.randn(7, 3).to(dtype)
    views = [m.t().contiguous().t() if turned else m for m, turned in zip((a, b), transposed)]
    torch.testing.assert_close(product(*views).double(), a.double() @ b.double(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("large", [True, False])
def test_an_mlp_is_its_layers_one_by_one(monkeypatch, large):
    """The same parameters under the same names as in a plain sequence, the same values."""
    monkeypatch.setattr(module, "LEAST_WORK", dict.fromkeys(module.LEAST_WORK, 1 if large else 1 << 60))
    layers = mlp(6, [9, 5, 1], None, linear_end=True)
    plain = nn.Sequential(nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 1))
    assert isinstance(layers, MLP) and list(layers.state_dict()) == list(plain.state_dict())
    plain.load_state_dict(layers.state_dict())
    for one, other in zip(gradients(layers, torch.ones(4, 6)), gradients(plain, torch.ones(4, 6)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5 if large else 0, atol=1e-6 if large else 0)


def test_a_gradient_from_outside_is_not_written_to(all_are_large):
    """Only between an MLP's own layers does a gradient pass its ReLU in place."""
    for layers in (mlp(6, [9, 5], None), mlp(6, [9, 5], None, dropout=0.5).eval()):
        grad = torch.ones(4, 5)
        layers(torch.randn(4, 6)).backward(grad)
        assert torch.equal(grad, torch.ones(4, 5))


def test_dropout_in_an_mlp_stays_between_its_layers():
    layers = mlp(6, [9, 5], None, dropout=0.5)
    torch.manual_seed(3)
    output = layers(torch.ones(4, 6))
    torch.manual_seed(3)
    expected = torch.ones(4, 6)
    for part in layers:
        expected = part(expected)
    assert torch.equal(output, expected)


def test_a_layer_computes_in_the_format_of_its_weights():
    assert Linear(4, 2).bfloat16()(torch.ones(3, 4)).dtype == torch.bfloat16
    with torch.device("meta"):
        assert not module.large(torch.empty(4096, 4096), torch.empty(4096, 4096))
    assert linear(torch.ones(2, 3, 4), torch.ones(5, 4), None).shape == (2, 3, 5)


@pytest.mark.parametrize(("outputs", "shape"), [(19, (53, 37)), (19, (4, 5, 37)), (1, (53, 37)), (1, (4, 5, 37))])
@pytest.mark.parametrize("bias", [True, False])
def test_without_bf16_products_a_layer_of_any_size_is_fp32s_rounded_once(monkeypatch, outputs, shape, bias):
    """A processor without AVX-512: torch's own loop over BF16 takes 20 times as long."""
    monkeypatch.setattr(module, "multiplies_bf16", lambda: False)
    torch.manual_seed(1)
    layer, x = Linear(37, outputs, bias=bias).bfloat16(), torch.randn(shape).bfloat16()
    wide = nn.Linear(37, outputs, bias=bias)
    wide.load_state_dict({name: weight.float() for name, weight in layer.state_dict().items()})
    with _Products() as seen:
        result = gradients(_With(layer, False), x)
    assert seen.formats == {torch.float32}
    expected = gradients(wide, x.float())
    assert torch.equal(result[0], expected[0].bfloat16())
    for one, other in zip(result, expected, strict=True):
        assert one.dtype == torch.bfloat16
        torch.testing.assert_close(one.float(), other, rtol=2e-2, atol=2e-2 * max(1.0, float(other.abs().max())))


def test_without_bf16_products_matmul_is_fp32s_rounded_once(monkeypatch):
    a, b = torch.randn(3, 4, 5).bfloat16(), torch.randn(3, 5, 6).bfloat16()
    monkeypatch.setattr(module, "multiplies_bf16", lambda: False)
    with _Products() as seen:
        made = module.matmul(a, b)
    assert torch.equal(made, (a.float() @ b.float()).bfloat16()) and seen.formats == {torch.float32}
    assert torch.equal(module.matmul(a.double(), b.double()), a.double() @ b.double())


class _Products(TorchDispatchMode):
    """The formats of all matrix products within."""

    def __init__(self):
        super().__init__()
        self.formats = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in ("mm", "addmm", "bmm", "baddbmm", "mv", "addmv"):
            self.formats |= {one.dtype for one in args if isinstance(one, torch.Tensor)}
        return func(*args, **(kwargs or {}))

"""Of a large batch, a model in BF16 has the gradients of the same weights in FP32, to what 8 binary digits lose."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection

from recsys_lab.executor.compute import compute_in
from recsys_lab.executor.dense_weights import in_model_format
from recsys_lab.models import layer_norm
from recsys_lab.models.dcn import DCN
from recsys_lab.models.dlrm import DLRM
from recsys_lab.models.layer_norm import LayerNorm
from tests.models import inputs, test_xlrm

SAMPLES = 8192
MODELS: dict[str, Callable[[], nn.Module]] = {
    "dlrm": lambda: inputs.built(DLRM, normalise_vectors=True),
    "dcn": lambda: inputs.built(DCN, normalise_vectors=True),
    "xlrm": test_xlrm.built,
}


def gradients(model: nn.Module, dense: torch.Tensor | None, sparse: object) -> dict[str, torch.Tensor]:
    """Of the sum of the logits, in which nothing cancels: a sum that stands still early shows."""
    model(dense, sparse).sum().backward()
    return {name: p.grad.float() for name, p in model.named_parameters() if p.grad is not None and not name.startswith("embeddings.")}


def same_in_bf16(model: nn.Module, dense: torch.Tensor | None, sparse: object) -> None:
    tables = next(name for name, m in model.named_modules() if isinstance(m, EmbeddingBagCollection | EmbeddingCollection))
    in_bf16 = copy.deepcopy(model)
    in_model_format(in_bf16, "bf16", tables)
    compute_in("bf16", in_bf16, in_bf16.get_submodule(tables), None)
    for name, p in model.named_parameters():  # the same weights
        if not name.startswith(tables + "."):
            p.data = p.data.bfloat16().float()
    expected, result = gradients(model, dense, sparse), gradients(in_bf16, dense, sparse)
    assert expected.keys() == result.keys()
    largest = max(gradient.norm() for gradient in expected.values())
    for name, gradient in expected.items():
        off = (result[name] - gradient).norm()
        assert off < 0.05 * gradient.norm() + 1e-3 * largest, (
            f"{name}: {off:.4g} of {gradient.norm():.4g}"
        )  # some are zero but for rounding


@pytest.mark.parametrize("name", MODELS)
def test_pooled_models(name: str) -> None:
    same_in_bf16(MODELS[name](), *inputs.batch(SAMPLES))


def test_layer_norm_sums_in_fp32() -> None:
    torch.manual_seed(0)
    norm, full = LayerNorm(16).bfloat16(), nn.LayerNorm(16)
    x, grad = torch.randn(40960, 16).bfloat16(), (torch.rand(40960, 16)).bfloat16()
    result = norm(x)
    result.backward(grad)
    expected = full(x.float())
    expected.backward(grad.float())
    assert result.dtype == torch.bfloat16 and torch.equal(result, expected.bfloat16())
    assert torch.equal(norm.bias.grad, full.bias.grad.bfloat16()) and torch.equal(norm.weight.grad, full.weight.grad.bfloat16())


def test_no_model_normalises_with_torchs_own() -> None:
    """Which is right in FP32 alone, so that no other test would show it."""
    models = Path(layer_norm.__file__).parent
    own = [path.name for path in models.glob("*.py") if "nn.LayerNorm(" in path.read_text(encoding="utf-8")]
    assert own == []

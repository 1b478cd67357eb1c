"""What a model costs per sample, counted on the model itself on the meta device: nothing is computed or stored.

FLOPs: `torch.utils.flop_counter` over forward and backward of everything after the tables. It counts matrix products only, a
multiply-add as two; element-wise work, biases and look-ups are left out. Backward is twice forward, but for the first bottom
layer, whose input needs no gradient. DLRM-DCNv2 of MLPerf: 96.2 MFLOP in all.
Activation bytes: what autograd keeps for backward (each storage once, weights and constant indices left out), in FP32.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from recsys_lab.models.click_model import ClickModel

_SAMPLES = 8


@dataclass(frozen=True)
class ModelCost:
    """Parameters of the model, and its work per sample after the tables."""

    dense_parameters: int
    embedding_parameters: int
    embedding_rows: int
    forward_flops_per_sample: float
    backward_flops_per_sample: float
    activation_bytes_per_sample: float


def describe(model: ClickModel, dense_width: int) -> ModelCost:
    """Cost of `model`, built on the meta device.

    `dense_width`: dense values a sample, 0 for none.
    """
    configs = model.embeddings.embedding_bag_configs()
    dense_parameters = [p for name, p in model.named_parameters() if not name.startswith("embeddings.")]
    assert all(p.is_meta for p in dense_parameters), "describe() wants the model on the meta device"
    dim_of = {feature: config.embedding_dim for config in configs for feature in config.feature_names}
    dense = torch.empty(_SAMPLES, dense_width, device="meta") if dense_width else None
    pooled = {feature: torch.empty(_SAMPLES, dim, device="meta", requires_grad=True) for feature, dim in dim_of.items()}

    kept: dict[int, Tensor] = {}  # by storage; held, so that no address is used twice
    weights = {p.untyped_storage()._cdata for p in dense_parameters}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    forward, backward = FlopCounterMode(display=False), FlopCounterMode(display=False)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), forward:
        logits = model.predict(dense, pooled)
    with backward:
        logits.sum().backward()
    model.zero_grad(set_to_none=True)
    activations = [t for address, t in kept.items() if address not in weights and t.dtype in (torch.float32, torch.bool)]
    return ModelCost(
        dense_parameters=sum(p.numel() for p in dense_parameters),
        embedding_parameters=sum(c.num_embeddings * c.embedding_dim for c in configs),
        embedding_rows=sum(c.num_embeddings for c in configs),
        forward_flops_per_sample=forward.get_total_flops() / _SAMPLES,
        backward_flops_per_sample=backward.get_total_flops() / _SAMPLES,
        activation_bytes_per_sample=sum(t.untyped_storage().nbytes() for t in activations) / _SAMPLES,
    )

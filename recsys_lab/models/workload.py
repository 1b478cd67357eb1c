"""What a model costs per sample, counted on the model itself on the meta device: nothing is computed or stored.

FLOPs: `torch.utils.flop_counter` over forward and backward of everything after the tables. It counts matrix products only, a
multiply-add as two; element-wise work, biases and look-ups are left out. Backward is twice forward, but for the first bottom
layer, whose input needs no gradient. DLRM-DCNv2 of MLPerf: 96.2 MFLOP in all.
Activation bytes: what autograd keeps for backward (each storage once, weights and constant indices left out), in FP32.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from recsys_lab.models.click_model import ClickModel, table_configs

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


def describe(model: ClickModel, dense_width: int, mean_lengths: Mapping[str, float] | None = None) -> ModelCost:
    """Cost of `model`, built on the meta device.

    `dense_width`: dense values a sample, 0 for none. `mean_lengths`: look-ups a sample by feature, on which a sequence model's cost
    depends; 1 where it has none. Samples are taken to be equally long, so padding costs nothing here.
    """
    configs = table_configs(model)
    dense_parameters = [p for name, p in model.named_parameters() if not name.startswith("embeddings.")]
    assert all(p.is_meta for p in dense_parameters), "describe() wants the model on the meta device"
    dense = torch.empty(_SAMPLES, dense_width, device="meta") if dense_width else None
    looked_up = model.example(_SAMPLES, mean_lengths or {})

    kept: dict[int, Tensor] = {}  # by storage; held, so that no address is used twice
    weights = {p.untyped_storage()._cdata for p in dense_parameters}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    forward, backward = FlopCounterMode(display=False), FlopCounterMode(display=False)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), forward:
        logits = model.predict(dense, looked_up)
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

"""What a model costs per sample, counted on the model itself on the meta device: nothing is computed or stored.

FLOPs: `torch.utils.flop_counter` over forward and backward of everything after the tables. It counts matrix products only, a
multiply-add as two; element-wise work, biases and look-ups are left out. Backward is twice forward, but for the first bottom
layer, whose input needs no gradient. DLRM-DCNv2 of MLPerf: 96.2 MFLOP in all.
Activation bytes: what autograd keeps for backward (each storage once, weights and constant indices left out), as if all were FP32. Models
of sequences are counted in the format that they compute in, as their norms keep FP32: what is kept, times 4 over the bytes of the format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.hooks import RemovableHandle
from torchrec import EmbeddingCollection

from recsys_lab.kernels.torch_private import storage_of
from recsys_lab.models.click_model import ClickModel, table_configs
from recsys_lab.models.moved_bytes import MovedBytes
from recsys_lab.plan.workload import DenseLayer, ModelCost, SequenceWork, TowerWork

_SAMPLES = 8
#: Products within sequences, as torch counts them.
_OF_ATTENTION = ("bmm", "_scaled_dot_product")


def describe(
    model: ClickModel, dense_width: int, mean_lengths: Mapping[str, float] | None = None, compute_format: str = "fp32"
) -> ModelCost:
    """Cost of `model`, built on the meta device.

    `dense_width`: dense values a sample, 0 for none. `mean_lengths`: look-ups a sample by feature, on which a sequence model's cost
    depends; 1 where it has none. Samples are taken to be equally long, so padding costs nothing here. `compute_format`: of the dense arch.
    """
    configs = table_configs(model)
    dense = {name: p for name, p in model.named_parameters() if not name.startswith("embeddings.")}
    looked_up = model.example(_SAMPLES, mean_lengths or {})
    reads_sequences = isinstance(model.embeddings, EmbeddingCollection)
    halves = reads_sequences and compute_format != "fp32"
    for name, module in model.named_children():
        if halves and name != "embeddings":
            module.to(torch.bfloat16)
    values = model.example_values(_SAMPLES, dense_width, mean_lengths or {})
    layers: list[DenseLayer] = []

    def forward_pass() -> Tensor:
        hooks = _hooks(model, layers)
        found = model.predict(values, looked_up)
        for hook in hooks:  # what the backward pass computes again is no layer of its own
            hook.remove()
        return found

    work = _work_of(forward_pass, list(dense.values()))
    model.zero_grad(set_to_none=True)
    return ModelCost(
        dense_parameters=sum(p.numel() for p in dense.values()),
        embedding_parameters=sum(c.num_embeddings * c.embedding_dim for c in configs),
        embedding_rows=sum(c.num_embeddings for c in configs),
        forward_flops_per_sample=work.forward_flops,
        backward_flops_per_sample=work.backward_flops,
        activation_bytes_per_sample=work.activation_bytes * (2 if halves else 1),
        layers=tuple(layers),
        sequence=SequenceWork(work.attention_flops, work.moved_bytes) if reads_sequences else None,
    )


def _hooks(model: ClickModel, layers: list[DenseLayer]) -> list[RemovableHandle]:
    """Hooks that add each linear layer outside the tower modules to `layers` as it runs."""

    def keep(name: str, module: nn.Linear, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        rows = inputs[0].numel() / module.in_features / _SAMPLES
        layers.append(DenseLayer(rows, module.in_features, module.out_features, name.startswith("bottom")))

    linears = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Linear) and not name.startswith("tower_modules")]
    return [module.register_forward_hook(partial(keep, name)) for name, module in linears]


def describe_towers(model: ClickModel) -> tuple[TowerWork, ...]:
    """Cost of each tower module of `model`, built on the meta device. None where it has no towers."""
    dims = {feature: config.embedding_dim for config in table_configs(model) for feature in config.feature_names}
    costs = []
    for module, features in zip(getattr(model, "tower_modules", ()), model.tower_features):
        rows = torch.empty(_SAMPLES, len(features), dims[features[0]], device="meta", requires_grad=True)
        parameters = list(module.parameters())
        work = _work_of(partial(module, rows), parameters)
        module.zero_grad(set_to_none=True)
        size = sum(p.numel() for p in parameters)
        costs.append(TowerWork(size, module(rows).shape[1], work.forward_flops, work.backward_flops, work.activation_bytes))
    return tuple(costs)


@dataclass(frozen=True)
class _Work:
    """Of one sample."""

    forward_flops: float
    backward_flops: float
    activation_bytes: float
    attention_flops: tuple[float, float]
    moved_bytes: tuple[float, float]


def _work_of(forward_pass: Callable[[], Tensor], parameters: Sequence[Tensor]) -> _Work:
    """What `forward_pass`, of `_SAMPLES` samples on the meta device, and its backward pass do."""
    assert all(p.is_meta for p in parameters), "costs are counted on the meta device"
    saved: dict[int, Tensor] = {}  # by storage; held, so that no address is used twice
    weights = {storage_of(p) for p in parameters}

    def keep(tensor: Tensor) -> Tensor:
        saved[storage_of(tensor)] = tensor
        return tensor

    forward, backward = FlopCounterMode(display=False), FlopCounterMode(display=False)
    moved_forward, moved_backward = MovedBytes(), MovedBytes()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), forward, moved_forward:
        output = forward_pass()
    if output.requires_grad:
        with backward, moved_backward:
            output.sum().backward()
    activations = [t for address, t in saved.items() if address not in weights and (t.is_floating_point() or t.dtype == torch.bool)]
    return _Work(
        forward.get_total_flops() / _SAMPLES,
        backward.get_total_flops() / _SAMPLES,
        sum(t.untyped_storage().nbytes() for t in activations) / _SAMPLES,
        (_of_attention(forward) / _SAMPLES, _of_attention(backward) / _SAMPLES),
        (moved_forward.total / _SAMPLES, moved_backward.total / _SAMPLES),
    )


def _of_attention(counted: FlopCounterMode) -> int:
    by_operation = counted.get_flop_counts()["Global"]
    return sum(flops for operation, flops in by_operation.items() if str(operation).split(".")[-1].startswith(_OF_ATTENTION))

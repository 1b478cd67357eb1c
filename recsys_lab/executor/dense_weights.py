"""The dense arch's weights as one store: in formats other than FP32, and FP32 ones where they are few.

All parameters of a rank lie one after the other in it, and each is a view of it. One update moves them all. Parameters in BF16 have beside
them what the optimizer needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from recsys_lab.executor.torch_private import copy_each
from recsys_lab.kernels.stored import MODEL_DTYPE, StoredWeights

#: Parameters begin at multiples of so many elements, 64 bytes in BF16: as matrix products like them.
ALIGNMENT = 32


@dataclass(frozen=True)
class DenseWeights:
    """P elements, gaps between parameters included, which are and stay zero. `slices`: by name, where each parameter lies."""

    weights: StoredWeights  # [P]
    parameters: Mapping[str, nn.Parameter]
    slices: Mapping[str, slice]

    @staticmethod
    def of(format: str, parameters: Iterable[tuple[str, nn.Parameter]], first: Mapping[str, torch.Tensor]) -> DenseWeights:
        """Moves `parameters` into one store and sets them to their `first` values, FP32 by name."""
        by_name, slices, end = dict(parameters), {}, 0
        for name, parameter in by_name.items():
            slices[name] = slice(end, end + parameter.numel())
            end += -(-parameter.numel() // ALIGNMENT) * ALIGNMENT
        device = next((p.device for p in by_name.values()), torch.device("cpu"))
        weights = StoredWeights.empty(format, (end,), device)
        weights.write(torch.zeros(end, device=device))
        dense = DenseWeights(weights, by_name, slices)
        for name, parameter in by_name.items():
            weights.write(first[name].flatten(), slices[name])
            parameter.data = dense[name].model
        return dense

    def __getitem__(self, name: str) -> StoredWeights:
        """In the parameter's shape. The live ones."""
        return self.weights[self.slices[name]].view_as(self.parameters[name])

    def gradient(self) -> torch.Tensor:
        """FP32 [P], zero where a parameter has none."""
        gradient = torch.zeros(self.weights.shape, device=self.weights.model.device)
        have = {name: p.grad for name, p in self.parameters.items() if p.grad is not None}
        copy_each([gradient[self.slices[name]].view_as(grad) for name, grad in have.items()], list(have.values()))
        return gradient


def in_model_format(model: nn.Module, format: str, tables: str) -> dict[str, torch.Tensor]:
    """Converts every parameter outside of the module `tables` to the format that the model computes in.

    Returns their former FP32 values by name. Before DistributedDataParallel, which goes by the parameters' format.
    """
    first = {}
    for path, module in model.named_modules():
        if path == tables or path.startswith(tables + "."):
            continue
        for name, parameter in list(module.named_parameters(recurse=False)):
            first[f"{path}.{name}" if path else name] = parameter.detach()
            setattr(module, name, nn.Parameter(parameter.detach().to(MODEL_DTYPE[format]), requires_grad=parameter.requires_grad))
    return first

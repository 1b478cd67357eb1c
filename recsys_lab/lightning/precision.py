"""Lightning's precision plugins, with clipping by the norm over all ranks. Lightning's own knows this rank's gradients only."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from torch import Tensor
from torch.optim import Optimizer

#: (parameters, the largest norm that their gradients may have).
Clip = Callable[[Iterable[Tensor], float], None]


class ShardedPrecision(Precision):
    """Full precision."""

    def __init__(self, clip: Clip):
        super().__init__()
        self.clip = clip

    def clip_grad_by_norm(self, optimizer: Optimizer, clip_val: int | float) -> None:
        self.clip(self.main_params(optimizer), clip_val)


class ShardedMixedPrecision(MixedPrecision):
    """`bf16-mixed`."""

    def __init__(self, mixed: MixedPrecision, clip: Clip):
        super().__init__("bf16-mixed", mixed.device, mixed.scaler)
        self.clip = clip

    def clip_grad_by_norm(self, optimizer: Optimizer, clip_val: int | float) -> None:
        self.clip(self.main_params(optimizer), clip_val)


def with_norm_of_all_ranks(plugin: Precision, clip: Clip) -> Precision:
    """`plugin`, which is Lightning's own for `32-true` or `bf16-mixed`, clipping by `clip`."""
    return ShardedMixedPrecision(plugin, clip) if isinstance(plugin, MixedPrecision) else ShardedPrecision(clip)

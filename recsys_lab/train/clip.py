"""Gradient clipping where ranks have different dense parameters: all of them must shrink theirs by the same factor."""

from __future__ import annotations

from collections.abc import Callable

from lightning.pytorch.plugins.precision import Precision
from torch import Tensor
from torch.nn.utils import clip_grads_with_norm_
from torch.optim import Optimizer


class ClipTogether(Precision):
    """Lightning's clipping by norm, with the norm that `norm` gives: of the whole dense arch, the same on every rank."""

    def __init__(self, norm: Callable[[], Tensor]):
        super().__init__()
        self._norm = norm

    def clip_grad_by_norm(self, optimizer: Optimizer, clip_val: int | float) -> None:
        clip_grads_with_norm_(self.main_params(optimizer), clip_val, self._norm())

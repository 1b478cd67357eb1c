"""Clipping by the norm of all gradients: those of this rank's shards, those of other ranks' and those that all ranks have."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor


def clip_by_whole_norm(replicated: Iterable[Tensor], sharded: Iterable[Tensor], max_norm: float, device: torch.device) -> Tensor:
    """Scales gradients as `torch.nn.utils.clip_grad_norm_` does in one process. Collective.

    Args:
        replicated: parameters that every rank has with the same gradients.
        sharded: parameters of this rank's shards.
        max_norm: the norm that all gradients together may have.
        device: where the sum over ranks is made.

    Returns:
        The norm before clipping.
    """
    replicated_grads, sharded_grads = (
        [parameter.grad for parameter in parameters if parameter.grad is not None] for parameters in (replicated, sharded)
    )
    of_shards = _squares(sharded_grads, device)
    dist.all_reduce(of_shards)
    norm = (_squares(replicated_grads, device) + of_shards).sqrt()
    factor = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for gradient in (*replicated_grads, *sharded_grads):
        gradient.mul_(factor)
    return norm


def _squares(gradients: Sequence[Tensor], device: torch.device) -> Tensor:
    return sum((gradient.detach().float().square().sum() for gradient in gradients), torch.zeros((), device=device))

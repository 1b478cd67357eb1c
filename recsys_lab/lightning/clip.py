"""Clipping by the norm of all gradients: those of this rank's shards, those of other ranks' and those that all ranks share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor


def clip_by_whole_norm(shared: Iterable[Tensor], own: Iterable[Tensor], most: float, device: torch.device) -> Tensor:
    """Scales gradients as `torch.nn.utils.clip_grad_norm_` does in one process. Collective.

    Args:
        shared: parameters that every rank has with the same gradients.
        own: parameters of this rank's shards.
        most: the norm that all gradients together may have.
        device: where the sum over ranks is made.

    Returns:
        The norm before clipping.
    """
    alike, apart = ([parameter.grad for parameter in given if parameter.grad is not None] for given in (shared, own))
    elsewhere = _squares(apart, device)
    dist.all_reduce(elsewhere)
    norm = (_squares(alike, device) + elsewhere).sqrt()
    factor = torch.clamp(most / (norm + 1e-6), max=1.0)
    for gradient in (*alike, *apart):
        gradient.mul_(factor)
    return norm


def _squares(gradients: Sequence[Tensor], device: torch.device) -> Tensor:
    return sum((gradient.detach().float().square().sum() for gradient in gradients), torch.zeros((), device=device))

"""Predictions of a whole split, gathered from all ranks, and what they are worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from recsys_lab.data.batch import Batch
from recsys_lab.train.module import Judge

#: (logits [N], labels [N]) -> metrics; runs on rank 0 alone.
Metrics = Callable[[Tensor, Tensor], dict[str, float]]


def judge_of(metrics: Metrics) -> Judge:
    """Metrics over what all ranks saw, computed on rank 0 and known on every rank. An error of `metrics` is raised on all."""

    def judge(logits: Tensor, labels: Tensor) -> dict[str, float]:
        everything = _gather(torch.stack([logits.detach().float(), labels.float()]))
        answer: list = [None]
        if dist.get_rank() == 0:
            try:
                answer = [metrics(everything[0], everything[1])]
            except Exception as error:  # every rank must hear of it, or they wait for ever
                answer = [error]
        dist.broadcast_object_list(answer, src=0)
        if isinstance(answer[0], Exception):
            raise answer[0]
        return answer[0]

    return judge


@torch.no_grad()
def evaluate(model: nn.Module, batches: Iterable[Batch], judge: Judge, device: torch.device) -> dict[str, float]:
    """Metrics of `model` over a split whose batches every rank reads its own part of."""
    was_training = model.training
    model.eval()
    logits, labels = [], []
    for batch in batches:
        batch = batch.to(device, non_blocking=True)
        logits.append(model(batch.dense, batch.sparse)[: batch.valid].float())
        labels.append(batch.labels[: batch.valid])
    model.train(was_training)
    return judge(torch.cat(logits), torch.cat(labels))


def _gather(mine: Tensor) -> Tensor:
    """[2, n] of every rank, side by side on rank 0 (elsewhere only what came), in rank order. n may differ."""
    sizes = [torch.zeros(1, dtype=torch.int64, device=mine.device) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([mine.shape[1]], device=mine.device))
    longest = max(int(size) for size in sizes)
    padded = torch.nn.functional.pad(mine, (0, longest - mine.shape[1]))
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:, : int(size)] for part, size in zip(parts, sizes)], dim=1).cpu()

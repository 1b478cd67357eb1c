"""Scores the predictions of a whole split, gathered from all ranks. Clicks are scored by AUC and log loss, next items by their place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from recsys_lab.data.batch import Batch
from recsys_lab.data.loader import RankLoader
from recsys_lab.data.protocol import HeldOutItems
from recsys_lab.errors import UserError
from recsys_lab.record.breakdown import Breakdown
from recsys_lab.record.metrics import PLACES, quality, retrieval
from recsys_lab.train.held_out import SAMPLED, Candidates, Counts, counts_by_logits, counts_by_vectors, item_chunks, unwrapped
from recsys_lab.train.reliability import reliability

#: (logits [N], labels [N]) -> a breakdown without its reliability
Parts = Callable[[np.ndarray, np.ndarray], Breakdown]

#: By name; None where it was not found out.
Figures = dict[str, Any]


@dataclass(frozen=True)
class Judgement:
    """Of a split. `breakdown`: of clicks, where that was asked for."""

    quality: Figures
    breakdown: Breakdown | None = None


class Evaluation(Protocol):
    """Sees a split batch by batch, in file order, and then says its metrics, on every rank the same. Then it starts again."""

    @property
    def loader(self) -> RankLoader: ...
    def add(self, model: nn.Module, batch: Batch, index: int) -> None: ...
    def result(self, model: nn.Module) -> Judgement: ...


class ClickEvaluation:
    """Of logits [B] against labels.

    `held_out`: items that are to be found too, by scoring candidates row by row. Random ones and all items are scored only where each takes
    no more than `most_pairs` rows. Else their metrics are None. `parts`: makes the rest of a breakdown from logits and labels [N] in file
    order, on rank 0; None: no breakdown is made.
    """

    def __init__(
        self,
        split: str,
        loader: RankLoader,
        held_out: HeldOutItems | None = None,
        most_pairs: int = 0,
        parts: Parts | None = None,
    ):
        self.split, self.loader, self.held_out, self.most_pairs, self.parts = split, loader, held_out, most_pairs, parts
        self._seen: list[tuple[Tensor, Tensor]] = []

    def add(self, model: nn.Module, batch: Batch, index: int) -> None:
        logits = model(batch.values, batch.sparse)
        self._seen.append((logits[: batch.valid].float(), batch.labels[: batch.valid]))

    def result(self, model: nn.Module) -> Judgement:
        logits, labels = (torch.cat(part) for part in zip(*self._seen))
        self._seen.clear()
        judgement = _judged(torch.stack([logits, labels]), self._judge)
        if judgement.breakdown is not None:
            judgement = replace(judgement, breakdown=replace(judgement.breakdown, reliability=reliability(logits, labels)))
        if self.held_out is None:
            return judgement
        return replace(judgement, quality=judgement.quality | self._of_held_out(model, self.held_out, logits.device))

    def _judge(self, gathered_rows: Tensor) -> Judgement:
        """Of logits and labels [2, N] in the order of ranks."""
        logits, labels = gathered_rows.numpy()
        figures = quality(logits, labels, self.split)
        if self.parts is None:
            return Judgement(figures)
        in_order = np.empty_like(gathered_rows.numpy())
        in_order[:, self.loader.positions_by_rank()] = logits, labels
        return Judgement(figures, self.parts(*in_order))

    def _of_held_out(self, model: nn.Module, held_out: HeldOutItems, device: torch.device) -> Figures:
        every, drawn = (
            counts_by_logits(model, held_out, self.loader.keys, self.loader.rows_per_rank, every_item, device)
            if held_out.rows * per_user <= self.most_pairs
            else None
            for every_item, per_user in ((True, held_out.items), (False, SAMPLED + 1))
        )
        return _retrieval(every, drawn, held_out.rows, self.split)


class NextItemEvaluation:
    """Of a model whose `users` are vectors that every item's vector is multiplied with. The loader's split has a row a user."""

    def __init__(self, split: str, loader: RankLoader, held_out: HeldOutItems):
        self.split, self.loader, self.held_out = split, loader, held_out
        self._users: list[Tensor] = []
        self._rows: list[np.ndarray] = []
        self._candidates: Candidates | None = None  # those of an earlier time are the same

    def add(self, model: nn.Module, batch: Batch, index: int) -> None:
        inner = unwrapped(model)
        users: Tensor = inner.users(inner.embeddings(batch.sparse), batch.values)  # type: ignore[operator]  # a model for the next item has them
        self._users.append(users[: batch.valid].float())
        self._rows.append(self.loader.positions(index))

    def result(self, model: nn.Module) -> Judgement:
        users, rows = torch.cat(self._users), np.concatenate(self._rows)
        self._users.clear()
        self._rows.clear()
        if self._candidates is None:
            self._candidates = Candidates.of(self.held_out, rows, users.device)
        chunks = item_chunks(model, self.loader.keys, self.held_out.items, self.held_out.item_rows, users.device)
        return Judgement(_retrieval(*counts_by_vectors(users, self._candidates, chunks), self.held_out.rows, self.split))


@torch.no_grad()
def evaluate(model: nn.Module, evaluation: Evaluation, device: torch.device) -> Judgement:
    """The quality of `model` over a split whose batches every rank reads its own part of."""
    was_training = model.training
    model.eval()
    for index, batch in enumerate(evaluation.loader):
        evaluation.add(model, batch.to(device, non_blocking=True), index)
    judgement = evaluation.result(model)
    model.train(was_training)
    return judgement


def _retrieval(every: Counts | None, drawn: Counts | None, users: int, split: str) -> Figures:
    """Hit rate and NDCG against all items and against the random ones; None where they were not counted."""
    figures: Figures = {}
    for suffix, counts in (("", every), (f"_of_{SAMPLED + 1}", drawn)):
        both = (None, None) if counts is None else _judged(_table(counts), lambda table: _hit_rate_and_ndcg(table, split))
        figures |= {f"hit_rate_{PLACES}{suffix}": both[0], f"ndcg_{PLACES}{suffix}": both[1]}
    return figures | {"users": users}


def _table(counts: Counts) -> Tensor:
    return torch.stack([counts.above, counts.equal, counts.finite.long()])


def _hit_rate_and_ndcg(table: Tensor, split: str) -> tuple[float, float]:
    bad = int((table[2] == 0).sum())
    if bad:
        raise UserError(
            f"{bad} of {table.shape[1]} scores on split {split} are not finite: training diverged",
            remedy="lower the learning rate or clip gradients",
        )
    return retrieval(table[0].numpy(), table[1].numpy())


def _judged(own: Tensor, metrics: Callable[[Tensor], Any]) -> Any:
    """`metrics` of what all ranks have [k, n], computed on rank 0 and known on every rank. Its error is raised on all."""
    everything = gathered(own.detach())
    answer: list = [None]
    if dist.get_rank() == 0:
        try:
            answer = [metrics(everything)]
        except Exception as error:  # every rank must hear of it, or they wait for ever
            answer = [error]
    dist.broadcast_object_list(answer, src=0)
    if isinstance(answer[0], Exception):
        raise answer[0]
    return answer[0]


def gathered(own: Tensor) -> Tensor:
    """[k, n] of every rank, side by side, in rank order. n may differ."""
    sizes = [torch.zeros(1, dtype=torch.int64, device=own.device) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([own.shape[1]], device=own.device))
    longest = max(int(size) for size in sizes)
    padded = torch.nn.functional.pad(own, (0, longest - own.shape[1]))
    parts = [torch.empty_like(padded) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.cat([part[:, : int(size)] for part, size in zip(parts, sizes)], dim=1).cpu()

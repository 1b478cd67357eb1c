"""How many items score above a user's held-out one. It goes by vectors, where a score is a dot product, or by a click model's logits.

Items may be sharded over the ranks. Every rank has users of its own, and takes part in equally many look-ups of equal size.
An item that the user had before is no candidate, unless it is the held-out one itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.data.loader import as_batch, rank_slice
from recsys_lab.data.protocol import HeldOutItems, Split
from recsys_lab.models.click_model import ClickModel
from recsys_lab.models.history import ITEM

#: Random items that the held-out one is to be found among, as in SASRec and S3-Rec, beside all items.
SAMPLED = 99
CHUNK_ITEMS = 4096
BLOCK_USERS = 1024

#: Pieces of the item table: the first item of each, and vectors [c, D].
Chunks = Callable[[], Iterator[tuple[int, Tensor]]]


@dataclass(frozen=True)
class Counts:
    """Of n users: how many others scored `above` and `equal` to the held-out item, int64 [n]; `finite` bool [n]: whether its score is
    a number."""

    above: Tensor
    equal: Tensor
    finite: Tensor


@dataclass(frozen=True)
class Candidates:
    """Of n users: the held-out item [n], pairs (user, item) that are no negatives [2, m], and random items [n, S], 0 for none.

    The pairs are in rising order of item.
    """

    target: Tensor
    excluded: Tensor
    sampled: Tensor

    @staticmethod
    def of(held_out: HeldOutItems, rows: np.ndarray, device: torch.device) -> Candidates:
        target, (lengths, seen) = held_out.target(rows), held_out.seen(rows)
        users = np.arange(len(rows))
        excluded = by_item(np.concatenate([np.repeat(users, lengths), users]), np.concatenate([seen, target]))
        return Candidates(*(torch.from_numpy(a).to(device) for a in (target, excluded, held_out.sampled(rows, SAMPLED))))


def by_item(users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """int64 [2, m]: pairs in rising order of item, so that those of a chunk of items follow one another."""
    order = np.argsort(items, kind="stable")
    return np.stack([users[order], items[order]])


def in_chunk(pairs: Tensor, first: int, items: int) -> Tensor:
    """[2, k]: of `pairs` in rising order of item those of the `items` from `first` on. A view."""
    begin, end = torch.searchsorted(pairs[1].contiguous(), torch.tensor([first, first + items], device=pairs.device)).tolist()
    return pairs[:, begin:end]


def leave_out(scores: Tensor, pairs: Tensor, first_user: int, first_item: int) -> None:
    """Sets the `scores` [n, c], of users and items from these on, of all `pairs` among them to -inf."""
    user, item = pairs[:, (pairs[0] >= first_user) & (pairs[0] < first_user + len(scores))]
    scores[user - first_user, item - first_item] = -float("inf")


def unwrapped(model: nn.Module) -> ClickModel:
    """The model inside what distributes it."""
    while not isinstance(model, ClickModel):
        model = cast(nn.Module, model.module)
    return model


def item_chunks(model: nn.Module, keys: list[str], items: int, item_rows: int, device: torch.device) -> Chunks:
    """All item vectors of a model for the next item, looked up through its tables, wherever they are. Item i is in row i % `item_rows`."""
    inner, size = unwrapped(model), min(CHUNK_ITEMS, items)
    scored = inner.next_item
    assert scored is not None, "a model for the next item"
    lengths = torch.zeros(len(keys), size, dtype=torch.int32, device=device)
    lengths[keys.index(ITEM)] = 1

    def chunks() -> Iterator[tuple[int, Tensor]]:
        for first in range(1, items + 1, size):
            ids = torch.arange(first, first + size, device=device).clamp(max=items)  # the last chunk is as long as the others
            vectors = inner.embeddings(KeyedJaggedTensor(keys=keys, values=ids % item_rows, lengths=lengths.flatten(), stride=size))
            yield first, scored.of_items(vectors[ITEM].values()[: items + 1 - first].float())

    return chunks


def counts_by_vectors(users: Tensor, candidates: Candidates, chunks: Chunks) -> tuple[Counts, Counts]:
    """Against all items, and against the random ones. `users` [n, D]. No more than a chunk of items and a block of users at once."""
    blocks = [slice(first, first + BLOCK_USERS) for first in range(0, len(users), BLOCK_USERS)]
    wanted = torch.cat([candidates.target[:, None], candidates.sampled], dim=1)
    candidate_scores = users.new_full(wanted.shape, -float("inf"))
    for first, vectors in chunks():
        for block in blocks:
            place = wanted[block] - first
            here = (users[block] @ vectors.T).gather(1, place.clamp(0, len(vectors) - 1))
            candidate_scores[block] = torch.where((place >= 0) & (place < len(vectors)), here, candidate_scores[block])
    score = candidate_scores[:, :1]
    above, equal = torch.zeros_like(candidates.target), torch.zeros_like(candidates.target)
    for first, vectors in chunks():
        excluded = in_chunk(candidates.excluded, first, len(vectors))
        for block in blocks:
            scores = users[block] @ vectors.T
            leave_out(scores, excluded, block.start, first)
            above[block] += (scores > score[block]).sum(1)
            equal[block] += (scores == score[block]).sum(1)
    return Counts(above, equal, torch.isfinite(score[:, 0])), _counts(score[:, 0], candidate_scores[:, 1:])


def counts_by_logits(
    model: nn.Module, held_out: HeldOutItems, keys: list[str], batch_rows: int, every_item: bool, device: torch.device
) -> Counts:
    """Of this rank's part of the users, by scoring the held-out item and `SAMPLED` others, or every item, row by row."""
    split = held_out.candidates(0 if every_item else SAMPLED)
    per_user = split.rows // held_out.rows
    first, end = rank_slice(held_out.rows, _rank(), _ranks())
    scores = _scores(model, split, first * per_user, end * per_user, _steps(held_out.rows, per_user, batch_rows), keys, batch_rows, device)
    scores = scores.view(end - first, per_user)
    candidates = Candidates.of(held_out, np.arange(first, end), device)
    if not every_item:
        return _counts(scores[:, 0], scores[:, 1:].masked_fill(candidates.sampled == 0, -float("inf")))
    target = scores.gather(1, candidates.target[:, None] - 1).squeeze(1)
    scores[candidates.excluded[0], candidates.excluded[1] - 1] = -float("inf")
    return _counts(target, scores)


def _scores(
    model: nn.Module, split: Split, first: int, end: int, steps: int, keys: list[str], batch_rows: int, device: torch.device
) -> Tensor:
    """[end - first]: the logits of rows [first, end), in `steps` batches, the last of which may be empty."""
    scores = []
    for step in range(steps):
        rows = np.arange(min(end, first + step * batch_rows), min(end, first + (step + 1) * batch_rows), dtype=np.int64)
        batch = as_batch(split.read(rows), keys, batch_rows, len(rows)).to(device)
        scores.append(model(batch.values, batch.sparse)[: len(rows)].float())
    return torch.cat(scores)


def _counts(score: Tensor, others: Tensor) -> Counts:
    """`score` [n] of the held-out item against `others` [n, m]."""
    return Counts((others > score[:, None]).sum(1), (others == score[:, None]).sum(1), torch.isfinite(score))


def _steps(users: int, per_user: int, batch_rows: int) -> int:
    """Batches that the rank with the most users needs."""
    return -(-(-(-users // _ranks()) * per_user) // batch_rows)


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _ranks() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1

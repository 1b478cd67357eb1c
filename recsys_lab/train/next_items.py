"""For each user of a split the items that a model for the next item ranks first, of those that the user has not had."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import torch
from torch import Tensor, nn

from recsys_lab.base.losses import BINARY
from recsys_lab.data.loader import RankLoader
from recsys_lab.data.protocol import HeldOutItems
from recsys_lab.record.metrics import PLACES
from recsys_lab.train.evaluate import gathered
from recsys_lab.train.held_out import BLOCK_USERS, Chunks, by_item, in_chunk, item_chunks, leave_out, unwrapped


@torch.no_grad()
def next_items(
    model: nn.Module, loader: RankLoader, held_out: HeldOutItems, names: Sequence[str] | None, device: torch.device
) -> pl.DataFrame:
    """The `PLACES` likeliest items of each user: row, rank from 1, item and its probability. Collective.

    The probability is that of the loss. binary: the user had the item next, and not one drawn among those never had. The softmaxes: of all
    items not had, it is the next. `names`: of items from 1 on; None: their numbers stand for them.
    """
    model.eval()
    inner, users, rows = unwrapped(model), [], []
    for index, batch in enumerate(loader):
        moved = batch.to(device, non_blocking=True)
        vectors: Tensor = inner.users(inner.embeddings(moved.sparse), moved.values)  # type: ignore[operator]  # for the next item
        users.append(vectors[: batch.valid].float())
        rows.append(loader.positions(index))
    own_rows = np.concatenate(rows)
    places = min(PLACES, held_out.items)
    chunks = item_chunks(model, loader.keys, held_out.items, held_out.item_rows, device)
    scores, items, total = _best(torch.cat(users), *held_out.seen(own_rows), chunks, places)
    probabilities = scores.double().sigmoid() if inner.loss == BINARY else (scores.double() - total.double()).exp()
    own = torch.cat([torch.from_numpy(own_rows)[None].to(device).double(), items.T.double(), probabilities.T])
    table = gathered(own).numpy()
    table = table[:, np.argsort(table[0])]
    count = table.shape[1]
    numbers = table[1 : places + 1].T.ravel().astype(np.int64)
    return pl.DataFrame(
        {
            "row": np.repeat(table[0].astype(np.int64), places),
            "rank": np.tile(np.arange(1, places + 1), count),
            "item": numbers if names is None else [names[number - 1] for number in numbers.tolist()],
            "probability": table[places + 1 :].T.ravel(),
        }
    ).filter(pl.col("probability") > 0)


def _best(users: Tensor, lengths: np.ndarray, seen: np.ndarray, chunks: Chunks, places: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores and items [n, places] of users [n, D], falling, and the log of the sum of exp over all candidates [n, 1].

    `lengths` [n] and `seen` [sum]: items that are no candidates, -inf.
    """
    pairs = torch.from_numpy(by_item(np.repeat(np.arange(len(lengths)), lengths), seen)).to(users.device)
    best = users.new_empty(len(users), 0), pairs.new_empty(len(users), 0)
    total = users.new_full((len(users), 1), -torch.inf)
    for first, vectors in chunks():
        of_chunk = in_chunk(pairs, first, len(vectors))
        parts, sums = [], []
        for begin in range(0, len(users), BLOCK_USERS):
            scores = users[begin : begin + BLOCK_USERS] @ vectors.T
            leave_out(scores, of_chunk, begin, first)
            sums.append(scores.logsumexp(1, keepdim=True))
            parts.append(scores.topk(min(places, len(vectors))))
        total = torch.logaddexp(total, torch.cat(sums))
        here = torch.cat([part.values for part in parts]), torch.cat([part.indices for part in parts]) + first
        both = [torch.cat(pair, dim=1) for pair in zip(best, here)]
        top = both[0].topk(min(places, both[0].shape[1]))
        best = top.values, both[1].gather(1, top.indices)
    return *best, total

"""The item that comes next: what a model says of it, for each of the losses that it is trained with.

Every place of a history has a vector `hidden` [D]. An item's score there is its product with the item's vector, of the table that the
history reads too. With a temperature both are L2-normalised first, and the product is divided by it.

    binary             scores of the item that came, and of `negatives` that did not (Kang and McAuley 2018, equation 6)
    sampled_softmax    score of the item that came, and log of the sum of exp over it and drawn items, corrected by how often each is drawn
    in_batch_softmax   the same over the items that came in a rank's batch, corrected by the chance that an item is among them
    softmax            the same over every item, which needs no correction

Shapes: N places of B histories, D embedding dimension, K negatives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import normalize
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor

from recsys_lab.base.losses import BINARY, IN_BATCH_SOFTMAX, SOFTMAX
from recsys_lab.data.protocol import CONTEXT, SIDE
from recsys_lab.models.jagged import Places
from recsys_lab.tables import Table

#: The item that comes next, and those that it is told from.
TOLD = POSITIVE, NEGATIVE = ("positive", "negative")
#: Scores that the full softmax has in memory at once, and of how many places: few enough to stay in a core's cache.
SCORES_AT_ONCE, PLACES_AT_ONCE = 1 << 19, 1024


@dataclass(frozen=True)
class Told:
    """Ids of `TOLD`, int64, as they lie in a batch, and when each item of the histories came, in seconds, where that is known."""

    positive: Tensor  # [N]
    negative: Tensor
    times: Tensor | None = None  # int64 [N]
    counts: Mapping[str, Tensor] = field(default_factory=dict)  # of side columns of lists: ids of each item, int64 [N]

    @staticmethod
    def of(sparse: KeyedJaggedTensor, values: Any = None) -> Told:
        """Those of a batch. `values`: its events, if it has any (data/batch.py)."""
        return Told(sparse[POSITIVE].values(), sparse[NEGATIVE].values(), times_of(values), counts_of(values))

    @staticmethod
    def example(looked_up: Mapping[str, JaggedTensor]) -> Told:
        """As many ids and times as rows, on the meta device. Side columns of lists have equally many ids an item."""
        sizes = (len(looked_up[name].values()) for name in (*TOLD, POSITIVE))
        events = len(looked_up[POSITIVE].values())
        ids = {name: len(rows.values()) for name, rows in looked_up.items() if name.startswith(SIDE)}
        counts = {name: torch.full((events,), of // events) for name, of in ids.items() if of > events > 0}
        positive, negative, times = (torch.empty(size, dtype=torch.int64, device="meta") for size in sizes)
        return Told(positive, negative, times, counts)


@dataclass(frozen=True)
class NextItem:
    """How items are scored. `chances` [rows of the table]: that an item is the one that came at a place; None: all alike. `loss`: of
    base/losses.py. `temperature`: None: plain products, times `scale`. `items`: that there are."""

    loss: str
    temperature: float | None
    scale: float
    items: int
    chances: Tensor | None = None

    def of_users(self, hidden: Tensor) -> Tensor:
        """[n, D] -> [n, D]: vectors whose product with `of_items` is the score."""
        return self.scale * hidden if self.temperature is None else normalize(hidden, dim=-1) / self.temperature

    def of_items(self, rows: Tensor) -> Tensor:
        """[..., D], rows of the table -> the same shape."""
        return rows if self.temperature is None else normalize(rows, dim=-1)

    def output(self, hidden: Tensor, looked_up: Mapping[str, JaggedTensor], told: Told, places: Places, lengths: Tensor) -> Tensor:
        """What the loss reads of each of N places: binary [N, 1 + K]: scores; else [N, 2]: the score, and the log of the sum.

        `places`, `lengths`: of the histories, as `placed_rows` gives them.
        """
        users = self.of_users(hidden)
        came, others = (self.of_items(looked_up[name].values()) for name in TOLD)
        score = (users * came).sum(1)
        if self.loss == BINARY:
            each = len(others) // max(1, len(users))
            of_others = (others.view(len(users), each, others.shape[1]) * users[:, None]).sum(2)
            return torch.cat([score[:, None], of_others], dim=1)
        if self.loss == SOFTMAX:
            return torch.stack([score, log_sum_exp(users, others)], dim=1)
        if self.loss == IN_BATCH_SOFTMAX:
            return torch.stack([score + 0.0 * others.sum(), self._of_batch(users, came, told.positive)], dim=1)
        return torch.stack([score, self._of_drawn(users, others, score, told, places, lengths)], dim=1)

    def _of_batch(self, users: Tensor, came: Tensor, ids: Tensor) -> Tensor:
        """[N]: log of the sum over each item of `ids` [N] once.

        An item that is among N places with chance c counts 1 / c times (Horvitz and Thompson 1952), so that the sum is that over every item
        on average. The one that came at the place itself counts once.
        """
        if ids.is_meta or not len(ids):
            return log_sum_exp(users, came)
        in_order = torch.argsort(ids, stable=True)
        _, own, counts = torch.unique(ids, return_inverse=True, return_counts=True)
        once = in_order[counts.cumsum(0) - counts]
        chance = (
            torch.full_like(once, 1 / self.items, dtype=torch.float64) if self.chances is None else self.chances.to(ids.device)[ids[once]]
        )
        log_chance = torch.log(-torch.expm1(len(ids) * torch.log1p(-chance.clamp(1e-12, 1 - 1e-12)))).float()
        return log_sum_exp(users, came[once], -log_chance, own)

    def example(
        self, features: Sequence[str], dim: int, samples: int, lengths: Mapping[str, int], mean_lengths: Mapping[str, float]
    ) -> dict[str, JaggedTensor]:
        """Rows of `features` on the meta device, `lengths` of each a sample, to count costs. Negatives are as many as the loss reads."""
        lengths = dict(lengths)
        if NEGATIVE in lengths:
            each = mean_lengths.get(NEGATIVE, 1.0)
            by_place = max(1, round(each / max(1.0, mean_lengths.get(POSITIVE, 1.0)))) * lengths[POSITIVE]
            lengths[NEGATIVE] = by_place if self.loss == BINARY else max(1, round(each))
        for name in lengths:
            if name.startswith(SIDE) and POSITIVE in lengths:
                each = mean_lengths.get(name, 1.0) / max(1.0, mean_lengths.get(POSITIVE, 1.0))
                lengths[name] = max(1, round(each)) * lengths[POSITIVE]
            elif name.startswith(CONTEXT):
                lengths[name] = max(1, round(mean_lengths.get(name, 1.0)))
        counts = {name: self.items if name == NEGATIVE and self.loss == SOFTMAX else samples * lengths[name] for name in features}
        rows = {name: torch.empty(count, dim, device="meta", requires_grad=True) for name, count in counts.items()}
        return {name: JaggedTensor(own, lengths=torch.full((samples,), lengths[name])) for name, own in rows.items()}

    def _of_drawn(self, users: Tensor, others: Tensor, score: Tensor, told: Told, places: Places, lengths: Tensor) -> Tensor:
        """[N]: log of the sum over the item that came and the K of its own history. One of these that came itself is left out."""
        having = torch.nonzero(lengths > 0).squeeze(1).to(users.device)  # histories; padding has no places and no negatives
        if not len(having):
            return score + 0.0 * others.sum()
        drawn, ids = others.view(len(having), -1, others.shape[1]), told.negative.view(len(having), -1)
        each = ids.shape[1]
        of_history = drawn.new_zeros(places.samples, each, others.shape[1]).index_copy(0, having, drawn)
        ids = ids.new_zeros(places.samples, each).index_copy(0, having, ids)
        scores = places.packed(torch.bmm(places.padded(users), of_history.transpose(1, 2))) + log(self.items / each)
        scores = scores.masked_fill(ids[places.sample] == told.positive[:, None], -torch.inf)
        return torch.cat([score[:, None], scores], dim=1).logsumexp(1)


def times_of(values: Any) -> Tensor | None:
    """int64 [N]: when each item of a batch's histories came. None where it does not say so."""
    times: Tensor | None = getattr(values, "times", None)
    return times if getattr(values, "timed", True) else None


def counts_of(values: Any) -> Mapping[str, Tensor]:
    """int64 [N] by feature: how many ids of it each item of a batch's histories has. Others have one."""
    counts: Mapping[str, Tensor] = getattr(values, "counts", {})
    return counts


def items_of(tables: Sequence[Table]) -> int:
    """Of the table with the feature `item`, whose row 0 stands for none; 1 where there is none."""
    return max((table.rows - 1 for table in tables if "item" in table.features), default=1) or 1


def log_sum_exp(users: Tensor, items: Tensor, added: Tensor | None = None, own: Tensor | None = None) -> Tensor:
    """[N, D], [M, D] -> [N]: of each user's products with all items. Never more than `SCORES_AT_ONCE` products in memory.

    `added` [M] is added to the products, but not to those of each user with the item number `own` [N].
    """
    result: Tensor = _LogSumExp.apply(users, items, added, own)
    return result


class _LogSumExp(torch.autograd.Function):
    """Its backward pass computes the products again."""

    @staticmethod
    def forward(ctx: Any, users: Tensor, items: Tensor, added: Tensor | None, own: Tensor | None) -> Tensor:
        found = users.new_full((len(users),), -torch.inf)
        ctx.added, ctx.own = added, own
        for some, part in _blocks(users, items):
            scores = _scores(users, items, added, own, some, part)
            most = scores.amax(1, keepdim=True)
            of_part = scores.sub_(most).exp_().sum(1).log_() + most.squeeze(1)
            torch.logaddexp(found[some], of_part, out=found[some])
        ctx.save_for_backward(users, items, found)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        users, items, found = ctx.saved_tensors
        of_users, of_items, weighed = torch.zeros_like(users), torch.zeros_like(items), grad[:, None] * users
        for some, part in _blocks(users, items):
            shares = _scores(users, items, ctx.added, ctx.own, some, part).sub_(found[some, None]).exp_()
            of_users[some].addmm_(shares, items[part])
            of_items[part].addmm_(shares.T, weighed[some])
        return of_users.mul_(grad[:, None]), of_items, None, None


def _scores(users: Tensor, items: Tensor, added: Tensor | None, own: Tensor | None, some: slice, part: slice) -> Tensor:
    """[n, m]: of `some` users with a `part` of the items."""
    scores = users[some] @ items[part].T
    if added is not None and own is not None:
        scores += added[part]
        at = torch.nonzero((own[some] >= part.start) & (own[some] < part.stop)).squeeze(1)
        scores[at, own[some][at] - part.start] -= added[own[some][at]]
    return scores


def _blocks(users: Tensor, items: Tensor) -> list[tuple[slice, slice]]:
    step = max(1, SCORES_AT_ONCE // min(PLACES_AT_ONCE, max(1, len(users))))
    return [
        (slice(place, place + PLACES_AT_ONCE), slice(item, item + step))
        for place in range(0, len(users), PLACES_AT_ONCE)
        for item in range(0, len(items), step)
    ]

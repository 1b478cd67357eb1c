"""Attention over sequences.

One kind is causal self-attention (SASRec, Kang and McAuley 2018). The other is attention of one target over a history (DIN, Zhou et al.
2018, with softmax weights). Shapes: N rows of B sequences, D their dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, scaled_dot_product_attention

from recsys_lab.kernels.jagged_attention import attends_on_cpu, causal_softmax, last_softmax
from recsys_lab.models.jagged import PaddedPlaces, Places
from recsys_lab.models.layer_norm import LayerNorm
from recsys_lab.models.linear import Linear

#: Sequences of like length: which rows they have, and where each belongs.
Groups = Sequence[tuple[Tensor, Places]]


def groups_of(places: Places, lengths: Tensor, fuses: bool) -> Groups | None:
    """Those of `Places.groups`, for torch's definition. None: a kernel reads sequences of any length, if it `fuses` attention for them."""
    return None if fuses and not isinstance(places, PaddedPlaces) else places.groups(lengths)


def attend(queries: Tensor, keys: Tensor, values: Tensor, places: Places, groups: Groups | None, heads: int, drop: float = 0.0) -> Tensor:
    """Row i of a sequence -> the sum over its rows j up to i of softmax(q_i k_j / sqrt(d)) v_j, for each of h heads. [N, h * d] each.

    Sequences are padded at their end, where no earlier row looks: the causal mask is all that is needed. `groups` from `groups_of`. `drop`:
    share of the weights that dropout makes zero.
    """
    if groups is None:
        return causal_softmax(queries, keys, values, places.lengths, heads, drop)
    attended = torch.zeros_like(values)
    for own, group in groups:
        q, k, v = (by_heads(part[own], group, heads) for part in (queries, keys, values))
        part = scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=drop)
        attended = attended.index_copy(0, own, group.packed(part.transpose(1, 2).flatten(2)))
    return attended


def attend_last(queries: Tensor, keys: Tensor, values: Tensor, places: Places, groups: Groups | None, heads: int) -> Tensor:
    """`attend` of the last row of each sequence alone, without dropout: queries [B, h * d] -> [B, h * d], zeros where it is empty."""
    if reads_last(keys, groups):
        return last_softmax(queries, keys, values, places.lengths, heads)
    k, v = (by_heads(part, places, heads) for part in (keys, values))
    q, seen = queries.unflatten(1, (heads, 1, -1)), places.is_row()[:, None, None]
    return scaled_dot_product_attention(q, k, v, attn_mask=seen).flatten(1) * places.any_rows(values)


def reads_last(rows: Tensor, groups: Groups | None) -> bool:
    """Whether a kernel computes the last row of each sequence alone. It is in no graph."""
    return groups is None and attends_on_cpu(rows) and not torch.is_grad_enabled()


def by_heads(rows: Tensor, places: Places, heads: int) -> Tensor:
    """[n, h * d] -> [b, h, T, d], padded at the end, where no earlier row looks."""
    return places.padded(rows).unflatten(2, (heads, -1)).transpose(1, 2)


class CausalBlock(nn.Module):
    """One layer of a transformer whose rows see their own sequence up to themselves.

    rows -> LayerNorm -> attention -> + -> LayerNorm -> wide layer, GELU, back -> +
    """

    def __init__(self, dim: int, heads: int, feed_forward: int, dropout: float, device: torch.device | None):
        super().__init__()
        self.heads = heads
        self.before_attention = LayerNorm(dim, device=device)
        self.query_key_value = Linear(dim, 3 * dim, device=device)
        self.mix = Linear(dim, dim, device=device)
        self.before_wide = LayerNorm(dim, device=device)
        self.wide = Linear(dim, feed_forward, device=device)
        self.narrow = Linear(feed_forward, dim, device=device)
        self.dropout = nn.Dropout(dropout)

    def forward(self, rows: Tensor, places: Places, groups: Groups | None) -> Tensor:
        """[N, D] -> [N, D]. `groups` from `groups_of`."""
        queries, keys, values = self.query_key_value(self.before_attention(rows)).chunk(3, dim=1)
        attended = attend(queries, keys, values, places, groups, self.heads, self.dropout.p if self.training else 0.0)
        return self._after_attention(rows, attended)

    def of_last(self, rows: Tensor, places: Places, groups: Groups | None) -> Tensor:
        """[N, D] -> [B, D]: what `forward` gives for the last row of each sequence, without dropout of weights."""
        last, dim = places.last(rows), rows.shape[1]
        queries = self.query_key_value.part(self.before_attention(last), 0, dim)
        keys, values = self.query_key_value.part(self.before_attention(rows), dim, 3 * dim).chunk(2, dim=1)
        attended = attend_last(queries, keys, values, places, groups, self.heads)
        return self._after_attention(last, attended)

    def _after_attention(self, rows: Tensor, attended: Tensor) -> Tensor:
        rows = rows + self.dropout(self.mix(attended))
        return rows + self.dropout(self.narrow(self.dropout(gelu(self.wide(self.before_wide(rows))))))


class TargetAttention(nn.Module):
    """The history as one target sees it: the mean of its rows, weighted by how well each fits the target. Linear in the length."""

    def __init__(self, dim: int, dropout: float, device: torch.device | None):
        super().__init__()
        self.question = Linear(dim, dim, device=device)
        self.dropout = dropout

    def forward(self, target: Tensor, rows: Tensor, places: Places) -> Tensor:
        """target [B, D], history [N, D] -> [B, D], zeros where the history is empty."""
        query, history = self.question(target)[:, None, None], places.padded(rows)[:, None]
        attended = scaled_dot_product_attention(query, history, history, attn_mask=places.is_row()[:, None, None])
        return dropout(attended[:, 0, 0], self.dropout, self.training)

"""Attention over sequences.

One kind is causal self-attention (SASRec, Kang and McAuley 2018). The other is attention of one target over a history (DIN, Zhou et al.
2018, with softmax weights). Shapes: N rows of B sequences, D their dimension.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, gelu, scaled_dot_product_attention

from recsys_lab.models.jagged import Places
from recsys_lab.models.layer_norm import LayerNorm
from recsys_lab.models.linear import Linear

#: Sequences of like length: which rows they have, and where each belongs.
Groups = Sequence[tuple[Tensor, Places]]


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

    def forward(self, rows: Tensor, groups: Groups) -> Tensor:
        """[N, D] -> [N, D]. `groups` from `Places.groups`."""
        rows = rows + self.dropout(self.mix(self._attend(self.before_attention(rows), groups)))
        return rows + self.dropout(self.narrow(self.dropout(gelu(self.wide(self.before_wide(rows))))))

    def _attend(self, rows: Tensor, groups: Groups) -> Tensor:
        """Sequences are padded at their end, where no earlier row looks: the causal mask is all that is needed."""
        projected, drop = self.query_key_value(rows), self.dropout.p if self.training else 0.0
        attended = torch.zeros_like(rows)
        for own, places in groups:
            square = places.padded(projected[own]).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
            part = scaled_dot_product_attention(square[0], square[1], square[2], is_causal=True, dropout_p=drop)
            attended = attended.index_copy(0, own, places.packed(part.transpose(1, 2).flatten(2)))
        return attended


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

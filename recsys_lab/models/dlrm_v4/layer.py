"""DLRMv4's HSTU layer. It differs from the paper's (hstu/network.py): values, queries and keys pass no SiLU, and its output sees attention
as it is as well as gated.

    rows X [N, D] -> LayerNorm -> linear -> SiLU(gate U), values V, queries Q, keys K
    SiLU(Q K^T / sqrt(d)) / L, causal, times V -> attended O
    [U, O, LayerNorm(O) U] -> dropout -> linear without bias -> + X
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from torch.utils.checkpoint import checkpoint

from recsys_lab.models.attention import Groups
from recsys_lab.models.dlrm_v4 import DLRMV4
from recsys_lab.models.jagged import Places
from recsys_lab.models.layer_norm import LayerNorm
from recsys_lab.models.linear import Linear
from recsys_lab.models.pointwise import Attention

EPS = 1e-6


class Layer(nn.Module):
    """One layer. `asks` gives the gate and queries of rows, `tells` the values and keys: halves of one matrix [D, 4 h d]."""

    def __init__(self, options: DLRMV4, device: torch.device | None):
        super().__init__()
        dim, self.heads, self.recompute = options.embedding_dim, options.heads, options.recompute
        self.sizes = (options.heads * options.linear_dim, options.heads * options.attention_dim)
        self.scale = options.attention_dim**-0.5
        self.before = LayerNorm(dim, eps=EPS, device=device)
        self.asks = Linear(dim, sum(self.sizes), device=device)
        self.tells = Linear(dim, sum(self.sizes), device=device)
        self.after = LayerNorm(self.sizes[0], eps=EPS, device=device)
        self.dropout = nn.Dropout(options.dropout)
        self.mix = Linear(3 * self.sizes[0], dim, bias=False, device=device)

    def reset_parameters(self) -> None:
        """Xavier uniform, of `asks` and `tells` as of one matrix."""
        bound = (6 / (self.asks.in_features + self.asks.out_features + self.tells.out_features)) ** 0.5
        for half in (self.asks, self.tells):
            nn.init.uniform_(half.weight, -bound, bound)
            nn.init.zeros_(half.bias)
        nn.init.xavier_uniform_(self.mix.weight)

    def forward(self, rows: Tensor, places: Places, groups: Groups | None, divisor: int) -> Tensor:
        """[N, D] -> [N, D]. `groups` from `Places.groups`; None: a kernel reads sequences of any length."""
        gate, attended = self._kept(self._attend, rows, None, Attention(places, groups, self.heads, divisor))
        return rows + self._kept(self._output, gate, attended)

    def of_last(self, rows: Tensor, places: Places, groups: Groups | None, divisor: int) -> Tensor:
        """[N, D] -> [B, D]: what `forward` gives for the last row of each sequence. No sequence is empty."""
        last = places.last(rows)
        gate, attended = self._kept(self._attend, rows, last, Attention(places, groups, self.heads, divisor))
        return last + self._kept(self._output, gate, attended)

    def _attend(self, rows: Tensor, last: Tensor | None, attention: Attention) -> tuple[Tensor, Tensor]:
        """The rows, or the last of each sequence, see those up to themselves: -> the gate, and what they saw."""
        normed = self.before(rows)
        asking = normed if last is None else self.before(last)
        gate, queries = self.asks(asking).split(self.sizes, dim=1)
        values, keys = self.tells(normed).split(self.sizes, dim=1)
        see = attention.of_all if last is None else attention.of_last
        return silu(gate), see(queries * self.scale, keys, values)

    def _output(self, gate: Tensor, attended: Tensor) -> Tensor:
        return self.mix(self.dropout(torch.cat([gate, attended, self.after(attended) * gate], dim=1)))

    def _kept(self, step: Callable, *inputs: Any) -> Any:
        """`step` of `inputs`, of which only these are kept for the backward pass, if asked."""
        return checkpoint(step, *inputs, use_reentrant=False) if self.recompute and torch.is_grad_enabled() else step(*inputs)

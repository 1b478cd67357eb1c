"""DLRMv4's tokens: what a sample's context, history and candidate are before the first layer.

    content 512 ----------> MLP -+
    artist, album 1,024 --> MLP -+-> + -> events, candidate -+
    bits of the action ---> MLP -+                           +-> sqrt(D) -> + place + time -> dropout -> tokens [M, D]
    context ----> a product each ----------------------------+

Shapes: B samples, N events of their histories, M = N + 9 B tokens, D embedding dimension. The MLPs' sizes are those of D = 512.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import JaggedTensor

from recsys_lab.data.batch import Events
from recsys_lab.models.dlrm_v4 import ACTIONS, CONTEXT, DLRMV4, HISTORY, OTHER_TOKENS
from recsys_lab.models.jagged import Places, in_turn, places_of
from recsys_lab.models.layer_norm import LayerNorm, SwishLayerNorm
from recsys_lab.models.linear import Linear

#: Time is told apart by the root of so many seconds.
TIME_UNIT_S = 60


class Tokens(nn.Module):
    """The figure."""

    def __init__(self, options: DLRMV4, device: torch.device | None):
        super().__init__()
        dim, hidden, self.scale = options.embedding_dim, options.hidden, options.embedding_dim**0.5
        self.content = mlp(dim, hidden, dim, device)
        self.side = mlp((len(HISTORY) - 1) * dim, hidden, dim, device)
        self.actions = Actions(options.action_dim, device)
        self.action = mlp(ACTIONS * options.action_dim, hidden, dim, device)
        self.context = Products(len(CONTEXT), dim, device)
        self.place = nn.Embedding(options.places, dim, device=device)
        self.time = nn.Embedding(options.time_buckets + 1, dim, device=device)
        self.dropout = nn.Dropout(options.input_dropout)

    def reset_parameters(self) -> None:
        """Xavier normal in the MLPs; places and times uniform within one over the root of their number."""
        for mlp in (self.content, self.side, self.action):
            xavier_normal(mlp)
        for table in (self.place, self.time):
            bound = table.num_embeddings**-0.5
            nn.init.uniform_(table.weight, -bound, bound)

    def forward(self, events: Events, looked_up: Mapping[str, JaggedTensor], candidate: Sequence[Tensor]) -> tuple[Tensor, Tensor, Places]:
        """Each feature's rows, and the candidate's [B, D] -> tokens [M, D], how many each sample has [B], and their places."""
        item, *side = (torch.cat([looked_up[name].values(), own]) for name, own in zip(HISTORY, candidate))  # [N + B, D] each
        actions = self.actions(events.actions, len(events.asked))
        rows = self.content(item) + self.side(torch.cat(side, dim=1)) + self.action(actions)
        context = self.context(torch.stack([one_each(looked_up[name]) for name in CONTEXT], dim=1))  # [B, 8, D]
        seconds = torch.cat([torch.zeros_like(events.asked).repeat(len(CONTEXT)), events.times, events.asked])
        lengths = looked_up[HISTORY[0]].lengths().long()
        order = in_turn(torch.full_like(lengths, len(CONTEXT)), lengths, torch.ones_like(lengths)).to(rows.device)
        places = Places.of(lengths + OTHER_TOKENS, rows.device)
        tokens = torch.cat([context.flatten(0, 1), rows])[order] * self.scale
        tokens = tokens + self.place(self._place(places)) + self.time(self._time(seconds[order], events.asked[places.sample]))
        return self.dropout(tokens), lengths + OTHER_TOKENS, places

    def _place(self, places: Places) -> Tensor:
        """int64 [M]: context has the first ones, in order; the candidate the next, and events follow back from it."""
        from_start = places.flat - places.sample * places.longest
        back = (len(CONTEXT) + places.to_end).clamp(max=self.place.num_embeddings - 1)
        return torch.where(from_start < len(CONTEXT), from_start, back)

    def _time(self, seconds: Tensor, asked: Tensor) -> Tensor:
        """int64 [M]: the root of the minutes between a token's event and the question. Context has time 0."""
        minutes = (asked - seconds).clamp(min=0).float() / TIME_UNIT_S
        return minutes.sqrt().floor().long().clamp(max=self.time.num_embeddings - 1)


class Actions(nn.Module):
    """A vector for each bit of an action that is set, else zeros. The candidate has one of its own, so it does not see its label."""

    def __init__(self, dim: int, device: torch.device | None):
        super().__init__()
        self.of_bit = nn.Parameter(torch.empty(ACTIONS, dim, device=device))
        self.of_candidate = nn.Parameter(torch.empty(ACTIONS * dim, device=device))

    def reset_parameters(self) -> None:
        nn.init.normal_(self.of_bit, std=0.1)
        nn.init.normal_(self.of_candidate, std=0.1)

    def forward(self, actions: Tensor, candidates: int) -> Tensor:
        """uint8 [N] -> [N + B, 3 x dim]: those of the events, then of B candidates."""
        bits = (actions.long()[:, None] >> torch.arange(ACTIONS, device=actions.device)) & 1
        of_events = bits[:, :, None].to(self.of_bit.dtype) * self.of_bit  # [N, 3, dim]
        return torch.cat([of_events.flatten(1), self.of_candidate.expand(candidates, -1)])


class Products(nn.Module):
    """A linear layer for each of F tokens: [B, F, D] -> [B, F, D]."""

    def __init__(self, features: int, dim: int, device: torch.device | None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features, dim, dim, device=device))
        self.bias = nn.Parameter(torch.empty(features, dim, device=device))

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=(2 / sum(self.weight.shape[1:])) ** 0.5)
        nn.init.zeros_(self.bias)

    def forward(self, rows: Tensor) -> Tensor:
        of_features = rows.to(self.weight.dtype).transpose(0, 1)
        return torch.baddbmm(self.bias[:, None], of_features, self.weight).transpose(0, 1)


def mlp(width: int, hidden: int, out: int, device: torch.device | None) -> nn.Sequential:
    """Linear -> x times the sigmoid of its norm -> linear -> norm."""
    first, second = Linear(width, hidden, device=device), Linear(hidden, out, device=device)
    return nn.Sequential(first, SwishLayerNorm(hidden, device=device), second, LayerNorm(out, device=device))


def xavier_normal(layers: nn.Module) -> None:
    """Xavier normal weights and zero biases of its linear layers."""
    for layer in layers.modules():
        if isinstance(layer, Linear):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)


def one_each(rows: JaggedTensor) -> Tensor:
    """[B, D] of a feature with one id a sample. Zeros where a padded sample has none."""
    values = rows.values()
    return values if len(values) == len(rows.lengths()) else places_of(rows).last(values)

"""Sequence models: a user's history as rows of tables that are not pooled, read by attention.

next_item (SASRec, Kang and McAuley 2018, figure 1): every place of the history scores the item after it. It is told from
others, as the loss says.

    history -> tables -> sum, + place from the end -> causal blocks -> hidden [N, D] -+-> dot with the item after it  -> scores [N, 2]
                                                                                     +-> dot with others (next_item.py)

click (with pair-wise attention as DIN, Zhou et al. 2018, figure 2; or with a transformer as BST, Chen et al. 2019):

    history   -> tables -> sum, + place from the end -> attention -> interest [B, D] -+-> concat with their product -> over MLP -> logit [B]
    candidate -> tables -> sum ------------------------- target [B, D] ---------------+

Shapes: N look-ups of a history in B samples, D embedding dimension. Features are distinguished by name. See `Roles`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor

from recsys_lab.errors import UserError
from recsys_lab.kernels.jagged_attention import attends_on_cpu
from recsys_lab.models.attention import CausalBlock, Groups, TargetAttention, groups_of
from recsys_lab.models.click_model import ClickModel, ModelInputs
from recsys_lab.models.history import CANDIDATE, check_no_dense, history_of, placed_rows
from recsys_lab.models.jagged import Places, places_of
from recsys_lab.models.layer_norm import LayerNorm
from recsys_lab.models.layers import check_layers, embedding_rows, feature_names, mlp
from recsys_lab.models.next_item import TOLD, NextItem, Told, counts_of, items_of
from recsys_lab.models.sequence import Sequence


@dataclass(frozen=True)
class Roles:
    """Which features are what. Each history is a list of features that are added row by row."""

    histories: tuple[tuple[str, ...], ...]
    candidate: tuple[str, ...]  # empty: the last of the first history is the target

    @staticmethod
    def of(features: list[str]) -> Roles:
        """`item` is the history, with all that `history_of` adds. Without one every feature is a history of its own."""
        others = tuple((name,) for name in features) if "item" not in features else (history_of(features),)
        return Roles(others, tuple(name for name in CANDIDATE if name in features))


class SequenceNetwork(ClickModel):
    """For next_item a transformer and no over MLP. For click a transformer or pair-wise attention, then the over MLP."""

    def __init__(self, inputs: ModelInputs, options: Sequence):
        super().__init__()
        tables, dense_width, device = inputs.checked(options.rows, options.lengths, options.dense_features)
        assert options.max_length is not None and options.dropout is not None and options.loss is not None, "decided"
        dim, heads, dropout = options.embedding_dim, options.heads, options.dropout
        self.features = feature_names(tables)
        _check(self.features, dense_width, options.objective, options.attention)
        check_layers("model.over_layers", options.over_layers, 1, "one logit")
        if dim % heads:
            raise UserError("heads must share the dimension evenly", where="model.heads", given=heads, allowed=f"a divisor of {dim}")
        self.objective, self.roles = options.objective, Roles.of(self.features)
        self.embeddings = embedding_rows(tables, device)
        self.scale = dim**0.5  # of vectors from tables, which begin small: as in Vaswani et al. 2017, section 3.4
        self.next_item: NextItem = NextItem(options.loss, options.temperature, self.scale, items_of(tables))
        self.place = nn.Embedding(options.max_length, dim, device=device)
        self.normalise = LayerNorm(dim, device=device)
        self.dropout = nn.Dropout(dropout)
        transformer = options.attention == "transformer"
        layers = options.blocks if transformer else 0
        self.blocks = nn.ModuleList([CausalBlock(dim, heads, options.feed_forward, dropout, device) for _ in range(layers)])
        self.hidden = LayerNorm(dim, device=device) if transformer else nn.Identity()
        self.attention = None if transformer else TargetAttention(dim, dropout, device)
        vectors = 1 + 2 * len(self.roles.histories)
        clicks = options.objective == "click"
        self.over = mlp(vectors * dim, options.over_layers, device, dropout=dropout, linear_end=True) if clicks else None

    def reset_parameters(self) -> None:
        """Places start as small as the other layers' weights, so that at first items count more."""
        nn.init.normal_(self.place.weight, std=0.02)

    def forward(self, dense: Tensor | None, sparse: KeyedJaggedTensor) -> Tensor:
        """F sequences of B samples -> what the loss reads of N places (NextItem.output), or for click logits [B]. `dense`: events."""
        return self.predict(Told.of(sparse, dense) if self.over is None else None, self.embeddings(sparse))

    def predict(self, told: Told | None, looked_up: Mapping[str, JaggedTensor]) -> Tensor:  # type: ignore[override]  # ids, not dense values
        """The figures at the top: each feature's sequences -> as `forward`. `told`: for next_item."""
        counts = None if told is None else told.counts
        histories = [self.read_history(looked_up, history, counts) for history in self.roles.histories]  # rows [N, D], and their places
        if told is not None:
            hidden, places = histories[0]
            return self.next_item.output(hidden, looked_up, told, places, looked_up[self.roles.histories[0][0]].lengths())
        target = self.target_of(looked_up, *histories[0])  # [B, D]
        interests = [self.interest(target, *history) for history in histories]  # [B, D] each
        products = [target * interest for interest in interests]
        assert self.over is not None
        return self.over(torch.cat([target, *interests, *products], dim=1)).squeeze(1)  # [B]

    def users(self, looked_up: Mapping[str, JaggedTensor], values: Any = None) -> Tensor:
        """For next_item: [B, D], whose product with an item's vector (`next_item.of_items`) is the score of that item as the next."""
        rows, places, groups = self.placed(looked_up, self.roles.histories[0], counts_of(values))
        *before, last = self.blocks
        for block in before:
            rows = block(rows, places, groups)
        hidden = self.hidden(last.of_last(rows, places, groups))  # type: ignore[operator]  # a CausalBlock
        return self.next_item.of_users(hidden * places.any_rows(hidden))

    def read_history(
        self, looked_up: Mapping[str, JaggedTensor], features: tuple[str, ...], counts: Mapping[str, Tensor] | None = None
    ) -> tuple[Tensor, Places]:
        """A history's rows [N, D], and after the transformer, if the model has one, what they became. `counts`: as `placed_rows` has."""
        rows, places, groups = self.placed(looked_up, features, counts)
        for block in self.blocks:
            rows = block(rows, places, groups)
        return self.hidden(rows), places

    def placed(
        self, looked_up: Mapping[str, JaggedTensor], features: tuple[str, ...], counts: Mapping[str, Tensor] | None
    ) -> tuple[Tensor, Places, Groups | None]:
        """A history's rows [N, D] before the transformer, and what that needs of their places."""
        vectors, lengths, places = placed_rows(looked_up, features, self.scale, self.place, counts)
        rows = self.dropout(self.normalise(vectors))
        return rows, places, groups_of(places, lengths, attends_on_cpu(rows)) if self.blocks else None

    def target_of(self, looked_up: Mapping[str, JaggedTensor], rows: Tensor, places: Places) -> Tensor:
        """[B, D]: the candidate, or where there is none the last of the history."""
        if not self.roles.candidate:
            return places.last(rows)
        vectors = [looked_up[name].values() for name in self.roles.candidate]
        one = places_of(looked_up[self.roles.candidate[0]])
        return one.last(self.normalise(self.scale * sum(vectors[1:], vectors[0])))

    def interest(self, target: Tensor, rows: Tensor, places: Places) -> Tensor:
        """[B, D]: what the history says of the target."""
        return places.last(rows) if self.attention is None else self.attention(target, rows, places)

    def example(self, samples: int, mean_lengths: Mapping[str, float]) -> dict[str, JaggedTensor]:
        """As ClickModel's: every sample has each feature's mean length, rounded."""
        lengths = {name: max(1, round(mean_lengths.get(name, 1.0))) for name in self.features}
        return self.next_item.example(self.features, self.place.embedding_dim, samples, lengths, mean_lengths)

    def example_values(self, samples: int, dense_width: int, mean_lengths: Mapping[str, float]) -> Told | None:
        return Told.example(self.example(samples, mean_lengths)) if self.over is None else None


def _check(features: list[str], dense_width: int, objective: str, attention: str) -> None:
    """UserError for choices that cannot be, and features that they cannot read."""
    check_no_dense(dense_width)
    if objective == "click":
        return
    if attention != "transformer":
        raise UserError(
            "every place must see what came before", where="model.attention", given=attention, allowed="transformer for next_item"
        )
    if missing := [name for name in ("item", *TOLD) if name not in features]:
        raise UserError(
            f"the objective next_item needs the feature {missing[0]}",
            where="model.objective",
            given=f"data with {', '.join(features)}",
            remedy="use data=interactions, or model.objective=click",
        )

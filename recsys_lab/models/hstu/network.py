"""HSTU, the layer of Generative Recommenders (Zhai et al. 2024, arXiv 2402.17152, section 3.2, figure 3), telling the next item.

    rows X [N, D] -> LayerNorm -> linear -> SiLU -> gate U, values V, queries Q, keys K          (equation 1)
    Q K^T + relative bias -> SiLU / length -> causal -> times V                                  (2: pointwise, not softmax)
    LayerNorm, times U -> linear -> + X                                                          (3)

There is no softmax. A row's weights need not sum to one, so how often something was seen counts. No wide layer follows. Its bias is by
the distance of places, and with `time_bias` also by the time between two items (section 3.2). `data.time` adds gaps to rows instead.
Shapes: N rows of B sequences, T the longest of a group, D embedding dimension, h heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import silu
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor

from recsys_lab.errors import UserError
from recsys_lab.kernels.attention import fuses_attention
from recsys_lab.models.attention import Groups, groups_of
from recsys_lab.models.click_model import ClickModel, ModelInputs
from recsys_lab.models.history import check_no_dense, history_of, placed_rows
from recsys_lab.models.hstu import HSTU
from recsys_lab.models.jagged import Places
from recsys_lab.models.layer_norm import LayerNorm
from recsys_lab.models.layers import embedding_rows, feature_names
from recsys_lab.models.linear import Linear
from recsys_lab.models.next_item import TOLD, NextItem, Told, counts_of, items_of, times_of
from recsys_lab.models.pointwise import TIME_BUCKETS, TimeBias, attend, attend_last

#: Of the layers' norms, as in the public code: what attention gives is small, as it is divided by the longest length.
EPS = 1e-6


class HSTUBlock(nn.Module):
    """One layer. `max_length`: distances told apart, and what weights are divided by, so that a row does not depend on its company."""

    def __init__(
        self,
        dim: int,
        heads: int,
        attention_dim: int,
        linear_dim: int,
        max_length: int,
        dropout: float,
        device: torch.device | None,
        time_bias: bool = False,
    ):
        super().__init__()
        self.heads, self.max_length = heads, max_length
        self.sizes = [heads * linear_dim, heads * linear_dim, heads * attention_dim, heads * attention_dim]
        self.before = LayerNorm(dim, eps=EPS, device=device)
        self.project = Linear(dim, sum(self.sizes), device=device)
        self.bias = nn.Embedding(max_length, 1, device=device)  # by distance; farther ones share the last
        self.of_times = nn.Embedding(TIME_BUCKETS, 1, device=device) if time_bias else None
        self.after = LayerNorm(heads * linear_dim, eps=EPS, device=device)
        self.mix = Linear(heads * linear_dim, dim, device=device)
        self.dropout = nn.Dropout(dropout)

    def reset_parameters(self) -> None:
        """Small projections, as the public code of Zhai et al. has them, so that a layer begins as less than its residual. All distances
        begin nearly alike."""
        nn.init.normal_(self.project.weight, std=0.02)
        nn.init.zeros_(self.project.bias)
        nn.init.xavier_uniform_(self.mix.weight)
        nn.init.zeros_(self.mix.bias)
        nn.init.normal_(self.bias.weight, std=0.02)
        if self.of_times is not None:
            nn.init.normal_(self.of_times.weight, std=0.02)

    def forward(self, rows: Tensor, places: Places, groups: Groups | None, times: Tensor | None = None) -> Tensor:
        """[N, D] -> [N, D]. `groups` from `Places.groups`; None: a kernel reads sequences of any length. `times`: int64 [N]."""
        gate, values, queries, keys = silu(self.project(self.before(rows))).split(self.sizes, dim=1)
        how = places, groups, self.heads, self.max_length, self.bias.weight.squeeze(1), self._by_time(times)
        attended = attend(queries, keys, values, *how)
        return rows + self.mix(self.dropout(self.after(attended) * gate))

    def of_last(self, rows: Tensor, places: Places, groups: Groups | None, times: Tensor | None = None) -> Tensor:
        """[N, D] -> [B, D]: what `forward` gives for the last row of each sequence."""
        last, ends = places.last(rows), [0, *accumulate(self.sizes)]
        asks, tells = self.before(last), self.before(rows)
        gate, values, queries, keys = (
            silu(self.project.part(x, *part)) for x, part in zip((asks, tells, asks, tells), pairwise(ends), strict=True)
        )
        how = places, groups, self.heads, self.max_length, self.bias.weight.squeeze(1), self._by_time(times)
        return last + self.mix(self.dropout(self.after(attend_last(queries, keys, values, *how)) * gate))

    def _by_time(self, times: Tensor | None) -> TimeBias | None:
        return None if self.of_times is None or times is None else TimeBias(times, self.of_times.weight.squeeze(1))


class HSTUNetwork(ClickModel):
    """The layers over a history. Every row scores the item after it."""

    def __init__(self, inputs: ModelInputs, options: HSTU):
        super().__init__()
        tables, dense_width, device = inputs.checked(options.rows, options.lengths, options.dense_features)
        assert options.max_length is not None and options.dropout is not None and options.loss is not None, "decided"
        dim, sizes = options.embedding_dim, (options.heads, options.attention_dim, options.linear_dim, options.max_length)
        self.features = feature_names(tables)
        _check(self.features, dense_width, options.objective)
        self.objective = options.objective
        self.history = history_of(self.features)
        self.embeddings = embedding_rows(tables, device)
        self.scale, self.head_columns = dim**0.5, max(options.attention_dim, options.linear_dim)
        self.next_item: NextItem = NextItem(options.loss, options.temperature, self.scale, items_of(tables))
        self.place = nn.Embedding(options.max_length, dim, device=device)
        self.dropout = nn.Dropout(options.dropout)
        self.blocks = nn.ModuleList([HSTUBlock(dim, *sizes, options.dropout, device, options.time_bias) for _ in range(options.blocks)])
        self.hidden = LayerNorm(dim, device=device)
        self.reads_events = self.time_bias = options.time_bias  # type: ignore[misc]  # of this model

    def reset_parameters(self) -> None:
        """Places start as small as the other layers' weights, so that at first items count more."""
        nn.init.normal_(self.place.weight, std=0.02)

    def forward(self, dense: Tensor | None, sparse: KeyedJaggedTensor) -> Tensor:
        """F sequences of B samples -> what the loss reads of each of N places (NextItem.output). There are no dense values."""
        return self.predict(Told.of(sparse, dense), self.embeddings(sparse))

    def predict(self, told: Told, looked_up: Mapping[str, JaggedTensor]) -> Tensor:  # type: ignore[override]  # ids, not dense values
        """The model after its tables: each feature's sequences -> as `forward`."""
        hidden, places = self.read_history(looked_up, told.times, told.counts)  # [N, D]
        return self.next_item.output(hidden, looked_up, told, places, looked_up[self.history[0]].lengths())

    def users(self, looked_up: Mapping[str, JaggedTensor], values: Any = None) -> Tensor:
        """[B, D], whose product with an item's vector (`next_item.of_items`) is the score of that item as the next.

        `values`: a batch's events, for a time bias and side columns of lists.
        """
        times = times_of(values)
        rows, places, groups = self.placed(looked_up, times, counts_of(values))
        *before, last = self.blocks
        for block in before:
            rows = block(rows, places, groups, times)
        hidden = self.hidden(last.of_last(rows, places, groups, times))  # type: ignore[operator]  # an HSTUBlock
        return self.next_item.of_users(hidden * places.any_rows(hidden))

    def read_history(
        self, looked_up: Mapping[str, JaggedTensor], times: Tensor | None = None, counts: Mapping[str, Tensor] | None = None
    ) -> tuple[Tensor, Places]:
        """The history's rows [N, D] after all layers. `times` int64 [N]: when each item came. `counts`: as `placed_rows` has."""
        rows, places, groups = self.placed(looked_up, times, counts)
        for block in self.blocks:
            rows = block(rows, places, groups, times)
        return self.hidden(rows), places

    def placed(
        self, looked_up: Mapping[str, JaggedTensor], times: Tensor | None, counts: Mapping[str, Tensor] | None
    ) -> tuple[Tensor, Places, Groups | None]:
        """The history's rows [N, D] before all layers, and what these need of their places."""
        if self.time_bias and times is None:
            raise UserError(
                "a time bias needs times", where="model.time_bias", given="data without", remedy="data=interactions or movielens"
            )
        vectors, lengths, places = placed_rows(looked_up, self.history, self.scale, self.place, counts)
        rows = self.dropout(vectors)
        return rows, places, groups_of(places, lengths, fuses_attention(rows, self.head_columns, self.time_bias))

    def example(self, samples: int, mean_lengths: Mapping[str, float]) -> dict[str, JaggedTensor]:
        """As ClickModel's: every sample has the history's mean length, rounded."""
        dim, length = self.place.embedding_dim, max(1, round(mean_lengths.get(self.history[0], 1.0)))
        return self.next_item.example(self.features, dim, samples, dict.fromkeys(self.features, length), mean_lengths)

    def example_values(self, samples: int, dense_width: int, mean_lengths: Mapping[str, float]) -> Told:
        return Told.example(self.example(samples, mean_lengths))


def _check(features: list[str], dense_width: int, objective: str) -> None:
    """UserError for another objective, and for features that it cannot read."""
    if objective != "next_item":
        raise UserError(
            "no such choice", where="model.objective", given=objective, allowed="next_item", remedy="model=sequence tells clicks"
        )
    check_no_dense(dense_width)
    if missing := [name for name in ("item", *TOLD) if name not in features]:
        given = f"data with {', '.join(features)}"
        raise UserError(f"the feature {missing[0]} is needed", where="model", given=given, remedy="use data=movielens or data=interactions")

"""DLRMv4, MLPerf's recommender since Training 6.1: will the user play at least half of this track?

    history of item, artist, album, action, time -+
    candidate, the same --------------------------+-> tokens [M, D] -> layers -> the candidate's row, hour, day -> user [B, D] -+
    context, eight ids ---------------------------+                                                                            * -> head
    candidate's item, artist, album ---------------------------------------------------------------------------> item [B, D] -+

A sample's tokens are its context, its history from the earliest event on, and the candidate. Each sees itself and what stands before it.
Where the reference's text and code differ, this is its code. Shapes: B samples, N events of their histories, M = N + 9 B tokens, D
embedding dimension.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedJaggedTensor

from recsys_lab.data.batch import Events
from recsys_lab.errors import UserError
from recsys_lab.kernels.attention import fuses_attention
from recsys_lab.models.attention import groups_of
from recsys_lab.models.click_model import ClickModel, ModelInputs
from recsys_lab.models.dlrm_v4 import CANDIDATE, CONTEXT, DLRMV4, HISTORY, OTHER_TOKENS
from recsys_lab.models.dlrm_v4.layer import Layer
from recsys_lab.models.dlrm_v4.tokens import Tokens, mlp, one_each, xavier_normal
from recsys_lab.models.history import check_no_dense
from recsys_lab.models.jagged import Places
from recsys_lab.models.layer_norm import LayerNorm, SwishLayerNorm
from recsys_lab.models.layers import embedding_rows, feature_names
from recsys_lab.models.linear import Linear

HOUR_S, HOURS, DAY_S, DAYS = 3600, 24, 86400, 7
#: As the reference has it.
TURN = 2 * 3.14


class DLRMV4Network(ClickModel):
    """The figure."""

    reads_events = True

    def __init__(self, inputs: ModelInputs, options: DLRMV4):
        super().__init__()
        tables, dense_width, device = inputs.checked(options.rows, options.lengths, options.dense_features)
        dim, self.options, self.loss_weight = options.embedding_dim, options, options.loss_weight
        self.features = feature_names(tables)
        check_no_dense(dense_width)
        _check_features(self.features)
        self.embeddings = embedding_rows(tables, device)
        self.tokens = Tokens(options, device)
        self.layers = nn.ModuleList([Layer(options, device) for _ in range(options.layers)])
        self.user = User(dim, device)
        self.item = mlp(len(CANDIDATE) * dim, dim, dim, device)
        self.head = nn.Sequential(Linear(dim, dim, device=device), SwishLayerNorm(dim, device=device), Linear(dim, 1, device=device))

    def reset_parameters(self) -> None:
        """Xavier uniform weights and zero biases in the item's MLP and the head."""
        for layer in (*self.item, *self.head):
            if isinstance(layer, Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(self, events: Events | None, sparse: KeyedJaggedTensor) -> Tensor:  # type: ignore[override]
        """Sequences of B samples, and what their histories say beside the ids -> logits [B]."""
        return self.predict(events, self.embeddings(sparse))

    def predict(self, events: Events | None, looked_up: Mapping[str, JaggedTensor]) -> Tensor:  # type: ignore[override]
        """The figure at the top: each feature's rows -> logits [B]."""
        assert events is not None, "data with these features have events"
        candidate = [one_each(looked_up[name]) for name in CANDIDATE]  # [B, D] each
        tokens, lengths, places = self.tokens(events, looked_up, candidate)  # [M, D]
        user = self.user(self.read(tokens, lengths, places), events.asked)  # [B, D]
        item = self.item(torch.cat(candidate, dim=1))  # [B, D]
        return self.head(user * item).squeeze(1)  # [B]

    def read(self, rows: Tensor, lengths: Tensor, places: Places) -> Tensor:
        """Tokens [M, D] through all layers -> the candidate's rows [B, D]."""
        options = self.options
        _check_longest(places.longest, options.max_length)
        groups = groups_of(places, lengths, fuses_attention(rows, max(options.attention_dim, options.linear_dim)))
        how = places, groups, places.longest if options.divisor == "longest" else options.max_length
        *before, last = self.layers
        assert isinstance(last, Layer)
        for layer in before:
            rows = layer(rows, *how)
        return last.of_last(rows, *how) if options.last_layer == "candidate" else places.last(last(rows, *how))

    def example(self, samples: int, mean_lengths: Mapping[str, float]) -> dict[str, JaggedTensor]:
        """As ClickModel's: every sample has the history's mean length, rounded."""
        rows = {}
        for name in self.features:
            length = _history_length(mean_lengths) if name in HISTORY else 1
            values = torch.empty(samples * length, self.options.embedding_dim, device="meta", requires_grad=True)
            rows[name] = JaggedTensor(values, lengths=torch.full((samples,), length))
        return rows

    def example_values(self, samples: int, dense_width: int, mean_lengths: Mapping[str, float]) -> Events:
        events = samples * _history_length(mean_lengths)
        times, asked = (torch.empty(size, dtype=torch.int64, device="meta") for size in (events, samples))
        return Events(times, torch.empty(events, dtype=torch.uint8, device="meta"), asked)


class User(nn.Module):
    """The candidate's row of the last layer, and hour of day and day of week as points on a circle: -> linear -> norm."""

    def __init__(self, dim: int, device: torch.device | None):
        super().__init__()
        self.linear = Linear(dim + 4, dim, device=device)
        self.norm = LayerNorm(dim, device=device)

    def reset_parameters(self) -> None:
        xavier_normal(self.linear)

    def forward(self, rows: Tensor, asked: Tensor) -> Tensor:
        """[B, D], seconds [B] -> [B, D]."""
        units, turns = (torch.tensor(pair, device=asked.device) for pair in ((HOUR_S, DAY_S), (HOURS, DAYS)))
        angle = (asked[:, None] // units % turns).float() / turns * TURN  # [B, 2]
        return self.norm(self.linear(torch.cat([rows, angle.cos().to(rows.dtype), angle.sin().to(rows.dtype)], dim=1)))


def _history_length(mean_lengths: Mapping[str, float]) -> int:
    return max(1, round(mean_lengths.get(HISTORY[0], 1.0)))


def _check_features(features: list[str]) -> None:
    """UserError for data that lack what it reads."""
    if missing := [name for name in (*CONTEXT, *HISTORY, *CANDIDATE) if name not in features]:
        given = f"data with {', '.join(features)}"
        raise UserError(f"the feature {missing[0]} is needed", where="model", given=given, remedy="use data=yambda_law or data=yambda")


def _check_longest(longest: int, max_length: int) -> None:
    """UserError for a history that is longer than the model was made for."""
    if longest > max_length:
        raise UserError(
            "a history is longer than the model's cap",
            where="model.max_length",
            given=f"{longest - OTHER_TOKENS:,} events",
            allowed=f"{max_length - OTHER_TOKENS:,}, and {OTHER_TOKENS} tokens beside them",
            remedy="a smaller data.max_history",
        )

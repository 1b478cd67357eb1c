"""What DLRM, DCN and XLRM have in common: vectors of one dimension interact, the dense features' own among them.

dense [B, K] -> bottom MLP -> 1 x [B, D] -+-> interaction -> over MLP -> logit [B]
sparse -> tables ----------> F x [B, D] --+
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor, KeyedTensor

from recsys_lab.models.click_model import ClickModel
from recsys_lab.models.first_order import FirstOrder
from recsys_lab.models.layers import begin_silent, embedding_bags, feature_names
from recsys_lab.models.linear import MLP, Linear
from recsys_lab.tables import Table

#: Of the usual first values of tables, where a component of them is added to the logit. There they are noise until they are learnt.
FIRST_ORDER_SHARE = 1 / 3


class InteractionModel(ClickModel):
    """`bottom`: the MLP of the dense features, None where there are none. `over`: the last one, whose end is the logit. `normalise`: of
    vectors, before they interact.
    """

    begins_first_order = True
    start_keys = ("first_order",)

    bottom: nn.Module | None
    over: MLP
    normalise: nn.Module  # nn.Identity or LayerNorm
    first_dense: nn.Linear | None  # the first-order weights of the dense features, of a model that calls `add_first_order`

    def add_vectors(self, tables: Sequence[Table], dim: int, device: torch.device | None, tower: Any, normalise: bool) -> tuple[int, int]:
        """Adds what makes the vectors that interact: here the tables alone. Returns how many vectors there are, and their dimension.

        `tower`, `normalise`: as the model's keys say. For a model with towers (towers.py). Raises UserError for a sequence feature.
        """
        self.features = feature_names(tables)
        self.embeddings = embedding_bags(tables, device)
        return len(self.features), dim

    def read_dense(self, dense: Tensor | None) -> Tensor | None:
        """dense [B, K] -> [B, D] through the bottom MLP; None where there are no dense features."""
        return None if self.bottom is None else self.bottom(dense)

    def forward(self, dense: Tensor | None, sparse: KeyedJaggedTensor) -> Tensor:
        """dense [B, K] or None, F features of B bags -> logits [B]."""
        looked_up = self.embeddings(sparse)
        bottom = self.read_dense(dense)  # while sharded tables exchange their rows
        return self.score(dense, bottom, side_by_side(looked_up, self.features))

    def predict(self, dense: Tensor | None, looked_up: Mapping[str, Tensor]) -> Tensor:
        """The model after its tables: dense [B, K] and each feature's [B, D] -> logits [B]."""
        return self.score(dense, self.read_dense(dense), [looked_up[feature].unsqueeze(1) for feature in self.features])

    def score(self, dense: Tensor | None, bottom: Tensor | None, vectors: list[Tensor]) -> Tensor:
        """dense [B, K], what `read_dense` makes of it, and the vectors that interact, each entry [B, any number, D] -> logits [B]."""
        raise NotImplementedError

    def add_first_order(self, enabled: bool | None, dense_width: int, device: torch.device | None) -> None:
        """Where `enabled`, the logit has a first-order part: the first component of each embedding is its id's weight too."""
        self.has_first_order = bool(enabled)
        self.initial_share = FIRST_ORDER_SHARE if enabled else 1.0
        self.first_dense = Linear(dense_width, 1, bias=False, device=device) if enabled and dense_width else None

    def first_order(self, logits: Tensor, dense: Tensor | None, vectors: list[Tensor]) -> Tensor:
        """`logits` [B] plus the first-order part, if there is one.

        It is of dense [B, K] and of `vectors`, each entry [B, any number, D].
        """
        if not self.has_first_order:
            return logits
        logits = logits + torch.cat([self.first_of(part) for part in vectors], dim=1).sum(1)
        return logits if self.first_dense is None else logits + self.first_dense(dense).squeeze(1)

    def first_of(self, part: Tensor) -> Tensor:
        """[B, any number, D], an entry of the vectors that interact -> [B, any number]: the first-order weights in it."""
        return part[:, :, 0]

    @torch.no_grad()
    def begin_with(self, start: FirstOrder) -> None:
        begin_silent(self.over, start.bias)
        if self.first_dense is not None:
            self.first_dense.weight.copy_(torch.from_numpy(start.dense))

    def together(self, bottom: Tensor | None, vectors: list[Tensor]) -> Tensor:
        """All that interacts, [B, n, D].

        It is the dense features' vector [B, D], where there is one, and `vectors`, each entry [B, any number, D].
        """
        return self.normalise(torch.cat(with_bottom(bottom, vectors), dim=1))


def with_bottom(bottom: Tensor | None, vectors: list[Tensor]) -> list[Tensor]:
    """`vectors`, each entry [B, any number, D], behind the dense features' [B, D], where there is one."""
    return vectors if bottom is None else [bottom.unsqueeze(1), *vectors]


def side_by_side(looked_up: KeyedTensor, features: Sequence[str]) -> list[Tensor]:
    """The vectors of `features`, each entry [B, any number, D]: one entry where the tables give them in this order."""
    if looked_up.keys() == features:
        return [looked_up.values().unflatten(1, (len(features), -1))]
    pooled = looked_up.to_dict()
    return [pooled[feature].unsqueeze(1) for feature in features]

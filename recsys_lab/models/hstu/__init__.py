"""HSTU (Zhai et al. 2024): its options. `network.py` is the figure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Self

from recsys_lab.base.losses import BINARY, LOSSES
from recsys_lab.base.ranges import DenseFeatures, Depth, Dimension, Length, OneOf, Positive, RowCount, ShareBelowOne, Width
from recsys_lab.models.options import ATTENTION, ModelOptions
from recsys_lab.tables import LawOptions
from recsys_lab.tables.lengths import Work

if TYPE_CHECKING:
    from recsys_lab.models.click_model import ClickModel, ModelInputs


#: Of models whose data decide nothing.
DROPOUT, PLACES = 0.2, 50


@dataclass(frozen=True, kw_only=True)
class HSTU(ModelOptions):
    """`blocks` layers of `heads`, each with queries and keys of `attention_dim` and values of `linear_dim`.

    `max_length`: places told apart, counted from a history's end. Earlier ones share the last.
    `time_bias`: attention has a bias by the time between two items beside that by places.
    `loss`: of base/losses.py. `temperature`: vectors are L2-normalised and products divided by it; None: plain products.
    `rows`, `lengths`, `dense_features` and `law` are set by variants that fix their own inputs.
    """

    reads_sequences = True

    embedding_dim: Dimension
    objective: str
    max_length: Length | None
    blocks: Depth
    heads: Depth
    attention_dim: Width
    linear_dim: Width
    dropout: ShareBelowOne | None = 0.0
    time_bias: bool = False
    loss: Annotated[str, OneOf(LOSSES)] | None = None
    temperature: Positive | None = None
    rows: list[RowCount] | None = None
    lengths: list[Length] | None = None
    dense_features: DenseFeatures | None = None
    law: LawOptions | None = None

    @property
    def work(self) -> Work:
        asked, mixed = self.heads * (self.attention_dim + self.linear_dim), self.heads * self.linear_dim
        linear = 6 * self.embedding_dim * (2 * asked + mixed)
        return Work(0.0, self.blocks * linear, self.blocks * ATTENTION / 2 * asked)

    def decided(self) -> Self:
        """With what is null as data have it that decide nothing (config/next_item_defaults.py: a log does)."""
        dropout = DROPOUT if self.dropout is None else self.dropout
        return replace(self, max_length=self.max_length or PLACES, dropout=dropout, loss=self.loss or BINARY)

    def build(self, inputs: ModelInputs) -> ClickModel:
        from recsys_lab.models.hstu.network import HSTUNetwork

        return HSTUNetwork(inputs, self.decided())

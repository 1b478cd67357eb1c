"""Sequence models: SASRec, DIN and BST: its options. `network.py` is the figure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Self

from recsys_lab.base.losses import BINARY, LOSSES
from recsys_lab.base.ranges import DenseFeatures, Depth, Dimension, Length, OneOf, Positive, RowCount, ShareBelowOne, Width
from recsys_lab.models.options import ATTENTION, ModelOptions
from recsys_lab.tables import LawOptions
from recsys_lab.tables.lengths import TOKENS, Work

if TYPE_CHECKING:
    from recsys_lab.models.click_model import ClickModel, ModelInputs

OBJECTIVES = ("next_item", "click")
ATTENTIONS = ("transformer", "pairwise")


#: Of models whose data decide nothing.
DROPOUT, PLACES = 0.5, 50


@dataclass(frozen=True, kw_only=True)
class Sequence(ModelOptions):
    """`objective`: next_item | click. `attention`: transformer (`blocks` of `heads`, inner layers `feed_forward` wide) | pairwise.

    `max_length`: places told apart, counted from a history's end. Earlier ones share the last. `over_layers`: click's alone, end in 1.
    `loss` of next_item: of base/losses.py. `temperature`: vectors are L2-normalised and products divided by it; None: plain products.
    `rows`, `lengths`, `dense_features` and `law` are set by variants that fix their own inputs.
    """

    reads_sequences = True

    embedding_dim: Dimension
    objective: Annotated[str, OneOf(OBJECTIVES)]
    attention: Annotated[str, OneOf(ATTENTIONS)]
    max_length: Length | None
    blocks: Depth
    heads: Depth
    feed_forward: Width
    over_layers: list[Width]
    dropout: ShareBelowOne | None = 0.0
    loss: Annotated[str, OneOf(LOSSES)] | None = None
    temperature: Positive | None = None
    rows: list[RowCount] | None = None
    lengths: list[Length] | None = None
    dense_features: DenseFeatures | None = None
    law: LawOptions | None = None

    @property
    def work(self) -> Work:
        if self.attention != "transformer":
            return TOKENS
        linear = 6 * self.embedding_dim * (4 * self.embedding_dim + 2 * self.feed_forward)
        return Work(0.0, self.blocks * linear, self.blocks * ATTENTION * self.embedding_dim)

    def decided(self) -> Self:
        """With what is null as data have it that decide nothing (config/next_item_defaults.py: a log does)."""
        dropout = DROPOUT if self.dropout is None else self.dropout
        return replace(self, max_length=self.max_length or PLACES, dropout=dropout, loss=self.loss or BINARY)

    def build(self, inputs: ModelInputs) -> ClickModel:
        from recsys_lab.models.sequence.network import SequenceNetwork

        return SequenceNetwork(inputs, self.decided())

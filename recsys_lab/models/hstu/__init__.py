"""HSTU (Zhai et al. 2024): its options. `network.py` is the figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recsys_lab.base.ranges import DenseFeatures, Depth, Dimension, Length, RowCount, ShareBelowOne, Width
from recsys_lab.models.options import ATTENTION, ModelOptions
from recsys_lab.tables import LawOptions
from recsys_lab.tables.lengths import Work

if TYPE_CHECKING:
    from recsys_lab.models.click_model import ClickModel, ModelInputs


@dataclass(frozen=True, kw_only=True)
class HSTU(ModelOptions):
    """`blocks` layers of `heads`, each with queries and keys of `attention_dim` and values of `linear_dim`.

    `max_length`: places told apart, counted from a history's end. Earlier ones share the last.
    `rows`, `lengths`, `dense_features` and `law` are set by variants that fix their own inputs.
    """

    reads_sequences = True

    embedding_dim: Dimension
    objective: str
    max_length: Length
    blocks: Depth
    heads: Depth
    attention_dim: Width
    linear_dim: Width
    dropout: ShareBelowOne = 0.0
    rows: list[RowCount] | None = None
    lengths: list[Length] | None = None
    dense_features: DenseFeatures | None = None
    law: LawOptions | None = None

    @property
    def work(self) -> Work:
        asked, mixed = self.heads * (self.attention_dim + self.linear_dim), self.heads * self.linear_dim
        linear = 6 * self.embedding_dim * (2 * asked + mixed)
        return Work(0.0, self.blocks * linear, self.blocks * ATTENTION / 2 * asked)

    def build(self, inputs: ModelInputs) -> ClickModel:
        from recsys_lab.models.hstu.network import HSTUNetwork

        return HSTUNetwork(inputs, self)

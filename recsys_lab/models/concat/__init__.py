"""DLRM with concatenation for interaction: its options. `network.py` is the figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recsys_lab.base.ranges import DenseFeatures, Dimension, Length, RowCount, ShareBelowOne, Width
from recsys_lab.models.options import ModelOptions

if TYPE_CHECKING:
    from recsys_lab.models.click_model import ClickModel, ModelInputs


@dataclass(frozen=True, kw_only=True)
class Concat(ModelOptions):
    """`dims`: the dimension of each table; null: `embedding_dim` for all. `over_layers` end in 1; `dropout` is between them.

    Without dense features there is no bottom MLP. `rows`, `lengths`, `dims`, `dense_features` and `file` (a CSV of
    tables) are set by variants that fix their own inputs.
    """

    embedding_dim: Dimension
    bottom_layers: list[Width]
    over_layers: list[Width]
    dropout: ShareBelowOne = 0.0
    rows: list[RowCount] | None = None
    lengths: list[Length] | None = None
    dims: list[Dimension] | None = None
    dense_features: DenseFeatures | None = None
    file: str | None = None

    def build(self, inputs: ModelInputs) -> ClickModel:
        from recsys_lab.models.concat.network import ConcatNetwork

        return ConcatNetwork(inputs, self)

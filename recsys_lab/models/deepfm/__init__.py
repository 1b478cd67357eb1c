"""DeepFM (Guo et al. 2017): its options. `network.py` is the figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recsys_lab.base.ranges import DenseFeatures, Dimension, Length, RowCount, ShareBelowOne, Width
from recsys_lab.models.options import ModelOptions

if TYPE_CHECKING:
    from recsys_lab.models.click_model import ClickModel, ModelInputs


@dataclass(frozen=True, kw_only=True)
class DeepFM(ModelOptions):
    """`embedding_dim`: D. `deep_layers` end in 1; `dropout` is between them.

    `scale_pairs`: the second-order part is times a weight that is learnt too. A model that begins with a regression begins with 0 there.
    `rows`, `lengths` and `dense_features` are set by variants that fix their own inputs.
    """

    has_first_order = True
    begins_first_order = True
    start_keys = ("scale_pairs",)

    embedding_dim: Dimension
    deep_layers: list[Width]
    dropout: ShareBelowOne = 0.0
    scale_pairs: bool | None = None
    rows: list[RowCount] | None = None
    lengths: list[Length] | None = None
    dense_features: DenseFeatures | None = None

    @staticmethod
    def widths(dim: int) -> tuple[int, ...]:
        """An embedding and a first-order weight."""
        return dim, 1

    def build(self, inputs: ModelInputs) -> ClickModel:
        from recsys_lab.models.deepfm.network import DeepFMNetwork

        return DeepFMNetwork(inputs, self)

"""DLRM (Naumov et al. 2019): its options. `network.py` is the figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recsys_lab.base.ranges import DenseFeatures, DepthFromZero, Dimension, Length, RowCount, ShareBelowOne, Width
from recsys_lab.base.schema import check_fields
from recsys_lab.models.options import ModelOptions

if TYPE_CHECKING:
    from recsys_lab.models.click_model import ClickModel, ModelInputs


@dataclass(frozen=True)
class DLRMTowers:
    """A tower module's `c` vectors a feature and `p` a tower, of `dim` each; null: as the embeddings. DMT compresses N / (c dim) times.

    `over_layers`: the over MLP's in a model with towers; null: the same as without.
    """

    c: DepthFromZero = 1
    p: DepthFromZero = 0
    dim: Width | None = None
    over_layers: list[Width] | None = None

    def __post_init__(self) -> None:
        check_fields(self, "model.tower")


@dataclass(frozen=True, kw_only=True)
class DLRM(ModelOptions):
    """Bottom MLP, dots of all pairs of vectors, over MLP. Without dense features only embeddings interact.

    Attributes:
        embedding_dim: D of every table.
        bottom_layers: widths; the last is `embedding_dim`, with towers their D.
        over_layers: widths; the last is 1.
        dropout: between the over MLP's layers.
        normalise_vectors: LayerNorm of each vector before it interacts, with towers as it enters its tower. Interactions then learn as fast
            from a large table, whose first values are small, as from a small one.
        first_order: each vector's first component is added to the logit, and dense features have a linear part.
        tower: of the tower modules, where a sharder has some.
        rows, lengths, dense_features, file: set by variants that fix their own inputs; `file` is a CSV of tables.
    """

    begins_first_order = True
    start_keys = ("first_order",)
    has_towers = True

    embedding_dim: Dimension
    bottom_layers: list[Width]
    over_layers: list[Width]
    dropout: ShareBelowOne = 0.0
    normalise_vectors: bool = False
    first_order: bool | None = None
    tower: DLRMTowers = DLRMTowers()
    rows: list[RowCount] | None = None
    lengths: list[Length] | None = None
    dense_features: DenseFeatures | None = None
    file: str | None = None

    def build(self, inputs: ModelInputs) -> ClickModel:
        from recsys_lab.models.dlrm.network import DLRMNetwork

        return DLRMNetwork(inputs, self)

"""DCN-v2 (Wang et al. 2021): its options. `network.py` is the figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recsys_lab.base.ranges import DenseFeatures, DepthFromZero, Dimension, Length, RowCount, ShareBelowOne, Width
from recsys_lab.base.schema import check_fields
from recsys_lab.models.options import ModelOptions

if TYPE_CHECKING:
    from recsys_lab.models.click_model import ClickModel, ModelInputs


@dataclass(frozen=True)
class DCNTowers:
    """A tower module's cross layers, and the `vectors` of `dim` each that it projects them to; `dim` null: as the embeddings.

    `vectors` null: one for each feature, as listing 2 says. The FLOPs of DMT's table 4 are those of one vector a tower and one cross layer.
    `over_layers`: the over MLP's in a model with towers; null: the same as without.
    """

    cross_layers: DepthFromZero = 1
    cross_rank: Width = 32
    vectors: Width | None = 1
    dim: Width | None = None
    over_layers: list[Width] | None = None

    def __post_init__(self) -> None:
        check_fields(self, "model.tower")


@dataclass(frozen=True, kw_only=True)
class DCN(ModelOptions):
    """Bottom MLP, low-rank cross layers, over MLP. Without dense features there is no bottom MLP.

    Attributes:
        embedding_dim: D of every table.
        bottom_layers: widths; the last is `embedding_dim`, with towers their D.
        cross_layers: how many.
        cross_rank: r of W = U V.
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
    cross_layers: DepthFromZero
    cross_rank: Width
    over_layers: list[Width]
    dropout: ShareBelowOne = 0.0
    normalise_vectors: bool = False
    first_order: bool | None = None
    tower: DCNTowers = DCNTowers()
    rows: list[RowCount] | None = None
    lengths: list[Length] | None = None
    dense_features: DenseFeatures | None = None
    file: str | None = None

    def build(self, inputs: ModelInputs) -> ClickModel:
        from recsys_lab.models.dcn.network import DCNNetwork

        return DCNNetwork(inputs, self)

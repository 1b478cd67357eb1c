"""XLRM, a synthetic model of the class that DMT calls so (section 5.1): its options. `network.py` is the figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from recsys_lab.base.ranges import DenseFeatures, Depth, Dimension, Length, RowCount, ShareBelowOne, Width
from recsys_lab.base.schema import check_fields
from recsys_lab.models.options import ModelOptions

if TYPE_CHECKING:
    from recsys_lab.models.click_model import ClickModel, ModelInputs


@dataclass(frozen=True)
class XLRMTowers:
    """A tower sends `compression` times fewer numbers than its features have. Each operator of its layer makes as many of them.

    How a tower of few features compresses is our reading: the paper has no more of XLRM's tower module than its operators (5.2.2).
    """

    compression: Width = 2
    cross_rank: Width = 64
    mlp_width: Width = 256

    def __post_init__(self) -> None:
        check_fields(self, "model.tower")


@dataclass(frozen=True, kw_only=True)
class XLRM(ModelOptions):
    """`layers` interaction layers, each of whose operators makes `vectors` vectors. `bottom_layers` end in `embedding_dim`, `over_layers`
    in 1. `dropout` is between the over MLP's layers.

    `groups`: how many features, in order, are of the items, of the users, of both. It, `rows`, `lengths` and `dense_features` are set by
    variants that fix their own inputs.
    """

    has_towers = True

    embedding_dim: Dimension
    bottom_layers: list[Width]
    layers: Depth
    vectors: Width
    cross_rank: Width
    mlp_width: Width
    over_layers: list[Width]
    dropout: ShareBelowOne = 0.0
    tower: XLRMTowers = XLRMTowers()
    groups: dict[str, Width] | None = None
    rows: list[RowCount] | None = None
    lengths: list[Length] | None = None
    dense_features: DenseFeatures | None = None

    def build(self, inputs: ModelInputs) -> ClickModel:
        from recsys_lab.models.xlrm.network import XLRMNetwork

        return XLRMNetwork(inputs, self)

"""DLRMv4 (MLPerf Training 6.1): HSTU over listening histories: its options. `network.py` is the figure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.ranges import Count, DenseFeatures, Depth, Dimension, Length, RowCount, ShareBelowOne, Width
from recsys_lab.models.options import ModelOptions
from recsys_lab.tables import LawOptions
from recsys_lab.tables.lengths import Work

if TYPE_CHECKING:
    from recsys_lab.models.click_model import ClickModel, ModelInputs

#: Features of one id, each a token before the history, in this order: the user, and crosses with the candidate.
CONTEXT = (
    "uid",
    "user_x_artist",
    "user_x_album",
    "user_x_hour",
    "item_x_hour",
    "artist_x_hour",
    "user_x_is_organic",
    "user_x_artist_x_hour",
)
#: Features of the history, as long as each other: the content, and what says more of it.
HISTORY = ("item_id", "artist_id", "album_id")
#: The same of the candidate, one id each, from the same tables.
CANDIDATE = ("item_candidate_id", "item_candidate_artist_id", "item_candidate_album_id")
#: Tokens of a sample beside its history.
OTHER_TOKENS = len(CONTEXT) + 1
#: Bits of an action: listened to half or more, liked, skipped.
ACTIONS = 3

LossWeight = Annotated[float, Strict(), Interval(ge=1e-6, le=1e6)]


@dataclass(frozen=True, kw_only=True)
class DLRMV4(ModelOptions):
    """`layers` of `heads`, each with queries and keys of `attention_dim` and values of `linear_dim`.

    `max_length`: the most tokens of a sample: its history, eight of context, the candidate. `places`: told apart, from the candidate back.
    `time_buckets`: of the time since an event. `hidden`: inner width of the MLPs of every token. `action_dim`: of each bit of an action.
    `last_layer`: computes its output for the candidate alone, or for all tokens; the loss is the same. `divisor`: of attention's weights,
    a rank's longest sequence as MLPerf has it, or `max_length`, so that a sample does not depend on its company. `recompute`: a layer keeps
    its input, its gate and what attention gave for its backward pass, and computes the rest again. `rank_batch`: samples a rank of
    a cluster that is simulated.
    """

    reads_sequences = True

    embedding_dim: Dimension
    max_length: Length
    layers: Depth
    heads: Depth
    attention_dim: Width
    linear_dim: Width
    hidden: Width
    action_dim: Width
    places: Length
    time_buckets: Length
    last_layer: Literal["candidate", "all"]
    divisor: Literal["longest", "max_length"]
    recompute: bool
    input_dropout: ShareBelowOne
    dropout: ShareBelowOne
    loss_weight: LossWeight
    rank_batch: Count
    rows: list[RowCount] | None = None
    lengths: list[Length] | None = None
    dense_features: DenseFeatures | None = None
    law: LawOptions | None = None

    @property
    def work(self) -> Work:
        from recsys_lab.models.dlrm_v4.work import flops

        return Work.of(partial(flops, self))

    def build(self, inputs: ModelInputs) -> ClickModel:
        from recsys_lab.models.dlrm_v4.network import DLRMV4Network

        return DLRMV4Network(inputs, self)

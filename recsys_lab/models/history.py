"""What models of sequences read: a history's vectors with their places. What they tell of the next item: next_item.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import JaggedTensor

from recsys_lab.errors import UserError
from recsys_lab.models.jagged import Places, places_of
from recsys_lab.models.next_item import POSITIVE

#: The history, and features that say more of each of its items: as long as it, and added to it.
HISTORY = ("item", "category", "time")
#: The candidate, and what says more of it: as long as it, and added to it.
CANDIDATE = ("candidate", "candidate_category")
#: The feature through which an item's own vector is looked up.
ITEM = POSITIVE


def check_no_dense(dense_width: int) -> None:
    """Raises UserError for dense values, which no model of sequences reads."""
    if dense_width:
        remedy = "use data=interactions or data=movielens; mode=simulate and mode=plan also take data=random"
        given = f"{dense_width} dense features"
        raise UserError("a sequence model reads no dense values", where="model", given=given, allowed="0", remedy=remedy)


def history_of(features: Sequence[str]) -> tuple[str, ...]:
    """Those of `features` that make up the history."""
    return tuple(name for name in HISTORY if name in features)


def placed_rows(
    looked_up: Mapping[str, JaggedTensor], features: Sequence[str], scale: float, place: nn.Embedding
) -> tuple[Tensor, Tensor, Places]:
    """[N, D]: the vectors of `features` added and scaled, plus the vector of each row's place, counted from the end.

    All earlier places share the last row of `place`. Also the lengths [B], and the places.
    """
    vectors = [looked_up[name].values() for name in features]
    lengths, places = looked_up[features[0]].lengths(), places_of(looked_up[features[0]])
    from_end = place(places.to_end.clamp(max=place.num_embeddings - 1))
    return scale * sum(vectors[1:], vectors[0]) + from_end, lengths, places

"""What models of sequences read: a history's vectors with their places. What they tell of the next item: next_item.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torchrec.sparse.jagged_tensor import JaggedTensor

from recsys_lab.data.protocol import CONTEXT, SIDE
from recsys_lab.errors import UserError
from recsys_lab.models.jagged import PaddedRows, Places, places_of
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
    """Those of `features` that make up the history: side columns and the user's follow its own."""
    own = [name for name in HISTORY if name in features]
    return (*own, *(name for prefix in (SIDE, CONTEXT) for name in features if name.startswith(prefix)))


def placed_rows(
    looked_up: Mapping[str, JaggedTensor],
    features: Sequence[str],
    scale: float,
    place: nn.Embedding,
    counts: Mapping[str, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Places]:
    """[N, D]: the vectors of `features` added and scaled, plus the vector of each row's place, counted from the end.

    All earlier places share the last row of `place`. Also the lengths [B], and the places. `counts`: of features with several ids an item,
    how many each has, int64 [N]: their mean is added. What is known of a user is added at all places of the history.
    """
    of_items = looked_up[features[0]]
    lengths, places = of_items.lengths(), places_of(of_items)
    vectors = [of_items.values()]
    for name in features[1:]:
        own = looked_up[name]
        if name.startswith(CONTEXT):
            vectors.append(_of_users(own)[places.sample])
        else:
            vectors.append(_means(own.values(), counts[name]) if counts and name in counts else own.values())
    from_end = place(places.to_end.clamp(max=place.num_embeddings - 1))
    return scale * sum(vectors[1:], vectors[0]) + from_end, lengths, places


def _of_users(own: JaggedTensor | PaddedRows) -> Tensor:
    """[B, D]: a feature of users, the mean of its ids. Padded, it has one row a user."""
    return places_of(own).last(own.values()) if isinstance(own, PaddedRows) else _means(own.values(), own.lengths())


def _means(rows: Tensor, counts: Tensor) -> Tensor:
    """[M, D] -> [n, D]: the means of the first `counts[0]` rows, of those that follow, and so on. Zeros of none."""
    counts = counts.long()
    owner = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts, output_size=len(rows)).to(rows.device)
    totals = rows.new_zeros(len(counts), rows.shape[1]).index_add(0, owner, rows)
    return totals / counts.clamp(min=1).to(rows.device, rows.dtype)[:, None]

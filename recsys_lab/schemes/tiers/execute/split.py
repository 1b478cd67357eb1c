"""Finds the hot rows from the data, and assigns each id of a batch to its tier.

It is `recsys_lab.tables.remap` on the device and for all tables at once.

Shapes: T tables, F features in the tables' order, B samples, N ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.errors import UserError
from recsys_lab.executor.execution import Request, only
from recsys_lab.plan import Placement
from recsys_lab.plan.tiers import tier_rows
from recsys_lab.tables import Table
from recsys_lab.tables.remap import Remap, kept_id_bytes
from recsys_lab.tables.tiers import HOST_SHARDED, REPLICATED, TIERS


@dataclass(frozen=True)
class TierPart:
    """The ids of one tier. `features`: those whose table has rows there, with ids that number the tier's rows from 0."""

    features: KeyedJaggedTensor
    order: torch.Tensor  # [n]: the position of each among all N ids


class TierSplit:
    """Of tables, as they are placed.

    One binary search among the hot ids of all tables. Each table's ids are moved behind those of the tables before it.
    """

    def __init__(self, members: Sequence[tuple[Table, Placement]], remaps: Mapping[str, Remap], device: torch.device):
        tables, rows_of = [table for table, _ in members], {placement.table: tier_rows(placement) for _, placement in members}
        self.tables = [t.name for t in tables]
        self.id_dtype = torch.int32 if kept_id_bytes(tables) == 4 else torch.int64  # of ids as the data have them, where many are kept
        self.features = [f for t in tables for f in t.features]
        self.table_of_feature = torch.tensor([i for i, t in enumerate(tables) for _ in t.features], device=device)
        of_tiers = {tier: [f for t in tables if rows_of[t.name][tier] for f in t.features] for tier in TIERS}
        self._features_of_tier = {tier: own for tier, own in of_tiers.items() if own}
        self._positions = {
            t: torch.tensor([self.features.index(f) for f in own], device=device) for t, own in self._features_of_tier.items()
        }
        bases = np.cumsum([0, *(t.rows for t in tables)])
        hot_before = np.cumsum([0, *(remaps[t.name].hot_rows for t in tables)])
        hot, tier, local = [], [], []
        for t, base in zip(tables, bases):
            replicated = rows_of[t.name][REPLICATED]
            row = remaps[t.name].position
            hot.append(remaps[t.name].sorted_ids + base)
            tier.append((row >= replicated).astype(np.int8))
            local.append(np.where(row >= replicated, row - replicated, row))
        # There is one entry more than hot ids, which no id equals. Ids larger than all of them are found there.
        self._hot = torch.from_numpy(np.concatenate([*hot, [np.iinfo(np.int64).max]])).to(device)
        self._tier = torch.from_numpy(np.concatenate([*tier, [0]]).astype(np.int8)).to(device)
        self._local = torch.from_numpy(np.concatenate([*local, [0]]).astype(np.int64)).to(device)
        repeats = [len(t.features) for t in tables]
        self._base = torch.from_numpy(np.repeat(bases[:-1], repeats)).to(device)
        # A cold id x is the tier's row x - (hot ids of its table below x).
        self._hot_before = torch.from_numpy(np.repeat(hot_before[:-1], repeats)).to(device)

    def own_features(self, batch: KeyedJaggedTensor) -> KeyedJaggedTensor:
        """Of a whole batch, what this splits."""
        return only(batch, self.features)

    def tier_and_row(self, batch: KeyedJaggedTensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(index of the tier among TIERS, row within the tier) of each id; int8 [N], int64 [N]. `batch` has `features`, in this order."""
        ids = batch.values()
        per_feature = batch.offsets()[:: batch.stride()].diff()
        key = torch.repeat_interleave(self._base, per_feature, output_size=len(ids)).add_(ids)
        at = torch.searchsorted(self._hot, key)
        is_hot = self._hot[at] == key
        cold = torch.repeat_interleave(self._hot_before, per_feature, output_size=len(ids)).add_(ids).sub_(at)
        return torch.where(is_hot, self._tier[at], 2), torch.where(is_hot, self._local[at], cold)

    def parts(self, batch: KeyedJaggedTensor, tier: torch.Tensor, row: torch.Tensor) -> dict[str, TierPart]:
        """A part for each tier that has rows, in the order of TIERS; `tier` and `row` as `tier_and_row` gives them."""
        offsets, samples = batch.offsets().to(torch.int64), batch.stride()
        parts = {}
        for name, positions in self._positions.items():
            in_tier = tier == TIERS.index(name)
            order = in_tier.nonzero().squeeze(1)
            counts = torch.nn.functional.pad(in_tier.cumsum(0), (1, 0))
            lengths = counts[offsets].diff().to(torch.int32).view(len(self.features), samples)
            if len(positions) < len(self.features):
                lengths = lengths[positions]
            parts[name] = TierPart(KeyedJaggedTensor(self._features_of_tier[name], row[order], lengths=lengths.reshape(-1)), order)
        return parts


def remaps_of(request: Request) -> dict[str, Remap]:
    """By table. Collective.

    Raises UserError where the request's hot rows lack a table or differ between the ranks. Also where they do not match the plan or the
    table.
    """
    remaps, hot_rows = {}, request.hot_rows
    for table, placement in request.placed:
        rows = tier_rows(placement)
        hot = rows[REPLICATED] + rows[HOST_SHARDED]
        if hot and table.name not in hot_rows:
            raise UserError(
                "a table is sharded by row, and its most frequent rows are not known", where=f"table {table.name}", given=f"{hot} hot rows"
            )
        ids = np.asarray(hot_rows[table.name] if hot else [], np.int64)
        remaps[table.name] = Remap.of(table.name, ids, rows[REPLICATED], rows[HOST_SHARDED], request.plan.ranks_per_host, table.rows)
    _check_same_on_all_ranks(remaps, request.device)
    return remaps


def _check_same_on_all_ranks(remaps: Mapping[str, Remap], device: torch.device) -> None:
    """Ranks that send one id to different ranks would train nonsense, or wait for ever."""
    digest = hashlib.blake2b(digest_size=7)
    for name, remap in sorted(remaps.items()):
        digest.update(name.encode() + remap.sorted_ids.tobytes() + remap.position.tobytes())
    own = int.from_bytes(digest.digest(), "little")
    lowest_and_negated_highest = torch.tensor([own, -own], device=device)
    dist.all_reduce(lowest_and_negated_highest, dist.ReduceOp.MIN)
    lowest, highest = lowest_and_negated_highest.tolist()
    if lowest != -highest:
        raise UserError("the ranks have different most frequent rows", where="hot rows", remedy="give every rank the same data")

"""What training looked up in tables that are sharded by row: how often in which tier, and the last ids themselves."""

from __future__ import annotations

from collections import deque

import torch
from torch import nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.distributed.tier_split import TierSplit
from recsys_lab.plan.sharding_plan import TIERS


class TierWatch:
    """Of this rank's own batches, in passes that train. Counting costs two small kernels a step and never waits for the device."""

    def __init__(self, split: TierSplit, device: torch.device):
        self._split = split
        self._counts = torch.zeros(len(split.tables), len(TIERS), dtype=torch.int64, device=device)
        self._limit = 0
        self._kept: dict[str, deque[torch.Tensor]] = {table: deque() for table in split.tables}

    def see(self, batch: KeyedJaggedTensor, tier: torch.Tensor) -> None:
        """`batch` has the split's features in its order; `tier` int8 [N] as `TierSplit.place` gives it."""
        if not torch.is_grad_enabled():
            return
        per_feature = batch.offsets()[:: batch.stride()].diff()
        table = torch.repeat_interleave(self._split.table_of_feature, per_feature, output_size=len(tier))
        self._counts += torch.bincount(table * len(TIERS) + tier, minlength=self._counts.numel()).view_as(self._counts)
        if self._limit:
            self._keep(batch)

    def hook(self, _: nn.Module, inputs: tuple[KeyedJaggedTensor]) -> None:
        """Before the forward pass of a collection that does not split its ids."""
        batch = self._split.chosen(inputs[0])
        self.see(batch, self._split.place(batch)[0])

    def lookups(self, reset: bool) -> dict[str, dict[str, int]]:
        """How many look-ups each table had in each tier since the last reset."""
        counts = self._counts.tolist()
        if reset:
            self._counts.zero_()
        return {table: dict(zip(TIERS, of_tier)) for table, of_tier in zip(self._split.tables, counts)}

    def keep_ids(self, limit: int) -> None:
        """From now on keep each table's last ids: as many whole batches as it takes to have `limit` of them. 0: keep none."""
        self._limit = limit
        for kept in self._kept.values():
            kept.clear()

    def kept_ids(self) -> dict[str, torch.Tensor]:
        """int64 [at most `limit`] a table, on the device: the ids of the last look-ups, the latest last."""
        nothing = self._counts.new_empty(0)
        return {table: torch.cat([nothing, *kept])[max(0, sum(map(len, kept)) - self._limit) :] for table, kept in self._kept.items()}

    def _keep(self, batch: KeyedJaggedTensor) -> None:
        sizes = dict.fromkeys(self._split.tables, 0)
        for table, length in zip(self._split.table_of_feature.tolist(), batch.length_per_key()):
            sizes[self._split.tables[table]] += length
        for kept, ids in zip(self._kept.values(), batch.values().split(list(sizes.values()))):
            kept.append(ids.clone())
            while sum(map(len, kept)) - len(kept[0]) >= self._limit:
                kept.popleft()

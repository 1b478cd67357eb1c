"""What training looked up in tables that are sharded by row. It has the number in each tier, and the last ids themselves."""

from __future__ import annotations

import torch
from torch import nn
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.executor.execution import Watch
from recsys_lab.schemes.tiers.execute.split import TierSplit
from recsys_lab.tables.tiers import TIERS


class TierWatch(Watch):
    """Of this rank's own batches, in passes that train. Counting costs a few small kernels a step and never waits for the device.

    The kept ids lie in one piece, a ring for each table. It takes the same memory from the first step on.
    """

    def __init__(self, split: TierSplit, device: torch.device):
        self._split = split
        self._counts = torch.zeros(len(split.tables), len(TIERS), dtype=torch.int64, device=device)
        self.keep_ids(0)

    def see(self, batch: KeyedJaggedTensor, tier: torch.Tensor) -> None:
        """`batch` has the split's features in its order; `tier` int8 [N] as `TierSplit.tier_and_row` gives it."""
        if not torch.is_grad_enabled():
            return
        per_feature = batch.offsets()[:: batch.stride()].diff()
        table = torch.repeat_interleave(self._split.table_of_feature, per_feature, output_size=len(tier))
        counts = torch.bincount(table * len(TIERS) + tier, minlength=self._counts.numel()).view_as(self._counts)
        self._counts += counts
        if self._limit:
            self._keep(batch.values(), table, counts.sum(dim=1))

    def hook(self, _: nn.Module, inputs: tuple[KeyedJaggedTensor]) -> None:
        """Before the forward pass of a collection that does not split its ids."""
        batch = self._split.own_features(inputs[0])
        self.see(batch, self._split.tier_and_row(batch)[0])

    def lookups(self, reset: bool = False) -> dict[str, dict[str, int]]:
        counts = self._counts.tolist()
        if reset:
            self._counts.zero_()
        return {table: dict(zip(TIERS, of_tier)) for table, of_tier in zip(self._split.tables, counts)}

    def keep_ids(self, limit: int) -> None:
        """0: keep none."""
        tables, device = len(self._split.tables), self._counts.device
        self._limit = limit
        self._rings = torch.zeros(tables * limit + 1, dtype=self._split.id_dtype, device=device)  # the last one is for what is not kept
        self._totals = torch.zeros(tables, dtype=torch.int64, device=device)

    def kept_ids(self) -> dict[str, torch.Tensor]:
        rings = self._rings[:-1].view(len(self._split.tables), self._limit).long()
        in_order = [
            ring[:total] if total <= self._limit else ring.roll(-(total % self._limit)) for ring, total in zip(rings, self._totals.tolist())
        ]
        return dict(zip(self._split.tables, in_order))

    def _keep(self, ids: torch.Tensor, table: torch.Tensor, counts: torch.Tensor) -> None:
        """`ids` [N] of `table` [N], table after table, `counts` of each: behind those that are there, over the oldest."""
        position = torch.arange(len(ids), device=ids.device).sub_((counts.cumsum(0) - counts)[table])
        ring = (self._totals[table] + position).remainder_(self._limit).add_(table * self._limit)
        self._rings[torch.where(position >= (counts - self._limit)[table], ring, len(self._rings) - 1)] = ids.to(self._rings.dtype)
        self._totals += counts

"""One shard with three levels, each a cache of the next: slots, rows in the host's memory, a file (Neo, section 5.2).

On a CPU slots and host are the same memory, so the levels train here as they would between a device and its host.

Both caches have one policy, are asked for the same rows, and have the same ones pinned. So their rows have the same keys. A row that leaves
the host is among the least there. If it has a slot, it is among the least of the slots, of which at least as many leave. It has left
before, and the host has all that slots have.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from recsys_lab.executor.store.cached_rows import CachedRows, First
from recsys_lab.kernels.row_cache import NO_FILE
from recsys_lab.kernels.stored import StoredWeights
from recsys_lab.models.table_weights import FirstValues
from recsys_lab.plan.store import DISK_HOST_CACHED, Store


def rows_of(store: Store, table: str, first_row: int, rows: int, weights: StoredWeights) -> CachedRows:
    """Rows of a shard with a store on a CPU, in two levels or three."""
    return (ThreeLevels if store.kind == DISK_HOST_CACHED else CachedRows)(store, table, first_row, rows, weights)


class ThreeLevels(CachedRows):
    """As CachedRows, with the host in place of the file."""

    def open(self, folder: str, first: First, state: Mapping[str, torch.Tensor], origin: FirstValues | None = None) -> None:
        store, (_, width) = self.store.of_host, self.weights.shape
        held = store.cached_rows(self.rows)
        weights = StoredWeights.empty(self.weights.format, (held, width), torch.device("cpu"))
        self._host = CachedRows(store, self.table, self.first_row, self.rows, weights)
        self._host.open(folder, first, {name: tensor.new_zeros(held, *tensor.shape[1:]) for name, tensor in state.items()}, origin)
        self._pinned: dict[int, np.ndarray] = {}
        super().open(folder, first, state, origin)

    def _open_below(self) -> int:
        return NO_FILE

    def _check_size(self) -> None:
        """Of the file: the host does."""

    def _settle(self) -> None:
        super()._settle()
        self._host._settle()

    def counts(self) -> dict[str, int]:
        """Hits and misses of the slots, and what the file reads and writes."""
        self._settle()
        own = self._cache.counts()
        return self._host.counts() | {"hits": own["hits"], "misses": own["misses"]}

    def _release(self, distinct: np.ndarray, moved: bool) -> None:
        super()._release(distinct, moved)
        self._host._release(self._pinned.pop(id(distinct)), moved=False)

    def _fill(self, ids: torch.Tensor, distinct: np.ndarray, rows: np.ndarray, to: np.ndarray) -> None:
        """Rows that changed and leave go to the host, those of `ids` come there, and those without a slot yet into theirs."""
        left, left_at, came, came_at = self._cache.moves()
        self._copy(self._host, left, left_at, back=True)
        self._host.fetch(ids, []).done(moved=False)
        for pinned, _ in self._host.finished():
            self._pinned[id(distinct)] = pinned
        self._copy(self._host, came, came_at, back=False)

    def _copy(self, host: CachedRows, rows: np.ndarray, slots: np.ndarray, back: bool) -> None:
        """These rows from the host, or `back` to it."""
        at = host._cache.where(rows)
        assert (at >= 0).all(), "the host has all rows that have a slot"
        if back:
            host._cache.wrote(at)
        near, far = torch.from_numpy(slots), torch.from_numpy(at)
        for name, field in self.fields.items():
            if back:
                host.fields[name].tensor.index_copy_(0, far, field.tensor.index_select(0, near))
            else:
                field.tensor.index_copy_(0, near, host.fields[name].tensor.index_select(0, far))

    def known(self, rows: np.ndarray) -> np.ndarray:
        self._settle()
        return self._host.known(rows)

    def records(self, rows: np.ndarray, with_weights: bool = True) -> np.ndarray:
        self._settle()
        records, where = self._host.records(rows, with_weights), self._cache.where(rows)
        records[where >= 0] = self._of_slots(where[where >= 0])
        return records

    def _write(self, rows: np.ndarray, records: np.ndarray) -> None:
        self._host.replace(rows, records)

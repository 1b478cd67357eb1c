"""One shard whose rows are in a file and, the cached ones, in slots of memory.

A row is its weights, as they are stored, with its optimizer state. Before a batch is looked up its rows are in slots, and stay there until
its update is done. A row that was never written is made from its first values. The file has no name: it is gone with its process, however
that ends.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import IO

import numpy as np
import torch

from recsys_lab.base.store_names import places_of
from recsys_lab.errors import UNWRITABLE, UserError
from recsys_lab.kernels.row_cache import IN_FILE, NEVER, SCRATCH, RowCache, TooFewSlots, read_records, write_records
from recsys_lab.kernels.stored import StoredWeights
from recsys_lab.models.table_weights import FirstValues
from recsys_lab.plan.store import HOST_CACHED, LFU, Store

#: First values of those rows (int64 [n], numbered as the table's): FP32 [n, columns of the shard].
First = Callable[[np.ndarray], torch.Tensor]


class Held:
    """The rows of one batch: `slots` of its ids, int32 [N]. They stay in their slots as long as this lives, or until `done`."""

    def __init__(self, slots: torch.Tensor, distinct: np.ndarray, finished: deque[tuple[np.ndarray, bool]]):
        self.slots, self._distinct, self._finished = slots, distinct, finished

    def done(self, moved: bool) -> None:
        """`moved`: these rows were updated."""
        if len(self._distinct):
            self._finished.append((self._distinct, moved))
            self._distinct = self._distinct[:0]

    def __del__(self) -> None:
        self.done(moved=False)


@dataclass(frozen=True)
class Field:
    """Of a record, bytes [begin, stop): a row of `tensor`, whose first dimension is the slots."""

    tensor: torch.Tensor
    begin: int
    stop: int

    def of(self, records: np.ndarray) -> torch.Tensor:
        """A copy of this field of `records`, uint8 [n, bytes]."""
        taken = torch.from_numpy(np.ascontiguousarray(records[:, self.begin : self.stop]))
        return taken.view(-1).view(self.tensor.dtype).view(len(records), *self.tensor.shape[1:])

    def put(self, records: np.ndarray, values: torch.Tensor) -> None:
        records[:, self.begin : self.stop] = (
            values.contiguous().view(-1).view(torch.uint8).view(len(records), self.stop - self.begin).numpy()
        )


class CachedRows:
    """Rows [0, `rows`) of a shard of `table`, which are `first_row` and those after it in the table."""

    def __init__(self, store: Store, table: str, first_row: int, rows: int, weights: StoredWeights):
        self.store, self.table, self.first_row, self.rows, self.weights = store, table, first_row, rows, weights
        self._finished: deque[tuple[np.ndarray, bool]] = deque()
        self._fetching: Future | None = None
        self._first: First | None = None
        self._failed: UserError | None = None

    def open(self, folder: str, first: First, state: Mapping[str, torch.Tensor], origin: FirstValues | None = None) -> None:
        """Begins with `first` values and a `state` of zeros, which has a row for each slot. Raises UserError if there can be no file.

        `origin`: what the first values are, where that can be said. Then checkpoints need only rows that were read.
        """
        self._first, self.origin, self.fields, end = first, origin, {}, 0
        parts = {"model": self.weights.model, "rest": self.weights.rest, **state}
        for name, tensor in parts.items():
            if tensor is not None:
                size = tensor.itemsize * math.prod(tensor.shape[1:])
                self.fields[name] = Field(tensor, end, end + size)
                end += size
        self.record_bytes = end
        self.folder = folder or os.environ.get(SCRATCH) or tempfile.gettempdir()
        tensors = [field.tensor for field in self.fields.values()]
        self._cache = RowCache(self.rows, len(self.weights.model), self.store.policy == LFU, self._open_below(), tensors)

    def _open_below(self) -> int:
        """The descriptor of the file."""
        self._size = places_of(self.rows) * self.record_bytes
        try:
            self._file = self._open()
            os.truncate(self._file.fileno(), self._size)
        except OSError as error:
            raise self._refused(error, begins=True) from None
        return self._file.fileno()

    def _open(self) -> IO[bytes]:
        if self.store.kind == HOST_CACHED:
            return os.fdopen(os.memfd_create(f"store of {self.table}"), "w+b", buffering=0)
        os.makedirs(self.folder, exist_ok=True)
        return tempfile.TemporaryFile(dir=self.folder, buffering=0)

    def counts(self) -> dict[str, int]:
        """Since the start: hits and misses, of the distinct rows of each batch. Bytes read from and written to the file."""
        self._settle()
        seen = self._cache.counts()
        moved = {f"bytes_{way}": seen[f"rows_{way}"] * self.record_bytes for way in ("read", "written")}
        return {"hits": seen["hits"], "misses": seen["misses"], **moved}

    def finished(self) -> list[tuple[np.ndarray, bool]]:
        """Batches that are done and still pinned. Forgets them."""
        return [self._finished.popleft() for _ in range(len(self._finished))]

    def take(self, ids: torch.Tensor) -> Held:
        """The rows of `ids` in slots. Raises UserError where the cache is too small, or the file cannot be read or written."""
        self._settle()
        return self.fetch(ids, self.finished())

    def wait_for(self, future: Future) -> None:
        """Another thread fetches rows: every other method waits for `future`."""
        self._fetching = future

    def _settle(self) -> None:
        """Raises UserError once the file has failed: what the slots hold is then nobody's rows, and no checkpoint may have them."""
        if self._fetching is not None:
            wait([self._fetching])
            self._fetching = None
        if self._failed is not None:
            raise self._failed

    def fetch(self, ids: torch.Tensor, finished: list[tuple[np.ndarray, bool]]) -> Held:
        """As `take`, on the thread that fetches. `finished`: batches that are no longer in flight."""
        for distinct, moved in finished:
            self._release(distinct, moved)
        try:
            self._check_size()
            slots, distinct, rows, to = self._cache.take(ids)
        except TooFewSlots as error:
            share = math.ceil(error.needed / self.rows * 1e6) / 1e6
            raise UserError(
                "the rows of the batches in flight do not fit the cache",
                where=f"table {self.table}, store.cached_share",
                given=f"{self.store.cached_share:g}, {self._cache.slots:,} of a shard's {self.rows:,} rows",
                allowed=f"{share:g} to 1 for these batches",
                remedy="raise the share, or train with smaller batches",
            ) from None
        except (OSError, EOFError) as error:
            raise self._refused(error) from None
        self._fill(ids, distinct, rows, to)
        return Held(slots, distinct, self._finished)

    def _release(self, distinct: np.ndarray, moved: bool) -> None:
        self._cache.release(distinct, moved)

    def _fill(self, ids: torch.Tensor, distinct: np.ndarray, rows: np.ndarray, to: np.ndarray) -> None:
        """What `ids` need besides the file: `rows` that were never written get their first values, in the slots `to`."""
        if len(rows):
            assert self._first is not None
            at = torch.from_numpy(to)
            self.weights.write(self._first(rows + self.first_row), at)
            for name, field in self.fields.items():
                if name not in ("model", "rest"):
                    field.tensor.index_fill_(0, at, 0.0)

    def known(self, rows: np.ndarray) -> np.ndarray:
        """Whether each of `rows` (int64) was ever in a slot or written: bool. The others have their first values."""
        self._settle()
        return self._cache.where(rows) != NEVER

    def records(self, rows: np.ndarray, with_weights: bool = True) -> np.ndarray:
        """What these `rows` (int64, distinct) are now: uint8 [n, bytes]. Without weights, rows never written are 0."""
        self._settle()
        records, where = np.zeros((len(rows), self.record_bytes), np.uint8), self._cache.where(rows)
        cached, on_file, never = where >= 0, where == IN_FILE, where == NEVER
        records[cached] = self._of_slots(where[cached])
        if on_file.any():
            records_at = self._cache.record_positions(rows[on_file])
            order = np.argsort(records_at)
            part = np.empty((len(order), self.record_bytes), np.uint8)
            self._try(read_records, records_at[order], part)
            records[np.flatnonzero(on_file)[order]] = part
        if with_weights and never.any():
            assert self._first is not None
            part = np.zeros((int(never.sum()), self.record_bytes), np.uint8)
            weights = StoredWeights.empty(self.weights.format, (len(part), self.weights.shape[1]), torch.device("cpu"))
            weights.write(self._first(rows[never] + self.first_row))
            self.fields["model"].put(part, weights.model)
            if weights.rest is not None:
                self.fields["rest"].put(part, weights.rest)
            records[never] = part
        return records

    def _of_slots(self, slots: np.ndarray) -> np.ndarray:
        """Their records, uint8 [n, bytes]."""
        at, records = torch.from_numpy(slots), np.empty((len(slots), self.record_bytes), np.uint8)
        for field in self.fields.values():
            field.put(records, field.tensor.index_select(0, at))
        return records

    def replace(self, rows: np.ndarray, records: np.ndarray) -> None:
        """Sets these `rows` (int64, distinct). Those that are as they were are not written."""
        changed = (self.records(rows) != records).any(axis=1)
        rows, records = rows[changed], records[changed]
        where = self._cache.where(rows)
        cached = where >= 0
        for field in self.fields.values():
            field.tensor.index_copy_(0, torch.from_numpy(where[cached]), field.of(records[cached]))
        self._cache.wrote(where[cached])
        self._write(rows[~cached], records[~cached])

    def _write(self, rows: np.ndarray, records: np.ndarray) -> None:
        """Sets rows without a slot."""
        records_at = self._cache.record_positions(rows, write=True)
        order = np.argsort(records_at)
        self._try(write_records, records_at[order], np.ascontiguousarray(records[order]))

    def _try(self, move: Callable[[int, np.ndarray, np.ndarray], None], rows: np.ndarray, records: np.ndarray) -> None:
        try:
            self._check_size()
            move(self._file.fileno(), rows, records)
        except (OSError, EOFError) as error:
            raise self._refused(error) from None

    def _check_size(self) -> None:
        """Raises EOFError for a file that was cut: to write behind its end would make zeros of the missing rows."""
        if os.fstat(self._file.fileno()).st_size != self._size:
            raise EOFError("the file is shorter than it was")

    def _refused(self, error: OSError | EOFError, begins: bool = False) -> UserError:
        """What the user reads of a file that cannot be read, written or, where it `begins`, made. No run goes on after it."""
        full = begins or (isinstance(error, OSError) and error.errno in UNWRITABLE)
        size = f"all its records take {self._size / 1e9:.3g} GB"
        remedy = f"sharder.scratch=DIR names another folder; {size}" if full else "its disk may be failing; resume from the last checkpoint"
        what = "cannot write the rows" if full else "cannot read the rows"
        reason: object = (error.strerror if isinstance(error, OSError) else None) or str(error)
        where = "host memory" if self.store.kind == HOST_CACHED else self.folder
        self._failed = UserError(f"{what} of table {self.table}: {reason}", where=where, remedy=remedy)
        return self._failed

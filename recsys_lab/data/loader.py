"""One rank's batches of one epoch, read ahead by threads. A rank reads its own rows only, and a position is the whole state."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Iterator

import numpy as np
import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.base.id_range import check_ids
from recsys_lab.data.batch import Batch, Events
from recsys_lab.data.lengths import lengths_of
from recsys_lab.data.order import FileOrder, ShuffledOrder
from recsys_lab.data.protocol import DataSet, RowEvents, Rows, Split
from recsys_lab.tables.balance import dealt
from recsys_lab.tables.lengths import Work

STOP_POLL_S = 0.1
#: Positions whose rows are asked for at once: an order is some hundred operations on arrays, however short.
POSITIONS_AT_ONCE = 4096


def rank_slice(rows: int, rank: int, world_size: int) -> tuple[int, int]:
    """[first, end) of rank's contiguous part of `rows`: as even as can be, the first ranks one row longer."""
    base, longer = divmod(rows, world_size)
    first = rank * base + min(rank, longer)
    return first, first + base + (rank < longer)


def as_batch(rows: Rows, keys: list[str], padded: int, global_valid: int) -> Batch:
    """`rows` as tensors, padded to B = `padded` rows: padding has label 0, dense 0 and no ids."""
    valid = len(rows.labels)
    labels = np.zeros(padded, np.float32)
    labels[:valid] = rows.labels
    lengths = np.zeros((len(keys), padded), np.int32)
    lengths[:, :valid] = rows.lengths
    dense = None
    if rows.dense is not None and valid == padded:
        dense = np.ascontiguousarray(rows.dense, np.float32)
    elif rows.dense is not None:
        dense = np.zeros((padded, rows.dense.shape[1]), np.float32)
        dense[:valid] = rows.dense
    sparse = KeyedJaggedTensor(
        keys=keys,
        values=torch.from_numpy(np.ascontiguousarray(rows.ids, np.int64)),
        lengths=torch.from_numpy(lengths.ravel()),
        stride=padded,
    )
    events = None if rows.events is None else _events(rows.events, padded)
    return Batch(None if dense is None else torch.from_numpy(dense), sparse, torch.from_numpy(labels), valid, global_valid, events)


def _events(events: RowEvents, padded: int) -> Events:
    """As tensors. Padding is asked at 0."""
    asked = np.zeros(padded, np.int64)
    asked[: len(events.asked)] = events.asked
    times, actions = np.ascontiguousarray(events.times, np.int64), np.ascontiguousarray(events.actions, np.uint8)
    counts = {name: torch.from_numpy(np.ascontiguousarray(own, np.int64)) for name, own in events.counts.items()}
    return Events(torch.from_numpy(times), torch.from_numpy(actions), torch.from_numpy(asked), counts, events.timed)


class RankLoader:
    """Iterates over `Batch`es from the position that was set last (at first: epoch 0, batch 0) to the end of that epoch.

    A batch owns its memory: it stays valid as long as it is kept. The loader reuses no buffer, as no consumer could know until when one is
    valid. Pinned memory (`pin_memory`) is reused by torch's pinning allocator, which waits for the copies that read it. Every rank yields
    `len(self)` batches an epoch, each of B = ceil(batch_size / world_size) rows with padding. The epoch's order depends on seed and epoch
    only, not on world_size or batch_size. With `dealt_by` a batch's samples go to ranks so that this is even. Else a rank has those that
    follow one another. `readers` threads take turns at the batches, which they do not change.
    """

    def __init__(
        self,
        dataset_split: Split,
        dataset: DataSet,
        *,
        batch_size: int,
        rank: int,
        world_size: int,
        seed: int,
        shuffle: bool,
        prefetch_batches: int,
        pin_memory: bool,
        readers: int = 1,
        dealt_by: Work | None = None,
    ):
        assert 0 <= rank < world_size and batch_size > 0 and prefetch_batches >= 0 and readers > 0
        self.split = dataset_split
        self.keys = [f.name for f in dataset.features]
        self._table_rows = {f.name: f.rows for f in dataset.features}
        self.batch_size, self.rank, self.world_size = batch_size, rank, world_size
        self.seed, self.shuffle = seed, shuffle
        self.prefetch_batches, self.pin_memory = prefetch_batches, pin_memory
        self.dealt_by = dealt_by
        self.readers = max(1, min(readers, prefetch_batches))
        self.rows_per_rank = -(-batch_size // world_size)
        self.wait_s = 0.0  # the consumer's waiting for data, so far
        self.read_s = 0.0  # reading and building batches, so far
        self._epoch, self._batch = 0, 0
        self._together = threading.Lock()  # of the readers: for what follows, and the time that they read
        self._rows_ahead: tuple[ShuffledOrder | FileOrder | None, dict[int, np.ndarray]] = (None, {})

    def __len__(self) -> int:
        """Batches in a whole epoch."""
        return (self.split.rows + self.batch_size - 1) // self.batch_size

    def set_position(self, epoch: int, batch: int = 0) -> None:
        """The next iteration starts at this batch of this epoch."""
        self._epoch, self._batch = epoch, batch

    def example(self) -> Batch:
        """The first batch in file order. The position stays as it is."""
        return self.read_batch(FileOrder(), 0)

    def __iter__(self) -> Iterator[Batch]:
        epoch, first = self._epoch, self._batch
        order = ShuffledOrder(self.split.rows, self.seed, epoch) if self.shuffle else FileOrder()
        if self.prefetch_batches == 0:
            return self._read_here(order, first)
        return self._read_ahead(order, first)

    def read_batch(self, order: ShuffledOrder | FileOrder, batch: int) -> Batch:
        """This rank's part of global batch number `batch`."""
        started = time.perf_counter()
        global_valid = min(self.batch_size, self.split.rows - batch * self.batch_size)
        rows = self.split.read(self._rows_of(order, batch))
        check_ids(self.keys, rows.lengths.sum(1), rows.ids, self._table_rows, "data")
        loaded = as_batch(rows, self.keys, self.rows_per_rank, global_valid)
        if self.pin_memory:
            loaded = loaded.pin_memory()
        with self._together:
            self.read_s += time.perf_counter() - started
        return loaded

    def _rows_of(self, order: ShuffledOrder | FileOrder, batch: int) -> np.ndarray:
        """int64: the rows of this rank's part of global batch number `batch`. Those of the next few batches are kept."""
        if self.dealt_by is not None:
            return self._dealt(order, batch, self.dealt_by)
        count = max(1, POSITIONS_AT_ONCE // self.rows_per_rank)
        if count == 1:
            return order.at(self.positions(batch))
        with self._together:
            known, rows = self._rows_ahead
            if known is not order or batch not in rows:
                last = min(len(self), batch + count)
                parts = [self.positions(one) for one in range(batch, last)]
                ends = np.cumsum([len(part) for part in parts])
                rows = dict(zip(range(batch, last), np.split(order.at(np.concatenate(parts)), ends[:-1])))
            rows_of_batch = rows.pop(batch)
            self._rows_ahead = order, rows
        return rows_of_batch

    def _dealt(self, order: ShuffledOrder | FileOrder, batch: int, by: Work) -> np.ndarray:
        """The same where all ranks' samples are dealt out: in the order in which they come."""
        begin = batch * self.batch_size
        rows = order.at(np.arange(begin, min(begin + self.batch_size, self.split.rows), dtype=np.int64))
        return rows[dealt(by(lengths_of(self.split, rows).astype(float)), self.world_size) == self.rank]

    def positions(self, batch: int, rank: int | None = None) -> np.ndarray:
        """int64: the positions of the epoch that are a rank's part of global batch number `batch`. In file order they are its rows.

        `rank` None: this one.
        """
        begin = batch * self.batch_size
        first, end = rank_slice(min(self.batch_size, self.split.rows - begin), self.rank if rank is None else rank, self.world_size)
        return np.arange(begin + first, begin + end, dtype=np.int64)

    def positions_by_rank(self) -> np.ndarray:
        """int64 [rows]: those of rank 0's batches of an epoch, one after the other, then those of rank 1's, and so on."""
        return np.concatenate([self.positions(batch, rank) for rank in range(self.world_size) for batch in range(len(self))])

    def _read_here(self, order: ShuffledOrder | FileOrder, first: int) -> Iterator[Batch]:
        for batch in range(first, len(self)):
            before = self.read_s
            loaded = self.read_batch(order, batch)
            self.wait_s += self.read_s - before
            yield loaded

    def _read_ahead(self, order: ShuffledOrder | FileOrder, first: int) -> Iterator[Batch]:
        """Reader r has batch first + r and every `readers`-th after it, and a queue of its own."""
        stop, most = threading.Event(), -(-self.prefetch_batches // self.readers)
        queues: list[queue.Queue] = [queue.Queue(maxsize=most) for _ in range(self.readers)]
        threads = [
            threading.Thread(target=_fill, args=(self, order, first + reader, ready, stop), name="recsys_lab-prefetch", daemon=True)
            for reader, ready in enumerate(queues)
        ]
        for thread in threads:
            thread.start()
        try:
            for _, ready in zip(range(first, len(self)), itertools.cycle(queues)):
                started = time.perf_counter()
                loaded = ready.get()
                self.wait_s += time.perf_counter() - started
                if isinstance(loaded, BaseException):
                    raise loaded
                yield loaded
        finally:  # at the end, after an error, and when the iterator is dropped
            stop.set()
            for thread in threads:
                thread.join()


def _fill(loader: RankLoader, order: ShuffledOrder | FileOrder, first: int, ready: queue.Queue, stop: threading.Event) -> None:
    """Puts a reader's batches, or the error that ended them, into `ready` until `stop` is set."""
    try:
        for batch in range(first, len(loader), loader.readers):
            if not _put(ready, loader.read_batch(order, batch), stop):
                return
    except BaseException as error:  # noqa: BLE001 (raised again in the consumer)
        _put(ready, error, stop)


def _put(ready: queue.Queue, item: Batch | BaseException, stop: threading.Event) -> bool:
    while not stop.is_set():
        try:
            ready.put(item, timeout=STOP_POLL_S)
            return True
        except queue.Full:
            continue
    return False

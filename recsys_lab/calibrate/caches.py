"""What caches of rows cost the cores of a rank: look-ups and updates of tables in memory beside the same with rows in files.

The loop does what a step of a training does. A thread finds the slots of the next batch's rows and moves the missing ones, while layers
and updates compute. Ranks wait for each other twice. So the difference of two times is what caches add to an iteration. It counts the
thread's work and what it takes from the caches of the core that it shares.

Rows that are missed are made here. Reads have a price of their own, which `disk.py` measures.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from statistics import median
from typing import IO

import numpy as np
import torch
import torch.distributed as dist

from recsys_lab import kernels
from recsys_lab.base.devices import device_here
from recsys_lab.base.store_names import places_of
from recsys_lab.calibrate import disk, ranks
from recsys_lab.calibrate.measured import CacheTime
from recsys_lab.kernels.memory import empty_in_huge_pages
from recsys_lab.kernels.row_cache import RowCache
from recsys_lab.units import MS_PER_S

#: So many rows that a processor's second cache does not hold what is known of them: their slots, and how often each was read.
TABLES, DIM, ROWS = 4, 64, 1 << 18
#: (look-ups of each table in a batch, slots of its cache): few and many with every row cached.
CASES = ((1 << 11, ROWS), (1 << 14, ROWS))
#: The same where no batch has read any of the rows before. The order in which rows leave so many slots is in no second cache either.
MADE = (1 << 12, 1 << 17)
BAG, SKEW = 8, 1.05
#: Times as many rows has a table of which each row is read once.
LONG = 4
#: Of the layers that compute beside it.
LAYERS = (512, 512)
#: Both kinds of tables take turns so many times, each so long. Many turns tell a few milliseconds from the machine's own changes.
TURNS, EACH_S = 12, ranks.EACH_S / 2
RULE = kernels.Rule("row_wise_adagrad", 0.1)
Ids = Sequence[torch.Tensor]
#: By table, weights and optimizer state of what is in memory.
Parts = Sequence[tuple[torch.Tensor, torch.Tensor]]
#: By table, slots that a batch holds.
Pinned = list[np.ndarray]
Say = Callable[[str], None]


def measure(say: Say, each_s: float = EACH_S) -> tuple[CacheTime, ...]:
    """Collective. Empty on GPUs, whose caches are kernels', and where some rank can write no file."""
    if device_here().type != "cpu":
        return ()
    times, in_memory = [], _InMemory()
    for ids, slots in (*CASES, MADE):
        made = (ids, slots) == MADE
        parts = in_memory.parts(slots)
        with ExitStack() as files:
            try:
                cached: _Cached | None = _Cached(parts, [files.enter_context(_file()) for _ in parts], made)
            except OSError:
                cached = None
            if ranks.mean_over_ranks(float(cached is None)):
                return ()
            assert cached is not None
            times.append(_time(in_memory, cached, _new(ids) if made else _batches(ids), each_s))
            cached.close()
    last = times[-1]
    say(f"caches of {TABLES} tables, {last.misses:,.0f} rows made: {last.extra_ms:.2f} ms longer than in memory")
    return tuple(times)


def _file() -> IO[bytes]:
    where = disk.folder()
    os.makedirs(where, exist_ok=True)
    return tempfile.TemporaryFile(dir=where, buffering=0)


def _batches(ids: int) -> list[Ids]:
    return list(zip(*(ranks.skewed_ids(ROWS, ids, SKEW, seed=table) for table in range(TABLES))))


def _new(ids: int) -> list[Ids]:
    """No row is in two of these batches."""
    order = torch.randperm(LONG * ROWS, generator=torch.Generator().manual_seed(0))
    return [(one,) * TABLES for one in order.split(ids)]


def _time(in_memory: _InMemory, cached: _Cached, batches: Sequence[Ids], each_s: float) -> CacheTime:
    """Medians over turns, means over ranks."""
    layers, extra = ranks.layers(*LAYERS), []
    steps = min(len(batches), max(ranks.TURNS, cached.slots // len(batches[0][0])))
    _steps_s(cached, batches, layers, steps)  # so that caches hold what they will
    calls = max(2, round(each_s / ranks.mean_over_ranks(_steps_s(in_memory, batches, layers, steps) / steps)))
    calls = min(calls, (len(batches) - steps - 1) // TURNS) if len(batches) > ranks.TURNS else calls
    before, began = cached.misses(), steps
    for _ in range(TURNS):
        own = _steps_s(in_memory, batches, layers, calls)
        extra.append((_steps_s(cached, batches, layers, calls, steps) - own) / calls * MS_PER_S)
        steps += calls
    misses = (cached.misses() - before) / (steps - began)
    return CacheTime(TABLES, TABLES * len(batches[0][0]), *map(ranks.mean_over_ranks, (misses, median(extra))))


def _steps_s(tables: _InMemory | _Cached, batches: Sequence[Ids], layers: Callable[[], object], calls: int, first: int = 0) -> float:
    dist.barrier()
    began = time.perf_counter()
    for number in range(first, first + calls):
        tables.step(batches[number % len(batches)], batches[(number + 1) % len(batches)], layers)
    return time.perf_counter() - began


class _InMemory:
    """All tables lie one above the other, as training has them."""

    def __init__(self) -> None:
        self._weights = empty_in_huge_pages((TABLES * ROWS, DIM), torch.float32).zero_()  # as training has them
        self._state = empty_in_huge_pages((TABLES * ROWS,), torch.float32).zero_()
        self._first_rows = torch.arange(TABLES) * ROWS

    def parts(self, slots: int) -> Parts:
        """Caches have so many slots in the same memory."""
        return [(weights[:slots], state[:slots]) for weights, state in zip(self._weights.split(ROWS), self._state.split(ROWS))]

    def step(self, now: Ids, later: Ids, layers: Callable[[], object]) -> None:
        offsets = torch.arange(0, TABLES * len(now[0]) + 1, BAG)
        lookups = kernels.Lookups(torch.cat(list(now)) % ROWS, offsets, TABLES, self._first_rows)
        gradient = kernels.bags(self._weights, lookups)
        dist.barrier()
        layers()
        kernels.update(self._weights, lookups, gradient, RULE, state=self._state)
        dist.barrier()


class _Cached:
    """Each table has slots of its own, as training has tables with a store."""

    def __init__(self, parts: Parts, files: Sequence[IO[bytes]], new: bool):
        """`new`: of tables with more rows, each read once."""
        rows = LONG * ROWS if new else ROWS
        self._weights, self._state, self.slots = [weights for weights, _ in parts], [state for _, state in parts], len(parts[0][0])
        record = 4 * (DIM + 1)
        for file in files:
            os.truncate(file.fileno(), places_of(rows) * record)
        self._caches = [RowCache(rows, len(own[0]), True, file.fileno(), own) for file, own in zip(files, parts)]
        self._thread = ThreadPoolExecutor(1)
        self._fetched: Future[tuple[list[torch.Tensor], Pinned]] | None = None
        self._done: Pinned = []

    def misses(self) -> int:
        """Since the start. No row was read from a file."""
        if self._fetched is not None:
            self._fetched.result()
        return sum(cache.counts()["misses"] for cache in self._caches)

    def close(self) -> None:
        self._thread.shutdown()

    def step(self, now: Ids, later: Ids, layers: Callable[[], object]) -> None:
        """The rows of `now` are those that the step before has fetched."""
        slots, pinned = self._take(now, []) if self._fetched is None else self._fetched.result()
        offsets = torch.arange(0, len(now[0]) + 1, BAG)
        lookups = [kernels.Lookups(at, offsets) for at in slots]
        pooled = torch.cat([kernels.bags(weights, one) for weights, one in zip(self._weights, lookups)], dim=1)
        dist.barrier()
        self._fetched, self._done = self._thread.submit(self._take, later, self._done), pinned
        layers()
        for weights, state, one, gradient in zip(self._weights, self._state, lookups, pooled.split(DIM, dim=1)):
            kernels.update(weights, one, gradient.contiguous(), RULE, state=state)
        dist.barrier()

    def _take(self, ids: Ids, done: Pinned) -> tuple[list[torch.Tensor], Pinned]:
        """Slots of `ids`, and those of different rows, pinned. Rows of the batch that is `done` may leave from now on."""
        for cache, slots in zip(self._caches, done):
            cache.release(slots, moved=True)
        taken = [cache.take(own) for cache, own in zip(self._caches, ids)]
        for weights, state, (*_, made) in zip(self._weights, self._state, taken):
            for part in (weights, state):
                part.index_fill_(0, torch.from_numpy(made), 0.0)
        return [slots for slots, *_ in taken], [pinned for _, pinned, *_ in taken]

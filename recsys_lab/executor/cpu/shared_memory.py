"""Collectives of ranks that share a machine's memory: gloo's results and bits, without its sockets and threads.

Each rank has an outbox that the others can read (csrc/exchange.cpp). An exchange is one copy into it, where the collective is issued,
and one out of it, where it is waited for. Sums are added in the order of gloo's ring. So the bits are gloo's.

RECSYS_LAB_COLLECTIVES=shared_memory asks for it; `launcher=local` sets that, unless it was set before. What it does not have goes to gloo.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import accumulate
from typing import Any

import torch
import torch.distributed as dist

from recsys_lab.base.environment import COLLECTIVES, SHARED_MEMORY, word_of
from recsys_lab.executor.torch_private import after_backward_pass, in_backward_pass
from recsys_lab.kernels.build import CannotBuild, library

#: Bytes of messages that a rank may have posted and others have not read. Only what was touched takes memory.
CAPACITY = 1 << 36
#: Bytes from which each rank adds up a part of a sum for all; below, everyone adds up everything.
SHARED_SUM = 1 << 17
TIMED_OUT, PEER_DIED = 1, 2  # as csrc/exchange.cpp numbers them


@functools.cache
def _library() -> Any:
    """The kernels with the exchange among them; None where this machine has none."""
    try:
        kernels = library()
    except CannotBuild:
        return None
    if not hasattr(kernels, "exchange_open"):  # not Linux
        return None
    number, address, seconds = ctypes.c_int64, ctypes.c_void_p, ctypes.c_double
    peer, posted = ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int64)
    kernels.exchange_bytes.restype = ctypes.c_int64
    kernels.exchange_open.restype = ctypes.c_void_p
    kernels.exchange_post.argtypes = [address, number, address, address, address, seconds]
    kernels.exchange_take.argtypes = [address, number, address, address, address, seconds, peer, posted]
    kernels.exchange_sum.argtypes = [address, number, address, address, number, number, number, seconds, peer, posted]
    return kernels


def shared_memory(store: dist.Store, rank: int, size: int, timeout: timedelta) -> SharedMemory | None:
    """The memory of a group whose ranks are all on this machine; None where nobody asked for it, or a rank cannot reach it.

    Collective: the ranks of the group meet at `store`.
    """
    if word_of(COLLECTIVES) != SHARED_MEMORY or size == 1:
        return None
    if _library() is not None and size > _library().exchange_most_ranks():
        return None
    own, files = -1, []
    try:
        own = os.memfd_create("recsys_lab")
        os.ftruncate(own, _library().exchange_bytes(ctypes.c_int64(CAPACITY)))
        path = f"/proc/{os.getpid()}/fd/{own}"
    except (OSError, AttributeError):
        path = ""
    store.set(f"outbox{rank}", path)
    handle = None
    try:
        files = [os.open(store.get(f"outbox{other}").decode(), os.O_RDWR | os.O_CLOEXEC) for other in range(size)]
        handle = _library().exchange_open(rank, size, (ctypes.c_int * size)(*files), ctypes.c_int64(CAPACITY))
    except OSError:
        pass
    store.set(f"mapped{rank}", "yes" if handle else "no")
    everyone = all(store.get(f"mapped{other}") == b"yes" for other in range(size))
    for file in (own, *files):
        if file >= 0:
            os.close(file)
    return SharedMemory(handle, rank, size, timeout) if handle and everyone else None


class SharedMemory:
    """A group's outboxes. Messages are numbered in the order of issue, which is the same on all ranks."""

    def __init__(self, handle: int, rank: int, size: int, timeout: timedelta):
        self.handle, self.rank, self.size, self.timeout_s = ctypes.c_void_p(handle), rank, size, timeout.total_seconds()
        self._next, self._numbering = 0, threading.Lock()
        self._post, self._take, self._sum = (getattr(_library(), f"exchange_{name}") for name in ("post", "take", "sum"))
        self._longs = ctypes.c_int64 * size

    def numbers(self, count: int) -> int:
        """The first of `count` new ones."""
        with self._numbering:
            self._next += count
            return self._next - count

    def post(self, number: int, address: int, starts: Sequence[int], sizes: Sequence[int]) -> None:
        """Bytes from `address` on: `sizes[r]` of them, at `starts[r]`, for each other rank."""
        if self._post(self.handle, number, address, self._longs(*starts), self._longs(*sizes), self.timeout_s):
            raise RuntimeError("Timed out waiting for others to read what this rank posted in shared memory")

    def take(self, number: int, address: int, starts: Sequence[int], sizes: Sequence[int]) -> float:
        """Waits for what the others posted for this rank. Returns when the last of it was there, by `time.perf_counter`."""
        return self._wait(self._take, number, address, self._longs(*starts), self._longs(*sizes))

    def sum(self, number: int, posted: torch.Tensor, out: torch.Tensor, begin: int, end: int) -> float:
        """In `out`: elements `begin` to `end` of the sum over ranks, of what each has posted, this rank `posted`. As `take`."""
        return self._wait(self._sum, number, posted.data_ptr(), out.data_ptr(), posted.numel(), begin, end)

    def _wait(self, function: Any, *arguments: Any) -> float:
        peer, posted_ns = ctypes.c_int(), ctypes.c_int64()
        code = function(self.handle, *arguments, self.timeout_s, peer, posted_ns)
        if code:
            raise RuntimeError(_failure(code, peer.value))
        return posted_ns.value / 1e9


def _failure(code: int, peer: int) -> str:
    """Gloo's messages, by which a lost rank is recognised."""
    if code == TIMED_OUT:
        return f"Timed out waiting for rank {peer} of the group in shared memory"
    if code == PEER_DIED:
        return f"Connection closed by peer: the process of rank {peer} of the group ended"
    return f"rank {peer} of the group put in another number of bytes than this rank expects"


class DeferredWork(dist.Work):
    """A collective that copies or adds up in `wait`, into `results`. Nothing of it runs beside the caller.

    `ended`: when it would have ended without a wait for it, by `time.perf_counter`.
    """

    def __init__(self, take: Callable[[], float], *results: torch.Tensor):
        super().__init__()
        self._take: Callable[[], float] | None = take
        self._results = list(results)
        self._future: Any = None
        self._issued = self.ended = time.perf_counter()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        if self._take is not None:
            began, (take, self._take) = time.perf_counter(), (self._take, None)
            arrived = max(take(), self._issued)
            self.ended = time.perf_counter() - max(0.0, began - arrived)
            if self._future is not None:
                self._future.set_result(self._results)
        return True

    def is_completed(self) -> bool:
        return self._take is None

    def get_future(self) -> Any:
        """For callers that wait in C++, as DistributedDataParallel does at the end of a backward pass. This waits just before, so that its
        error is the pass's. Outside of a backward pass it waits at once.
        """
        if self._future is None:
            self._future = torch.futures.Future()
            if self._take is None:
                self._future.set_result(self._results)
            elif in_backward_pass():
                after_backward_pass(self.wait)
            else:
                self.wait()
        return self._future


class SharedMemoryGroup:
    """`inner`'s collectives. Those of CPU tensors go through `memory` where it has them."""

    def __init__(self, inner: Any, memory: SharedMemory):
        self.inner, self.memory = inner, memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def all_to_all_single(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        output_splits: Sequence[int],
        input_splits: Sequence[int],
        *options: Any,
        **named: Any,
    ) -> dist.Work:
        """As dist.all_to_all_single. Splits count along the first dimension; none: even ones."""
        if not _plain(output, input):
            return self.inner.all_to_all_single(output, input, output_splits, input_splits, *options, **named)
        memory = self.memory
        sizes, starts = _bytes(input, input_splits, memory.size)
        output_sizes, output_starts = _bytes(output, output_splits, memory.size)
        number, rank = memory.numbers(1), memory.rank
        memory.post(number, input.data_ptr(), starts, sizes)
        if sizes[rank] != output_sizes[rank]:
            raise RuntimeError(_failure(-1, rank))
        ctypes.memmove(output.data_ptr() + output_starts[rank], input.data_ptr() + starts[rank], sizes[rank])
        return DeferredWork(lambda: memory.take(number, output.data_ptr(), output_starts, output_sizes))

    def allreduce(self, tensors: Any, *options: Any, **named: Any) -> dist.Work:
        """As dist.all_reduce. Only sums of FP32 are here."""
        tensor = tensors[0] if isinstance(tensors, (list, tuple)) and len(tensors) == 1 else None
        if tensor is None or not _summed(tensor, options):
            return self.inner.allreduce(tensors, *options, **named)
        memory, count = self.memory, tensor.numel()
        divided = count * 4 >= SHARED_SUM and memory.size > 2
        number = memory.numbers(2 if divided else 1)
        memory.post(number, tensor.data_ptr(), [0] * memory.size, [count * 4] * memory.size)

        def sum_all() -> float:
            return memory.sum(number, tensor, tensor, 0, count)

        def sum_own_chunk() -> float:
            chunks = [_chunk(count, memory.size, rank) for rank in range(memory.size)]
            begin, end = chunks[memory.rank]
            memory.sum(number, tensor, tensor.view(-1)[begin:end], begin, end)
            memory.post(number + 1, tensor.data_ptr() + begin * 4, [0] * memory.size, [(end - begin) * 4] * memory.size)
            starts, sizes = [4 * begin for begin, _ in chunks], [4 * (end - begin) for begin, end in chunks]
            return memory.take(number + 1, tensor.data_ptr(), starts, sizes)

        return DeferredWork(sum_own_chunk if divided else sum_all, tensor)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor, *options: Any, **named: Any) -> dist.Work:
        """As dist.reduce_scatter_tensor. Only sums of FP32 are here; gloo makes an all-reduce of them, and so its bits."""
        if not _plain(output) or not _summed(input, options):
            return self.inner.reduce_scatter_single(output, input, *options, **named)
        memory, count = self.memory, output.numel()
        number, begin = memory.numbers(1), memory.rank * count
        memory.post(number, input.data_ptr(), [0] * memory.size, [input.numel() * 4] * memory.size)
        return DeferredWork(lambda: memory.sum(number, input, output, begin, begin + count))

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor, *options: Any, **named: Any) -> dist.Work:
        """As dist.all_gather_into_tensor."""
        if not _plain(output, input):
            return self.inner.all_gather_single(output, input, *options, **named)
        memory, size = self.memory, input.numel() * input.element_size()
        number, starts = memory.numbers(1), [rank * size for rank in range(memory.size)]
        memory.post(number, input.data_ptr(), [0] * memory.size, [size] * memory.size)
        ctypes.memmove(output.data_ptr() + starts[memory.rank], input.data_ptr(), size)
        return DeferredWork(lambda: memory.take(number, output.data_ptr(), starts, [size] * memory.size))


def _plain(*tensors: torch.Tensor) -> bool:
    """Whether each is nothing but its numbers, in order, in the processor's memory."""
    return all(one.is_cpu and one.layout == torch.strided and one.is_contiguous() for one in tensors)


def _summed(tensor: torch.Tensor, options: Sequence[Any]) -> bool:
    """Whether the sum of `tensor` is one of those that shared memory has."""
    operation = getattr(options[0], "reduceOp", options[0]) if options else dist.ReduceOp.SUM
    return _plain(tensor) and tensor.dtype == torch.float32 and operation == dist.ReduceOp.SUM


def _bytes(tensor: torch.Tensor, splits: Sequence[int], size: int) -> tuple[list[int], list[int]]:
    """(how many, from where on) of each rank's part."""
    count = tensor.shape[0] if tensor.dim() else 1
    width = tensor.element_size() * (tensor.numel() // count if count else 1)
    if not splits:
        even = count // size * width
        return [even] * size, [even * rank for rank in range(size)]
    sizes = [row * width for row in splits]
    return sizes, [0, *accumulate(sizes[:-1])]


def _chunk(count: int, size: int, rank: int) -> tuple[int, int]:
    begin, end = ctypes.c_int64(), ctypes.c_int64()
    _library().exchange_chunk(ctypes.c_int64(count), size, rank, ctypes.byref(begin), ctypes.byref(end))
    return begin.value, end.value

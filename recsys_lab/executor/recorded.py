"""A torch.distributed backend that records every collective: kind, ranks, bytes and time.

`register()` makes the backend `recorded` known; `dist.init_process_group("recorded")` then uses it for the world and for every
`new_group` of it. CPU tensors go through gloo, or through memory that ranks of one machine share (cpu/shared_memory.py). CUDA tensors go
through NCCL, or through gloo where ranks share a GPU (recsys_lab/base/devices.py). TorchRec, DistributedDataParallel's reducer
and object collectives all go through a process group, so nothing of theirs is patched.

Bytes are those that this rank puts in, its own part included, as in `recsys_lab.plan.steps`. Barriers, sends and receives pass
unrecorded, and so does what a group of one rank does. Off (the usual case), a collective costs one Python call more.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from recsys_lab.base.devices import backend_of, device_here
from recsys_lab.executor import torch_private
from recsys_lab.executor.cpu.shared_memory import DeferredWork, SharedMemoryGroup, shared_memory

BACKEND = "recorded"
#: Kinds that only Python waits for: what C++ gets must be its own.
AWAITED = ("all_to_all", "scatter", "gather")
#: By kind: which argument of a process group's methods a rank puts in, and the methods that are recorded as this kind.
COLLECTIVES = {
    "all_reduce": (0, ("allreduce", "allreduce_coalesced")),
    "all_to_all": (1, ("all_to_all_single", "alltoall")),
    "all_gather": (1, ("allgather", "allgather_coalesced", "all_gather_single", "all_gather_single_coalesced")),
    "reduce_scatter": (1, ("reduce_scatter", "reduce_scatter_single", "reduce_scatter_single_coalesced")),
    "broadcast": (0, ("broadcast",)),
    "reduce": (0, ("reduce",)),
    "gather": (1, ("gather",)),
    "scatter": (1, ("scatter",)),
}
UNRECORDED = ("barrier", "monitored_barrier", "send", "recv", "recv_anysource", "abort", "shutdown")
_ProcessGroup: Any = dist.ProcessGroup  # torch's type stubs lack some of its methods and have others with other names


@dataclass(frozen=True)
class Recorded:
    """One collective of this rank. `group` are global ranks; `ms` runs from issue, at `start_ms` of `time.perf_counter`, to completion;
    `name` is the caller's, if any.
    """

    kind: str
    group: tuple[int, ...]
    bytes: int
    ms: float
    name: str | None = None
    start_ms: float = 0.0


@dataclass(slots=True)
class _Pending:
    """A collective that was issued, its `ms` yet to come; `end` is set when it completes. Events are CUDA's."""

    issued: Recorded
    end: float = 0.0
    start_event: Any = None
    event: Any = None
    future: Any = None
    deferred: DeferredWork | None = None

    def watch(self, work: Any) -> Any:
        """Have `end` set when `work` completes. Returns what to give the caller in place of `work`."""
        if work is None:  # part of a coalesced operation: its end is the coalescing manager's
            self.end = time.perf_counter()
            return work
        if isinstance(work, DeferredWork):
            self.deferred = work
            return _TimedWork(work, self, ends=False)
        try:
            future = work.get_future()
        except RuntimeError:  # gloo's reduce-scatter has no future: its second half runs in wait()
            return _TimedWork(work, self, ends=True)
        self.future = future
        if self.start_event is None:
            future.add_done_callback(self._done)
        else:  # this callback runs once the kernel is queued, on a stream that waits for it: an event there marks the end
            self.future = future.then(self._done)
        return _TimedWork(work, self, ends=False) if self.issued.kind in AWAITED else work

    def _done(self, _: Any) -> None:
        if self.start_event is not None:
            self.event = torch.cuda.Event(enable_timing=True)
            self.event.record()
        self.end = time.perf_counter()
        if self.start_event is None:
            self.future = None  # it holds the collective's tensors: a step that is recorded takes no more memory than another

    def finished(self) -> Recorded:
        if self.future is not None and not self.end:
            self.future.wait()
        if self.deferred is not None:
            self.end = self.deferred.ended
        if self.start_event is not None and self.event is not None:
            self.event.synchronize()
            ms = self.start_event.elapsed_time(self.event)
        else:
            ms = (self.end or time.perf_counter()) * 1e3 - self.issued.start_ms
        return replace(self.issued, ms=ms)


class _TimedWork(dist.Work):
    """Delegates to `work` and notes how long it was waited for, and that it `ends` then."""

    def __init__(self, work: Any, entry: _Pending, ends: bool):
        super().__init__()
        self.work, self.entry, self.ends = work, entry, ends

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        began = time.perf_counter()
        done = self.work.wait(timeout)
        RECORDER.waited_s += time.perf_counter() - began
        if self.ends:
            self.entry._done(None)
        return done

    def is_completed(self) -> bool:
        return self.work.is_completed()

    def result(self) -> Any:
        return self.work.result()

    def get_future(self) -> Any:
        return self.work.get_future()


class _Recorder:
    """What this process is recording: nothing, or up to `limit` collectives. `waited_s`: how long this thread has waited in recorded
    collectives of the kinds `AWAITED`, since it began.
    """

    def __init__(self) -> None:
        self.on = False
        self.limit = 0
        self.dropped = 0
        self.entries: list[_Pending] = []
        self.names = threading.local()

    @property
    def waited_s(self) -> float:
        return getattr(self.names, "waited_s", 0.0)

    @waited_s.setter
    def waited_s(self, seconds: float) -> None:
        self.names.waited_s = seconds

    def begin(self, kind: str, group: tuple[int, ...], tensors: list[torch.Tensor]) -> _Pending | None:
        if len(self.entries) >= self.limit:
            self.dropped += 1
            return None
        put_in, name = sum(t.numel() * t.element_size() for t in tensors), getattr(self.names, "current", None)
        entry = _Pending(Recorded(kind, group, put_in, 0.0, name, time.perf_counter() * 1e3))
        if tensors and tensors[0].is_cuda:
            entry.start_event = torch.cuda.Event(enable_timing=True)
            entry.start_event.record()
        self.entries.append(entry)
        return entry


RECORDER = _Recorder()


def start_recording(limit: int = 100_000) -> None:
    """Forget what was recorded and record the collectives that follow, `limit` at most."""
    RECORDER.entries, RECORDER.dropped, RECORDER.limit, RECORDER.on = [], 0, limit, True


def stop_recording() -> list[Recorded]:
    """Stop, wait for what is in flight, and return the collectives in the order of issue. Warns if some were beyond the limit."""
    RECORDER.on = False
    entries, RECORDER.entries = RECORDER.entries, []
    if RECORDER.dropped:
        warnings.warn(f"{RECORDER.dropped} collectives beyond the limit of {RECORDER.limit} were not recorded", stacklevel=2)
    return [entry.finished() for entry in entries]


@contextmanager
def named(name: str) -> Iterator[None]:
    """`with named("towers"):` gives the collectives that this thread issues inside that name."""
    outer = getattr(RECORDER.names, "current", None)
    RECORDER.names.current = name
    try:
        yield
    finally:
        RECORDER.names.current = outer


def register() -> str:
    """Make the backend known to torch.distributed (once) and return its name."""
    if not dist.is_backend_available(BACKEND):
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])
    return BACKEND


def shares_memory() -> bool:
    """Whether the world's ranks exchange what is on CPUs through their machine's memory."""
    return isinstance(getattr(dist.group.WORLD, "inner", None), SharedMemoryGroup)


class RecordedProcessGroup(_ProcessGroup):
    """Delegates to `inner`. C++ callers reach the methods through torch's trampoline, which knows them by these names."""

    def __init__(self, inner: Any, ranks: tuple[int, ...], rank: int, size: int):
        super().__init__(rank, size)
        self.inner, self.ranks = inner, ranks

    def getBackendName(self) -> str:
        return BACKEND


def _method(name: str, kind: str | None, put_in: int) -> Callable:
    """The method `name` of `RecordedProcessGroup`, whose argument number `put_in` is what this rank puts in. `kind` None: not recorded."""

    def method(self: RecordedProcessGroup, *args: Any, **options: Any) -> Any:
        call = getattr(self.inner, name)
        if kind is None or not RECORDER.on or len(self.ranks) == 1:  # a group of one sends nothing
            return call(*args, **options)
        entry = RECORDER.begin(kind, self.ranks, _flat(args[put_in]))
        work = call(*args, **options)
        return work if entry is None else entry.watch(work)

    return method


for _kind, (_put_in, _names) in (*COLLECTIVES.items(), (None, (0, UNRECORDED))):
    for _name in _names:
        setattr(RecordedProcessGroup, _name, _method(_name, _kind, _put_in))
for _name, _newer in torch_private.OLDER_METHODS.items():
    setattr(RecordedProcessGroup, _name, getattr(RecordedProcessGroup, _newer))


def _flat(tensors: Any) -> list[torch.Tensor]:
    """A tensor, a list of them or a list of lists, as one list."""
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [t for item in tensors for t in _flat(item)]


def _create(options: Any, _backend_options: Any = None) -> RecordedProcessGroup:
    store, rank, size, timeout = options.store, options.group_rank, options.group_size, options.timeout
    inner, kinds = _ProcessGroup(store, rank, size), dist.ProcessGroup.BackendType
    memory = shared_memory(store, rank, size, timeout)
    transport = inner if memory is None else SharedMemoryGroup(inner, memory)
    outer = RecordedProcessGroup(transport, tuple(options.global_ranks_in_group) or tuple(range(size)), rank, size)
    # A group that shares memory rarely needs sockets: it uses the world's.
    on_cpu, device = torch_private.gloo(store, rank, size, timeout, sockets_of=None if memory is None else dist.group.WORLD), device_here()
    backends: list[tuple[str, Any, Any]] = [("cpu", kinds.GLOO, on_cpu)]
    if device.type == "cuda" and backend_of(device) == "gloo":
        backends.append(("cuda", kinds.GLOO, on_cpu))
    elif device.type == "cuda":
        backends.append(("cuda", kinds.NCCL, torch_private.nccl(dist.PrefixStore("nccl", store), rank, size, timeout)))
    for group in (inner, outer):  # the outer one too: torch asks a group for its devices, its backend and its default timeout
        torch_private.add_backends(group, backends)
    return outer

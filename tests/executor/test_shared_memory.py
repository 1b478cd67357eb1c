"""Collectives through shared memory: gloo's results bit for bit, whatever is in flight, and an end in time where a rank is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from recsys_lab.base.environment import COLLECTIVES
from recsys_lab.executor.cpu.shared_memory import PEER_DIED, SHARED_SUM, DeferredWork, _library, shared_memory
from recsys_lab.executor.recorded import register, start_recording, stop_recording
from recsys_lab.kernels.build import compiler
from tests.executor.test_recorded import every_entry_point
from tests.ranks import RankFailed, run_ranks

register()
pytestmark = pytest.mark.timeout(120)
SHARED = "shared_memory"
#: Floats of a sum: around a rank's part, gloo's segments of 1 MiB, and the size from which ranks share the work.
COUNTS = (0, 1, 2, 3, 7, 8, 9, 16, 17, 1001, 4096, 32767, 32768, 65537, 262144, 1_048_581, 3_000_001)


def _memory_of() -> str:
    return type(dist.distributed_c10d._get_default_group().inner).__name__  # type: ignore[attr-defined]


def sums() -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(dist.get_rank())
    wide = [torch.randn(n, generator=made) * 10.0 ** torch.randint(-3, 4, (n,), generator=made) for n in COUNTS]
    here = [tensor.clone() for tensor in wide]
    works = [dist.all_reduce(tensor.view(_rows(len(tensor)), -1) if len(tensor) else tensor, async_op=True) for tensor in wide]
    works += [dist.all_reduce(tensor, async_op=True) for tensor in here]
    assert all(work.get_future().done() for work in works[::3] if isinstance(work, DeferredWork))  # no thread would end them
    for work in reversed(works):
        work.wait()
    even = [tensor for tensor in wide if len(tensor) % dist.get_world_size() == 0]
    return wide + here + [scattered(tensor) for tensor in even] + [gathered(tensor) for tensor in wide]


def _rows(count: int) -> int:
    """Of a matrix of so many floats: as weights and their gradients are."""
    return next(rows for rows in (64, 7, 3, 2, 1) if count % rows == 0)


def scattered(tensor: torch.Tensor) -> torch.Tensor:
    part = torch.empty(len(tensor) // dist.get_world_size())
    dist.reduce_scatter_tensor(part, tensor.roll(dist.get_rank()))
    return part


def gathered(tensor: torch.Tensor) -> torch.Tensor:
    """Of each rank the first of its own."""
    whole = torch.empty(min(len(tensor), 1000) * dist.get_world_size())
    dist.all_gather_into_tensor(whole, tensor[:1000] + dist.get_rank())
    return whole


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_sums_have_the_bits_of_gloos_ring(ranks: int) -> None:
    shared, gloo = (run_ranks(sums, 1, ranks, backend=backend) for backend in (SHARED, "gloo"))
    for rank in range(ranks):
        for mine, theirs in zip(shared[rank], gloo[rank]):
            assert torch.equal(mine, theirs), f"{len(mine)} floats on rank {rank}"


def test_every_entry_point_gives_what_gloo_gives_and_is_recorded_alike() -> None:
    shared, recorded = (run_ranks(every_entry_point, 2, 2, backend=backend) for backend in (SHARED, "recorded"))
    for rank in range(4):
        for name, (value, seen) in shared[rank].items():
            assert torch.equal(value, recorded[rank][name][0]), f"{name}, rank {rank}"
            assert seen == recorded[rank][name][1], name


def exchanges(rounds: int) -> tuple[str, list[torch.Tensor]]:
    """All-to-alls of uneven sizes on two groups, several in flight, waited for in another order than issued."""
    rank, world = dist.get_rank(), dist.get_world_size()
    other = dist.new_group(list(range(world)))
    out = []
    for step in range(rounds):
        flying = []
        for place, group in enumerate((None, other, None)):
            sizes = torch.randint(0, 3000 * (place + 1), (world, world), generator=torch.Generator().manual_seed(100 * step + place))
            sent = torch.arange(int(sizes[rank].sum()), dtype=torch.float64) * (rank + 1) + step
            taken = torch.empty(int(sizes[:, rank].sum()), dtype=torch.float64)
            work = dist.all_to_all_single(taken, sent, sizes[:, rank].tolist(), sizes[rank].tolist(), group=group, async_op=True)
            sent.zero_()  # it was copied
            flying.append((work, taken))
        for work, taken in (flying[1], flying[0], flying[2]):
            work.wait()
            out.append(taken)
    return _memory_of(), out


def test_exchanges_in_flight_do_not_mix() -> None:
    for rank, (kind, out) in enumerate(run_ranks(exchanges, 2, 2, 20, backend=SHARED)):
        assert kind == "SharedMemoryGroup" and len(out) == 60
        for number, taken in enumerate(out):
            step, place = divmod(number, 3)
            assert torch.equal(taken, _expected(_sizes_waited(step, place), rank, step))


def _sizes_waited(step: int, place: int) -> torch.Tensor:
    issued = (1, 0, 2)[place]
    return torch.randint(0, 3000 * (issued + 1), (4, 4), generator=torch.Generator().manual_seed(100 * step + issued))


def _expected(sizes: torch.Tensor, rank: int, step: int) -> torch.Tensor:
    """By the formula: of each sender the part of its numbers that is this rank's."""
    parts = []
    for sender in range(len(sizes)):
        begin = int(sizes[sender, :rank].sum())
        parts.append((torch.arange(begin, begin + int(sizes[sender, rank]), dtype=torch.float64)) * (sender + 1) + step)
    return torch.cat(parts)


def memory_after_many() -> float:
    """MB of shared memory that this rank has touched in 300 exchanges of 4 MB, two of them always in flight."""
    size = 1 << 20
    flying = []
    for _ in range(300):
        taken = torch.empty(size)
        flying.append((dist.all_to_all_single(taken, torch.ones(size), async_op=True), taken))
        if len(flying) > 2:
            work, taken = flying.pop(0)
            work.wait()
            assert taken.sum() == size
    for work, _ in flying:
        work.wait()
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["RssShmem"].split()[0]) / 1024


def test_places_are_used_again() -> None:
    assert max(run_ranks(memory_after_many, 1, 2, backend=SHARED)) < 100  # both outboxes; 600 exchanges of 2 MB would be 1,200


def late_reader() -> tuple[float, float]:
    """Recorded ms of an exchange that was there at once but is waited for half a second later; and of one whose peer is late."""
    taken = torch.empty(4)
    dist.barrier()
    start_recording()
    work = dist.all_to_all_single(taken, torch.ones(4), async_op=True)
    time.sleep(0.5)
    work.wait()
    dist.barrier()
    if dist.get_rank() == 1:
        time.sleep(0.5)
    dist.all_to_all_single(taken, torch.ones(4))
    first, second = stop_recording()
    return first.ms, second.ms


def test_the_recorded_time_is_of_the_exchange_and_not_of_what_it_ran_beside() -> None:
    (first, waited), (again, _) = run_ranks(late_reader, 1, 2, backend=SHARED)
    assert max(first, again) < 250 < waited


def exchange_of(kind: str, group: dist.ProcessGroup | None = None) -> Callable[[], object]:
    """A collective that ends when it is called. torch itself waits for that of "gradients", in C++."""
    if kind == "rows":
        return lambda: dist.all_to_all_single(torch.empty(4), torch.ones(4), group=group)
    if kind == "a sum":
        return lambda: dist.all_reduce(torch.ones(4), group=group)
    if kind == "a shared sum":
        return lambda: dist.all_reduce(torch.ones(SHARED_SUM), group=group)
    if kind == "a sum that C++ awaits":
        return lambda: dist.all_reduce(torch.ones(4), group=group, async_op=True).get_future().wait()
    model = nn.parallel.DistributedDataParallel(nn.Linear(4, 1), process_group=group)
    model(torch.ones(3, 4)).sum().backward()  # DDP orders its buckets again after the first
    loss = model(torch.ones(3, 4)).sum()
    return lambda: (loss.backward(), model)  # whose hooks end with it


KINDS = ("rows", "a sum", "a shared sum", "a sum that C++ awaits", "gradients")


def with_a_peer_that_dies(told: str, kind: str) -> None:
    exchange = exchange_of(kind)
    if dist.get_rank() == dist.get_world_size() - 1:
        time.sleep(1)  # what came before has ended on the others
        os._exit(1)
    began = time.monotonic()
    try:
        exchange()
    except RuntimeError as error:
        Path(f"{told}{dist.get_rank()}").write_text(f"{time.monotonic() - began:.1f} {error}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_that_died_is_noticed_within_seconds(tmp_path: Path, kind: str) -> None:
    ranks = 3 if kind == "a shared sum" else 2
    with pytest.raises(RankFailed):
        run_ranks(with_a_peer_that_dies, 1, ranks, str(tmp_path / "told"), kind, backend=SHARED, timeout_s=30)
    seconds, _, error = (tmp_path / "told0").read_text().partition(" ")
    assert f"Connection closed by peer: the process of rank {ranks - 1} of the group ended" in error and float(seconds) < 6
    assert kind == "gradients" or error.startswith("Connection closed")


def with_a_peer_that_hangs(kind: str) -> None:
    impatient = dist.new_group([0, 1], timeout=timedelta(seconds=1))
    exchange = exchange_of(kind, impatient)
    if dist.get_rank() == 1:
        time.sleep(3)
    else:
        exchange()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "a shared sum"])
def test_a_rank_that_hangs_is_a_timeout(kind: str) -> None:
    with pytest.raises(RankFailed, match="Timed out waiting for rank 1 of the group in shared memory"):
        run_ranks(with_a_peer_that_hangs, 1, 2, kind, backend=SHARED)


def test_a_group_of_more_ranks_than_a_message_has_room_for_is_gloos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COLLECTIVES, SHARED)
    store, most = dist.HashStore(), _library().exchange_most_ranks()
    assert shared_memory(store, 0, most + 1, timedelta(seconds=1)) is None
    assert store.num_keys() == 0, "nobody waits for the others"


#: Loaded before the system's own `kill`. Where one process asks whether another lives, `asked` is called, and the answer is that it ended.
KILL = """
#include <errno.h>
void (*asked)(void);
int kill(int process, int number) { (void)process, (void)number; asked(); errno = ESRCH; return -1; }
"""
POSTED_LAST = """
import ctypes, os, sys, torch
from recsys_lab.executor.cpu.shared_memory import _library
from recsys_lab.kernels.build import library
_library()
size, long, none = 1 << 20, ctypes.c_int64, ctypes.c_int64 * 2
files = (ctypes.c_int * 2)(*(os.memfd_create("outbox") for _ in range(2)))
for file in files:
    os.ftruncate(file, library().exchange_bytes(long(size)))
here, there = (ctypes.c_void_p(library().exchange_open(rank, 2, files, long(size))) for rank in range(2))
posts = sys.argv[2] == "posts"
@ctypes.CFUNCTYPE(None)
def asked():
    if posts:
        library().exchange_post(there, 0, ctypes.addressof(word), none(0, 0), none(8, 0), 1.0)
ctypes.c_void_p.in_dll(ctypes.CDLL(sys.argv[1]), "asked").value = ctypes.cast(asked, ctypes.c_void_p).value
word, taken = long(17), long(0)
code = library().exchange_take(here, 0, ctypes.addressof(taken), none(0, 0), none(0, 8), 30.0, ctypes.c_int(), long())
print(code, taken.value)
"""


@pytest.mark.parametrize(("peer", "answer"), [("posts", "0 17"), ("posts nothing", f"{PEER_DIED} 0")])
def test_what_a_rank_posted_just_before_its_end_is_there(peer: str, answer: str, tmp_path: Path) -> None:
    """Between a look for its message and the question whether it lives."""
    (tmp_path / "kill.c").write_text(KILL)
    made = str(tmp_path / "kill.so")
    subprocess.run([compiler(), "-x", "c", "-shared", "-fPIC", "-o", made, str(tmp_path / "kill.c")], check=True)
    words = [sys.executable, "-c", POSTED_LAST, made, peer]
    done = subprocess.run(words, env=os.environ | {"LD_PRELOAD": made}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == answer

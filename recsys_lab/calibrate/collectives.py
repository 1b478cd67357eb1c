"""Collectives between the ranks that training has: by kind, size and group, every group of a kind at once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
import torch.distributed as dist

from recsys_lab.base.devices import device_here
from recsys_lab.calibrate.measured import CollectiveTime
from recsys_lab.calibrate.ranks import Say, finish, mean_over_ranks
from recsys_lab.units import MS_PER_S, counted

SIZES_BYTES = (1 << 7, 1 << 14, 1 << 17, 1 << 20, 1 << 24)  # of the whole buffer: an all-gather's has all parts
WARM_UP, REPEATS = 3, 15


def measure(hosts: int, ranks_per_host: int, say: Say) -> list[CollectiveTime]:
    """Collective: every rank calls it. Groups of one rank are left out; `say` is called with each group as it is done."""
    world, times = range(hosts * ranks_per_host), []
    shapes = {"world": [list(world)]}
    if hosts > 1 and ranks_per_host > 1:
        shapes["host"] = [list(world[first : first + ranks_per_host]) for first in world[::ranks_per_host]]
        shapes["peers"] = [list(world[local::ranks_per_host]) for local in range(ranks_per_host)]
    for name, ranks in shapes.items():
        if (size := len(ranks[0])) == 1:
            continue
        group = _own([dist.new_group(members) for members in ranks], ranks)
        in_hosts = hosts if name != "host" else 1
        for kind, make in KINDS.items():
            for size_bytes in (even_bytes(least, size) for least in SIZES_BYTES):
                ms = _ms(make(group, size, size_bytes))
                put_in = size_bytes / size if kind == "all_gather" else size_bytes
                times.append(CollectiveTime(kind, size, in_hosts, size // in_hosts, put_in, ms))
            small = times[-len(SIZES_BYTES)].ms
            say(f"{kind} of {name}, {counted(size, 'rank')}: {small:.2f} ms of {SIZES_BYTES[0]} bytes, {ms:.2f} ms of 16 MiB")
    return times


def even_bytes(least: int, size: int) -> int:
    """At least so many bytes of FP32, as many for each of `size` ranks."""
    return math.ceil(least / (4 * size)) * 4 * size


def _own(groups: Sequence[dist.ProcessGroup], ranks: Sequence[Sequence[int]]) -> dist.ProcessGroup:
    """The one of `groups`, of `ranks`, that this rank is in."""
    return next(group for group, members in zip(groups, ranks) if dist.get_rank() in members)


def _ms(work: Callable[[], object]) -> float:
    """The median of a call over calls one after another, then the mean over ranks."""
    times = []
    for _ in range(WARM_UP + REPEATS):
        began = time.perf_counter()
        work()
        finish()
        times.append(time.perf_counter() - began)
    return mean_over_ranks(median(times[WARM_UP:])) * MS_PER_S


Made = Callable[[dist.ProcessGroup, int, int], Callable[[], object]]


def _floats(size_bytes: float) -> torch.Tensor:
    return torch.ones(max(int(size_bytes) // 4, 1), device=device_here())


def _all_to_all(group: dist.ProcessGroup, size: int, size_bytes: int) -> Callable[[], object]:
    values = _floats(size_bytes)
    taken = torch.empty_like(values)
    return lambda: dist.all_to_all_single(taken, values, group=group)


def _all_reduce(group: dist.ProcessGroup, size: int, size_bytes: int) -> Callable[[], object]:
    values = torch.zeros_like(_floats(size_bytes))
    return lambda: dist.all_reduce(values, group=group)


def _reduce_scatter(group: dist.ProcessGroup, size: int, size_bytes: int) -> Callable[[], object]:
    values = _floats(size_bytes)
    taken = torch.empty(len(values) // size, device=device_here())
    return lambda: dist.reduce_scatter_tensor(taken, values, group=group)


def _all_gather(group: dist.ProcessGroup, size: int, size_bytes: int) -> Callable[[], object]:
    values = _floats(size_bytes / size)
    taken = torch.empty(len(values) * size, device=device_here())
    return lambda: dist.all_gather_into_tensor(taken, values, group=group)


KINDS: dict[str, Made] = {
    "all_to_all": _all_to_all,
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
}

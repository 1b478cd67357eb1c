"""Memory of a training process. What it frees is kept for its next step, and what a model adds to it is counted."""

from __future__ import annotations

import ctypes
import math
import os
from pathlib import Path

import psutil
import torch

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt, malloc.h
KEPT_BYTES = 1 << 30
#: Of what a host has left, the share that a copy for checkpoints leaves.
KEPT_FREE = 0.1
CGROUPS = Path("/sys/fs/cgroup")
_RESET_PEAK = "5"  # of clear_refs, proc(5)


def keep_memory() -> None:
    """Has glibc keep what is freed, up to a gigabyte of a piece, as every step asks for the same again.

    By default large buffers return to the system and come back as pages that must be cleared and mapped one by one. For batch 2,048 of the
    small DLRM in BF16 that took a fifth of the time (docs/decisions/dense-bf16.md). Without glibc nothing happens.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for threshold in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            mallopt(threshold, KEPT_BYTES)


def watch(device: torch.device) -> int | None:
    """Bytes that this process uses on `device` now. From here on `peak_bytes` counts. None where the system does not tell.

    Memory that was freed and kept is released first. A later step would use it again unseen.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return int(torch.cuda.memory_allocated(device))
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    try:
        Path("/proc/self/clear_refs").write_text(_RESET_PEAK)
    except OSError:
        return None
    return _of_status("VmRSS")


def peak_bytes(device: torch.device) -> int | None:
    """The most that this process has used on `device` since `watch`."""
    return int(torch.cuda.max_memory_allocated(device)) if device.type == "cuda" else _of_status("VmHWM")


def lacks_memory(size: int) -> bool:
    """Whether this host has less than `size` bytes left for each of its ranks, a tenth of the rest kept free."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("WORLD_SIZE") or 1)
    return size > 0 and size * ranks > (1 - KEPT_FREE) * min(psutil.virtual_memory().available, _left_in_cgroup())


def _left_in_cgroup() -> float:
    """Bytes that the limits of this process's control groups leave, what is cached of files counted as left. Infinite without a limit."""
    left = math.inf
    try:
        own = Path("/proc/self/cgroup").read_text().splitlines()[-1].rpartition("::")[2].lstrip("/")
    except (OSError, IndexError):
        return left
    folder = CGROUPS / own
    while folder.is_relative_to(CGROUPS):
        try:
            limit, used = ((folder / f"memory.{name}").read_text().strip() for name in ("max", "current"))
            cached = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines()).get("file", "0")
            left = min(left, math.inf if limit == "max" else int(limit) - int(used) + int(cached))
        except (OSError, ValueError):
            pass
        folder = folder.parent
    return left


def _of_status(name: str) -> int | None:
    """A line of Linux's account of this process, in bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:")), None)

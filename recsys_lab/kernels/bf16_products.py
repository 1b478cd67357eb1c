"""Whether this machine multiplies BF16 matrices faster once they are widened to FP32. It is measured once, and kept beside the kernels.

A processor can have BF16 instructions that are slower than its FP32 ones. An Intel Xeon whose AMX is hidden needs twice the time. A product
of two BF16 numbers is exact in FP32, and sums are FP32's either way. So only their order differs.

All ranks of a machine read one file: they agree, and so do the runs after them. RECSYS_LAB_BF16_PRODUCTS=bf16 or fp32 decides without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from recsys_lab.files import why_untrusted
from recsys_lab.kernels.build import cache_folder, processor

CHOICE, FORMATS = "RECSYS_LAB_BF16_PRODUCTS", ("bf16", "fp32")
#: How many times faster the other way must be. What both do alike is then never decided by chance.
CLEARLY = 1.25
SHAPE, ROUNDS = (1024, 1024, 512), 5


@functools.cache
def widened() -> bool:
    """Whether BF16 matrices are to be multiplied in FP32. Measured by the machine's first process that asks."""
    chosen = os.environ.get(CHOICE)
    if chosen in FORMATS:
        return chosen == "fp32"
    kept = cache_folder() / f"products-{_machine()}.json"
    if (known := _read(kept)) is not None:
        return known
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(kept.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return _faster()
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (known := _read(kept)) is not None:
            return known
        found = _faster()
        with contextlib.suppress(OSError):
            written = kept.with_name(f".{kept.name}.{os.getpid()}")
            written.write_text(json.dumps({"widened": found}), encoding="utf-8")
            written.chmod(0o644)
            os.replace(written, kept)
        return found
    finally:
        os.close(lock)


def by_widening(multiply: Callable[..., Tensor], *given: Tensor | None) -> Tensor:
    """What `multiply` makes of the BF16 tensors in FP32, rounded once."""
    return multiply(*(None if one is None else one.float() for one in given)).bfloat16()


def _machine() -> str:
    """What the answer depends on."""
    return hashlib.sha256(f"{torch.__version__}\0{processor()}\0{SHAPE}".encode()).hexdigest()[:20]


def _read(kept: Path) -> bool | None:
    """What was measured before; None where nobody did, or others could have written it."""
    try:
        if why_untrusted(kept):
            return None
        found = json.loads(kept.read_text(encoding="utf-8"))["widened"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if isinstance(found, bool) else None


def _faster() -> bool:
    n, k, m = SHAPE
    a, b = torch.ones(n, k, dtype=torch.bfloat16), torch.ones(m, k, dtype=torch.bfloat16).t()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # whose own time is measured, whatever else runs on the machine
    try:
        as_they_are, in_fp32 = _least_s(lambda: torch.mm(a, b), lambda: by_widening(torch.mm, a, b))
    finally:
        torch.set_num_threads(threads)
    return as_they_are > CLEARLY * in_fp32


def _least_s(*calls: Callable[[], object]) -> list[float]:
    """Of each the least seconds of this thread, in turns; the first turn is not counted."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS + 1):
        for call, taken in zip(calls, times):
            began = time.thread_time()
            call()
            taken.append(time.thread_time() - began)
    return [min(taken[1:]) for taken in times]

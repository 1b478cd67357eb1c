"""Which way of multiplying matrices is fastest on this machine. It is measured once, and kept beside the compiled kernels.

| question | yes on |
|---|---|
| `widened`: BF16 matrices in FP32, widened before | an Intel Xeon whose AMX is hidden: BF16 takes twice the time |
| `by_torch`: FP32 products by weights through torch, of a transposed view | Intel, where torch has MKL; on AMD oneDNN is twice as fast |

A product of two BF16 numbers is exact in FP32, and sums are FP32's either way. So only the order of sums depends on the answers.

All ranks of a machine read one file: they agree, and so do the runs after them. RECSYS_LAB_BF16_PRODUCTS=bf16 or fp32, and
RECSYS_LAB_FP32_PRODUCTS=onednn or torch, decide without it.
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

#: By question: the variable that answers it, with its words for no and for yes.
CHOICES = {
    "widened": ("RECSYS_LAB_BF16_PRODUCTS", ("bf16", "fp32")),
    "by_torch": ("RECSYS_LAB_FP32_PRODUCTS", ("onednn", "torch")),
}
#: By question: the least time of the usual way over that of the other one, from which the other one is taken. What both do alike is then
#: not decided by chance. oneDNN's products by weights need a transposed gradient, which costs a tenth of them.
LEAST_GAIN = {"widened": 1.25, "by_torch": 0.9}
SHAPE, ROUNDS = (1024, 1024, 512), 5


def widened() -> bool:
    """Whether BF16 matrices are to be multiplied in FP32."""
    return _answer("widened")


def by_torch() -> bool:
    """Whether FP32 products by weights are to be torch's."""
    return _answer("by_torch")


def by_widening(multiply: Callable[..., Tensor], *given: Tensor | None) -> Tensor:
    """What `multiply` makes of the BF16 tensors in FP32, rounded once."""
    return multiply(*(None if one is None else one.float() for one in given)).bfloat16()


@functools.cache
def _answer(question: str) -> bool:
    variable, words = CHOICES[question]
    chosen = os.environ.get(variable)
    return chosen == words[1] if chosen in words else _answers()[question]


@functools.cache
def _answers() -> dict[str, bool]:
    """To all questions. Measured by the machine's first process that asks."""
    kept = cache_folder() / f"products-{_machine()}.json"
    if (known := _read(kept)) is not None:
        return known
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(kept.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return _measured()
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (known := _read(kept)) is not None:
            return known
        found = _measured()
        with contextlib.suppress(OSError):
            written = kept.with_name(f".{kept.name}.{os.getpid()}")
            written.write_text(json.dumps(found), encoding="utf-8")
            written.chmod(0o644)
            os.replace(written, kept)
        return found
    finally:
        os.close(lock)


def _machine() -> str:
    """What the answers depend on."""
    return hashlib.sha256(f"{torch.__version__}\0{processor()}\0{SHAPE}\0{LEAST_GAIN}".encode()).hexdigest()[:20]


def _read(kept: Path) -> dict[str, bool] | None:
    """What was measured before; None where nobody did, or others could have written it."""
    try:
        if why_untrusted(kept):
            return None
        found = json.loads(kept.read_text(encoding="utf-8"))
        answers = {question: found[question] for question in CHOICES}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return answers if all(isinstance(answer, bool) for answer in answers.values()) else None


def _measured() -> dict[str, bool]:
    n, k, m = SHAPE
    a, b = torch.ones(n, k), torch.ones(k, m)
    turned = a.t().contiguous().t()  # a view, as the gradient's transpose is
    half = (a.bfloat16(), b.bfloat16())
    ways: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "widened": (lambda: torch.mm(*half), lambda: by_widening(torch.mm, *half)),
        "by_torch": (
            lambda: torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], ""),
            lambda: torch.mm(turned, b),
        ),
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # whose own time is measured, whatever else runs on the machine
    try:
        seconds = {question: _least_s(*calls) for question, calls in ways.items()}
    finally:
        torch.set_num_threads(threads)
    return {question: usual > LEAST_GAIN[question] * other for question, (usual, other) in seconds.items()}


def _least_s(*calls: Callable[[], object]) -> list[float]:
    """Of each the least seconds of this thread, in turns; the first turn is not counted."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS + 1):
        for call, taken in zip(calls, times):
            began = time.thread_time()
            call()
            taken.append(time.thread_time() - began)
    return [min(taken[1:]) for taken in times]

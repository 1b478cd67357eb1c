"""How look-ups and updates prefetch rows on this machine. It is measured once, and kept beside the compiled kernels.

| question | yes on |
|---|---|
| `read_first`: an update prefetches rows into the second-level cache first, then for writing | an Intel Xeon |
| `read_parts_first`: so where a row lies in several parts, as hi/lo split weights do | that Xeon, an AMD EPYC without AVX-512 |
| `second_level`: a look-up prefetches rows into the second-level cache alone | an Intel Xeon |

On the Xeon a line fetched for writing takes twice the time. Random rows come 1.3 times as fast into the second-level cache as into the
first. On the EPYC updates of split weights take 0.83 of the time (experiments/benchmarks/2026-11_without_avx512.md).

No result depends on the answers. RECSYS_LAB_ROW_PREFETCH decides all without a measurement: write is no, read is yes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial

import torch

from recsys_lab.kernels import native
from recsys_lab.kernels.lookups import Lookups
from recsys_lab.kernels.measured import answers, chosen, least_s
from recsys_lab.kernels.memory import empty_in_huge_pages
from recsys_lab.kernels.rule import Rule

VARIABLE = "RECSYS_LAB_ROW_PREFETCH"
#: By question: the least time of the usual way over that of the other one, from which the other one is taken. Updates are timed themselves,
#: look-ups by a bare loop.
LEAST_GAIN = {"read_first": 1.05, "read_parts_first": 1.05, "second_level": 1.15}
#: Rows that are read or updated, each once, and floats of each.
ROWS, WIDTH = 1 << 16, 64
#: How many rows before its use a loop that only reads prefetches one.
FAR = 64


def read_first(parts: bool) -> bool:
    """Whether an update is to prefetch rows for reading before it prefetches them for writing. `parts`: of a row, several."""
    return _answers()["read_parts_first" if parts else "read_first"]


def second_level() -> bool:
    """Whether a look-up is to prefetch rows into the second-level cache alone."""
    return _answers()["second_level"]


@functools.cache
def _answers() -> dict[str, bool]:
    if (decided := chosen(VARIABLE)) is not None:
        return dict.fromkeys(LEAST_GAIN, decided)
    return answers("rows", f"{ROWS}\0{WIDTH}\0{LEAST_GAIN}", LEAST_GAIN, _measured)


def _measured() -> dict[str, bool]:
    """In one thread's own time, over rows that no cache holds."""
    whole, halves = (empty_in_huge_pages((ROWS, WIDTH), dtype).zero_() for dtype in (torch.float32, torch.bfloat16))
    rest = empty_in_huge_pages((ROWS, WIDTH), torch.int16).zero_()
    if not native.evict(whole):
        return dict.fromkeys(LEAST_GAIN, False)
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(0))
    grad, lookups, rule = torch.ones(1, WIDTH), Lookups(order, source=torch.zeros_like(order)), Rule("sgd", 0.01)

    def updating(weight: torch.Tensor, low: torch.Tensor | None, first: bool) -> Callable[[], object]:
        return partial(native.update, weight, low, None, lookups, grad, rule, None, "default", read_first=first, threads=1)

    read = partial(native.random_read, whole, order, FAR, 1)
    ways: dict[str, tuple[Callable[[], object], ...]] = {
        "read_first": (updating(whole, None, False), updating(whole, None, True)),
        "read_parts_first": (updating(halves, rest, False), updating(halves, rest, True)),
        "second_level": (read, partial(read, second_level=True)),
    }

    def empty_caches() -> None:
        for one in (whole, halves, rest):
            native.evict(one)

    times = {question: least_s(*calls, before=empty_caches) for question, calls in ways.items()}
    return {question: usual > LEAST_GAIN[question] * other for question, (usual, other) in times.items()}

"""How look-ups and updates prefetch rows on this machine. It is measured once, and kept beside the compiled kernels.

| question | yes on |
|---|---|
| `read_first`: an update prefetches rows into the second-level cache first, then for writing | an Intel Xeon |
| `second_level`: a look-up prefetches rows into the second-level cache alone | an Intel Xeon |

There a line fetched for writing takes twice the time. Random rows come 1.3 times as fast into the second-level cache as into the first.

No result depends on the answers. RECSYS_LAB_ROW_PREFETCH decides both without a measurement: write is no, read is yes.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from functools import partial

import torch

from recsys_lab.kernels import native
from recsys_lab.kernels.measured import answers, least_s
from recsys_lab.kernels.memory import empty_in_huge_pages

VARIABLE, WORDS = "RECSYS_LAB_ROW_PREFETCH", ("write", "read")
QUESTIONS = ("read_first", "second_level")
#: The least time of the usual way over that of the other one, from which the other one is taken.
LEAST_GAIN = 1.15
#: Rows of a bare loop, floats of each, and how many rows before its use one is prefetched: at once for writing, or in two steps.
ROWS, WIDTH = 1 << 16, 64
AT_ONCE, FAR, NEAR = 32, 64, 8


def read_first() -> bool:
    """Whether an update is to prefetch rows for reading before it prefetches them for writing."""
    return _answers()["read_first"]


def second_level() -> bool:
    """Whether a look-up is to prefetch rows into the second-level cache alone."""
    return _answers()["second_level"]


@functools.cache
def _answers() -> dict[str, bool]:
    chosen = os.environ.get(VARIABLE)
    if chosen in WORDS:
        return dict.fromkeys(QUESTIONS, chosen == WORDS[1])
    return answers("rows", f"{ROWS}\0{WIDTH}\0{LEAST_GAIN}", QUESTIONS, _measured)


def _measured() -> dict[str, bool]:
    """In one thread's own time, over rows that no cache holds."""
    place = empty_in_huge_pages((ROWS, WIDTH), torch.float32).fill_(1.0)
    if not native.evict(place):
        return dict.fromkeys(QUESTIONS, False)
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(0))
    update, read = partial(native.random_update, place, None, order, 1.0, threads=1), partial(native.random_read, place, order, FAR, 1)
    ways: dict[str, tuple[Callable[[], object], ...]] = {
        "read_first": (partial(update, AT_ONCE), partial(update, FAR, near=NEAR)),
        "second_level": (read, partial(read, second_level=True)),
    }
    times = {question: least_s(*calls, before=partial(native.evict, place)) for question, calls in ways.items()}
    return {question: usual > LEAST_GAIN * other for question, (usual, other) in times.items()}

"""How an update prefetches rows on this machine. It is measured once, and kept beside the compiled kernels.

| question | yes on |
|---|---|
| `read_first`: rows into the second-level cache first, then for writing | an Intel Xeon: a line fetched for writing takes twice the time |

No result depends on the answer. RECSYS_LAB_ROW_PREFETCH=write or read decides without it.
"""

from __future__ import annotations

import functools
import os
from functools import partial

import torch

from recsys_lab.kernels import native
from recsys_lab.kernels.measured import answers, least_s
from recsys_lab.kernels.memory import empty_in_huge_pages

VARIABLE, WORDS = "RECSYS_LAB_ROW_PREFETCH", ("write", "read")
#: The least time of the usual way over that of the other one, from which the other one is taken.
LEAST_GAIN = 1.15
#: Rows of a bare loop, floats of each, and how many rows before its use one is prefetched: at once for writing, or in two steps.
ROWS, WIDTH = 1 << 16, 64
AT_ONCE, FAR, NEAR = 32, 64, 8


@functools.cache
def read_first() -> bool:
    """Whether an update is to prefetch rows for reading before it prefetches them for writing."""
    chosen = os.environ.get(VARIABLE)
    if chosen in WORDS:
        return chosen == WORDS[1]
    return answers("rows", f"{ROWS}\0{WIDTH}\0{LEAST_GAIN}", ("read_first",), _measured)["read_first"]


def _measured() -> dict[str, bool]:
    """In one thread's own time, over rows that no cache holds."""
    place = empty_in_huge_pages((ROWS, WIDTH), torch.float32).fill_(1.0)
    if not native.evict(place):
        return {"read_first": False}
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(0))
    loop = partial(native.random_update, place, None, order, 1.0, threads=1)
    usual, other = least_s(partial(loop, AT_ONCE), partial(loop, FAR, near=NEAR), before=partial(native.evict, place))
    return {"read_first": usual > LEAST_GAIN * other}

"""Whether large results are written with non-temporal stores, which bypass the caches. It is measured once on a machine, and kept.

A cache reads a line from memory before it is written. A result that the caches cannot hold until it is read gains nothing from that.
On an Intel Xeon looked-up rows of 27 MB took 0.6 of the time with non-temporal stores. No result depends on the answer.
RECSYS_LAB_LARGE_RESULTS decides without a measurement: cached or past.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from functools import partial

import torch

from recsys_lab.kernels import native
from recsys_lab.kernels.lookups import Lookups
from recsys_lab.kernels.measured import answers, chosen, least_s
from recsys_lab.kernels.memory import empty_in_huge_pages

VARIABLE = "RECSYS_LAB_LARGE_RESULTS"
#: Bytes from which a result is large.
LARGE = 1 << 23
#: Of a cache line. Rows that begin or end within one never get non-temporal stores.
LINE_BYTES = 64
#: Floats of a looked-up row.
WIDTH = 128
#: The least time with usual stores over that with non-temporal ones, from which the latter are used.
LEAST_GAIN = 1.1
QUESTION = "nontemporal_stores"


def nontemporal_stores(results: Sequence[torch.Tensor], dim: int) -> bool:
    """Whether non-temporal stores write all `results`, each [R, ..., C], in rows of `dim` elements. R may have any stride."""
    large = sum(result.nbytes for result in results) >= LARGE
    return large and all(_in_whole_lines(result, dim) for result in results) and _answer()


def _in_whole_lines(result: torch.Tensor, dim: int) -> bool:
    size = result.element_size()
    return (result.data_ptr() | result.stride(0) * size | dim * size) % LINE_BYTES == 0


@functools.cache
def _answer() -> bool:
    decided = chosen(VARIABLE)
    return answers("results", f"{LARGE}\0{WIDTH}\0{LEAST_GAIN}", (QUESTION,), _measured)[QUESTION] if decided is None else decided


def _measured() -> dict[str, bool]:
    """In one thread's own time: rows looked up by one id each, and read again from the result, as the next kernel does."""
    count = LARGE // (4 * WIDTH)
    table, result = (empty_in_huge_pages((count, WIDTH), torch.float32).zero_() for _ in range(2))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    lookups = Lookups(order, torch.arange(count + 1), 1)

    def run(nontemporal: bool) -> None:
        native.bags(table, lookups, result, nontemporal=nontemporal, threads=1)
        native.stream_read(result, 1)

    def empty_caches() -> None:
        for one in (table, result):
            native.evict(one)

    if not native.evict(table):
        return {QUESTION: False}
    usual, other = least_s(partial(run, False), partial(run, True), before=empty_caches)
    return {QUESTION: usual > LEAST_GAIN * other}

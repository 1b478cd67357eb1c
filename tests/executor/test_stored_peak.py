"""What tables take at most, from making them through training: in halves as in FP32. Counted by torch's allocator."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from recsys_lab.executor.sparse_optim import STATES, SparseOptimizer
from recsys_lab.executor.table_batch import HeldShard, TableBatch
from recsys_lab.kernels import Rule

CPU = torch.device("cpu")
ROWS, WIDTH, SAMPLES, LENGTH = 1 << 19, 64, 32, 10


def train(format: str, optimizer_name: str) -> int:
    """Bytes of the tables and their optimizer's state."""
    batch = TableBatch([HeldShard("t", 0, ROWS, 0, WIDTH, 1, format)], CPU)
    batch.fill(lambda table, row_start, row_stop, col_start, col_stop: torch.full((row_stop - row_start, col_stop - col_start), 0.1))
    optimizer = SparseOptimizer([batch], Rule(optimizer_name, 0.1), CPU)
    offsets = torch.arange(0, SAMPLES * LENGTH + 1, LENGTH)
    for _ in range(2):
        rows = batch.look_up(torch.randint(0, ROWS, (SAMPLES * LENGTH,)), offsets, SAMPLES)
        rows.backward(torch.ones_like(rows))
        optimizer.step()
    return batch.weights.nbytes + sum(state.nbytes for by_name in optimizer.states for state in by_name.values())


def peak(format: str, optimizer_name: str) -> tuple[int, int]:
    """Bytes of the tables, and the most that was allocated at once."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        nbytes = train(format, optimizer_name)
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    return nbytes, max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


@pytest.mark.parametrize("optimizer_name", STATES)
def test_halves_take_at_most_what_fp32_takes_within_a_hundredth(optimizer_name: str) -> None:
    (full, full_peak), (halves, halves_peak) = (peak(format, optimizer_name) for format in ("fp32", "split_bf16"))
    assert halves == full >= 4 * ROWS * WIDTH
    assert full < full_peak < 1.02 * full
    assert abs(halves_peak - full_peak) < 0.01 * full

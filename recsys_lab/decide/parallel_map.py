"""Work in processes side by side, which are forks: what they need is there."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def process_pool(tasks: int, workers: int | None = None) -> ProcessPoolExecutor | None:
    """Forks for so many tasks: `workers`, or one for each core that this process may use. None where this process alone is as good."""
    count = min(workers or len(os.sched_getaffinity(0)), tasks)
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("fork")) if count > 1 else None


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`work` of each of `items`, in their order. Raises what the first of them raises."""
    processes = process_pool(len(items))
    if processes is None:
        return [work(item) for item in items]
    with processes:
        return list(processes.map(work, items))

"""Work in processes side by side, which are forks: what they need is there."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def workers_for(tasks: int, workers: int | None = None) -> int:
    """Processes for so many tasks: `workers`, or one for each core that this process may use. 1: this process alone is as good."""
    return max(min(workers or len(os.sched_getaffinity(0)), tasks), 1)


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`work` of each of `items`, in their order. Raises what the first of them raises."""
    count = workers_for(len(items))
    if count == 1:
        return [work(item) for item in items]
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("fork")) as processes:
        return list(processes.map(work, items))

"""Combinations priced in processes side by side. They are forks: what they need is there, and only rows and plans come back."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from typing import Any

import numpy as np

from recsys_lab.data.protocol import DataSet
from recsys_lab.decide.combinations import Combination
from recsys_lab.decide.parallel_map import process_pool
from recsys_lab.decide.prices import Priced, price_combination
from recsys_lab.decide.rows import Row
from recsys_lab.plan import ShardingPlan

#: How often progress is reported, seconds.
EVERY_S = 0.5
#: What forks inherit: the combinations, the data, and how many combinations are done.
_work: tuple[Sequence[Combination], DataSet, Any] | None = None


def price_all(
    combinations: Sequence[Combination], data: DataSet, progress: Callable[[int], None] = lambda done: None, workers: int | None = None
) -> list[Priced]:
    """Every combination priced, in their order. `progress` is called with how many are done.

    `workers` None: a process for each core that this one may use; 1: none beside this one. Combinations that share work stay together.
    """
    global _work
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, combination in enumerate(combinations):
        groups.setdefault(combination.shared_work, []).append(number)
    done = multiprocessing.get_context("fork").Value("i", 0)
    by_number: dict[int, Priced] = {}
    _work = combinations, data, done
    try:
        processes = process_pool(len(groups), workers)
        if processes is None:
            for numbers in groups.values():
                by_number |= {number: Priced(combinations[number], *priced) for number, priced in _group(numbers).items()}
                progress(done.value)
        else:
            with processes:
                left = {processes.submit(_group, numbers) for numbers in groups.values()}
                while left:
                    ended, left = wait(left, EVERY_S, FIRST_COMPLETED)
                    progress(done.value)
                    for future in ended:
                        for number, priced in future.result().items():
                            by_number[number] = Priced(combinations[number], *priced)
    finally:
        _work = None
    return [by_number[number] for number in range(len(combinations))]


def _group(numbers: Sequence[int]) -> dict[int, tuple[tuple[Row, ...], ShardingPlan | None, Mapping[str, np.ndarray]]]:
    """Rows, plans and draws of combinations, by number."""
    assert _work is not None
    combinations, data, done = _work
    by_number = {}
    for number in numbers:
        priced = price_combination(combinations[number], data)
        by_number[number] = priced.rows, priced.plan, priced.changes
        with done.get_lock():
            done.value += 1
    return by_number

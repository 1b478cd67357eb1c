"""Combinations priced in processes side by side. They are forks: what they need is there, and only rows, plans and draws come back."""

from __future__ import annotations

import multiprocessing
import queue
import signal
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import Any, TypeAlias

from recsys_lab.data.protocol import DataSet
from recsys_lab.decide.combinations import Combination
from recsys_lab.decide.parallel_map import workers_for
from recsys_lab.decide.prices import Priced, price_combination

#: A number of a combination, and its price.
Results: TypeAlias = Generator[tuple[int, Priced], None, None]
#: How often it is seen whether a process has died, seconds.
EVERY_S = 0.5


def price_all(
    combinations: Sequence[Combination],
    data: DataSet,
    progress: Callable[[int], None] = lambda done: None,
    workers: int | None = None,
    keep: bool = False,
) -> list[Priced]:
    """Every combination priced, in their order. `progress` is called with how many are done.

    `workers` None: a process for each core that this one may use; 1: none beside this one. Combinations that share work stay together.
    `keep`: Ctrl-C ends the pricing, and what was priced is returned, if anything was.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, combination in enumerate(combinations):
        groups.setdefault(combination.shared_work, []).append(number)
    count, by_number = workers_for(len(groups), workers), dict[int, Priced]()
    pricing = _here if count == 1 else _in_forks
    progress(0)
    try:
        with closing(pricing(list(groups.values()), combinations, data, count)) as results:
            for number, priced in results:
                by_number[number] = priced
                progress(len(by_number))
    except KeyboardInterrupt:
        if not keep or not by_number:
            raise
    return [by_number[number] for number in sorted(by_number)]


def _here(groups: Sequence[Sequence[int]], combinations: Sequence[Combination], data: DataSet, count: int) -> Results:
    for number in (number for numbers in groups for number in numbers):
        yield number, price_combination(combinations[number], data)


def _in_forks(groups: Sequence[Sequence[int]], combinations: Sequence[Combination], data: DataSet, count: int) -> Results:
    """By `count` processes, each of which takes the next group when it is done with one. They end with this generator."""
    context = multiprocessing.get_context("fork")
    begun, results, forks = context.Value("i", 0), context.Queue(), []
    try:
        for _ in range(count):
            fork = context.Process(target=_work, args=(groups, combinations, data, begun, results), daemon=True)
            fork.start()
            forks.append(fork)
        left = len(combinations)
        while left:
            try:
                number, *priced = results.get(timeout=EVERY_S)
            except queue.Empty:
                if died := [fork.exitcode for fork in forks if fork.exitcode]:
                    raise RuntimeError(f"a process that prices combinations ended with exit code {died[0]}") from None
                continue
            left -= 1
            yield number, Priced(combinations[number], *priced)
    finally:
        for fork in forks:
            fork.terminate()
            fork.join()


def _work(groups: Sequence[Sequence[int]], combinations: Sequence[Combination], data: DataSet, begun: Any, results: Any) -> None:
    """Prices group after group. Of a result all that the combination itself is not."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is heard by the process that ends this one
    while True:
        with begun.get_lock():
            at, begun.value = begun.value, begun.value + 1
        if at >= len(groups):
            return
        for number in groups[at]:
            priced = price_combination(combinations[number], data)
            results.put((number, priced.rows, priced.plan, priced.changes))

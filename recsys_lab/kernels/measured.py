"""Answers that are measured once a machine, and kept beside the compiled kernels.

All ranks of a machine read one file: they agree, and so do the runs after them.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection
from pathlib import Path

from filelock import FileLock

from recsys_lab.base.environment import WORDS, word_of
from recsys_lab.base.files import read_json, write_json
from recsys_lab.errors import UserError
from recsys_lab.kernels.build import cache_folder, processor

ROUNDS = 5


def chosen(variable: str) -> bool | None:
    """What the environment's `variable` decides, of WORDS for no and for yes. None: it decides nothing. UserError for another word."""
    word = word_of(variable)
    return None if word is None else word == WORDS[variable][1]


def answers(name: str, depends_on: str, questions: Collection[str], measure: Callable[[], dict[str, bool]]) -> dict[str, bool]:
    """To all `questions`. The machine's first process that asks measures.

    Args:
        name: of the file.
        depends_on: what the answers depend on, besides the processor.
    """
    digest = hashlib.sha256(f"{depends_on}\0{processor()}".encode()).hexdigest()[:20]
    file = cache_folder() / f"{name}-{digest}.json"
    if (known := _read(file, questions)) is not None:
        return known
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock")):
            if (known := _read(file, questions)) is not None:
                return known
            measured = measure()
            write_json(file, measured)
            return measured
    except (OSError, UserError):  # nothing can be kept there
        return measure()


def _read(file: Path, questions: Collection[str]) -> dict[str, bool] | None:
    """What was measured before; None where nobody did."""
    try:
        kept = read_json(file)
        return {question: bool(kept[question]) for question in questions}
    except (UserError, KeyError, TypeError):
        return None


def least_s(*calls: Callable[[], object], before: Callable[[], object] = lambda: None) -> list[float]:
    """Of each the least seconds of this thread, in turns; the first turn is not counted. `before` comes before each."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS + 1):
        for call, taken in zip(calls, times):
            before()
            began = time.thread_time()
            call()
            taken.append(time.thread_time() - began)
    return [min(taken[1:]) for taken in times]

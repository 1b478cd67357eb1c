"""Answers that are measured once a machine, and kept beside the compiled kernels.

All ranks of a machine read one file: they agree, and so do the runs after them.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

from recsys_lab.base.environment import WORDS, word_of
from recsys_lab.base.files import why_untrusted
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
    kept = cache_folder() / f"{name}-{digest}.json"
    if (known := _read(kept, questions)) is not None:
        return known
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(kept.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        return measure()
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (known := _read(kept, questions)) is not None:
            return known
        found = measure()
        with contextlib.suppress(OSError):
            written = kept.with_name(f".{kept.name}.{os.getpid()}")
            written.write_text(json.dumps(found), encoding="utf-8")
            written.chmod(0o644)
            os.replace(written, kept)
        return found
    finally:
        os.close(lock)


def _read(kept: Path, questions: Collection[str]) -> dict[str, bool] | None:
    """What was measured before; None where nobody did, or others could have written it."""
    try:
        if why_untrusted(kept):
            return None
        found = json.loads(kept.read_text(encoding="utf-8"))
        known = {question: found[question] for question in questions}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return known if all(isinstance(answer, bool) for answer in known.values()) else None


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

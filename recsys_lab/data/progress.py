"""What is shown while files are read: a bar on a terminal, else a line every ten seconds. Both on stderr."""

from __future__ import annotations

import sys
import threading
import time
from typing import Protocol, Self

from tqdm import tqdm

SHOW_PROGRESS_AFTER_S = 3.0
EVERY_S = 10.0
#: tqdm's own lock spans processes: a rank that ends without Python's clean-up would leave its semaphore behind.
_BAR_LOCK = threading.RLock()


class Progress(Protocol):
    """A context in which `update` is called with how much more is done."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def update(self, more: int = 1) -> object: ...


class Lines:
    """For logs: how much of `total` is done, once in `EVERY_S`."""

    def __init__(self, total: int, what: str):
        self.total, self.what, self.done, self.said_s = total, what, 0, time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, more: int = 1) -> None:
        self.done += more
        if (now := time.monotonic()) - self.said_s >= EVERY_S:
            print(f"{self.what}: {self.done / max(self.total, 1):.0%}", file=sys.stderr, flush=True)
            self.said_s = now


def progress(total: int, what: str, unit: str) -> Progress:
    """Of `total` bytes, rows or columns, once the work takes more than a few seconds."""
    if not sys.stderr.isatty():
        return Lines(total, what)
    tqdm.set_lock(_BAR_LOCK)
    return tqdm(total=total, desc=what, unit=unit, unit_scale=True, delay=SHOW_PROGRESS_AFTER_S, leave=False, file=sys.stderr)

"""A bar for what takes seconds."""

from __future__ import annotations

import sys
import threading

from tqdm import tqdm

SHOW_PROGRESS_AFTER_S = 3.0
#: tqdm's own lock spans processes: a rank that ends without Python's clean-up would leave its semaphore behind.
_BAR_LOCK = threading.RLock()


def progress(total: int, what: str, unit: str) -> tqdm:
    """A bar on stderr, on a terminal only, once the work takes more than a few seconds."""
    tqdm.set_lock(_BAR_LOCK)
    return tqdm(
        total=total,
        desc=what,
        unit=unit,
        unit_scale=True,
        delay=SHOW_PROGRESS_AFTER_S,
        disable=not sys.stderr.isatty(),
        leave=False,
        file=sys.stderr,
    )

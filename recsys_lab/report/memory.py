"""The memory of a plan as pages and tables have it: one figure under one name."""

from __future__ import annotations

from recsys_lab.record.run_folder import Run
from recsys_lab.units import GB

#: The one figure of memory, wherever pages and tables have one, and what is in it (`recsys_lab.plan.memory`).
MEMORY = "memory of the fullest rank"
MEMORY_PARTS = "weights, optimizer state, dense arch, buffers of a step"


def fullest_words(run: Run) -> str:
    """`12.3 of 80 GB`: the memory of the fullest rank, of what it may fill. Empty where the record does not say."""
    fullest, there = (run.result["plan"] or {}).get("fullest_bytes"), run.memory_there_bytes
    if fullest is None or there is None:
        return ""
    return f"{gb(fullest)} of {there / GB:g} GB"


def gb(size_bytes: float) -> str:
    """In 1e9 bytes, with the digits that a small one needs."""
    return f"{size_bytes / GB:.1f}" if size_bytes >= GB else f"{size_bytes / GB:.2g}"

"""Figure 5 of FlexShard as data: memory and communication as more and more rows, most frequent first, are replicated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from recsys_lab.sharders.flexshard.allocate import Trade, two_tier


@dataclass(frozen=True)
class Point:
    """Replicating the `replicated` most frequent rows: a rank's memory and time of an iteration, beyond row-wise sharding of all rows."""

    name: str
    replicated: int
    memory_bytes: float
    communication_ms: float


def point(trade: Trade, name: str, replicated: int) -> Point:
    return Point(name, replicated, float(trade.memory_bytes(replicated)), float(trade.communication_ms(replicated)))


def points(trade: Trade) -> dict[str, Point]:
    """A: the least memory. B: memory-neutral, the least communication without more memory. C: the least communication. D: all rows."""
    neutral = two_tier(trade)
    assert neutral is not None  # row-wise sharding itself needs no more memory
    rows = {"A": trade.least_memory(), "B": neutral.replicated, "C": trade.least_communication(), "D": trade.rows.total}
    return {name: point(trade, name, replicated) for name, replicated in rows.items()}


def curve(trade: Trade, most_rows: int | None = None, steps: int = 200) -> list[Point]:
    """The whole trade-off: evenly spaced numbers of replicated rows from none to `most_rows` (None: all)."""
    most = trade.rows.total if most_rows is None else min(most_rows, trade.rows.total)
    return [point(trade, "", int(k)) for k in np.unique(np.linspace(0, most, steps + 1).round())]

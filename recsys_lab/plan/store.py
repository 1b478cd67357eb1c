"""Where the rows of a table larger than the devices' memory stay. They are in host memory or on disk, with some of them cached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.ranges import OneOf
from recsys_lab.base.schema import check_fields
from recsys_lab.base.store_names import DISK_CACHED, HOST, HOST_CACHED, LFU, LRU, POLICIES, STORES

#: Of a row: the slot that it is in, or how often it was read.
PLACE_BYTES = 4


@dataclass(frozen=True)
class Store:
    """Of one table, alike for all its shards. `cached_share`: of each shard's rows, those that the cache holds at most.

    A row is its weights with its optimizer state. Raises UserError for a share beyond [0, 1] and for unknown names.
    """

    kind: Annotated[str, OneOf(STORES)]
    cached_share: Annotated[float, Strict(), Interval(ge=0, le=1)] = 0.0
    policy: Annotated[str, OneOf(POLICIES)] = LFU

    def __post_init__(self) -> None:
        check_fields(self, "store")

    def cached_rows(self, rows: int) -> int:
        """Of a shard of so many rows, how many the cache holds."""
        return 0 if self.kind == HOST else round(self.cached_share * rows)

    def place_bytes(self, rows: int) -> int:
        """Bytes that a cache of a shard of so many rows needs besides the rows.

        It has to find each row, and count how often each was read.
        """
        return 0 if self.kind == HOST else rows * PLACE_BYTES * (2 if self.policy == LFU else 1)


__all__ = ["DISK_CACHED", "HOST", "HOST_CACHED", "LFU", "LRU", "POLICIES", "STORES", "Store"]

"""Where the rows of a table stay that is larger than the devices' memory: host memory or disk, some of them cached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from recsys_lab.ranges import OneOf, Range, check_fields

#: All rows in the host's memory, read over the link between host and device; the same with a cache in device memory; in files on a disk,
#: with a cache in memory.
HOST, HOST_CACHED, DISK_CACHED = "host", "host_cached", "disk_cached"
STORES = (HOST, HOST_CACHED, DISK_CACHED)
#: What leaves a full cache: the row read least often, or the one read longest ago.
LFU, LRU = "lfu", "lru"
POLICIES = (LFU, LRU)


@dataclass(frozen=True)
class Store:
    """Of one table, alike for all its shards. `cached_share`: of each shard's rows, those that the cache holds at most.

    A row is its weights with its optimizer state. Raises UserError for a share beyond [0, 1] and for unknown names.
    """

    kind: Annotated[str, OneOf(STORES)]
    cached_share: Annotated[float, Range(0, 1)] = 0.0
    policy: Annotated[str, OneOf(POLICIES)] = LFU

    def __post_init__(self) -> None:
        check_fields(self, "store")

    def cached_rows(self, rows: int) -> int:
        """Of a shard of so many rows, how many the cache holds."""
        return 0 if self.kind == HOST else round(self.cached_share * rows)

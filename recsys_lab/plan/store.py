"""Where the rows of a table larger than the devices' memory stay. They are in host memory or on disk, with some of them cached."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.ranges import OneOf
from recsys_lab.base.schema import check_fields
from recsys_lab.base.store_names import (
    DISK_CACHED,
    DISK_HOST_CACHED,
    HOST,
    HOST_CACHED,
    HOST_PAGED,
    LFU,
    LRU,
    ON_DISK,
    POLICIES,
    STORES,
    UNCACHED,
)
from recsys_lab.errors import UserError

#: Of a row: the slot that it is in, or how often it was read.
PLACE_BYTES = 4


@dataclass(frozen=True)
class Store:
    """Of one table, alike for all its shards. `cached_share`: of each shard's rows, those that the cache holds at most.

    `host_share`: of disk_host_cached, those that the host's memory holds, with all that the cache holds. A row is its weights with its
    optimizer state. Raises UserError for a share beyond [0, 1], for unknown names, and for a host that holds fewer rows than the cache.
    """

    kind: Annotated[str, OneOf(STORES)]
    cached_share: Annotated[float, Strict(), Interval(ge=0, le=1)] = 0.0
    policy: Annotated[str, OneOf(POLICIES)] = LFU
    host_share: Annotated[float, Strict(), Interval(ge=0, le=1)] = 0.0

    def __post_init__(self) -> None:
        check_fields(self, "store")
        least = self.cached_share if self.kind == DISK_HOST_CACHED else 0.0
        if self.host_share < least or (self.host_share and self.kind != DISK_HOST_CACHED):
            raise UserError(
                f"the host's memory holds what the cache holds, of {DISK_HOST_CACHED}",
                where="store.host_share",
                given=f"{self.host_share:g} of {self.kind} with cached_share {self.cached_share:g}",
                allowed=f"{least:g} to 1" if least else "0",
            )

    def cached_rows(self, rows: int) -> int:
        """Of a shard of so many rows, how many the cache holds."""
        return 0 if self.kind in UNCACHED else round(self.cached_share * rows)

    def host_rows(self, rows: int) -> int:
        """Of a shard of so many rows, how many are in the host's memory."""
        return round(self.host_share * rows) if self.kind in ON_DISK else rows

    @property
    def of_host(self) -> Store:
        """What the host's memory is to the disk, of disk_host_cached: a cache with the same policy."""
        return Store(DISK_CACHED, self.host_share, self.policy)

    @property
    def of_device(self) -> Store:
        """What the device's memory is to the host's, of disk_host_cached."""
        return Store(HOST_CACHED, self.cached_share, self.policy)

    def place_bytes(self, rows: int) -> int:
        """Bytes that a cache of a shard of so many rows needs besides the rows.

        It has to find each row, and count how often each was read.
        """
        return 0 if self.kind in UNCACHED else rows * PLACE_BYTES * (2 if self.policy == LFU else 1)


__all__ = [
    "DISK_CACHED",
    "DISK_HOST_CACHED",
    "HOST",
    "HOST_CACHED",
    "HOST_PAGED",
    "LFU",
    "LRU",
    "ON_DISK",
    "POLICIES",
    "STORES",
    "UNCACHED",
    "Store",
]

"""Where rows may be that are not in device memory, by name, what leaves a full cache of them, and how large their file is."""

from __future__ import annotations

#: host: all rows are in the host's memory and read over the link between host and device.
#: host_paged: the same, but what a device touches comes to it by the page, as unified memory moves it.
#: host_cached: rows are in the host's memory, with a cache in device memory.
#: disk_cached: rows are in files on a disk, with a cache in memory.
#: disk_host_cached: rows are in files, with a cache in the host's memory, and a cache of that one in device memory.
HOST, HOST_PAGED, HOST_CACHED, DISK_CACHED, DISK_HOST_CACHED = "host", "host_paged", "host_cached", "disk_cached", "disk_host_cached"
STORES = (HOST, HOST_PAGED, HOST_CACHED, DISK_CACHED, DISK_HOST_CACHED)
UNCACHED = (HOST, HOST_PAGED)
CACHED = (HOST_CACHED, DISK_CACHED, DISK_HOST_CACHED)
ON_DISK = (DISK_CACHED, DISK_HOST_CACHED)
#: The row read in fewest batches, or the one read longest ago.
LFU, LRU = "lfu", "lru"
POLICIES = (LFU, LRU)
#: In place of a store: the nearest that the cluster has room in; none.
AUTO, NONE = "auto", "none"
#: Records of a file are numbered in 31 bits.
MOST_PLACES = (1 << 31) - 4


def places_of(rows: int) -> int:
    """Records that the file of so many rows has room for. It is a quarter more, so that rows that leave together lie together."""
    return min(rows + rows // 4 + 64, MOST_PLACES)

"""Where rows may be that are not in device memory, by name, and what leaves a full cache of them."""

from __future__ import annotations

#: host: all rows are in the host's memory and read over the link between host and device. host_cached: the same with a cache in device
#: memory. disk_cached: rows are in files on a disk, with a cache in memory.
HOST, HOST_CACHED, DISK_CACHED = "host", "host_cached", "disk_cached"
STORES = (HOST, HOST_CACHED, DISK_CACHED)
#: The row read in fewest batches, or the one read longest ago.
LFU, LRU = "lfu", "lru"
POLICIES = (LFU, LRU)
#: In place of a store: the nearest that the cluster has room in; none.
AUTO, NONE = "auto", "none"

"""What a host has beside its devices: its memory and its disk. All its ranks share both."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.base.ranges import Positive


@dataclass(frozen=True)
class Host:
    """The memory of a whole host. Its cluster checks it.

    On a CPU cluster this is the memory of its sockets. A rank's tables and its host's rows share it.

    Attributes:
        name: for people.
        memory_gb: GB (1e9 bytes), of all ranks together.
        memory_bandwidth_gb_s: GB/s, of all ranks together.
        source: where the figures are from.
    """

    name: str
    memory_gb: Positive
    memory_bandwidth_gb_s: Positive
    source: str


@dataclass(frozen=True)
class Disk:
    """All disks of a host together, as one. Its cluster checks it.

    Rows that leave a cache are written in order, so there are no random writes.

    Attributes:
        name: for people.
        size_gb: GB (1e9 bytes).
        read_gb_s, write_gb_s: GB/s of large pieces in order.
        random_reads_per_s: of small records, many requests in flight.
        source: where the figures are from.
        cached_reads_per_s: of small records whose pages are in the page cache of the host's memory, by all of its cores; None: what it
            holds is not counted.
        rewritten_gb_s: GB/s of pages in that cache that are read and written again, by all of its cores: few of their records are free,
            and rows go there; None: it is not counted.
    """

    name: str
    size_gb: Positive
    read_gb_s: Positive
    write_gb_s: Positive
    random_reads_per_s: Positive
    source: str
    cached_reads_per_s: Positive | None = None
    rewritten_gb_s: Positive | None = None

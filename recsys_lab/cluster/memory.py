"""What a host has beside its devices: its memory and its disk. All its ranks share both."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.ranges import Positive


@dataclass(frozen=True)
class Host:
    """The memory of a whole host. Its cluster checks it.

    On a CPU cluster this is the memory of its sockets. A rank's tables and its host's rows share it.
    """

    name: str
    memory_gb: Positive
    memory_bandwidth_gb_s: Positive
    source: str


@dataclass(frozen=True)
class Disk:
    """All disks of a host together, as one. Its cluster checks it.

    `read_gb_s`, `write_gb_s`: of large pieces in order. `random_reads_per_s`: of small records, many requests in flight. Rows that leave a
    cache are written in order, so nothing asks for random writes.
    """

    name: str
    size_gb: Positive
    read_gb_s: Positive
    write_gb_s: Positive
    random_reads_per_s: Positive
    source: str

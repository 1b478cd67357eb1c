"""Measures this machine's disk for tables with rows in files. It reads and writes records as the cache of a training does.

A training uses the file system's page cache. A file that fits in memory would be read from there. So its pages are written out and dropped
before each measurement, and every record lies in a page of its own. Writes end when the disk has them. Reads from the page cache are timed
apart. So are writes to a file that has been full: records that are free lie between others, and whole pages are read and written again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from statistics import geometric_mean

import numpy as np
import psutil

from recsys_lab.cluster import Disk
from recsys_lab.errors import cannot_write
from recsys_lab.kernels.row_cache import IN_FLIGHT, SCRATCH, read_records, write_records
from recsys_lab.units import GB

PAGE = 4096
RECORDS = (256, 512, 1024, 2048)  # bytes
#: A file of so much, or of a quarter of what is free; less than the least tells nothing.
FILE_BYTES, LEAST_BYTES = 2 << 30, 64 << 20
PIECE_BYTES = 64 << 20
#: What is read again, from the page cache.
CACHED_BYTES = 256 << 20
#: Records of a batch, and how long batches follow one another.
AT_ONCE, EACH_S = 8192, 0.5
IN_MEMORY = ("tmpfs", "ramfs")
Say = Callable[[str], None]


def folder() -> str:
    """Where rows of a training would be, if it named no folder."""
    return os.environ.get(SCRATCH) or tempfile.gettempdir()


def measure(say: Say, each_s: float = EACH_S, file_bytes: int = FILE_BYTES) -> Disk | None:
    """None where there is no room for a file. Raises UserError where none can be written."""
    where = folder()
    try:
        os.makedirs(where, exist_ok=True)
        free = shutil.disk_usage(where).free
        size = min(file_bytes, free // 4) // PIECE_BYTES * PIECE_BYTES
        if size < LEAST_BYTES:
            say(f"disk: {free / GB:.1f} GB are free in {where}, too little to measure; {SCRATCH}=DIR names another folder")
            return None
        with tempfile.TemporaryFile(dir=where, buffering=0) as file:
            return _measured(file.fileno(), size, where, free, say, each_s)
    except OSError as error:
        raise cannot_write(error, where) from None


def _measured(file: int, size: int, where: str, free: int, say: Say, each_s: float) -> Disk:
    write_gb_s = size / _in_order(file, size, write_records) / GB
    _drop(file)
    read_gb_s = size / _in_order(file, size, read_records) / GB
    say(f"disk in order: {read_gb_s:.2f} GB/s read, {write_gb_s:.2f} GB/s written")
    reads: list[float] = []
    for record in RECORDS:
        _drop(file)
        reads.append(_reads_per_s(file, size, record, each_s))
        say(f"disk, records of {record:,} bytes: {reads[-1]:,.0f} reads a second")
    cached = _cached_reads_per_s(file, size, each_s)
    say(f"disk, records in the page cache: {cached:,.0f} reads a second")
    rewritten = _rewritten_gb_s(file, size, each_s)
    say(f"disk, pages with few free records: {rewritten:.2f} GB/s read and written again in the page cache")
    kind = _file_system(where)
    beside = " that lies in memory" if kind in IN_MEMORY else ""
    source = (
        f"measured by calibrate, {IN_FLIGHT} requests in flight, records of {RECORDS[0]} to {RECORDS[-1]} bytes in {size / GB:.1f} GB "
        f"on {kind}{beside}, through the page cache, whose pages were dropped before; cached reads, and pages written again: of pages "
        "read just before"
    )
    return Disk(f"{kind} at {where}", free / GB, read_gb_s, write_gb_s, geometric_mean(reads), source, cached, rewritten)


def _drop(file: int) -> None:
    """So that the next reads come from the disk. A file system in memory has nothing to drop."""
    os.fdatasync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)


def _cached_reads_per_s(file: int, size: int, each_s: float) -> float:
    """Of the file's first pages, which were read just before."""
    size, rates = min(size, CACHED_BYTES), []
    for record in RECORDS:
        _in_order(file, size, read_records)
        rates.append(_reads_per_s(file, size, record, each_s))
    return geometric_mean(rates)


def _rewritten_gb_s(file: int, size: int, each_s: float) -> float:
    """Of the file's first pages: every second record is written. Requests are whole pieces, as of a cache whose file has been full."""
    size, rates = min(size, CACHED_BYTES), []
    for record in RECORDS:
        _in_order(file, size, read_records)
        began, pieces = time.perf_counter(), 0
        for rows in np.split(np.arange(0, size // record, 2, dtype=np.int64), size // PIECE_BYTES):
            write_records(file, rows, np.ones((len(rows), record), dtype=np.uint8))
            pieces += 1
            if time.perf_counter() - began > each_s:
                break
        rates.append(pieces * PIECE_BYTES / (time.perf_counter() - began) / GB)
    return geometric_mean(rates)


def _in_order(file: int, size: int, transfer: Callable[[int, np.ndarray, np.ndarray], None]) -> float:
    """Seconds for the whole file, piece by piece, neighbours as one request."""
    record = RECORDS[-1]
    rows = np.arange(PIECE_BYTES // record, dtype=np.int64)
    records = np.ones((len(rows), record), dtype=np.uint8)
    began = time.perf_counter()
    for piece in range(size // PIECE_BYTES):
        transfer(file, rows + piece * len(rows), records)
    os.fdatasync(file)
    return time.perf_counter() - began


def _reads_per_s(file: int, size: int, record: int, each_s: float) -> float:
    """Records a second, each in a page of its own, in batches that follow one another."""
    began, moved = time.perf_counter(), 0
    for rows in _batches(size // PAGE, PAGE // record):
        read_records(file, rows, np.ones((len(rows), record), dtype=np.uint8))
        moved += len(rows)
        if time.perf_counter() - began > each_s:
            break
    return moved / (time.perf_counter() - began)


def _batches(pages: int, records_a_page: int) -> Iterator[np.ndarray]:
    """Pages in random order, each once. Those of a batch rise, as a cache asks for them."""
    order = np.random.default_rng(1).permutation(pages).astype(np.int64)
    for at in range(0, pages, AT_ONCE):
        yield np.sort(order[at : at + AT_ONCE]) * records_a_page


def _file_system(where: str) -> str:
    mounts = {part.mountpoint: part.fstype for part in psutil.disk_partitions(all=True)}
    path = os.path.realpath(where)
    while path not in mounts and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return mounts.get(path, "a file system")

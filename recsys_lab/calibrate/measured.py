"""What calibration measures, as data. Times are those of one rank while all ranks are at the same."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DenseTime:
    """`depth` linear layers of `width` x `width`, each with a ReLU: forward and backward of `batch` samples."""

    batch: int
    width: int
    depth: int
    ms: float


@dataclass(frozen=True)
class DotsTime:
    """The dots of all pairs of `vectors` vectors of `dim`, as one product a sample. It is forward and backward of `batch` samples."""

    batch: int
    vectors: int
    dim: int
    ms: float


@dataclass(frozen=True)
class TableTime:
    """`ids` look-ups of `distinct` rows, of `dim` FP32 columns, spread evenly over `bags` bags. The update is row-wise Adagrad's."""

    ids: int
    bags: int
    dim: int
    distinct: float
    look_up_ms: float
    update_ms: float


@dataclass(frozen=True)
class CacheTime:
    """`ids` look-ups of so many `tables` whose rows are in files, behind caches. `misses` of their rows are made, and as many leave.
    `extra_ms`: what a step takes longer than with tables in memory.
    """

    tables: int
    ids: int
    misses: float
    extra_ms: float


@dataclass(frozen=True)
class Machine:
    """A rank's part of its machine. Bandwidth counts bytes read and written; TFLOP/s by format. `memory_gb`: a GPU's own, else None."""

    memory_bandwidth_gb_s: float
    peak_tflops: dict[str, float]
    dense: tuple[DenseTime, ...]
    dots: tuple[DotsTime, ...]
    tables: tuple[TableTime, ...]
    device: str = "CPU, one thread a rank"
    kind: str = "cpu"
    memory_gb: float | None = None


@dataclass(frozen=True)
class CollectiveTime:
    """A collective of every group of a kind at once; `size` ranks on `hosts` hosts, `local` on each. A rank puts in `bytes`."""

    kind: str
    size: int
    hosts: int
    local: int
    bytes: float
    ms: float


@dataclass(frozen=True)
class Measured:
    """Of `hosts` x `ranks_per_host` processes on `cores` cores. `crowded`: of more processes of one host, on the same cores."""

    hosts: int
    ranks_per_host: int
    cores: int
    machine: Machine
    collectives: tuple[CollectiveTime, ...]
    caches: tuple[CacheTime, ...] = ()
    crowded: tuple[CollectiveTime, ...] = ()

"""What a rank measures of this machine.

It times memory, matrix products, dense layers, look-ups and updates while all other ranks do the same.

Ranks that share cores slow each other down, as they do in training. So all ranks measure each figure at the same time.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
import torch.distributed as dist
from torch import Tensor, nn

from recsys_lab import kernels
from recsys_lab.base.devices import device_here
from recsys_lab.calibrate.measured import DenseTime, DotsTime, Machine, TableTime
from recsys_lab.models.linear import MLP, Linear, lacks_product, on_cpu, product
from recsys_lab.units import GB, MS_PER_S

FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
DEPTH, WIDTHS = 4, (32, 128, 512, 1024)
VECTORS, TURNS, DIMS = 27, 16, (16, 128)


@dataclass(frozen=True)
class Sizes:
    """What is timed on a kind of device. It is large enough to fill the device, and larger than its caches.

    Attributes:
        copy_bytes: of the copy whose rate is the memory's.
        product: rows, inner, columns of the product whose rate is the peak.
        batches: of layers of every width.
        dot_batch: samples whose vectors are multiplied.
        dot_dims: of those vectors.
        table_bytes: of a table. Batches take turns, so that no row is there from the same batch before.
        bags: (look-ups, bags): one each, as on a rank that holds a quarter of the rows, and of bags with several ids.
    """

    copy_bytes: int
    product: tuple[int, int, int]
    batches: tuple[int, ...]
    dot_batch: int
    dot_dims: tuple[int, ...]
    table_bytes: int
    bags: tuple[tuple[int, int], ...]


SIZES = {
    # from layers that torch computes to those that models have oneDNN compute
    "cpu": Sizes(
        copy_bytes=1 << 26,
        product=(1024, 512, 512),
        batches=(64, 512, 2048),
        dot_batch=512,
        dot_dims=DIMS,
        table_bytes=1 << 27,
        bags=((1 << 9, 1 << 9), (1 << 12, 1 << 12), (1 << 15, 1 << 15), (1 << 15, 1 << 17), (1 << 16, 1 << 13)),
    ),
    "cuda": Sizes(
        copy_bytes=1 << 30,
        product=(8192, 8192, 8192),
        batches=(512, 4096, 32768),
        dot_batch=65536,
        dot_dims=(128,),  # of MLPerf's models
        table_bytes=1 << 32,
        bags=((1 << 15, 1 << 15), (1 << 18, 1 << 18), (1 << 18, 1 << 20), (1 << 21, 1 << 21), (1 << 21, 1 << 17)),
    ),
}
#: Of the power laws of ids: all rows alike, and as in click data.
SKEWS = (0.0, 1.05)
#: Each figure is the mean over so long; and no fewer than twice, after once.
EACH_S = 0.4
Say = Callable[[str], None]


def finish() -> None:
    """Waits until the device has done what it was given."""
    if device_here().type == "cuda":
        torch.cuda.synchronize(device_here())


def measure(say: Say, each_s: float = EACH_S) -> Machine:
    """Collective: every rank calls it, and gets the means over all. `say` is called with each figure as it is known."""
    sizes = SIZES[device_here().type]
    bandwidth = 2 * sizes.copy_bytes / _seconds(_copy(sizes.copy_bytes), each_s) / GB
    say(f"memory {bandwidth:.1f} GB/s a rank")
    peaks = {}
    for name, dtype in FORMATS.items():
        rows, inner, columns = sizes.product
        fastest = min(_seconds(work, each_s) for work in _products(dtype, sizes.product))
        peaks[name] = 2 * rows * inner * columns / fastest / 1e12
        say(f"matrix products {name} {peaks[name] * 1e3:.1f} GFLOP/s a rank")
    dense = []
    for width, batch in itertools.product(WIDTHS, sizes.batches):
        dense.append(DenseTime(batch, width, DEPTH, _seconds(layers(batch, width), each_s) * MS_PER_S))
    say(f"{DEPTH} layers of {WIDTHS[0]}, batch {sizes.batches[0]}: {dense[0].ms:.2f} ms forward and backward")
    dots = []
    for dim in sizes.dot_dims:
        dots.append(DotsTime(sizes.dot_batch, VECTORS, dim, _seconds(_dots(sizes.dot_batch, VECTORS, dim), each_s) * MS_PER_S))
    say(f"dots of {VECTORS} vectors of {sizes.dot_dims[0]}: {dots[0].ms:.2f} ms forward and backward of {sizes.dot_batch}")
    tables = []
    for dim, skew, (ids, bags) in itertools.product(DIMS, SKEWS, sizes.bags):
        rows = sizes.table_bytes // (4 * dim)
        batches = _batches(rows, dim, ids, bags, skew)
        different = fmean(len(batch.ids.unique()) for batch in batches)
        look_up, update = (_seconds(work, each_s) * MS_PER_S for work in _table(rows, dim, bags, batches))
        tables.append(TableTime(ids, bags, dim, different, look_up, update))
    last = tables[-1]
    many = f"{last.ids:,} skewed look-ups in {last.bags:,} bags of {last.dim} columns"
    say(f"{many}: {last.look_up_ms:.2f} ms, their update {last.update_ms:.2f} ms")
    figures = (bandwidth, peaks, tuple(dense), tuple(dots), tuple(tables))
    if device_here().type == "cpu":
        return Machine(*figures)
    gpu = torch.cuda.get_device_properties(device_here())
    return Machine(*figures, gpu.name, "cuda", gpu.total_memory / GB)


def mean_over_ranks(value: float) -> float:
    """Collective."""
    values: list[float] = [0.0] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return fmean(values)


def _seconds(work: Callable[[], object], each_s: float) -> float:
    """Of one call, with all ranks at it together."""
    work()
    finish()
    dist.barrier()
    began, calls = time.perf_counter(), 0
    while calls < 2 or time.perf_counter() - began < each_s:
        work()
        finish()
        calls += 1
    return mean_over_ranks((time.perf_counter() - began) / calls)


def _copy(size: int) -> Callable[[], object]:
    here, there = (torch.ones(size, dtype=torch.uint8, device=device_here()) for _ in range(2))
    return lambda: there.copy_(here)


def _products(dtype: torch.dtype, shape: tuple[int, int, int]) -> Iterator[Callable[[], object]]:
    """The same product by each library that models use for it: torch's and, on a CPU, oneDNN."""
    rows, inner, columns = shape
    left, right = (torch.randn(*shape, device=device_here()).to(dtype) for shape in ((rows, inner), (inner, columns)))
    if not lacks_product(left):
        yield lambda: left @ right
    if on_cpu(left, right) and torch.backends.mkldnn.is_available():
        yield lambda: product(left, right)


def layers(batch: int, width: int) -> Callable[[], object]:
    """Forward and backward of linear layers, each with a ReLU, as models have them."""
    model = MLP(*(part for _ in range(DEPTH) for part in (Linear(width, width), nn.ReLU()))).to(device_here())
    inputs = torch.ones(batch, width, requires_grad=True, device=device_here())
    gradient = torch.ones(batch, width, device=device_here())

    def work() -> None:
        model.zero_grad(set_to_none=True)
        model(inputs).backward(gradient)

    return work


def _dots(batch: int, vectors: int, dim: int) -> Callable[[], object]:
    """Forward and backward of a product [F, D] x [D, F] a sample."""
    inputs = torch.ones(batch, vectors, dim, requires_grad=True, device=device_here())
    gradient = torch.ones(batch, vectors, vectors, device=device_here())

    def work() -> None:
        inputs.grad = None
        torch.bmm(inputs, inputs.transpose(1, 2)).backward(gradient)

    return work


def _batches(rows: int, dim: int, ids: int, bags: int, skew: float) -> list[kernels.Lookups]:
    """Batches of `ids` ids in `bags` bags, spread evenly, by a power law over the `rows` of a table. `dim` is part of the seed."""
    offsets = (torch.arange(bags + 1, device=device_here()) * ids).div(bags, rounding_mode="floor")
    return [kernels.Lookups(one, offsets, 1) for one in skewed_ids(rows, ids, skew, seed=dim + ids)]


def skewed_ids(rows: int, ids: int, skew: float, seed: int) -> list[Tensor]:
    """`TURNS` batches of ids by a power law."""
    device = device_here()
    chance = torch.Generator(device).manual_seed(seed)
    upto = torch.arange(1, rows + 1, dtype=torch.float64, device=device).pow(-skew).cumsum(0)
    row_of = torch.randperm(rows, generator=chance, device=device)  # the rank of a row says nothing of where it lies
    drawn = (torch.rand(ids, generator=chance, dtype=torch.float64, device=device) * upto[-1] for _ in range(TURNS))
    return [row_of[torch.searchsorted(upto, one).clamp_(max=rows - 1)] for one in drawn]


def _table(rows: int, dim: int, bags: int, batches: Sequence[kernels.Lookups]) -> Iterator[Callable[[], object]]:
    """A look-up, and its update by row-wise Adagrad, of `batches` in turn."""
    device = device_here()
    weight: Tensor = torch.ones(rows, dim, device=device)
    turns = itertools.cycle(batches)
    yield lambda: kernels.bags(weight, next(turns))
    gradient, state = torch.ones(bags, dim, device=device), torch.zeros(rows, device=device)
    rule = kernels.Rule("row_wise_adagrad", 0.1)
    yield lambda: kernels.update(weight, next(turns), gradient, rule, state=state)

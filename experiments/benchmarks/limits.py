"""What a machine could do at best, by bare loops of the same run: matrix products alone, rows at random, sequential reads and updates.

`share_of_limit` of a benchmark compares an iteration with `Bare`, which has two parts. Each product of the layers is timed alone, in the
best layout that torch or oneDNN offers. Each distinct row of a batch is read once, by a loop that does nothing else. Another adds to
each looked-up row the gradient of its bag, as every update must. Loops have the best distance and way of prefetching, the pages that
tables get, and other data in the caches. `share_of_sequential` compares it with `Machine`: GEMMs of two sizes, and memory read and
changed from end to end, which no loop over random rows reaches.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from recsys_lab.kernels import dense, native
from recsys_lab.kernels.cpu.products import multiplies_bf16, widened
from recsys_lab.models.linear import product
from recsys_lab.plan.workload import DenseLayer

FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16}
#: How many rows before its use a row is asked for: the best of these counts.
AHEAD = (8, 16, 32, 64, 128)
#: How a row is asked for to be written: at once, or read into the second-level cache and asked for so many rows before its use.
NEAR = (0, 8)


def last_level_bytes() -> int:
    """Of the largest cache that Linux names, 0 if none."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    return max((int(size.read_text().strip().removesuffix("K")) << 10 for size in sizes), default=0)


@functools.cache
def _other_data() -> Tensor:
    """Twice the last-level cache, which leaves nothing of a batch's rows there. Once as much leaves half of them."""
    return torch.ones(max(1 << 29, 2 * last_level_bytes()) // 4)


def fill_caches() -> None:
    """With other data, as between two batches. Loops over the same rows would else find them where the loop before left them."""
    _other_data().sum()


def median_s(call: Callable[[], object], runs: int = 6, before: Callable[[], object] = lambda: None) -> float:
    """Median seconds of `call`, after one that does not count. `before` comes before each, and does not count."""
    times = []
    for _ in range(runs + 1):
        before()
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


# sequential -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Machine:
    """`update_gb_s`: bytes that are read, changed and written back in place, each counted twice."""

    gemm_gflop_s: dict[str, float]  # by format
    read_gb_s: float
    update_gb_s: float


def measure_machine(buffer: Tensor, samples: int) -> Machine:
    """Of GEMMs the best of two sizes, each through oneDNN and through torch: 2,048 x 1,024 x 1,024 and 2,048 cubed."""
    gemms = {}
    for name, dtype in FORMATS.items():
        gemms[name] = max(gemm_gflop_s(multiply, samples, wide, wide, dtype) for wide in (1024, 2048) for multiply in products_of(dtype))
    read_s, update_s = median_s(buffer.sum, 4), median_s(lambda: buffer.mul_(1.0), 4)
    return Machine(gemms, buffer.nbytes / read_s / 1e9, 2 * buffer.nbytes / update_s / 1e9)


def products_of(dtype: torch.dtype) -> tuple[Callable[[Tensor, Tensor], Tensor], ...]:
    """Ours, and torch's own, unless that is a plain loop over BF16, which would take minutes."""
    return (product, torch.mm) if dtype != torch.bfloat16 or multiplies_bf16() else (product,)


def gemm_gflop_s(multiply: Callable[[Tensor, Tensor], Tensor], n: int, k: int, m: int, dtype: torch.dtype) -> float:
    a, b = torch.randn(n, k).to(dtype), torch.randn(k, m).to(dtype)
    return 2 * n * k * m / median_s(lambda: multiply(a, b)) / 1e9


# matrix products ------------------------------------------------------------------------------------------------------


def layer_products(layer: DenseLayer, samples: int, first: bool) -> dict[str, tuple[int, int, int]]:
    """By pass: N, K and M of [N, K] times [K, M]. The gradient of a first layer's input is not needed."""
    n, k, m = round(layer.rows * samples), layer.n_in, layer.n_out
    shapes = {"forward": (n, k, m), "backward_by_data": (n, m, k), "backward_by_weights": (m, n, k)}
    return {name: shape for name, shape in shapes.items() if not (first and name == "backward_by_data")}


def best_product_s(n: int, k: int, m: int, dtype: torch.dtype, runs: int = 4) -> float:
    """Seconds of [n, k] times [k, m] alone: the best of both libraries, either operand as it is or transposed in memory.

    In BF16 also the product of FP32 matrices, for which nothing is widened or rounded, and our own in tiles.
    """
    if dtype == torch.bfloat16 and widened():
        in_fp32 = best_product_s(n, k, m, torch.float32, runs)
        return min(in_fp32, median_s(partial(torch.mm, *_operands(n, k, m, dtype)), runs)) if multiplies_bf16() else in_fp32
    a, b = _operands(n, k, m, dtype)
    layouts = itertools.product((a, a.t().contiguous().t()), (b, b.t().contiguous().t()), (product, torch.mm))
    calls = [partial(multiply, a, b) for a, b, multiply in layouts]
    if dtype == torch.bfloat16 and dense.has_tiles():
        calls.append(partial(dense.product_by_weights, a.t().contiguous(), b))
    return min(median_s(call, runs) for call in calls)


def _operands(n: int, k: int, m: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return torch.randn(n, k).to(dtype), torch.randn(k, m).to(dtype)


# rows at random -------------------------------------------------------------------------------------------------------


Loops = dict[str, Callable[[], object]]


@dataclass(frozen=True)
class BareRows:
    """Loops over `rows` [N] of a table, int64. `place`: FP32 [R, W] in tables' pages.

    A row of hi/lo split weights is two rows of half the bytes, which lie apart. `gradient`: FP32 [G, W], of which an update adds row
    `source` [N] to each row. Without it rows are multiplied.
    """

    place: Tensor
    rows: Tensor
    threads: int
    gradient: Tensor | None = None
    source: Tensor | None = None

    @staticmethod
    def of(ids: Tensor, place: Tensor) -> BareRows:
        """Each row of `ids` once, in the order in which they first occur."""
        return BareRows(place, first_of_each(ids), torch.get_num_threads())

    def reads(self, bytes_per_weight: int) -> Loops:
        """By distance and way: each row read."""
        table = self.place if bytes_per_weight == 4 else self._hi_lo[0]
        loop = partial(native.random_read, table, self.rows, threads=self.threads)
        return {
            f"{ahead}{' second level' if second else ''}": partial(loop, ahead=ahead, second_level=second)
            for ahead in AHEAD
            for second in (False, True)
        }

    def updates(self, *, split: bool) -> Loops:
        """By order, distance and way: each row read, changed and written back. By address too, as an update may sort its rows."""
        tables = self._hi_lo if split else (self.place, None)
        places = {"look-ups": torch.arange(len(self.rows)), "address": self.rows.argsort(stable=True)}
        orders = {order: (self.rows[at], None if self.source is None else self.source[at]) for order, at in places.items()}
        return {
            f"{order} {ahead} {near}": partial(
                native.random_update, *tables, rows, 1.0, ahead, self.threads, near=near, gradient=self.gradient, source=source
            )
            for order, (rows, source) in orders.items()
            for ahead in AHEAD
            for near in NEAR
            if near < ahead
        }

    @property
    def _hi_lo(self) -> tuple[Tensor, Tensor]:
        count, width = self.place.shape
        hi, lo = self.place.view(2, count, width // 2)
        return hi, lo


def best_s(loops: Loops) -> float:
    """Of loops over rows that no cache holds."""
    return min(median_s(loop, 3, fill_caches) for loop in loops.values())


def first_of_each(ids: Tensor) -> Tensor:
    """Each distinct id once, in the order in which they first occur."""
    distinct, which = ids.unique(return_inverse=True)
    first = torch.full_like(distinct, len(ids)).scatter_reduce_(0, which, torch.arange(len(ids)), "amin")
    return distinct[first.argsort()].contiguous()

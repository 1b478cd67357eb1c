"""How alike features are, and where that puts them in a plane: DMT (Luo et al. 2024, arXiv 2403.00877) section 3.3, first half.

Shapes: B samples, F features, N embedding dimension, n dimensions of the plane.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from recsys_lab.errors import UserError
from recsys_lab.sharders.dmt.names import OF_MEAN, OF_SAMPLES, STRATEGIES

#: Coordinates are sought from so many random starts at once; the least stress counts.
STARTS, STEPS, RATE = 16, 2000, 0.05
#: In a plane points stand in one another's way. They start with so many dimensions more, in which they can pass each other. Over this share
#: of the steps the extra dimensions are pressed flat, ever harder. The remaining steps are in the plane alone.
SPARE_DIMS, PRESSED_SHARE, PRESSURE = 3, 0.8, 40.0


def affinity(batches: Iterable[Tensor], absolute: str = OF_MEAN) -> np.ndarray:
    """float64 [F, F]: I(i, j) = |mean over samples of cos(F_i, F_j)|, from each batch's embeddings [B, F, N].

    `absolute`: one of `ABSOLUTES`.

    A sample without look-ups of a feature has a zero vector there and does not count for that feature's pairs. A pair that no sample
    has is 0, and a feature with itself 1. Raises UserError without batches.
    """
    total, both = None, None
    for embeddings in batches:
        length = embeddings.double().norm(dim=2, keepdim=True)
        has_lookups = (length > 0).double()
        unit = embeddings.double() / torch.where(length > 0, length, 1.0)
        each = torch.einsum("bin,bjn->bij", unit, unit)
        cosines = (each.abs() if absolute == OF_SAMPLES else each).sum(0)
        pairs = torch.einsum("bin,bjn->ij", has_lookups, has_lookups)
        total = cosines if total is None else total + cosines
        both = pairs if both is None else both + pairs
    if total is None or both is None:
        raise UserError("no samples to tell the features' affinity from", where="partition")
    mean = (total / both.clamp(min=1.0)).abs().clamp(max=1.0).fill_diagonal_(1.0)
    return mean.numpy()


def distances(affinity: np.ndarray, strategy: str) -> np.ndarray:
    """[F, F]: D = f(I), 0 on the diagonal. Coherent: 1 - I, the alike are near. Diverse: I. Raises UserError for another strategy."""
    if strategy not in STRATEGIES:
        raise UserError("no such strategy", where="strategy", given=strategy, allowed=", ".join(STRATEGIES))
    apart = np.array(STRATEGIES[strategy](affinity), np.float64)
    np.fill_diagonal(apart, 0.0)
    return apart


def coordinates(distances: np.ndarray, dims: int = 2, seed: int = 0, starts: int = STARTS) -> tuple[np.ndarray, float]:
    """X [F, n] with |X_i - X_j| close to D(i, j). Also the remaining stress: the sum over j < i of (|X_i - X_j| - D(i, j))^2.

    Adam from `starts` random starts drawn from `seed`, side by side, with spare dimensions at first. The same arguments give the same bits.
    """
    targets = torch.from_numpy(np.asarray(distances, np.float64))
    start = torch.randn(starts, len(targets), dims + SPARE_DIMS, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    with one_thread():
        at, stress = _solved(start * targets.mean(), targets, dims)
    best = int(stress.argmin())
    return (at[best] - at[best].mean(dim=0)).numpy(), float(stress[best])


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch with one thread. Tensors too small to be shared out need no more, and bits then do not depend on the machine's cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _solved(at: Tensor, targets: Tensor, dims: int) -> tuple[Tensor, Tensor]:
    """Coordinates [starts, F, n = `dims`] of little stress from those given, which have spare dimensions; and their stress [starts]."""
    spare = at[:, :, dims:]
    optimizer = torch.optim.Adam([at], lr=RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, STEPS)
    for step in range(STEPS):
        at.grad = _stress(at, targets)[1]
        pressed = step / (STEPS * PRESSED_SHARE)
        if pressed < 1:
            at.grad[:, :, dims:] += PRESSURE * pressed**2 * spare
        else:
            spare.zero_()
            at.grad[:, :, dims:] = 0
        optimizer.step()
        schedule.step()
    at = at[:, :, :dims]
    return at, _stress(at, targets)[0]


def _stress(at: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The stress [starts] of coordinates [starts, F, n], and its gradient."""
    towards = at[:, :, None] - at[:, None]  # [starts, F, F, n]
    apart = (towards.square().sum(dim=3) + 1e-18).sqrt()
    gaps = (apart - targets).triu(1) + (apart - targets).tril(-1)
    return gaps.square().sum(dim=(1, 2)) / 2, 2 * ((gaps / apart)[..., None] * towards).sum(dim=2)

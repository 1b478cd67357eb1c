"""Predictions against what happened, from a histogram over logits that ranks add up. Its sums are whole numbers: order changes no bit."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from recsys_lab.record.breakdown import Bin, bins_of

#: Cells of a logit, from -LARGEST to LARGEST. Odds differ by 0.8 % within one.
CELLS, LARGEST = 4096, 16.0
#: Of a probability, as a whole number of them: 2**31 of them fit into 64 bits.
UNIT = 2.0**-32


def reliability(logits: Tensor, labels: Tensor) -> tuple[Bin, ...]:
    """Bins over all ranks' rows, from this rank's [n]. Collective."""
    sums = histogram(logits, labels)
    dist.all_reduce(sums)
    examples, positives, predicted = sums.cpu().numpy()
    return bins_of(examples, positives, predicted * UNIT)


def histogram(logits: Tensor, labels: Tensor) -> Tensor:
    """int64 [3, CELLS]: examples, positives, and the sum of predicted probabilities, in UNIT."""
    exact = logits.double()
    cells = ((exact + LARGEST) * (CELLS / (2 * LARGEST))).floor().clamp(0, CELLS - 1).long()
    rows = torch.stack([torch.ones_like(cells), labels.long(), (exact.sigmoid() / UNIT).round().long()])
    return torch.zeros(3, CELLS, dtype=torch.int64, device=logits.device).index_add_(1, cells, rows)

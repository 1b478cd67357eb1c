"""When links have carried what goes last: ids of the next batch and dense gradients, behind every exchange of embeddings.

An iteration is over when its links have carried everything, however it was shared out. That moment grows with every cost. The moment at
which one piece of background is done does not: an embedding exchange that is ready sooner goes first. So what others wait for is done no
sooner than its links rest. The same holds of the last exchange of ids. Those before it, which only it waits for, are done when they fit in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class First:
    """What goes first on the links of some ranks [K]. It says when it begins and ends to fill each, ms; both are 0 where it does not."""

    begin: np.ndarray
    end: np.ndarray


def at_rest_ms(begin: float, ms: float, first: Sequence[First]) -> float:
    """When the links have carried `ms` of background from `begin` on, and all of `first`.

    A link rests only when there is nothing to carry. It is done at the latest of: a beginning, and all that begins with it or later.
    """
    ranks = len(first[0].begin) if first else 1
    begins = np.array([np.full(ranks, begin), *(o.begin for o in first)])
    carried = np.array([np.full(ranks, ms), *(o.end - o.begin for o in first)])
    return max(float((at + (carried * (begins >= at)).sum(axis=0)).max()) for at in begins)


def fitted_in_ms(begin: float, ms: float, first: Sequence[First]) -> float:
    """When the links have carried `ms` of background from `begin` on, in what `first` leaves free."""
    if not first:
        return begin + ms
    begins = np.array([o.begin for o in first])
    left = np.clip(np.array([o.end - np.maximum(o.begin, begin) for o in first]), 0.0, None)
    done = np.full(begins.shape[1], begin + ms)
    for _ in first:  # each time at least one more of them has been before it
        done = begin + ms + np.where(begins < done, left, 0.0).sum(axis=0)
    return float(done.max())

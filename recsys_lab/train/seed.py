"""The random generators of a rank."""

from __future__ import annotations

import random

import numpy as np
import torch


def seed_rank(seed: int, rank: int) -> None:
    """Every generator of this process. Ranks draw apart (dropout). First weights do not come from here: see models/table_weights.py."""
    mixed = (seed * 1_000_003 + rank) % 2**32
    random.seed(mixed)
    np.random.seed(mixed)
    torch.manual_seed(mixed)

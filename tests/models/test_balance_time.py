"""What balanced batches gain in time: measured on the model itself, rank by rank, beside what is simulated."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from recsys_lab.models.dlrm_v4 import DLRMV4
from recsys_lab.models.dlrm_v4.network import DLRMV4Network
from recsys_lab.tables.balance import dealt
from recsys_lab.tables.lengths import Lengths, Work
from tests.models.sequences import keyed
from tests.models.test_dlrm_v4 import SMALL, built, drawn

RANKS, SAMPLES, STEPS = 4, 16, 8
SIZES: dict[str, Any] = {"embedding_dim": 64, "heads": 2, "attention_dim": 32, "linear_dim": 32, "hidden": 32, "max_length": 1000}


def seconds(model: DLRMV4Network, lengths: np.ndarray) -> float:
    """Of this thread's core, forward and backward."""
    events, ids = drawn(lengths.tolist())
    sparse = keyed(ids)
    begun = time.process_time()
    model(events, sparse).sum().backward()
    return time.process_time() - begun


def slowest(model: DLRMV4Network, lengths: np.ndarray, rank: np.ndarray) -> float:
    return max(seconds(model, lengths[rank == own]) for own in range(RANKS))


@pytest.mark.long
def test_balanced_batches_gain_the_time_that_is_simulated() -> None:
    """Of four ranks, the step of the slowest, as samples come over dealt out by work: within 10 %."""
    model, work = built(**SIZES), DLRMV4(**SMALL | SIZES).work
    law, draw = Lengths.law(300, 240, 900), np.random.default_rng(1)
    seconds(model, np.full(SAMPLES, 300))
    as_they_come, balanced = 0.0, 0.0
    for _ in range(STEPS):
        lengths = draw.choice(law.values, SAMPLES * RANKS, p=law.shares).astype(np.int64)
        as_they_come += slowest(model, lengths, np.repeat(np.arange(RANKS), SAMPLES))
        balanced += slowest(model, lengths, dealt(work(lengths.astype(float)), RANKS))
    simulated = _longest(law, work, None) / _longest(law, work, work)
    assert simulated > 1.15
    assert as_they_come / balanced == pytest.approx(simulated, rel=0.1)


def _longest(law: Lengths, work: Work, dealt_by: Work | None) -> float:
    return law.longest_rank(SAMPLES, RANKS, work, dealt_by).work

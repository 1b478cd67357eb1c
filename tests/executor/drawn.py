"""Examples that all ranks draw alike, since hypothesis is derandomised, and judge together.

The ranks tell each other what they found after every example: so they stay in step, also while a failing one is made smaller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
import torch.distributed as dist
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from tests.executor.reference import Outcome
from tests.executor.test_sharded_equals_unsharded import check

T = TypeVar("T")


def count_without_fault(examples: SearchStrategy[T], count: int, fault: Callable[[T], str | None]) -> int:
    """How many examples were tried. Raises AssertionError for the smallest one in which `fault` names something on any rank."""
    seeds = []

    @settings(
        max_examples=count,
        deadline=None,  # a rank knows nothing of tests/conftest.py, and ranks that time an example differently draw apart
        derandomize=True,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(examples)
    def holds(example: T) -> None:
        message = fault(example)
        failed = torch.tensor(message is not None)
        dist.all_reduce(failed, dist.ReduceOp.MAX)
        seeds.append(example)
        assert not failed, f"{example}: {message}"

    holds()
    return len(seeds)


def difference(outcome: Outcome, whole: Outcome, optimizer: str) -> str | None:
    """None, or how this rank's `outcome` differs from its part of `whole`, the outcome in one process."""
    rank = dist.get_rank()
    whole.logits = whole.logits.chunk(dist.get_world_size())[rank]
    try:
        check([outcome], whole, "drawn", columns_cut=False, optimizer=optimizer)
    except AssertionError as error:
        return f"rank {rank}: {error}"
    return None

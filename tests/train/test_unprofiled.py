"""Ranges that torch and TorchRec name are there for a profiler, and do nothing without one."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import profiler

from recsys_lab.train.unprofiled import skip_ranges


@pytest.fixture(autouse=True)
def _skipping(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("__enter__", "__exit__"):
        monkeypatch.setattr(profiler.record_function, name, getattr(profiler.record_function, name))  # put back at the end
    skip_ranges.__wrapped__()


def test_a_profiler_sees_named_ranges() -> None:
    with profiler.profile() as seen, profiler.record_function("a range"):
        torch.ones(2).sum()
    assert any(event.key == "a range" for event in seen.key_averages())


def test_without_a_profiler_nothing_is_begun() -> None:
    with profiler.record_function("a range") as named:
        assert named.record is None


def test_a_profiler_may_begin_and_end_within_a_range() -> None:
    with profiler.record_function("outer"), profiler.profile() as seen, profiler.record_function("inner"):
        torch.ones(2).sum()
    keys = {event.key for event in seen.key_averages()}
    assert "inner" in keys and "outer" not in keys

"""A run that resumes after a whole epoch reads the next one, though Lightning gives the loader no state back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from recsys_lab.train.loader import NextEpoch, ResumableLoader


@pytest.mark.parametrize(
    ("state", "current", "expected"),
    [
        ({"epoch": 0, "batch": 0}, 2, {"epoch": 2, "batch": 0}),  # after a whole epoch: no state came back
        ({"epoch": 2, "batch": 5}, 2, {"epoch": 2, "batch": 5}),  # in the middle of one
        ({"epoch": 0, "batch": 0}, 0, {"epoch": 0, "batch": 0}),  # a new run
    ],
)
def test_training_begins_at_its_epoch(state: dict[str, int], current: int, expected: dict[str, int]) -> None:
    loader: Any = []
    batches = ResumableLoader(loader)
    batches.load_state_dict(state)
    trainer: Any = SimpleNamespace(current_epoch=current)
    module: Any = None
    NextEpoch(batches).on_train_start(trainer, module)
    assert batches.state_dict() == expected

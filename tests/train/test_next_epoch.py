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


@pytest.mark.parametrize(
    ("batch", "processed", "expected"),
    [
        (6, 2, 1),  # cut short in the second epoch, which Lightning has counted
        (6, 1, 1),  # in the middle of it
        (8, 2, 2),  # at its end
    ],
)
def test_an_epoch_that_a_limit_cut_short_is_not_over(batch: int, processed: int, expected: int) -> None:
    batches: Any = [None] * 8
    validation = dict.fromkeys(("ready", "started", "processed", "completed"), 6)
    loops = {
        "epoch_progress": {of: {"ready": 2, "started": 2, "processed": processed, "completed": processed} for of in ("total", "current")},
        "epoch_loop.val_loop.batch_progress": {"total": dict(validation), "current": dict(validation)},
        "state_dict": {"combined_loader": [{"epoch": 1, "batch": batch}]},
    }
    nothing: Any = None
    NextEpoch(ResumableLoader(batches)).on_load_checkpoint(nothing, nothing, {"loops": {"fit_loop": loops}})
    assert [loops["epoch_progress"][of]["processed"] for of in ("total", "current")] == [expected] * 2

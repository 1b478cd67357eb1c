"""What an iteration's time holds."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from recsys_lab.record.result import WARM_UP
from recsys_lab.train.measure import Measure

STEP_S, PAUSE_S = 0.002, 0.2


def test_no_iteration_has_the_pause_of_a_checkpoint():
    loader, nothing = SimpleNamespace(wait_s=0.0, batch_size=4), SimpleNamespace()
    measure = Measure(loader, record_steps=0)  # type: ignore[arg-type]
    batch: Any = SimpleNamespace(global_valid=4)

    def step() -> None:
        measure.on_train_batch_start(nothing, nothing, batch, 0)  # type: ignore[arg-type]
        time.sleep(STEP_S)
        measure.on_before_zero_grad(nothing, nothing, None)  # type: ignore[arg-type]
        measure.on_after_backward(nothing, nothing)  # type: ignore[arg-type]
        measure.on_train_batch_end(nothing, nothing, None, batch, 0)  # type: ignore[arg-type]

    for _ in range(WARM_UP + 3):
        step()
    measure.on_save_checkpoint(nothing, nothing, {})  # type: ignore[arg-type]
    time.sleep(PAUSE_S)
    for _ in range(3):
        step()
    measure.count_timed()
    assert len(measure.iterations_ms) == 3 + 2  # that behind the checkpoint is not timed
    assert min(measure.iterations_ms) >= STEP_S * 1e3 and max(measure.iterations_ms) < PAUSE_S * 1e3

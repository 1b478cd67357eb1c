"""A run without a terminal says every ten seconds how far it is."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from recsys_lab.train.callbacks import StepLines


def test_a_line_every_ten_seconds_with_steps_and_examples(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    trainer: Any = SimpleNamespace(estimated_stepping_batches=60, global_step=0)
    lines, batch = StepLines(), SimpleNamespace(global_valid=1000)
    lines.on_train_start(trainer, None)  # type: ignore[arg-type]
    for step in range(1, 61):
        now, trainer.global_step = now + 0.5, step
        lines.on_train_batch_end(trainer, None, None, batch, step - 1)  # type: ignore[arg-type]
    assert capsys.readouterr().err.splitlines() == [f"{2 * s} of 60 steps in {s} s, 2,000 examples/s" for s in (10, 20, 30)]

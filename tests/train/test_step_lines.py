"""A run without a terminal says every ten seconds how far it is."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from recsys_lab.train.callbacks import StepProgress


def test_a_line_every_ten_seconds_with_steps_and_examples(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    trainer: Any = SimpleNamespace(estimated_stepping_batches=60, global_step=0, callback_metrics={"validation_auc": 0.75})
    lines, batch = StepProgress(), SimpleNamespace(global_valid=1000)
    lines.on_train_start(trainer, None)  # type: ignore[arg-type]
    for step in range(1, 61):
        now, trainer.global_step = now + 0.5, step
        lines.on_train_batch_end(trainer, None, None, batch, step - 1)  # type: ignore[arg-type]
    assert capsys.readouterr().err.splitlines() == [
        f"training: {2 * s} of 60 steps ({2 * s / 60:.0%}) after {s} s, 2,000 examples/s, AUC 0.7500" for s in (10, 20, 30)
    ]

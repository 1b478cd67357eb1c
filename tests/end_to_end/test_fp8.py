"""Rows and gradients that travel in a byte a number train as well as FP32's on the brief data."""

from __future__ import annotations

import pytest

from tests.end_to_end.lines import line, result


@pytest.mark.long
@pytest.mark.timeout(400)
def test_its_loss_stays_within_a_thousandth_of_fp32_s(tmp_path, cache):
    losses = {}
    for precision in ("fp32", "fp8_comms"):
        words = (f"precision={precision}", "mode=train", "data=synthetic_brief", "trainer.max_steps=200", "logger=none", "baselines=false")
        done = line(*words, f"hydra.run.dir={tmp_path / precision}", cache=cache)
        assert done.code == 0, done.err
        losses[precision] = result(tmp_path / precision)["quality"]["test"]["log_loss"]
    assert 0 < abs(losses["fp8_comms"] - losses["fp32"]) < 0.001

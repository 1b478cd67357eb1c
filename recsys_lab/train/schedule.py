"""How the learning rates change over a training. No torch: who starts ranks reads it too."""

from __future__ import annotations

import math

from recsys_lab.config.options import Schedule


def rate_ratio(step: int, schedule: Schedule, total_steps: int, steps_per_epoch: int) -> float:
    """What both learning rates are multiplied by at `step` (from 0) of `total_steps`."""
    if step < schedule.warmup_steps:
        return (step + 1) / schedule.warmup_steps
    if schedule.name == "step":
        return schedule.gamma ** math.floor(step / (schedule.step_epochs * steps_per_epoch))
    done = min(1.0, (step - schedule.warmup_steps) / max(1, total_steps - schedule.warmup_steps))
    if schedule.name == "linear":
        return 1 - (1 - schedule.final_ratio) * done
    if schedule.name == "cosine":
        return schedule.final_ratio + (1 - schedule.final_ratio) * 0.5 * (1 + math.cos(math.pi * done))
    return 1.0

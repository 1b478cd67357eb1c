"""What training begins with, where that was learnt by something else."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.models.first_order import FirstOrder


@dataclass(frozen=True)
class Start:
    """What a model can begin with: the regression's `weights`.

    `margin`: by how much the validation AUC must rise before other weights count as better. Smaller differences are chance: two sets of
    weights that score nearly alike differ by about this standard error.
    """

    weights: FirstOrder
    margin: float

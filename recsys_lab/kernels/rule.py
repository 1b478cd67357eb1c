"""How a touched row moves."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: By optimizer, whether its FP32 state has one element a row or one a weight; None: it has none.
STATE_OF = {"sgd": None, "row_wise_adagrad": "row", "adagrad": "weight", "adam": "weight", "lamb": "weight"}
#: These have a second state, of squares.
WITH_SQUARES = ("adam", "lamb")


@dataclass(frozen=True)
class Rule:
    """How a touched row moves. A row whose gradient is zero rests, under adam and lamb too.

    Attributes:
        name: sgd, row_wise_adagrad, adagrad, adam or lamb.
        lr: learning rate.
        eps: added to the root.
        weight_decay: times the row, joins a gradient that is not zero; lamb's direction in place of its gradient.
        beta1, beta2: adam's and lamb's.
        step: theirs, from 1.
        stochastic: FP16 rows are rounded up or down at random, with their exact value as the mean; else to nearest.
    """

    name: str
    lr: float
    eps: float = 1e-8
    weight_decay: float = 0.0
    beta1: float = 0.9
    beta2: float = 0.999
    step: int = 1
    stochastic: bool = False

    def __post_init__(self) -> None:
        assert self.name in STATE_OF, self.name

    @property
    def rate(self) -> float:
        """What the change of a weight is multiplied by; adam's makes up for states that began at zero."""
        if self.name != "adam":
            return self.lr
        return self.lr * math.sqrt(1 - self.beta2**self.step) / (1 - self.beta1**self.step)

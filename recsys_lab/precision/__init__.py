"""Which number format each part of a run uses."""

from recsys_lab.precision.policy import Precision

__all__ = ["Precision"]

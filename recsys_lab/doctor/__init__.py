"""`python -m recsys_lab doctor`: what is installed, what works on this machine, and what to do about what does not."""

from recsys_lab.doctor.command import examine, main
from recsys_lab.doctor.row import Row

__all__ = ["Row", "examine", "main"]

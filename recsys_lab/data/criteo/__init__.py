"""Criteo's click logs: lines of a label, 13 counts and 26 categories, their values made into rows of tables."""

from recsys_lab.data.criteo.open import open_criteo

__all__ = ["open_criteo"]

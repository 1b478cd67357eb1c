"""Embedding kernels: one signature, C++ for the CPU beside the torch definition. See embedding.py."""

from recsys_lab.kernels.choice import available, why_not
from recsys_lab.kernels.embedding import bags, check_strategy, rows, update
from recsys_lab.kernels.halves import join, split
from recsys_lab.kernels.lookups import Lookups
from recsys_lab.kernels.rule import Rule

__all__ = ["Lookups", "Rule", "available", "bags", "check_strategy", "join", "rows", "split", "update", "why_not"]

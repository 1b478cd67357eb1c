"""Which sharding, precision, optimizer and cluster to pay for: every combination planned and simulated."""

from recsys_lab.decide.decision import Decision, decide

__all__ = ["Decision", "decide"]

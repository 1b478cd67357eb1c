"""Tables that are larger than memory, under any sharder: which of them leave it, and how much of each is cached."""

from recsys_lab.sharders.stores.planner import Stores

__all__ = ["Stores"]

"""TorchRec's own planner: `TorchRec`, with the widths of column shards (columns) and the memory of stored tables (memory)."""

from recsys_lab.sharders.torchrec.planner import TorchRec

__all__ = ["TorchRec"]

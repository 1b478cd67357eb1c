"""A LightningModule with its tables sharded by a plan: `from recsys_lab.lightning import ShardedStrategy`."""

from recsys_lab.lightning.checkpoint import whole_weights
from recsys_lab.lightning.strategy import ShardedStrategy

__all__ = ["ShardedStrategy", "whole_weights"]

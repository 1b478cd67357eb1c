"""A LightningModule of the user's own, with its tables sharded by a plan: `from recsys_lab.lightning import ShardedStrategy`."""

from recsys_lab.lightning.strategy import ShardedStrategy, whole_weights

__all__ = ["ShardedStrategy", "whole_weights"]

"""Training: a Lightning module that knows the model, a strategy that knows the ranks, and checkpoints of both."""

#: Set for ranks that get the same job when they are restarted, as Ray's do. They resume from its newest checkpoint.
FROM_CHECKPOINT = "RECSYS_LAB_FROM_CHECKPOINT"

"""Training: a Lightning module that knows the model, a strategy that knows the ranks, and checkpoints of both."""

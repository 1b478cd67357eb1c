"""How a model of the next item is trained: what models/next_item.py computes, and what the data draw for it."""

from __future__ import annotations

LOSSES = BINARY, SAMPLED_SOFTMAX, IN_BATCH_SOFTMAX, SOFTMAX = ("binary", "sampled_softmax", "in_batch_softmax", "softmax")

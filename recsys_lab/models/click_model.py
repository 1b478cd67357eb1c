"""What every model has, so that executors and the cost count can take it apart."""

from __future__ import annotations

from torch import Tensor, nn
from torchrec.modules.embedding_modules import EmbeddingBagCollection


class ClickModel(nn.Module):
    """`embeddings` are its tables, which an executor may replace by sharded ones; `predict` is everything after them."""

    features: list[str]
    embeddings: EmbeddingBagCollection

    def predict(self, dense: Tensor | None, pooled: dict[str, Tensor]) -> Tensor:
        """dense [B, K] and each feature's [B, D] -> logits [B]."""
        raise NotImplementedError

"""User-item interactions, as logs or sequences: read once, sorted into histories, and made into rows for a model."""

from recsys_lab.data.interactions.open import Loss, Negatives, Objective, Passes, Pooling, open_interactions

__all__ = ["Loss", "Negatives", "Objective", "Passes", "Pooling", "open_interactions"]

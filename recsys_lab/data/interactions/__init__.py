"""User-item interactions, as logs or sequences: read once, sorted into histories, and made into rows for a model."""

from recsys_lab.data.interactions.open import Objective, Passes, Pooling, open_interactions

__all__ = ["Objective", "Passes", "Pooling", "open_interactions"]

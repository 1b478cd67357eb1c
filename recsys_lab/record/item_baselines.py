"""What needs no training beside a model of the next item: how well popularity and item-kNN find the held-out items."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recsys_lab.record.baselines import Figures

NAMES = {"popularity": "popularity", "item_knn": "item-kNN"}
JUDGED_BY = "ndcg_10"


@dataclass(frozen=True)
class ItemBaselines:
    """By split, then by metric (metrics.RETRIEVAL), of the split's users, or of so many as its `users` say. `neighbours`: of an item."""

    popularity: Figures
    item_knn: Figures
    neighbours: int


def item_sentences(record: Mapping[str, Any]) -> list[str]:
    """A sentence a split, and one more for each baseline that the model loses to."""
    figures, quality = record.get("item_baselines") or {}, record.get("quality") or {}
    sentences = []
    for split in next((figures[name] for name in NAMES if name in figures), {}):
        each = []
        for name, word in NAMES.items():
            own = figures[name][split]
            each.append(f"{word} hit rate@10 {own['hit_rate_10']:.4f}, NDCG@10 {own[JUDGED_BY]:.4f}")
        sentences.append(f"{split}: {'; '.join(each)}, among all items")
    return sentences + lost_to(figures, quality)


def lost_to(figures: Mapping[str, Any], quality: Mapping[str, Any]) -> list[str]:
    """Which baselines find the held-out items better than the model does, and by how much."""
    sentences = []
    for name, word in NAMES.items():
        splits = [s for s in ("validation", "test") if s in figures.get(name, ()) and (quality.get(s) or {}).get(JUDGED_BY) is not None]
        gaps = {split: figures[name][split][JUDGED_BY] - quality[split][JUDGED_BY] for split in splits}
        if lost := [f"by {gap:.4f} NDCG@10 on {split}" for split, gap in gaps.items() if gap > 0]:
            sentences.append(f"the model loses to {word} {', '.join(lost)}: train longer, or choose another loss (model.loss=softmax)")
    return sentences

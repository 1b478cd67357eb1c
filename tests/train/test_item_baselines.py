"""Popularity and item-kNN, held to a plain loop over users and items."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from recsys_lab.data.interactions import open_interactions
from recsys_lab.record.item_baselines import item_sentences
from recsys_lab.record.metrics import retrieval
from recsys_lab.train import item_baselines as module
from recsys_lab.train.item_baselines import item_baselines
from tests.data.helpers import interactions_options

ITEMS = 120


def sequences(folder: Path) -> list[list[int]]:
    """Of users, some with an item twice; in a file of a line a user."""
    random = np.random.default_rng(4)
    users = [(random.integers(1, 31, int(random.integers(1, 9))) ** 2 % ITEMS + 1).tolist() for _ in range(40)]
    users[0] = list(range(1, ITEMS - 105))  # so that item numbers follow the words
    (folder / "log.txt").write_text("".join(f"{u} {' '.join(map(str, own))}\n" for u, own in enumerate(users, 1)))
    return users


@pytest.mark.parametrize("at_once", [1, 1 << 20])
def test_figures_are_those_of_a_plain_loop(tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", at_once)
    monkeypatch.setattr(module, "NEIGHBOURS", 5)
    module._KEPT.clear()
    sequences(tmp_path)
    data = open_interactions(**interactions_options(tmp_path, format="sequences"))
    found = item_baselines(data, 1)
    validation = data.held_out["validation"]
    h, items = validation.inputs.histories, validation.items
    train = [set(h.ids[h.first[u] : h.first[u] + n].tolist()) for u, n in zip(validation.users, h.train_lengths[validation.users])]
    had_by = [{u for u, own in enumerate(train) if item in own} for item in range(items + 1)]
    count = np.zeros(items + 1)
    for u, n in zip(validation.users, h.train_lengths[validation.users]):
        np.add.at(count, h.ids[h.first[u] : h.first[u] + n], 1)
    alike = np.array(
        [[len(a & b) / max(1e-9, (len(a) * len(b)) ** 0.5) if i != j else 0.0 for j, b in enumerate(had_by)] for i, a in enumerate(had_by)]
    )
    for own in alike:
        order = np.lexsort((np.arange(len(own)), -own))
        own[order[5:]] = 0
    for split, back in (("validation", 2), ("test", 1)):
        places: dict[str, list[tuple[int, int]]] = {"popularity": [], "item_knn": []}
        for user in validation.users:
            own = h.ids[h.first[user] : h.first[user + 1]].tolist()
            history, target = own[:-back], own[-back]
            scores = {"popularity": count, "item_knn": sum(np.float32(alike[item]) for item in history)}
            others = [item for item in range(1, items + 1) if item != target and item not in history]
            for name, score in scores.items():
                close = [abs(score[other] - score[target]) < 1e-5 for other in others]
                above = [score[other] > score[target] and not tied for other, tied in zip(others, close)]
                places[name].append((sum(above), sum(close)))
        for name, own in places.items():
            assert tuple(getattr(found, name)[split][key] for key in ("hit_rate_10", "ndcg_10")) == pytest.approx(
                retrieval(*zip(*own)), abs=0.02
            )


def test_a_model_that_loses_says_so() -> None:
    of = {"hit_rate_10": 0.05, "ndcg_10": 0.03}
    figures = {"popularity": {"test": of | {"ndcg_10": 0.01}}, "item_knn": {"test": of}, "neighbours": 100}
    said = item_sentences({"item_baselines": figures, "quality": {"test": {"ndcg_10": 0.02}}})
    assert len(said) == 2 and said[1].startswith("the model loses to item-kNN by 0.0100 NDCG@10 on test")
    assert len(item_sentences({"item_baselines": figures, "quality": {"test": {"ndcg_10": 0.04}}})) == 1
    assert item_sentences({"quality": {"test": {"ndcg_10": 0.04}}}) == []

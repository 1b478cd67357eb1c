"""Samples in stored order repeat the ids of their user: statistics know it, and a key of the data chooses it."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.in_order import in_stored_order
from recsys_lab.data.interactions import open_interactions
from recsys_lab.data.loader import RankLoader
from recsys_lab.experiment import of_words
from recsys_lab.tables import AccessStatistics
from tests.data.helpers import interactions_options, write

USERS, ITEMS, LENGTH, RANKS = 300, 4000, 60, 4


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Histories of popular items and others, all of different lengths."""
    folder, draw = tmp_path_factory.mktemp("log"), np.random.default_rng(3)
    popularity = 1 / np.arange(1, ITEMS + 1)
    lines = [
        " ".join(map(str, [user, *(draw.choice(ITEMS, draw.integers(5, LENGTH), p=popularity / popularity.sum()) + 1)]))
        for user in range(1, USERS + 1)
    ]
    write(folder / "log.txt", lines)
    return folder


@pytest.fixture(scope="module")
def clicks(root: Path) -> OpenDataSet:
    return open_interactions(**interactions_options(root, objective="click", max_length=40))


def distinct_of_batches(data: OpenDataSet, samples: int, shuffle: bool) -> float:
    """Distinct rows of table item in a rank's batch of so many samples, on average over some batches of all ranks."""
    counts, features = [], [name for name in ("item", "candidate") if name in {f.name for f in data.features}]
    for rank in range(RANKS):
        how = {"batch_size": samples * RANKS, "rank": rank, "world_size": RANKS, "seed": 1, "prefetch_batches": 0, "pin_memory": False}
        loader = RankLoader(data.splits["train"], data, shuffle=shuffle, **how)  # type: ignore[arg-type]
        for batch in itertools.islice(loader, 0, len(loader) - 1, max(1, len(loader) // 20)):
            counts.append(len(np.unique(np.concatenate([batch.sparse[name].values().numpy() for name in features]))))
    return float(np.mean(counts))


@pytest.mark.parametrize("samples", [16, 64, 256])
def test_distinct_rows_follow_the_order(clicks: OpenDataSet, samples: int) -> None:
    stored, drawn = in_stored_order(clicks).access["item"], clicks.access["item"]
    in_order, shuffled = distinct_of_batches(clicks, samples, False), distinct_of_batches(clicks, samples, True)
    assert in_order < 0.6 * shuffled
    assert stored.distinct_rows(samples) == pytest.approx(in_order, rel=0.1)
    assert drawn.distinct_rows(samples) == pytest.approx(shuffled, rel=0.1)
    assert stored.length_of(0, ITEMS) == drawn.length_of(0, ITEMS)


def test_samples_that_are_drawn_have_no_order_of_their_own() -> None:
    experiment = of_words(["model=hstu", "mode=simulate", "data=random", "data.order=stored", "data.rows_train=20000"], "here")
    drawn, access = experiment.data.open(experiment.data.histories).access, experiment.open_data().access
    for samples in (8, 100, 5000):
        assert access["item"].distinct_rows(samples) == pytest.approx(drawn["item"].distinct_rows(samples), rel=0.03)


def test_a_count_from_elsewhere_is_kept_and_written(clicks: OpenDataSet) -> None:
    """As of published shares: so many distinct rows in a rank's batch."""
    access = clicks.access["item"].in_order({512: 900.0})
    assert access.distinct_rows(512) == pytest.approx(900) and access.distinct_rows(256) < access.distinct_rows(512)
    assert access.between(0, 50).distinct_rows(512) + access.between(50, ITEMS).distinct_rows(512) == pytest.approx(900)
    written = AccessStatistics({"item": access, "other": replace(clicks.access["item"], table="other")}).to_json()
    assert "alike" not in written["tables"][1]
    assert AccessStatistics.from_json(json.loads(json.dumps(written)))["item"] == access

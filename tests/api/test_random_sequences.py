"""A model of histories plans and simulates with data=random as the others do: with histories that are drawn."""

from __future__ import annotations

import pytest

import recsys_lab
from recsys_lab.errors import UserError
from recsys_lab.experiment import of_words

WORDS = ("mode=simulate", "data=random", "cluster=h100x8", "logger=none")


@pytest.mark.parametrize(
    ("words", "features"),
    [
        (["model=sequence"], {"item": 50, "positive": 50, "negative": 50}),
        (["model=hstu", "model.max_length=20"], {"item": 20, "positive": 20, "negative": 20}),
        (["model=sequence", "model.objective=click"], {"item": 50, "candidate": 1}),
    ],
)
def test_histories_are_of_one_table_of_items(words: list[str], features: dict[str, int]) -> None:
    experiment = of_words([*WORDS, *words], "test")
    data = experiment.open_data()
    assert {f.name: f.mean_length for f in data.features} == features and data.dense_features == 0
    assert {(f.table_name, f.rows, f.pooling) for f in data.features} == {("item", 60_000, "none")}


def test_tiers_simulate_it_and_towers_say_why_not() -> None:
    assert 0 < recsys_lab.simulate(*WORDS, "model=sequence", "sharder=flexshard_2tier").iteration_ms < 100
    with pytest.raises(UserError, match="no tower modules: they compress pooled rows, and it reads sequences"):
        recsys_lab.simulate(*WORDS, "model=sequence", "sharder=dmt")


def test_nobody_trains_on_histories_without_an_order() -> None:
    with pytest.raises(UserError, match="model.objective.*data=random.*mode=simulate or data=interactions"):
        of_words(["mode=train", "data=random", "model=sequence"], "test")

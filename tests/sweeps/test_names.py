"""Names of rows: short, and still different."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_lab.sweeps.names import row_name, short_keys, short_values

KEY = st.lists(st.sampled_from(["model", "optimizer", "sparse", "dense", "lr"]), min_size=1, max_size=3).map(".".join)


@pytest.mark.parametrize(
    ("keys", "short"),
    [
        (["model"], ["model"]),
        (["trainer.optimizer.lr"], ["lr"]),
        (["optimizer.sparse.lr", "optimizer.dense.lr", "seed"], ["sparse.lr", "dense.lr", "seed"]),
        (["lr", "optimizer.lr"], ["lr", "optimizer.lr"]),
        (["cluster/link@cluster.cross_host"], ["cross_host"]),
    ],
)
def test_a_key_is_its_end(keys: list[str], short: list[str]) -> None:
    assert list(short_keys(keys)) == short


@given(st.lists(KEY, unique=True, max_size=5))
def test_no_two_keys_become_one(keys: list[str]) -> None:
    assert len(set(short_keys(keys))) == len(keys)


@given(st.lists(st.text("ab/", max_size=6), unique=True))
def test_no_two_values_become_one(values: list[str]) -> None:
    assert len(set(short_values(values).values())) == len(values)


def test_values_lose_the_folders_that_all_are_in() -> None:
    paths = ["/data/shop/may/train.csv", "/data/shop/june/train.csv", "default"]
    assert list(short_values(paths).values()) == ["may/train.csv", "june/train.csv", "default"]
    assert short_values(["/data/a.csv"]) == {"/data/a.csv": "/data/a.csv"} and short_values(["0.1", "0.2"]) == {"0.1": "0.1", "0.2": "0.2"}


def test_a_choice_needs_no_key_and_a_number_does() -> None:
    of_rows = {"model": ["dlrm", "dcn"], "lr": ["0.1", "0.2"], "pipeline": ["true", "default"]}
    assert row_name({"model": "dcn", "lr": "0.1", "pipeline": "true"}, of_rows) == "dcn lr=0.1 pipeline=true"
    alike = {"sparse.name": ["adam", "sgd"], "dense.name": ["adam"]}
    assert row_name({"sparse.name": "sgd", "dense.name": "adam"}, alike) == "sparse.name=sgd dense.name=adam"

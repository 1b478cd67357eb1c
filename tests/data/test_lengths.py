"""Lengths of histories are those of the samples, drawn and in order. A loader deals them out, and gains what is simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsys_lab.data.batch import Batch
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.in_order import in_stored_order
from recsys_lab.data.interactions import open_interactions
from recsys_lab.data.lengths import lengths_of, with_given_history, with_history
from recsys_lab.data.loader import RankLoader
from recsys_lab.data.protocol import Rows, SizedSplit
from recsys_lab.data.yambda import open as opening
from recsys_lab.data.yambda import open_yambda_law
from recsys_lab.data.yambda.features import READERS
from recsys_lab.errors import UserError
from recsys_lab.experiment import of_words
from recsys_lab.tables.lengths import TOKENS, Lengths, Work
from tests.data.helpers import interactions_options, write

RANKS = 4
LAW: dict[str, Any] = {
    "rows": dict.fromkeys(READERS, 500) | {"item_id": 400, "artist_id": 60, "album_id": 90, "uid": 200},
    "users": 200,
    "median_events": 80,
    "most_events": 600,
    "history": "interleaved",
    "max_history": 150,
    "min_history": 5,
    "scan": 100,
    "first_window": 0,
    "held_out_windows": 10,
    "seed_of_truth": 3,
}
WORK = Work(100.0, 20.0, 1.0)


@pytest.fixture(scope="module")
def yambda(tmp_path_factory: pytest.TempPathFactory) -> OpenDataSet:
    return open_yambda_law(cache=str(tmp_path_factory.mktemp("cache")), **LAW)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, draw = tmp_path_factory.mktemp("log"), np.random.default_rng(0)
    users = [" ".join(map(str, [user, *draw.integers(1, 300, draw.integers(3, 90))])) for user in range(1, 200)]
    write(folder / "log.txt", users)
    return folder


def loader(data: OpenDataSet, rank: int, ranks: int = RANKS, **how: Any) -> RankLoader:
    usual: dict[str, Any] = {"batch_size": 64, "seed": 1, "shuffle": True, "prefetch_batches": 0, "pin_memory": False}
    return RankLoader(data.splits["train"], data, rank=rank, world_size=ranks, **usual | how)


def history(batch: Batch, data: OpenDataSet) -> np.ndarray:
    return batch.sparse[data.features[0].name].lengths().numpy()[: batch.valid].astype(float)


@pytest.mark.parametrize("changes", [{}, {"history": "last_n", "max_history": 60}, {"scan": 20}, {"max_history": 2}])
def test_yambda_knows_its_lengths_without_reading(tmp_path: Path, changes: dict[str, Any]) -> None:
    split = open_yambda_law(cache=str(tmp_path), **LAW | {"users": 60} | changes).splits["train"]
    rows = np.random.default_rng(1).permutation(split.rows)[:300]
    assert isinstance(split, SizedSplit)
    assert split.lengths(rows).tolist() == split.read(rows).lengths[0].tolist()
    assert split.lengths(rows[:0]).tolist() == []


@pytest.mark.parametrize("objective", ["next_item", "click"])
def test_interactions_know_their_lengths_without_reading(log: Path, objective: str) -> None:
    data = with_history(open_interactions(**interactions_options(log, objective=objective, max_length=40)))
    split = data.splits["train"]
    rows = np.arange(0, split.rows, 7)
    assert isinstance(split, SizedSplit) and data.history is not None
    assert split.lengths(rows).tolist() == split.read(rows).lengths.max(axis=0).tolist()
    assert data.history.mean == pytest.approx(data.features[0].mean_length, rel=0.02)


def test_histories_of_data_are_those_of_their_samples(yambda: OpenDataSet) -> None:
    split, own = yambda.splits["train"], yambda.history
    assert own is not None and own.origin == "measured" and own.cap == 150
    lengths = lengths_of(split, np.arange(split.rows))
    assert own.mean == pytest.approx(lengths.mean(), rel=2e-3) and own.spread == pytest.approx(lengths.std(), rel=5e-3)
    assert yambda.features[0].mean_length == pytest.approx(own.mean)


def test_samples_that_are_drawn_as_they_come_have_no_order(yambda: OpenDataSet) -> None:
    """Of bags there are no histories."""
    bags = replace(yambda, features=tuple(replace(f, pooling="sum") for f in yambda.features), history=None)
    assert with_history(bags).history is None and in_stored_order(bags).history is None


@pytest.mark.parametrize("samples", [16, 64, 256])
def test_ranks_of_samples_in_a_row_differ_more_than_drawn_ones(log: Path, samples: int) -> None:
    """Against all batches of an epoch in stored order."""
    data = with_history(open_interactions(**interactions_options(log, objective="click", max_length=40)))
    in_order = in_stored_order(data).history
    assert in_order is not None and data.history is not None
    lengths = lengths_of(data.splits["train"], np.arange(data.splits["train"].rows // (samples * RANKS) * samples * RANKS))
    of_ranks = lengths.reshape(-1, RANKS, samples).sum(2)
    measured = of_ranks.max(1).mean() / of_ranks.mean()
    mean = data.history.load(samples).events
    assert in_order.longest_rank(samples, RANKS).events / mean == pytest.approx(measured, rel=0.05)
    assert in_order.longest_rank(samples, RANKS).events > data.history.longest_rank(samples, RANKS).events


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_a_step_has_the_same_samples_dealt_out(yambda: OpenDataSet, ranks: int, shuffle: bool) -> None:
    """As many a rank, each in the order of the epoch, also of the last step, whose batch is not whole."""
    whole = loader(yambda, 0, 1, shuffle=shuffle)
    for number in (0, len(whole) - 1):
        whole.set_position(0, number)
        everything = next(iter(whole))
        parts = []
        for rank in range(ranks):
            dealt, usual = (loader(yambda, rank, ranks, shuffle=shuffle, dealt_by=by) for by in (WORK, None))
            dealt.set_position(0, number)
            usual.set_position(0, number)
            parts.append(next(iter(dealt)))
            assert parts[-1].valid == next(iter(usual)).valid and parts[-1].global_valid == everything.valid
        asked = [part.events.asked.numpy()[: part.valid] for part in parts if part.events]
        assert everything.events is not None
        together = everything.events.asked.numpy()[: everything.valid]
        assert sorted(np.concatenate(asked)) == sorted(together)
        of_ranks = [[(t, n) for t, n in zip(own, history(part, yambda))] for own, part in zip(asked, parts)]
        order = list(zip(together, history(everything, yambda)))
        for own in of_ranks:
            places = iter(order)
            assert all(sample in places for sample in own)


def test_a_resumed_loader_deals_out_the_same(yambda: OpenDataSet) -> None:
    through = list(islice(loader(yambda, 2, dealt_by=WORK), 6))
    resumed = loader(yambda, 2, dealt_by=WORK, prefetch_batches=3, readers=2)
    resumed.set_position(0, 4)
    again = list(islice(resumed, 2))
    for ours, theirs in zip(again, through[4:]):
        assert ours.sparse.values().equal(theirs.sparse.values()) and ours.labels.equal(theirs.labels)


@dataclass(frozen=True)
class HistoriesAlone:
    """A split without ids but a history's, which are all 0: it reads fast."""

    of_rows: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.of_rows)

    def lengths(self, rows: np.ndarray) -> np.ndarray:
        return self.of_rows[rows]

    def read(self, rows: np.ndarray) -> Rows:
        own = self.of_rows[rows]
        return Rows(np.zeros(len(rows), np.float32), None, own[None].astype(np.int32), np.zeros(own.sum(), np.int64))


def slowest_over_mean(data: OpenDataSet, dealt_by: Work | None, batch_size: int) -> float:
    """Of four ranks, by work that is counted on all whole batches which they load."""
    loaders = [loader(data, rank, batch_size=batch_size, dealt_by=dealt_by) for rank in range(RANKS)]
    steps = data.splits["train"].rows // batch_size
    of_steps = np.array([[WORK(history(batch, data)).sum() for batch in own] for own in zip(*(islice(one, steps) for one in loaders))])
    return float(of_steps.max(1).sum() / of_steps.mean(1).sum())


@pytest.mark.parametrize("dealt_by", [TOKENS, WORK], ids=["tokens", "work"])
def test_the_gain_of_balancing_is_the_simulated_one(yambda: OpenDataSet, dealt_by: Work) -> None:
    """Of the slowest of four ranks: its counted work, as batches come and dealt out."""
    samples, own, train = 16, yambda.history, yambda.splits["train"]
    assert own is not None
    alone = HistoriesAlone(lengths_of(train, np.arange(train.rows)))
    data = replace(yambda, features=yambda.features[:1], splits={"train": alone})
    measured = slowest_over_mean(data, None, samples * RANKS) - slowest_over_mean(data, dealt_by, samples * RANKS)
    mean = own.load(samples, WORK).work
    as_they_come, dealt = (own.longest_rank(samples, RANKS, WORK, by).work / mean for by in (None, dealt_by))
    assert as_they_come - dealt == pytest.approx(measured, rel=0.1) and measured > 0.1
    assert dealt < 1.02


def test_balance_without_histories_is_one_line() -> None:
    experiment = of_words(["mode=simulate", "data=random", "data.rows_train=1000", "data.balance=tokens"], "here")
    data = experiment.open_data()
    with pytest.raises(UserError, match="samples without histories are alike; given tokens; allowed: none") as refused:
        experiment.check(data)
    assert "\n" not in str(refused.value)


def test_only_the_mean_is_known_of_equal_lengths() -> None:
    assert Lengths.equal(5).spread == 0 and Lengths.equal(5).origin == "mean"


def test_given_lengths_take_the_place_of_the_datas(yambda: OpenDataSet) -> None:
    given = with_given_history(yambda, 80.0, 20.0, None)
    assert given.history is not None and given.history.cap == 150
    assert given.history.mean == pytest.approx(80) and given.history.spread == pytest.approx(20, rel=1e-3)
    for feature, before in zip(given.features, yambda.features):
        is_history = feature.name in ("item_id", "artist_id", "album_id")
        assert feature.mean_length == (pytest.approx(80) if is_history else before.mean_length)
    for table, access in given.access.tables.items():
        read_by = [feature.mean_length for feature in given.features if feature.table_name == table]
        assert access.mean_length == pytest.approx(sum(read_by)) == pytest.approx(access.length_of(0, 10**9))
    assert "given" in given.notes[-1] and given.fingerprint != yambda.fingerprint
    with pytest.raises(UserError, match="samples have no histories"):
        with_given_history(replace(yambda, history=None), 80.0, None, None)


def test_given_lengths_are_of_simulations() -> None:
    experiment = of_words(["data=random", "data.rows_train=1000", "mode=train", "simulate.history.mean=5"], "here")
    with pytest.raises(UserError, match="simulate.history: what trains has its own lengths; given mode=train"):
        experiment.check(experiment.data.open(None))


def test_a_law_too_large_to_draw_is_drawn_in_part(tmp_path: Path, yambda: OpenDataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """What samples in a row have in common is what it would be, had all events been drawn."""
    monkeypatch.setattr(opening, "MOST_EVENTS", 1000)
    monkeypatch.setattr(opening, "FEW_EVENTS", 180 * LAW["median_events"])
    monkeypatch.setattr(opening, "IN_ORDER_SAMPLES", 64)
    part = in_stored_order(open_yambda_law(cache=str(tmp_path), **LAW))
    whole = in_stored_order(yambda)
    assert part.history and whole.history and part.history.origin == "formula"
    for samples in (16, 64):
        ours, theirs = (one.access["item_id"].distinct_rows(samples) for one in (part, whole))
        assert ours == pytest.approx(theirs, rel=0.2)
    assert "published 2.4%" in part.notes[-1]
    assert [path.name for path in tmp_path.glob("yambda_law_in_order-*/*")] == ["meta.json"]

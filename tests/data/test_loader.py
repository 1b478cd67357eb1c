"""Ranks together yield the global batch, no rank reads another's rows, and a position is the whole state."""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.data import hashing
from recsys_lab.data.batch import Batch
from recsys_lab.data.dataset import OpenDataSet
from recsys_lab.data.loader import RankLoader
from recsys_lab.data.order import FileOrder, ShuffledOrder
from recsys_lab.data.protocol import Rows
from recsys_lab.errors import UserError
from tests.data.helpers import ArraySplit, array_data


def loader(data: OpenDataSet, **changed) -> RankLoader:
    options = {"batch_size": 10, "rank": 0, "world_size": 1, "seed": 5, "shuffle": True, "prefetch_batches": 2, "pin_memory": False}
    return RankLoader(data.splits["train"], data, **options | changed)


def samples(batch: Batch) -> list[tuple]:
    """The real rows of a batch: label, dense values, ids of each feature."""
    bags = [batch.sparse[key].to_dense() for key in batch.sparse.keys()]
    return [
        (batch.labels[b].item(), tuple(batch.dense[b].tolist()), *(tuple(bag[b].tolist()) for bag in bags))  # type: ignore[index]
        for b in range(batch.valid)
    ]


def prefetch_threads() -> int:
    return sum(t.name == "recsys_lab-prefetch" for t in threading.enumerate())


@settings(max_examples=60)
@given(rows=st.integers(1, 200), batch_size=st.integers(1, 64), world_size=st.integers(1, 9), shuffle=st.booleans())
def test_ranks_together_are_the_unsharded_batch(rows: int, batch_size: int, world_size: int, shuffle: bool) -> None:
    data = array_data(rows)
    options = {"batch_size": batch_size, "shuffle": shuffle, "prefetch_batches": 0}
    whole = list(loader(data, **options))
    parts = [list(loader(data, rank=r, world_size=world_size, **options)) for r in range(world_size)]
    assert {len(p) for p in parts} == {len(whole)} == {-(-rows // batch_size)}
    for step, batch in enumerate(whole):
        mine = [p[step] for p in parts]
        assert [s for m in mine for s in samples(m)] == samples(batch)
        assert {m.global_valid for m in mine} == {batch.valid}
        assert {len(m.labels) for m in mine} == {-(-batch_size // world_size)}
        assert min(m.valid for m in mine) == batch.valid // world_size, "as even as can be: no rank is empty if it need not be"
        for m in mine:
            assert m.sparse.stride() == len(m.labels)
            assert not m.labels[m.valid :].any() and not m.dense[m.valid :].any()  # type: ignore[index]
            assert not m.sparse.lengths().view(2, -1)[:, m.valid :].any()


@settings(max_examples=30)
@given(rows=st.integers(1, 300), world_size=st.integers(1, 6), epoch=st.integers(0, 3))
def test_no_rank_reads_anothers_rows(rows: int, world_size: int, epoch: int) -> None:
    read = []
    for rank in range(world_size):
        data = array_data(rows)
        mine = loader(data, rank=rank, world_size=world_size, prefetch_batches=0)
        mine.set_position(epoch)
        assert sum(b.valid for b in mine) == len(data.splits["train"].read_rows)  # type: ignore[attr-defined]
        read.append(data.splits["train"].read_rows)  # type: ignore[attr-defined]
    assert sorted(r for rows_of_rank in read for r in rows_of_rank) == list(range(rows))


@settings(max_examples=30)
@given(rows=st.integers(1, 150), epoch=st.integers(0, 4), data=st.data())
def test_a_resumed_position_gives_the_rest_of_the_epoch(rows: int, epoch: int, data: st.DataObject) -> None:
    made = array_data(rows)
    undisturbed = loader(made, rank=1, world_size=2)
    undisturbed.set_position(epoch)
    expected = [samples(b) for b in undisturbed]
    batch = data.draw(st.integers(0, len(undisturbed)))
    resumed = loader(made, rank=1, world_size=2)
    resumed.set_position(epoch, batch)
    assert [samples(b) for b in resumed] == expected[batch:]


def test_reading_ahead_changes_nothing_and_kept_batches_stay_as_they_are() -> None:
    data = array_data(157)
    ahead = list(loader(data, prefetch_batches=3))  # all are kept until the end
    here = list(loader(data, prefetch_batches=0))
    assert [samples(b) for b in ahead] == [samples(b) for b in here]


@settings(max_examples=30)
@given(readers=st.integers(2, 5), prefetch=st.integers(1, 9), batch_size=st.sampled_from([3, 10, 5000]), first=st.integers(0, 3))
def test_several_readers_give_the_same_batches(readers: int, prefetch: int, batch_size: int, first: int) -> None:
    """Large batches too, whose rows are not asked for several at once; and from any batch on."""
    data = array_data(157 if batch_size < 5000 else 20001)
    many = loader(data, batch_size=batch_size, prefetch_batches=prefetch, readers=readers)
    many.set_position(1, first)
    one = loader(data, batch_size=batch_size, prefetch_batches=0)
    one.set_position(1, first)
    assert [b.labels.tolist() for b in many] == [b.labels.tolist() for b in one]
    assert prefetch_threads() == 0


def test_epochs_have_other_orders_and_the_same_rows() -> None:
    mine = loader(array_data(100))
    first = [s for b in mine for s in samples(b)]
    mine.set_position(1)
    second = [s for b in mine for s in samples(b)]
    assert first != second and sorted(first) == sorted(second)


def test_batches_are_what_torchrec_takes() -> None:
    batch = next(iter(loader(array_data(25))))
    assert batch.sparse.keys() == ["a", "b"]
    assert batch.sparse.values().dtype == torch.int64 and batch.sparse.lengths().dtype == torch.int32
    assert batch.labels.dtype == batch.dense.dtype == torch.float32  # type: ignore[union-attr]


def test_data_without_dense_values() -> None:
    class NoDense(ArraySplit):
        def read(self, rows: np.ndarray) -> Rows:
            read = super().read(rows)
            return Rows(read.labels, None, read.lengths, read.ids)

    data = array_data(25)
    batches = list(
        RankLoader(NoDense(25), data, batch_size=10, rank=0, world_size=1, seed=1, shuffle=False, prefetch_batches=1, pin_memory=False)
    )
    assert [b.dense for b in batches] == [None] * 3


@pytest.mark.parametrize("readers", [1, 2])
def test_an_error_of_a_thread_reaches_the_consumer(readers: int) -> None:
    class Broken(ArraySplit):
        def read(self, rows: np.ndarray) -> Rows:
            if rows[0] >= 20:
                raise OSError("the disk is gone")
            return super().read(rows)

    mine = loader(replace(array_data(50), splits={"train": Broken(50)}), shuffle=False, readers=readers)
    seen: list[int] = []
    with pytest.raises(OSError, match="the disk is gone"):
        seen.extend(batch.valid for batch in mine)
    assert seen == [10, 10]
    assert prefetch_threads() == 0


@pytest.mark.parametrize("how", ["finished", "dropped", "broken off"])
def test_the_thread_ends_with_the_iterator(how: str) -> None:
    batches = iter(loader(array_data(1000)))
    next(batches)
    assert prefetch_threads() == 1
    if how == "finished":
        for _ in batches:
            pass
    elif how == "broken off":
        with pytest.raises(RuntimeError, match="in the loop"):
            for _ in batches:
                raise RuntimeError("in the loop")
    del batches
    gc.collect()
    assert prefetch_threads() == 0


def test_waiting_is_counted() -> None:
    class Slow(ArraySplit):
        def read(self, rows: np.ndarray) -> Rows:
            time.sleep(0.02)
            return super().read(rows)

    mine = RankLoader(
        Slow(50), array_data(50), batch_size=10, rank=0, world_size=1, seed=1, shuffle=False, prefetch_batches=2, pin_memory=False
    )
    assert mine.wait_s == 0
    assert len(list(mine)) == 5
    assert mine.read_s >= 5 * 0.02 and mine.wait_s >= 0.02


def test_batches_in_any_sequence_and_of_any_order_hold_their_own_rows() -> None:
    """Rows of several batches are asked for at once, and kept."""
    data = array_data(101)
    own = loader(data, batch_size=8, rank=1, world_size=2)
    asked = [0, 1, 1, 12, 3, 2, 0]
    for order in (ShuffledOrder(101, 5, 0), ShuffledOrder(101, 5, 1), FileOrder()):
        for batch in asked:
            expected = data.splits["train"].read(order.at(own.positions(batch)))
            assert own.read_batch(order, batch).labels[: len(expected.labels)].tolist() == expected.labels.tolist()


def test_random_bits_leave_their_counters_as_they_are() -> None:
    counters, numbers = np.arange(7), np.arange(7, dtype=np.uint64)
    hashing.bits(hashing.key("a"), counters)
    hashing.mix(numbers)
    assert counters.tolist() == numbers.tolist() == list(range(7))
    assert hashing.mix(np.array(3, np.uint64)) == hashing.mix(np.array([3], np.uint64))[0]


@pytest.mark.parametrize(("wrong", "words"), [(1000, "subtract 1"), (1001, "number them from 0"), (-1, "id -1 of feature b")])
@pytest.mark.parametrize("rank", [0, 1])
def test_an_id_outside_its_table_is_refused_on_the_rank_that_reads_it(wrong: int, words: str, rank: int) -> None:
    class Shifted(ArraySplit):
        def read(self, rows: np.ndarray) -> Rows:
            read = super().read(rows)
            ids = np.where(
                np.arange(len(read.ids)) < read.lengths[0].sum(), read.ids, wrong if wrong < 0 else wrong - np.arange(len(read.ids)) % 2
            )
            return replace(read, ids=ids)

    data = replace(array_data(20), splits={"train": Shifted(20)})
    with pytest.raises(UserError, match="feature b, whose table has 1,000 rows") as caught:
        list(loader(data, rank=rank, world_size=2))
    assert words in str(caught.value) and "\n" not in str(caught.value)

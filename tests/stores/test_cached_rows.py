"""The cache against a plain list of what is in it, and what a user reads where the file fails."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.base.store_names import places_of
from recsys_lab.errors import UserError
from recsys_lab.executor.store.cached_rows import CachedRows
from recsys_lab.executor.store.three_levels import rows_of
from recsys_lab.kernels.stored import StoredWeights
from recsys_lab.plan.store import DISK_CACHED, DISK_HOST_CACHED, LFU, LRU, Store

ROWS, SLOTS, WIDTH = 20, 8, 4
batches = st.lists(st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=SLOTS), min_size=1, max_size=30)


def first(rows: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(rows).float().unsqueeze(1).expand(-1, WIDTH).contiguous()


def opened(folder: Path | str, policy: str = LFU, rows: int = ROWS, slots: int = SLOTS, host: int | None = None) -> CachedRows:
    """`host`: rows in its memory, where there are three levels."""
    weights = StoredWeights.empty("fp32", (slots, WIDTH), torch.device("cpu"))
    two, three = Store(DISK_CACHED, slots / rows, policy), Store(DISK_HOST_CACHED, slots / rows, policy, (host or slots) / rows)
    cached = rows_of(three if host else two, "t", 0, rows, weights)
    cached.open(str(folder), first, {})
    return cached


@settings(max_examples=80)
@given(batches, st.sampled_from([LFU, LRU]), st.sampled_from([None, SLOTS, SLOTS + 1, 14, ROWS]))
def test_hits_values_and_what_leaves_are_those_of_a_plain_list(taken: list[list[int]], policy: str, host: int | None) -> None:
    cached, values = opened("", policy, host=host), first(np.arange(ROWS))
    inside: set[int] = set()
    reads, last, hits = dict.fromkeys(range(ROWS), 0), dict.fromkeys(range(ROWS), 0), 0
    for number, ids in enumerate(taken, start=1):
        held, wanted = cached.take(torch.tensor(ids)), set(ids)
        hits += len(wanted & inside)
        key = reads if policy == LFU else last
        leaves = sorted(inside - wanted, key=lambda row: (key[row], row))[: max(0, len(inside | wanted) - SLOTS)]
        inside = (inside | wanted) - set(leaves)
        for row in wanted:
            reads[row], last[row] = reads[row] + 1, number
        assert torch.equal(cached.weights.model[held.slots.long()], values[ids])
        cached.weights.model[held.slots.long()] = values[ids] + 1
        values[list(wanted)] += 1
        held.done(moved=True)
    assert cached.counts()["hits"] == hits
    assert set(np.flatnonzero(cached._cache.where(np.arange(ROWS)) >= 0).tolist()) == inside
    seen = np.unique(sum(taken, []))
    assert np.array_equal(np.flatnonzero(cached.known(np.arange(ROWS))), seen)
    assert torch.equal(cached.fields["model"].of(cached.records(np.arange(ROWS))), values)


@settings(max_examples=80)
@given(batches, st.sampled_from([LFU, LRU]), st.integers(SLOTS, ROWS))
def test_of_three_levels_each_has_all_of_the_one_before_with_two_batches_in_flight(taken: list[list[int]], policy: str, host: int) -> None:
    cached, values, before = opened("", policy, host=host), first(np.arange(ROWS)), None
    for ids in taken:
        ids = ids[: SLOTS // 2]
        held = cached.take(torch.tensor(ids))
        if before is not None:
            before[0].done(moved=before[1])
        assert torch.equal(cached.weights.model[held.slots.long()], values[ids])
        moved = sum(ids) % 3 > 0
        if moved:
            cached.weights.model[held.slots.long()] = values[ids] + 1
            values[list(set(ids))] += 1
        before = (held, moved)
        slots, host_rows = (one._cache.where(np.arange(ROWS)) >= 0 for one in (cached, cached._host))  # type: ignore[attr-defined]
        assert not (slots & ~host_rows).any() and host_rows.sum() <= host


def test_rows_that_leave_together_lie_together_in_the_file(tmp_path: Path) -> None:
    rows, slots, rng = 1000, 100, np.random.default_rng(1)
    cached, all_rows = opened(tmp_path, LRU, rows, slots), rng.permutation(rows)
    for part in all_rows.reshape(-1, slots):  # each batch takes the place of the one before it
        cached.take(torch.from_numpy(part)).done(moved=True)
    for part in all_rows.reshape(-1, slots)[:-1]:
        places = np.sort(cached._cache.record_positions(part))
        assert places[-1] - places[0] == slots - 1
    for _ in range(30):  # rows come and go, and none has the place of another
        cached.take(torch.from_numpy(rng.choice(rows, slots, replace=False))).done(moved=True)
    outside = np.flatnonzero(cached._cache.where(np.arange(rows)) < 0)
    assert len(np.unique(cached._cache.record_positions(outside))) == len(outside) == rows - slots


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_may_not_grow_is_the_users_to_mend(tmp_path: Path) -> None:
    with files_of_at_most(64), pytest.raises(UserError, match=r"cannot write the rows of table t: File too large; sharder.scratch=DIR"):
        opened(tmp_path)
    cached = opened(tmp_path)
    cached.take(torch.arange(ROWS - SLOTS, ROWS)).done(moved=True)
    with files_of_at_most(64), pytest.raises(UserError, match="cannot write the rows of table t: File too large"):
        cached.take(torch.arange(SLOTS))
    with pytest.raises(UserError, match="cannot write the rows"):  # no checkpoint may have what the slots hold now
        cached.records(np.arange(ROWS))


def test_a_folder_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/below: cannot write the rows"):
        opened(tmp_path / "file" / "below")


def test_a_truncated_file_is_told(tmp_path: Path) -> None:
    cached = opened(tmp_path)
    cached.take(torch.arange(SLOTS)).done(moved=True)
    cached.take(torch.arange(SLOTS, 2 * SLOTS)).done(moved=True)
    os.truncate(cached._file.fileno(), 8)
    with pytest.raises(UserError, match="cannot read the rows of table t: the file is shorter than it was; its disk may be failing"):
        cached.take(torch.arange(SLOTS))


def test_the_file_has_no_name_so_that_a_kill_leaves_nothing(tmp_path: Path) -> None:
    cached = opened(tmp_path)
    cached.take(torch.arange(SLOTS)).done(moved=True)
    assert list(tmp_path.iterdir()) == []
    assert os.fstat(cached._file.fileno()).st_size == places_of(ROWS) * cached.record_bytes


def test_an_id_outside_of_the_shard_changes_nothing() -> None:
    cached = opened("")
    with pytest.raises(IndexError, match="id 20 at position 1"):
        cached.take(torch.tensor([3, 20]))
    assert cached.counts()["misses"] == 0 and len(cached.take(torch.arange(SLOTS)).slots) == SLOTS


def test_many_rows_at_once_and_alone_come_back_as_they_were_written(tmp_path: Path) -> None:
    rows = 50_000
    cached = opened(tmp_path, rows=rows, slots=rows // 2)
    order = torch.from_numpy(np.random.default_rng(0).permutation(rows))
    for half in order.chunk(2):
        held = cached.take(half)
        cached.weights.model[held.slots.long()] *= 2
        held.done(moved=True)
    for part in order.chunk(3):
        assert torch.equal(cached.weights.model[cached.take(part).slots.long()], 2 * first(part.numpy()))

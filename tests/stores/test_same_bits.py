"""Training with rows in a file gives the bits of training in memory, whatever the cache holds."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path

import pytest

from recsys_lab.plan.store import DISK_CACHED, DISK_HOST_CACHED, HOST, HOST_CACHED, LFU, LRU, Store
from recsys_lab.tables import Table
from recsys_lab.tables.spec import TABLE_FORMATS
from tests.executor.reference import samples
from tests.ranks import RankFailed, run_ranks
from tests.stores.runs import DENSE, Case, compare

#: Two features on one table; rows that no number of ranks divides; one width twice.
TABLES = (Table("long", 81, 16, ("f_long",)), Table("odd", 61, 8, ("f_odd",)), Table("shared", 122, 16, ("f_left", "f_right"), "mean"))
SEQUENCES = (Table("one", 81, 8, ("f_one",), "none"), Table("two", 61, 8, ("f_two",), "none"))
OPTIMIZERS = ("sgd", "adagrad", "row_wise_adagrad", "adam")
ON_DISK = (Store(DISK_CACHED, 0.6, LFU), Store(DISK_CACHED, 0.6, LRU))
THREE_LEVELS = (Store(DISK_HOST_CACHED, 0.6, LFU, 0.7), Store(DISK_HOST_CACHED, 0.6, LRU, 0.8))
STORES = (*ON_DISK, Store(HOST_CACHED, 0.7, LFU), Store(DISK_CACHED, 1.0, LRU), *THREE_LEVELS, Store(HOST))
STEPS, ROWS = 9, 8
LONG = pytest.mark.long


def cases(schemes: tuple[str, ...]) -> list[Case]:
    """Every optimizer in every format, under every scheme; stores, prefetch and checkpoints take turns."""
    ways = cycle((store, pipeline, save_at) for store in STORES for pipeline in (False, True) for save_at in (0, 3))
    return [Case(how, optimizer, format, *next(ways)) for how in schemes for optimizer in OPTIMIZERS for format in TABLE_FORMATS]


@pytest.mark.parametrize(
    ("hosts", "ranks_per_host", "every"),
    [(1, 1, 5), (1, 2, 11), pytest.param(1, 2, 1, marks=LONG), pytest.param(2, 2, 1, marks=LONG)],
)
def test_every_optimizer_and_format_under_every_way_to_cut(hosts: int, ranks_per_host: int, every: int, tmp_path: Path) -> None:
    schemes = ("table_wise",) if hosts * ranks_per_host == 1 else ("table_wise", "row_wise", "column_wise")
    drawn = cases(schemes)[::every]
    ranks = run_ranks(compare, hosts, ranks_per_host, TABLES, drawn, samples(TABLES, STEPS, ROWS, DENSE), str(tmp_path))
    for case, *counts in zip(drawn, *ranks):
        totals = [sum(one[name] for rank in counts for one in rank.values()) for name in ("hits", "misses", "bytes_read", "bytes_written")]
        if case.store is None or case.store.kind == HOST:
            assert totals == [0, 0, 0, 0]
        else:
            assert totals[0] > 0 and totals[1] > 0
            beneath = case.store.host_share or case.store.cached_share  # what the last level holds
            assert beneath > 0.65 or case.save_at or (totals[2] > 0 and totals[3] > 0), case


def test_three_levels(tmp_path: Path) -> None:
    """A host that holds hardly more than the slots, and one that holds all; rows go to the disk and come back through both."""
    stores = (*THREE_LEVELS, Store(DISK_HOST_CACHED, 0.55, LFU, 0.56), Store(DISK_HOST_CACHED, 0.5, LRU, 1.0))
    ways = cycle((optimizer, format) for optimizer, format in zip(OPTIMIZERS, ("fp32", "split_bf16", "fp16", "bf16_master")))
    drawn = [Case("table_wise", *next(ways), store, ahead, save_at) for store in stores for ahead in (False, True) for save_at in (0, 3)]
    (counts,) = run_ranks(compare, 1, 1, TABLES[:2], drawn, samples(TABLES[:2], STEPS, ROWS, DENSE), str(tmp_path))
    for case, counted in zip(drawn, counts):
        store, read = case.store, sum(one["bytes_read"] for one in counted.values())
        assert store is not None and (store.host_share == 1.0) == (read == 0) or case.save_at, (case, counted)


def test_sequences(tmp_path: Path) -> None:
    ways = [(how, store, ahead) for how in ("table_wise", "row_wise") for store in ON_DISK for ahead in (False, True)]
    drawn = [Case(how, "adam", "split_bf16", store, ahead) for how, store, ahead in ways]
    run_ranks(compare, 1, 2, SEQUENCES, drawn, samples(SEQUENCES, STEPS, ROWS, DENSE), str(tmp_path))


def test_a_cache_that_is_too_small_names_the_share_that_works(tmp_path: Path) -> None:
    says = r"table long, store.cached_share: .* given 0.02, 2 of a shard's 81 rows; allowed: 0\.\d+"
    small = Case("table_wise", "sgd", "fp32", Store(DISK_CACHED, 0.02))
    with pytest.raises(RankFailed, match=says):
        run_ranks(compare, 1, 1, TABLES[:1], [small], samples(TABLES[:1], STEPS, 64, DENSE), str(tmp_path))


def test_replicated_tables_are_refused(tmp_path: Path) -> None:
    case = Case("data_parallel", "sgd", "fp32", Store(DISK_CACHED, 0.5))
    with pytest.raises(RankFailed, match="table long, store: a table whose rows several ranks hold alike stays in device memory"):
        run_ranks(compare, 1, 2, TABLES[:1], [case], samples(TABLES[:1], 1, 4, DENSE), str(tmp_path))

"""Rows in two and three tiers train as one process with whole tables does."""

from __future__ import annotations

from functools import cache

import pytest

from recsys_lab.tables import Table
from tests.executor.reference import Outcome, Sample, samples, train_unsharded
from tests.executor.sharded import How, train_placed
from tests.executor.test_sharded_equals_unsharded import DENSE, ROWS, check
from tests.ranks import run_ranks

STEPS, FEW = 20, 4
#: Two widths where that may be, features that share a table, fewer rows than ranks, sums and means.
POOLED = (
    Table("odd", 11, 16, ("f_odd",)),
    Table("tiny", 3, 8, ("f_tiny",), "mean"),
    Table("shared", 30, 16, ("f_left", "f_right"), "mean"),
)
SEQUENCES = tuple(Table(t.name, t.rows, 16, t.features, "none") for t in POOLED)
#: Tier sizes (replicated, host-sharded), also such that a tier has no rows of some table.
TWO: How = {"odd": (4, 0), "tiny": (0, 0), "shared": (7, 0)}
THREE: How = {"odd": (2, 5), "tiny": (1, 1), "shared": (4, 9)}
CASES: list[tuple[How, str]] = [(how, optimizer) for how in (TWO, THREE) for optimizer in ("sgd", "row_wise_adagrad", "adam")]
#: Beside tables that are placed as a whole; for fewer steps.
MIXED: list[tuple[How, str]] = [
    ({"odd": "row_wise", "tiny": (1, 2), "shared": (30, 0)}, "adagrad"),
    ({"odd": (0, 0), "tiny": "data_parallel", "shared": (0, 30)}, "adagrad"),
    ({"odd": "table_wise", "tiny": (3, 0), "shared": "data_parallel"}, "sgd"),
]


def train_both(pooled: list[Sample], sequences: list[Sample]) -> list[list[Outcome]]:
    outcomes = []
    for tables, batches in ((POOLED, pooled), (SEQUENCES, sequences)):
        outcomes.append(train_placed(tables, batches, CASES, DENSE) + train_placed(tables, batches[:FEW], MIXED, DENSE))
    return outcomes


@cache
def reference(tables: tuple[Table, ...], optimizer: str, steps: int) -> Outcome:
    return train_unsharded(tables, samples(tables, STEPS, ROWS, DENSE)[:steps], optimizer, DENSE)


@pytest.mark.parametrize(
    ("hosts", "ranks_per_host"), [(1, 1), (2, 2), pytest.param(1, 4, marks=pytest.mark.long), pytest.param(4, 1, marks=pytest.mark.long)]
)
def test_tiers_train_as_the_unsharded_model(hosts: int, ranks_per_host: int) -> None:
    batches = [samples(tables, STEPS, ROWS, DENSE) for tables in (POOLED, SEQUENCES)]
    ranks = run_ranks(train_both, hosts, ranks_per_host, *batches, timeout_s=240)
    for kind, tables in enumerate((POOLED, SEQUENCES)):
        for case, (how, optimizer) in enumerate([*CASES, *MIXED]):
            expected = reference(tables, optimizer, STEPS if case < len(CASES) else FEW)
            what = f"{tables[0].pooling} {how} {optimizer}"
            check([rank[kind][case] for rank in ranks], expected, what, columns_cut=False, optimizer=optimizer)

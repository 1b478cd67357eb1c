"""Rows in two and three tiers train as one process with whole tables does."""

from __future__ import annotations

import pytest

from recsys_lab.tables import Table
from tests.distributed.reference import samples, train_unsharded
from tests.distributed.sharded import How, train_placed
from tests.distributed.test_sharded_equals_unsharded import DENSE, ROWS, check
from tests.ranks import run_ranks

OPTIMIZERS = ("sgd", "adagrad", "row_wise_adagrad", "adam")
STEPS = 20
#: Two widths where that may be, features that share a table, and fewer rows than ranks.
POOLED = (
    Table("odd", 11, 16, ("f_odd",)),
    Table("tiny", 3, 8, ("f_tiny",), "mean"),
    Table("shared", 30, 16, ("f_left", "f_right"), "mean"),
)
SEQUENCES = tuple(Table(t.name, t.rows, 16, t.features, "none") for t in POOLED)
#: Tier sizes (replicated, host-sharded), also such that a tier has no rows of some table.
TWO: How = {"odd": (4, 0), "tiny": (0, 0), "shared": (7, 0)}
THREE: How = {"odd": (2, 5), "tiny": (1, 1), "shared": (4, 9)}
MIXED: How = {"odd": "row_wise", "tiny": (1, 2), "shared": (30, 0)}


@pytest.mark.parametrize("tables", [POOLED, SEQUENCES], ids=["pooled", "sequences"])
@pytest.mark.parametrize(("hosts", "ranks_per_host"), [(1, 1), (1, 4), (2, 2), (4, 1)])
def test_tiers_train_as_the_unsharded_model(hosts: int, ranks_per_host: int, tables: tuple[Table, ...]) -> None:
    batches = samples(tables, STEPS, ROWS, DENSE)
    cases = [(how, optimizer) for how in (TWO, THREE, MIXED) for optimizer in OPTIMIZERS]
    ranks = run_ranks(train_placed, hosts, ranks_per_host, tables, batches, cases, DENSE)
    references = {optimizer: train_unsharded(tables, batches, optimizer, DENSE) for optimizer in OPTIMIZERS}
    for case, (how, optimizer) in enumerate(cases):
        check([rank[case] for rank in ranks], references[optimizer], f"{how} {optimizer}", columns_cut=False, optimizer=optimizer)

"""Sequence tables (a row for each id, in its order) under TorchRec's schemes train as one process with whole tables does."""

from __future__ import annotations

import pytest

from recsys_lab.tables import Table
from tests.executor.reference import samples, train_unsharded
from tests.executor.sharded import How, train_placed
from tests.executor.test_sharded_equals_unsharded import DENSE, OPTIMIZERS, ROWS, STEPS, check
from tests.ranks import run_ranks

#: Rows that no number of ranks divides, fewer rows than ranks, and three features on one table.
SEQUENCES = (
    Table("odd", 11, 16, ("f_odd",), "none"),
    Table("tiny", 3, 16, ("f_tiny",), "none"),
    Table("item", 30, 16, ("f_item", "f_positive", "f_negative"), "none"),
)
MIXED: How = {"odd": "row_wise", "tiny": "data_parallel", "item": "table_wise"}
SCHEMES = ("data_parallel", "table_wise", "column_wise", "row_wise")


@pytest.mark.parametrize(("hosts", "ranks_per_host"), [(1, 1), (1, 2), (2, 2)])
def test_sequences_train_as_the_unsharded_model(hosts: int, ranks_per_host: int) -> None:
    batches = samples(SEQUENCES, STEPS, ROWS, DENSE)
    ways: list[How] = [*({"*": scheme} for scheme in SCHEMES), MIXED]
    cases = [(how, optimizer) for how in ways for optimizer in OPTIMIZERS]
    ranks = run_ranks(train_placed, hosts, ranks_per_host, SEQUENCES, batches, cases, DENSE)
    references = {optimizer: train_unsharded(SEQUENCES, batches, optimizer, DENSE) for optimizer in OPTIMIZERS}
    for case, (how, optimizer) in enumerate(cases):
        columns_cut = hosts * ranks_per_host > 1 and how.get("*") == "column_wise"
        check([rank[case] for rank in ranks], references[optimizer], f"{how} {optimizer}", columns_cut, optimizer)

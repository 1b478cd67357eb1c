"""SPTT changes no result: with any placement of towers, scheme and peer permute it trains as the flat model in one process."""

from __future__ import annotations

from functools import cache

import pytest

from recsys_lab.tables import Table
from tests.executor.reference import Outcome, Sample, samples, train_unsharded
from tests.executor.test_sharded_equals_unsharded import DENSE, check
from tests.executor.tower_cases import Towers, plan_here, train
from tests.ranks import run_ranks

STEPS, FEW_STEPS, ROWS = 20, 4, 16
#: Two widths, sums and means, features that share a table, fewer rows than ranks; towers list features in an order of their own.
TABLES = (
    Table("odd", 11, 8, ("f_odd",)),
    Table("tiny", 3, 16, ("f_tiny",), "mean"),
    Table("shared", 30, 8, ("f_left", "f_right"), "mean"),
    Table("more", 9, 8, ("f_more",)),
    Table("last", 17, 8, ("f_last",)),
)
TWO: Towers = (("f_right", "f_tiny", "f_left"), ("f_last", "f_odd", "f_more"))
FOUR: Towers = (("f_tiny",), ("f_right", "f_left"), ("f_more", "f_odd"), ("f_last",))
SCHEMES = (("table_wise",), ("column_wise",), ("row_wise",), ("row_wise", "table_wise", "column_wise"))
PERMUTES = ("rows", "ids", "none")
#: (towers, schemes, permute, optimizer, steps): every scheme under every permute, every optimizer under the mix.
CASES = [
    *(("two", schemes, permute, "adagrad", FEW_STEPS) for schemes in SCHEMES[:3] for permute in PERMUTES),
    *(("two", SCHEMES[3], *case, STEPS) for case in zip(PERMUTES, ("sgd", "row_wise_adagrad", "adam"))),
    *(("four", SCHEMES[3], *case, STEPS) for case in zip(PERMUTES, ("adam", "sgd", "adagrad"))),
    ("one", SCHEMES[3], "none", "sgd", FEW_STEPS),
]


def train_cases(batches: list[Sample], cases: list) -> list[Outcome]:
    towers = {"two": TWO, "four": FOUR, "one": (sum(TWO, ()),)}
    return [train(plan_here(TABLES, towers[t], schemes, permute), batches[:n], opt, DENSE) for t, schemes, permute, opt, n in cases]


@cache
def reference(optimizer: str, steps: int) -> Outcome:
    return train_unsharded(TABLES, samples(TABLES, STEPS, ROWS, DENSE)[:steps], optimizer, DENSE)


#: Hosts x ranks: towers of two hosts are in (4, 1) and (4, 2), of half a host in (1, 2) and (2, 2).
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("hosts", "ranks_per_host"), [(2, 2), (4, 1), (2, 1), (1, 2), pytest.param(4, 2, marks=pytest.mark.long)])
def test_sptt_trains_as_the_flat_model(hosts: int, ranks_per_host: int) -> None:
    ranks = run_ranks(train_cases, hosts, ranks_per_host, samples(TABLES, STEPS, ROWS, DENSE), CASES, timeout_s=150)
    for number, (towers, schemes, permute, optimizer, steps) in enumerate(CASES):
        columns_cut = "column_wise" in schemes
        what = f"{towers} {schemes} {permute} {optimizer}"
        check([rank[number] for rank in ranks], reference(optimizer, steps), what, columns_cut, optimizer)


#: Every scheme alone under every permute and every optimizer of tables, for as many steps as the mix has.
GRID = [
    ("two", schemes, permute, optimizer, STEPS)
    for schemes in SCHEMES[:3]
    for permute in PERMUTES
    for optimizer in ("sgd", "adagrad", "row_wise_adagrad", "adam")
]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_every_scheme_under_every_permute_for_longer() -> None:
    ranks = run_ranks(train_cases, 2, 2, samples(TABLES, STEPS, ROWS, DENSE), GRID, timeout_s=550)
    for number, (towers, schemes, permute, optimizer, steps) in enumerate(GRID):
        what = f"{towers} {schemes} {permute} {optimizer}"
        check([rank[number] for rank in ranks], reference(optimizer, steps), what, "column_wise" in schemes, optimizer)

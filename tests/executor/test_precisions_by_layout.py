"""Every scheme, mixes of them and tower modules, in every precision, under every optimizer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recsys_lab.errors import UserError
from recsys_lab.plan import Placement, ShardingPlan
from recsys_lab.plan.scheme import Scheme, even_scheme
from recsys_lab.precision import Precision
from recsys_lab.tables import Table
from tests.executor import tower_cases
from tests.executor.reference import Outcome, Sample
from tests.executor.seen_part import DENSE, FP16_TABLES, MASTER, SPLIT, batches_of, check, stored_as, trained
from tests.executor.sharded import How, placed
from tests.executor.sharded import train as train_flat
from tests.plan.plans import COMMS, FP8, SCHEMES
from tests.ranks import run_ranks

#: One width, as tower modules want it; fewer rows than ranks; two features on one table; a mean.
TABLES = (Table("a", 11, 16, ("fa",)), Table("b", 3, 16, ("fb", "fc"), "mean"), Table("c", 30, 16, ("fd",)))
TOWERS = (("fd", "fa"), ("fb", "fc"))
#: Beside every scheme that there is.
MIXED, MODULES = "mixed", "tower modules"
HOW_MIXED: How = {"a": "row_wise", "b": "data_parallel", "c": "table_wise"}
LAYOUTS = (*SCHEMES, MIXED, MODULES)
CHOICES = (FP16_TABLES, COMMS, MASTER, SPLIT)
OPTIONS = (
    Precision("split_8", "split_bf16_8", "split_bf16_8", "bf16", dense_comm="bf16"),
    Precision("bf16_alone", "bf16", "bf16", "bf16", dense_comm="bf16"),
)
OPTIMIZERS = ("sgd", "adagrad", "adam", "row_wise_adagrad")
#: A gradient of the dense part, and what travels, is rounded to 8 digits on every rank. Adagrad divides what is near its eps by itself.
SHARE = 2**-4
#: Under SGD. A gradient that travels in FP8 keeps three digits, a row four. Others divide a gradient by its size, and where the gradients
#: of a row cancel nothing is left but what was rounded. Tower modules see rows that were rounded, and round what they hand on.
SHARE_OF_FP8, SHARE_OF_MODULES = 2**-2, 2**-1
Case = tuple[str, Precision, str]


def plan_of(layout: str, tables: tuple[Table, ...]) -> ShardingPlan:
    """The scheme's reference plan for 2 x 2 ranks; tables that it cannot run are cut evenly by rows."""
    scheme = SCHEMES[layout]
    first, evenly = (next(iter(one.reference_cases(tables, 2, 2))) for one in (scheme, even_scheme()))
    placements = tuple(
        placement if runs(scheme, table, placement) else even for table, placement, even in zip(tables, first.placements, evenly.placements)
    )
    return replace(first, placements=placements)


def runs(scheme: Scheme, table: Table, placement: Placement) -> bool:
    try:
        if scheme.check_execution:
            scheme.check_execution([(table, placement)])
    except UserError:
        return False
    return True


def optimizers_of(layout: str) -> tuple[str, ...]:
    """Of row-wise Adagrad's state there is one a row *of a shard*: on column shards it is another optimizer than on whole rows."""
    if layout in (MIXED, MODULES):
        return OPTIMIZERS
    columns_cut = any(s.cols < t.dim for t, p in plan_of(layout, TABLES).by_table.values() for s in p.shards)
    return OPTIMIZERS[:3] if columns_cut else OPTIMIZERS


def train(batches: list[Sample], cases: list[Case]) -> list[Outcome]:
    outcomes = []
    for layout, precision, optimizer in cases:
        tables = stored_as(precision, TABLES)
        if layout == MODULES:
            plan = tower_cases.plan_here(tables, TOWERS, ("table_wise", "row_wise"), "rows")
            outcomes.append(tower_cases.train(plan, batches, optimizer, DENSE, True, precision))
        else:
            plan = placed(tables, HOW_MIXED) if layout == MIXED else plan_of(layout, tables)
            outcomes.append(train_flat(tables, plan, batches, optimizer, DENSE, precision=precision))
    return outcomes


def trains_alike(cases: list[Case]) -> None:
    ranks = run_ranks(train, 2, 2, batches_of(TABLES), cases, timeout_s=500)
    for number, (layout, precision, optimizer) in enumerate(cases):
        expected = trained(TABLES, TOWERS if layout == MODULES else None, precision, optimizer)
        for rank in ranks:
            share = SHARE if precision != FP8 else SHARE_OF_MODULES if layout == MODULES else SHARE_OF_FP8
            check(rank[number], expected, precision, share, f"{layout} {precision.name} {optimizer}")


@pytest.mark.timeout(300)
def test_every_layout_trains_in_every_precision() -> None:
    """Under optimizers in turn."""
    cases: list[Case] = []
    for i, layout in enumerate(LAYOUTS):
        own = optimizers_of(layout)
        cases += [(layout, precision, own[(i + j) % len(own)]) for j, precision in enumerate(CHOICES)]
    trains_alike([*cases, *((layout, FP8, "sgd") for layout in LAYOUTS)])


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_layout_trains_in_every_precision_and_option_under_every_optimizer(optimizer: str) -> None:
    layouts = [layout for layout in LAYOUTS if optimizer in optimizers_of(layout)]
    trains_alike([(layout, precision, optimizer) for layout in layouts for precision in CHOICES + OPTIONS])

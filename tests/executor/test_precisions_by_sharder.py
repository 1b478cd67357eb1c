"""Every way to lay tables out, in every precision, under every optimizer."""

from __future__ import annotations

import pytest

from recsys_lab.precision import Precision
from recsys_lab.tables import Table
from tests.executor import tower_cases
from tests.executor.reference import Outcome, Sample
from tests.executor.seen_part import DENSE, FP16_TABLES, MASTER, SPLIT, batches_of, check, stored_as, trained
from tests.executor.sharded import How, placed
from tests.executor.sharded import train as train_flat
from tests.plan.plans import COMMS
from tests.plan.plans import TORCHREC_SCHEMES as SCHEMES
from tests.ranks import run_ranks

#: One width, as tower modules want it; fewer rows than ranks; two features on one table; a mean.
TABLES = (Table("a", 11, 16, ("fa",)), Table("b", 3, 16, ("fb", "fc"), "mean"), Table("c", 30, 16, ("fd",)))
TOWERS = (("fd", "fa"), ("fb", "fc"))
#: Sharder -> how it lays the tables out; None: in towers, whose modules `dmt` has.
SHARDERS: dict[str, How | None] = {
    **{scheme: {"*": scheme} for scheme in SCHEMES if scheme != "grid_shard"},
    "grid_shard": {"a": "grid_shard", "b": "row_wise", "c": "grid_shard"},
    "mixed": {"a": "row_wise", "b": "data_parallel", "c": "table_wise"},
    "flexshard_2tier": {"a": (4, 0), "b": (1, 0), "c": (7, 0)},
    "flexshard_3tier": {"a": (2, 5), "b": (1, 1), "c": (4, 9)},
    "dmt_sptt": None,
    "dmt": None,
}
COLUMNS_CUT = ("column_wise", "table_column_wise", "grid_shard")
CHOICES = (FP16_TABLES, COMMS, MASTER, SPLIT)
OPTIONS = (
    Precision("split_8", "split_bf16_8", "split_bf16_8", "bf16", dense_comm="bf16"),
    Precision("bf16_alone", "bf16", "bf16", "bf16", dense_comm="bf16"),
)
OPTIMIZERS = ("sgd", "adagrad", "adam", "row_wise_adagrad")
#: A gradient of the dense part, and what travels, is rounded to 8 digits on every rank. Adagrad divides what is near its eps by itself.
SHARE = 2**-4
Case = tuple[str, Precision, str]


def optimizers_of(sharder: str) -> tuple[str, ...]:
    """Of row-wise Adagrad's state there is one a row *of a shard*: on column shards it is another optimizer than on whole rows."""
    return OPTIMIZERS[:3] if sharder in COLUMNS_CUT else OPTIMIZERS


def train(batches: list[Sample], cases: list[Case]) -> list[Outcome]:
    found = []
    for sharder, precision, optimizer in cases:
        tables, how = stored_as(precision, TABLES), SHARDERS[sharder]
        if how is None:
            made = tower_cases.plan_here(tables, TOWERS, ("table_wise", "row_wise"), "rows")
            found.append(tower_cases.train(made, batches, optimizer, DENSE, sharder == "dmt", precision))
        else:
            found.append(train_flat(tables, placed(tables, how), batches, optimizer, DENSE, precision=precision))
    return found


def trains_alike(cases: list[Case]) -> None:
    ranks = run_ranks(train, 2, 2, batches_of(TABLES), cases, timeout_s=500)
    for number, (sharder, precision, optimizer) in enumerate(cases):
        expected = trained(TABLES, TOWERS if sharder == "dmt" else None, precision, optimizer)
        for rank in ranks:
            check(rank[number], expected, precision, SHARE, f"{sharder} {precision.name} {optimizer}")


@pytest.mark.timeout(300)
def test_every_sharder_trains_in_every_precision() -> None:
    """Under optimizers in turn."""
    cases: list[Case] = []
    for i, sharder in enumerate(SHARDERS):
        own = optimizers_of(sharder)
        cases += [(sharder, precision, own[(i + j) % len(own)]) for j, precision in enumerate(CHOICES)]
    trains_alike(cases)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_sharder_trains_in_every_precision_and_option_under_every_optimizer(optimizer: str) -> None:
    sharders = [sharder for sharder in SHARDERS if optimizer in optimizers_of(sharder)]
    trains_alike([(sharder, precision, optimizer) for sharder in sharders for precision in CHOICES + OPTIONS])

"""What trains here when its batch is larger than that of the named cluster: caches hold the rows of the batches in flight."""

from __future__ import annotations

import pytest

from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.experiment import of_words
from recsys_lab.planning import Planned, plan_for, plan_here

WORDS = (
    *("model=dcn", "data=random", "data.rows_per_table=[2000000,1000000]", "optimizer=row_wise_adagrad", "logger=none"),
    *("cluster=h100x8", "cluster.hosts=1", "cluster.ranks_per_host=2", "launcher.hosts=1", "launcher.ranks_per_host=2"),
    *("sharder=neo_4d", "sharder.planner.schemes=[table_wise]", "simulate.batch_size=64"),
)


def both(*more: str) -> tuple[Planned, Planned]:
    """The plan of the named cluster, which has as many ranks, and the one that trains here."""
    experiment = of_words([*WORDS, *more], where="tests")
    data = experiment.open_data()
    named = plan_for(experiment, data)
    return named, plan_here(experiment, data, named, None)


def test_a_larger_batch_has_a_plan_of_its_own() -> None:
    named, here = both("data.batch_size=8192", "sharder.memory_budget_gb=0.03")
    assert named.plan.has_stores and here.plan.has_stores
    assert here is not named and here.workload.batch_size == 4096


@pytest.mark.parametrize("more", [("data.batch_size=128", "sharder.memory_budget_gb=0.03"), ("data.batch_size=8192",)])
def test_else_the_named_plan_trains(more: tuple[str, ...]) -> None:
    named, here = both(*more)
    assert here is named


def test_a_budget_that_is_too_small_for_the_batch_here_is_refused_before_training() -> None:
    with pytest.raises(PlanDoesNotFit, match="rows of the batches in flight"):
        both("data.batch_size=8192", "sharder.memory_budget_gb=0.012")

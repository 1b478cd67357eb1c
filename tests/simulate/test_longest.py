"""The wait for the longest rank: a line, a step and a span of its own, as long as what that rank computes beyond a mean one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recsys_lab.plan.lower import lower
from recsys_lab.plan.steps import WAIT
from recsys_lab.plan.workload import DenseLayer, Workload
from recsys_lab.simulate import simulate
from recsys_lab.simulate.longest import NAME, longest_over_mean
from recsys_lab.simulate.phases import LONGEST
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from recsys_lab.tables.lengths import TOKENS, Lengths, Work
from tests.plan.plans import FP32, plan, workload
from tests.simulate.clusters import cluster, profile

HOSTS, LOCAL, BATCH, LENGTH = 2, 2, 32, 60.0
TABLE = Table("item", 400, 8, ("item",), "none")
ACCESS = AccessStatistics({"item": TableAccess("item", LENGTH, (400,), (LENGTH / 400,), "formula", "uniform")})
PLAN = plan(("row_wise",), HOSTS, LOCAL, (TABLE,))
HISTORY = Lengths.law(LENGTH, 25, 150)
#: Much work, so that compute counts beside exchanges.
WORKLOAD = workload(
    BATCH, forward_flops_per_sample=1e9, backward_flops_per_sample=2e9, history=HISTORY, work=Work(0, 1e6, 1e5), lengths={"item": LENGTH}
)


def simulated(work: Workload, *overlaps: str):
    return simulate(lower(PLAN, ACCESS, FP32, work), cluster(HOSTS, LOCAL), profile(*overlaps), PLAN, work)


@pytest.mark.parametrize("overlaps", [(), ("dense_sync",), ("host", "input", "dense_sync", "bottom")])
def test_the_wait_is_what_the_longest_rank_computes_beyond_a_mean_one(overlaps: tuple[str, ...]) -> None:
    alike, _ = simulated(replace(WORKLOAD, history=None), *overlaps)
    uneven, timeline = simulated(WORKLOAD, *overlaps)
    most = longest_over_mean(WORKLOAD, BATCH, HOSTS * LOCAL)
    assert most is not None and 1 < most.events < most.work
    of_dense = 3e9 * BATCH / (50e12 * 0.4) * 1e3
    assert uneven.phases_ms[LONGEST] == pytest.approx((most.work - 1) * of_dense, rel=0.02)
    assert uneven.phases_ms["compute"] == pytest.approx(alike.phases_ms["compute"])
    assert uneven.iteration_ms == pytest.approx(alike.iteration_ms + uneven.phases_ms[LONGEST], rel=0.01)
    wait = next(event for event in timeline.events if event.step.kind == WAIT)
    before = next(event for event in timeline.events if event.step.name.startswith("dense.backward"))
    gradients = next(event for event in timeline.events if event.step.name == "row_wise.gradient.all_to_all")
    assert wait.step.name == NAME and before.end_ms <= wait.start_ms and wait.end_ms <= gradients.start_ms
    sync = next(event for event in timeline.events if event.step.name == "dense.all_reduce")
    assert sync.end_ms > wait.end_ms  # its last bucket has what the longest rank computed last


def test_without_lengths_nothing_changes() -> None:
    alike = replace(WORKLOAD, history=None)
    for work in (replace(WORKLOAD, history=Lengths.equal(LENGTH)), replace(alike, work=TOKENS)):
        assert simulated(work) == simulated(alike)
    assert LONGEST not in simulated(alike)[0].phases_ms


def test_layers_of_every_event_are_longer_and_those_of_a_sample_are_not() -> None:
    layers = (DenseLayer(LENGTH + 1, 64, 64), DenseLayer(1.0, 640, 640))
    of_layers = [replace(WORKLOAD, layers=own, work=TOKENS, activation_bytes_per_sample=0.0) for own in (layers, layers[:1])]
    of_layers = [replace(one, forward_flops_per_sample=0.0, backward_flops_per_sample=0.0) for one in of_layers]
    both, alone = (simulated(one)[0].phases_ms[LONGEST] for one in of_layers)
    assert both == pytest.approx(alone, rel=1e-6) and alone > 0


@pytest.mark.parametrize("dealt_by", [TOKENS, WORKLOAD.work])
def test_batches_that_are_dealt_out_wait_less(dealt_by: Work) -> None:
    before, after = (simulated(replace(WORKLOAD, dealt_by=by))[0].phases_ms[LONGEST] for by in (None, dealt_by))
    assert after < 0.05 * before


def test_more_ranks_wait_longer_and_larger_batches_less() -> None:
    def ratio(samples: int, ranks: int) -> float:
        most = longest_over_mean(WORKLOAD, samples, ranks)
        return most.work if most else 1.0

    assert ratio(BATCH, 1) == 1 < ratio(BATCH, 2) < ratio(BATCH, 64)
    assert ratio(16 * BATCH, 8) - 1 == pytest.approx((ratio(BATCH, 8) - 1) / 4, rel=0.1)

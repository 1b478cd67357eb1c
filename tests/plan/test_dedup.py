"""Equal ids of a rank's batch travel once: the steps and the memory by hand, and when a plan has it so."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from recsys_lab import api
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.plan.steps import Steps
from recsys_lab.simulate import simulate
from recsys_lab.tables import AccessStatistics, Table, TableAccess, power_law_access
from tests.plan.plans import FP32, flexshard, plan, workload
from tests.simulate.clusters import cluster, profile

RANKS, BATCH, DIM, LENGTH = 4, 32, 8, 20.0
SEQUENCE = Table("item", 400, DIM, ("item",), "none")
#: Of 400 rows: ten with half the look-ups, and the others.
ACCESS = AccessStatistics({"item": TableAccess("item", LENGTH, (10, 390), (1.0, 10 / 390), "formula", "by hand")})
DISTINCT = 10 + 390 * (1 - (1 - 10 / 390) ** BATCH)


def steps_of(scheme: str, dedup: bool, **how) -> Steps:
    return lower(plan((scheme,), 2, 2, (SEQUENCE,)), ACCESS, FP32, workload(BATCH, dedup=dedup), **how)


def total(steps: Steps, name: str, figure: str = "bytes_of_rank") -> float:
    figures = getattr(next(step for step in steps.steps if step.name == name), figure)
    return sum(figures) * (RANKS if len(figures) == 1 else 1)


@pytest.mark.parametrize("scheme", ["row_wise", "table_wise"])
@pytest.mark.parametrize("hot_rows", [False, True])
def test_distinct_ids_rows_and_gradients_travel(scheme: str, hot_rows: bool) -> None:
    steps = steps_of(scheme, True, hot_rows=hot_rows)
    assert total(steps, f"{scheme}.input.ids") == pytest.approx(RANKS * DISTINCT * 8)
    for exchange in ("output", "gradient"):
        assert total(steps, f"{scheme}.{exchange}.all_to_all") == pytest.approx(RANKS * DISTINCT * DIM * 4)
    assert total(steps, f"{scheme}.lookup", "rows_of_rank") == pytest.approx(RANKS * DISTINCT)
    assert total(steps, f"{scheme}.lookup") == pytest.approx(RANKS * DISTINCT * DIM * 4)
    assert total(steps, "input.copy") == total(steps_of(scheme, False), "input.copy")  # the batch holds all its ids


def test_a_rank_makes_ids_distinct_copies_rows_and_sums_gradients() -> None:
    before, steps = steps_of("row_wise", False), steps_of("row_wise", True)
    of_name = {step.name: step for step in steps.steps}
    own = [name for name in of_name if name not in {step.name for step in before.steps}]
    assert own == ["row_wise.input.unique", "row_wise.output.copies", "row_wise.gradient.sums"]
    places = LENGTH * BATCH
    assert of_name[own[0]].bytes_of_rank == (38 * 8 * places,)
    for name in own[1:]:
        assert of_name[name].bytes_of_rank == pytest.approx((DIM * 4 * (DISTINCT + places) + 8 * places,))
    assert of_name["row_wise.input.splits"].after == (own[0],)
    assert of_name["dense.forward"].after == (own[1],) and of_name["row_wise.gradient.all_to_all"].after == (own[2],)
    seen: set[str] = set()
    for step in steps.steps:
        assert set(step.after) <= seen, step.name
        seen.add(step.name)


def test_the_update_moves_as_many_rows_and_adds_fewer_gradients() -> None:
    """Each rank sends a row's gradient once; the rows that move are those of the whole batch."""
    all_ids, once = steps_of("row_wise", False), steps_of("row_wise", True)
    spared = RANKS * (LENGTH * BATCH - DISTINCT) * DIM * 4
    assert total(all_ids, "row_wise.update") - total(once, "row_wise.update") == pytest.approx(spared)


def test_tiers_save_where_rows_travel() -> None:
    sharding = replace(plan(("row_wise",), 2, 2, (SEQUENCE,)), placements=(flexshard(SEQUENCE, 10, 90, 2, 2),))
    steps = lower(sharding, ACCESS, FP32, workload(BATCH, dedup=True))
    cold = 390 * (1 - (1 - 10 / 390) ** BATCH)
    assert total(steps, "replicated.lookup", "rows_of_rank") == RANKS * 10 * BATCH
    assert total(steps, "host_sharded.output.all_to_all") == pytest.approx(RANKS * cold * 90 / 390 * DIM * 4)
    assert total(steps, "row_sharded.output.all_to_all") == pytest.approx(RANKS * cold * 300 / 390 * DIM * 4)
    assert not any(step.name == "replicated.output.copies" for step in steps.steps)


def test_memory_has_distinct_rows_beside_their_copies() -> None:
    """Values and gradients in FP32: the copies of its own rows, those that arrive once, and those that it looks up for four ranks."""
    sharding, lengths = plan(("row_wise",), 2, 2, (SEQUENCE,)), {"item": LENGTH}
    off, on = (
        bytes_of_ranks(sharding, workload(BATCH, lengths=lengths, access=ACCESS.tables, activation_bytes_per_sample=0.0, dedup=dedup))
        for dedup in (False, True)
    )
    all_rows = LENGTH * BATCH
    assert sum(off.buffers) == pytest.approx(RANKS * 2 * 4 * DIM * (all_rows + all_rows), abs=8)
    assert sum(on.buffers) == pytest.approx(RANKS * 2 * 4 * DIM * (all_rows + DISTINCT + DISTINCT), abs=8)
    spread = [max(one.buffers) - min(one.buffers) for one in (off, on)]
    assert spread[1] < 0.5 * spread[0], "a hot row is asked for once a rank"


def test_the_law_tells_distinct_rows_of_drawn_batches() -> None:
    law, draw = power_law_access("t", 1000, 12.0, 1.2), np.random.default_rng(2)
    p = np.repeat(law.bucket_p, law.bucket_rows) / 12.0
    seen = [len(np.unique(draw.choice(1000, 12 * 64, p=p / p.sum()))) for _ in range(50)]
    assert law.distinct_rows(64) == pytest.approx(np.mean(seen), rel=0.02)
    once = law.once_a_batch(64)
    assert once.mean_length * 64 == pytest.approx(law.distinct_rows(64)) and max(once.bucket_p) <= 1 / 64


def test_it_is_simulated_faster_where_ids_repeat() -> None:
    """And not where hardly any does: copies cost more than they save."""
    on, lengths = cluster(2, 2), {"item": LENGTH}

    def ms(dedup: bool, rows: int) -> float:
        table, work = replace(SEQUENCE, dim=512, rows=rows), workload(1024, lengths=lengths, dedup=dedup)
        sharding, law = plan(("row_wise",), 2, 2, (table,)), AccessStatistics({"item": power_law_access("item", rows, LENGTH, 0.0)})
        return simulate(lower(sharding, law, FP32, work), on, profile(), sharding, work)[0].iteration_ms

    assert ms(True, 1000) < 0.7 * ms(False, 1000)
    assert ms(True, 10**7) > ms(False, 10**7)


def test_auto_takes_the_faster_and_says_what_bags_cannot_have() -> None:
    words = ["model=hstu", "mode=simulate", "data=random", "sharder=torchrec_row_wise", "cluster=h100x8"]
    of = {dedup: api.plan(*words, f"sharder.dedup={dedup}") for dedup in ("false", "true", "auto")}
    assert [of[dedup].workload.dedup for dedup in of] == [False, True, True]
    assert of["auto"].steps == of["true"].steps != of["false"].steps
    assert not api.plan("model=dlrm", "mode=simulate", "data=random", "cluster=h100x8", "sharder.dedup=auto").workload.dedup

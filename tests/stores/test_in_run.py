"""What is simulated of a step early in a run, beside the long run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from recsys_lab.base.store_names import places_of
from recsys_lab.experiment import Experiment, of_words
from recsys_lab.plan.store_facts import expected_counts, files_of, samples_of
from recsys_lab.planning import Planned, in_run, plan_for, price
from recsys_lab.record.run_folder import read_run
from recsys_lab.report.sections import headline
from recsys_lab.tables.cache_hits import cache_hits
from tests.record.fake_run import make_result, write_run

ROWS = "name,rows,dim,mean_ids,pooling,skew\na,600000,64,4,sum,1.05\nb,400000,64,4,sum,0.8\n"


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Experiment, Planned]:
    file = tmp_path_factory.mktemp("tables") / "tables.csv"
    file.write_text(ROWS)
    line = ["model=tables", f"model.file={file}", "data.rows_train=10000", "data.rows_validation=64", "logger=none", "data.batch_size=128"]
    line += ["sharder=neo_4d", "sharder.memory_budget_gb=0.08", "sharder.store=disk_cached", "optimizer=row_wise_adagrad"]
    line += ["launcher.hosts=1", "launcher.ranks_per_host=2", "trainer.max_epochs=3"]
    experiment = of_words(line, where="test")
    return experiment, plan_for(experiment, experiment.open_data())


def test_so_many_steps_as_the_training_has(planned: tuple[Experiment, Planned]) -> None:
    experiment, _ = planned
    data = experiment.open_data()
    assert experiment.train_steps(data) == 3 * math.ceil(10_000 / 128)
    assert replace(experiment, trainer=replace(experiment.trainer, max_steps=7)).train_steps(data) == 7


def test_early_on_less_is_read_and_later_what_the_long_run_reads(planned: tuple[Experiment, Planned]) -> None:
    experiment, plan = planned
    assert plan.plan.has_stores
    early, late = (in_run(experiment, plan, steps) for steps in (4000, 20_000_000))
    long = price(plan, experiment.profile)[0]
    one_way = sum(one.bytes_moved for one in plan.stores) / 2
    assert early.steps == 4000 and 0.01 * one_way < early.bytes_read < 0.8 * one_way and early.iteration_ms <= long.iteration_ms
    assert late.bytes_read == pytest.approx(one_way, rel=0.02) and late.bytes_written == pytest.approx(one_way, rel=0.02)
    assert late.iteration_ms == pytest.approx(long.iteration_ms, rel=0.02)


def test_what_is_in_files_is_what_was_missed_and_no_longer_fits_the_caches(planned: tuple[Experiment, Planned]) -> None:
    """By the misses that runs are held against."""
    _, plan = planned
    how, steps = (plan.plan, plan.access, plan.workload.batch_size, plan.executor.in_flight), 1500
    missed = sum(one["misses_expected"] * steps for rank in (0, 1) for one in expected_counts(*how, rank, steps).values())
    written = sum(files_of(plan.plan, plan.access, plan.workload, plan.executor.in_flight, steps).bytes) / 260
    cached = sum(p.store.cached_share * t.rows for t, p in zip(plan.tables, plan.plan.placements) if p.store is not None)
    assert 0 < written < cached and written == pytest.approx(missed - cached, rel=0.05)


def test_expected_counts_are_a_mean_over_steps_however_many(planned: tuple[Experiment, Planned]) -> None:
    _, plan = planned
    how = (plan.plan, plan.access, plan.workload.batch_size, plan.executor.in_flight)
    first, two, long, longer = (expected_counts(*how, 0, steps) for steps in (1, 2, 10**9, 10**12))
    for table, placement in zip(plan.plan.tables, plan.plan.placements):
        if table.name not in first:
            continue
        assert placement.store is not None
        share = sum(shard.rows for shard in placement.shards if 0 in shard.ranks) / table.rows
        samples, cached = samples_of(placement, plan.plan.world_size, how[2]), placement.store.cached_share * table.rows
        second = cache_hits(plan.access[table.name], placement.store.policy, samples, cached, how[3], 1.0).hits * share
        assert two[table.name]["hits_expected"] == pytest.approx((first[table.name]["hits_expected"] + second) / 2)
        assert longer[table.name]["hits_expected"] == pytest.approx(long[table.name]["hits_expected"], rel=0.01)


def test_files_grow_until_they_are_full(planned: tuple[Experiment, Planned]) -> None:
    _, plan = planned
    files = [files_of(plan.plan, plan.access, plan.workload, plan.executor.in_flight, n) for n in (0, 50, 500, 2_000_000)]
    sizes, stored = [sum(one.bytes) for one in files], {one.table for one in plan.stores}
    shards = [s.rows for t, p in zip(plan.tables, plan.plan.placements) for s in p.shards if t.name in stored]
    assert sizes[0] < sizes[1] < sizes[2] < sizes[3] == pytest.approx(sum(places_of(rows) * 260 for rows in shards))
    assert not any(files[2].rewritten) and min(one for one in files[3].rewritten if one) > 1


def test_records_and_reports_have_it_where_it_is(planned: tuple[Experiment, Planned], tmp_path: Path) -> None:
    made = make_result()
    assert made.simulated is not None and "in_run" not in made.to_json()["simulated"]
    with_it = replace(made, simulated=replace(made.simulated, in_run=in_run(*planned, 40)))
    write_run(tmp_path, with_it)
    rows = [row[0] for row in headline(read_run(tmp_path)).rows]
    assert "iteration, mean of this run's 40 steps" in rows

"""Neo's models are those of its table 3, and its studies price what they say."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from experiments.neo import stages
from experiments.neo.model_f import PAPER
from experiments.neo.model_i import AS_IT_IS, QUICK, share_for, values_mb
from experiments.neo.priced import Case, cluster, priced, published, tables_of_case, with_ids_of
from experiments.neo.write_models import FREE, ROOT, dims_of, products, text_of, whole
from recsys_lab.base.store_names import HOST, HOST_CACHED
from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.models.choice import ModelChoice
from recsys_lab.models.workload import describe
from recsys_lab.plan import Step, Steps
from recsys_lab.plan.memory import bytes_of_ranks, check_fits
from recsys_lab.simulate.collectives import Shape, group_ms
from recsys_lab.tables import Table


def file_of(name: str) -> Any:
    config = OmegaConf.load(ROOT / "conf" / "model" / f"{name}.yaml")
    return OmegaConf.masked_copy(config, [key for key in config if key != "defaults"])


@pytest.mark.parametrize("name", sorted(FREE))
def test_the_files_are_as_they_are_written_and_as_published(name: str) -> None:
    row, free = published()["table3"][name], FREE[name]
    assert (ROOT / "conf" / "model" / f"{name}.yaml").read_text() == text_of(name, row, free)
    model = file_of(name)
    rows, dims = list(model.rows), list(model.dims or [model.embedding_dim] * len(model.rows))
    layers = [*model.bottom_layers, *model.over_layers]
    assert (min(dims), max(dims)) == tuple(row["columns"]) and sum(dims) / len(dims) == row["dim"]
    assert sum(model.lengths) / len(rows) == row["length"] and len(rows) == free.tables
    assert len(layers) == row["layers"] and sum(layers) / len(layers) == pytest.approx(row["layer"])
    forward = products(sum(dims), list(model.bottom_layers), list(model.over_layers), free)
    assert 2 * forward / 1e6 == pytest.approx(row["flops"], rel=1e-3)
    assert sum(r * d for r, d in zip(rows, dims)) + forward + sum(layers) == pytest.approx(row["parameters"], rel=1e-6)


def test_products_are_the_flops_that_are_counted_on_the_module() -> None:
    model = file_of("neo_f")
    tables = tuple(Table(f"cat_{i}", 10, model.embedding_dim, (f"cat_{i}",)) for i in range(len(model.rows)))
    cost = describe(ModelChoice.of(model).build(tables, model.dense_features, torch.device("meta")), model.dense_features)
    flops = products(sum(t.dim for t in tables), list(model.bottom_layers), list(model.over_layers), FREE["neo_f"])
    assert cost.forward_flops_per_sample == 2 * flops


def test_spreads_keep_their_sums_and_bounds() -> None:
    assert dims_of(1000, (4, 384), 93).sum() == 93_000
    counts = whole(torch.arange(1.0, 50.0).double().numpy(), 700, 1, 40)
    assert counts.sum() == 700 and counts.min() >= 1 and counts.max() <= 40


def test_the_readings_of_mad_max_s_split_hold() -> None:
    """638 MFLOP is forward alone: three times that at its utilisation is its 8.9 ms, and gradients of half as many weights its 21.3 ms."""
    split, flops = published()["figure10"]["mad_max"], published()["table3"]["neo_a"]["flops"] * 1e6
    on = cluster(16)
    assert 3 * flops * 512 / (0.705 * on.device.peak_tflops["tf32"] * 1e12) * 1e3 == pytest.approx(split["dense"], rel=0.01)
    assert group_ms("all_reduce", Shape(128, 16, 8), flops / 2 * 4, on) == pytest.approx(split["all_reduce"], rel=0.05)


def test_model_f_is_in_the_memory_of_16_hosts_and_their_devices() -> None:
    """A row is 512 bytes and a state: 24.19 TB, which 24 TB of host memory do not hold. A rank has a block of each table, and what leaves
    its device is that block whole, cached rows included.
    """
    tables, _ = tables_of_case(PAPER)
    answer, on = priced(PAPER), cluster(16)
    assert sum(516 * table.rows for table in tables) == 24_187_494_955_584 > 16 * 1.5e12
    check_fits(answer.plan, answer.workload, on)
    away = [table for table, placement in zip(answer.plan.tables, answer.plan.placements) if placement.store is not None]
    of_rank = bytes_of_ranks(answer.plan, answer.workload).beneath
    assert of_rank[0] == sum(516 * math.ceil(table.rows / 128) for table in away) and sum(of_rank) == 516 * sum(t.rows for t in away)
    assert {p.scheme for p in answer.plan.placements} == {"row_wise"} and 8 * max(of_rank) < 1.5e12 and 0 < len(away) < len(tables)


def test_rows_of_model_f_read_in_host_memory_cost_their_bytes_over_the_link() -> None:
    """64 K samples, 512 bytes a look-up, 128 ranks at 80 % of 31 GB/s each; a cache's rows come beside the exchanges."""
    direct, cached = (priced(replace(PAPER, store=store)) for store in (HOST, HOST_CACHED))
    away = [table.name for table, placement in zip(direct.plan.tables, direct.plan.placements) if placement.store is not None]
    _, access = tables_of_case(PAPER)
    (fetch,) = (event for event in direct.timeline.events if event.step.kind == "fetch")
    read = 65_536 * sum(access[name].mean_length for name in away) * 512 / 128
    assert fetch.step.max_bytes == pytest.approx(read, rel=1e-7) and fetch.ms == pytest.approx(read / (0.8 * 31e9) * 1e3, rel=1e-6)
    exposed, compute = ([answer.simulated.phases_ms[name] for answer in (direct, cached)] for name in ("exposed_store", "compute"))
    assert exposed[0] > fetch.ms and exposed[1] == 0.0
    assert direct.ms - cached.ms == pytest.approx(exposed[0] + compute[0] - compute[1], rel=1e-6)


def test_ids_of_4_bytes_halve_the_exchange_of_ids_alone() -> None:
    ids = Step("whole.input.ids", "all_to_all", "input", (8.0, 16.0), ((0, 1),), received_of_rank=(16.0, 8.0))
    rows = Step("whole.output.all_to_all", "all_to_all", "forward", (8.0,), ((0, 1),))
    made = with_ids_of(Steps(2, 1, (ids, rows)), 4).steps
    assert (made[0].bytes_of_rank, made[0].received_of_rank, made[1]) == ((4.0, 8.0), (8.0, 4.0), rows)
    assert with_ids_of(Steps(2, 1, (ids, rows)), 8).steps == (ids, rows)


def test_model_a_exchanges_more_than_model_i_as_section_8_3_says() -> None:
    assert values_mb("neo_a") > values_mb("neo_i")


def test_a_share_of_the_memory_bandwidth_makes_one_host_as_slow_as_asked() -> None:
    share = share_for(AS_IT_IS, 57.8)
    one = replace(AS_IT_IS, hosts=1)
    assert 0.1 < share < 0.4 and abs(priced(replace(one, lookups=(share, share))).ms - 57.8) < 0.1
    assert abs(share_for(AS_IT_IS, priced(replace(one, lookups=(QUICK, QUICK))).ms) - QUICK) < 0.001


def test_tables_that_are_left_out_leave_their_rows_to_the_others() -> None:
    every, half = (tables_of_case(case)[0] for case in (AS_IT_IS, replace(AS_IT_IS, every=2)))
    assert [t.name for t in half] == [t.name for t in every[::2]]
    assert [t.rows for t in half] == [2 * t.rows for t in every[::2]]


def test_memory_that_is_kept_from_tables_makes_the_rest_fuller() -> None:
    """As figure 11 fills it, so that FP32 tables leave no room to balance them."""
    one = replace(AS_IT_IS, hosts=1)
    free, kept = priced(one), priced(replace(one, reserved=0.5))
    assert kept.plan.placements == free.plan.placements and kept.memory_share == pytest.approx(free.memory_share * 0.85 / 0.5, rel=1e-6)
    with pytest.raises(PlanDoesNotFit):
        priced(replace(one, reserved=0.95))


def test_figure_11_goes_stage_by_stage_without_what_the_paper_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    cases: dict[str, Case] = {}
    one = priced(replace(AS_IT_IS, hosts=1))
    monkeypatch.setattr(stages, "_priced", lambda given, what: cases.update(given) or dict.fromkeys(given, one))
    study = stages.figure11("figure11", placement="greedy", even_out=False, reserved_memory_share=0.2)
    assert [case.schemes for case in cases.values()] == [("table_wise",), *[stages.FOUR_D] * 4]
    assert {(case.placement, case.even_out, case.reserved) for case in cases.values()} == {("greedy", False, 0.2)}
    assert [case.precision.table for case in cases.values()] == ["fp32", "fp32", "fp16", "fp16", "fp16"]
    gains = {line.what: line.published for line in study.lines if line.unit == "%"}
    assert [figure for figure in gains.values() if figure] == [20, 20, 30, 87] and len(gains) == 6

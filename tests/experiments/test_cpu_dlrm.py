"""The CPU DLRM paper's tables, counted on the models that run; what its commands print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from experiments.cpu_dlrm import (
    command,
    figure5,
    figure6,
    figure7,
    figure8,
    figure10,
    figure16,
    fp16_comms,
    quality,
    scaling,
    sockets,
    tables,
)
from recsys_lab.errors import UserError
from recsys_lab.record.metrics_csv import MetricsCsv
from recsys_lab.record.result import Collective, write_result
from tests.record.fake_run import make_result

MIB = 1 << 20


@pytest.mark.parametrize("name", list(tables.NAMES))
def test_what_the_models_move_is_what_table_2_prints(name):
    """To the last printed digit, but for the small model's all-to-all, which equation 2 gives as 16 MiB."""
    counts, printed = tables.count(name), tables.published()["table2"][name]
    digits = 1 if printed["all_reduce_mb"] < 100 else 0
    assert round(counts.all_reduce_bytes / MIB, digits) == printed["all_reduce_mb"]
    assert counts.tables == printed["ranks"]
    expected = 16.0 if name == "dlrm_small" else printed["all_to_all_mb"]
    assert counts.all_to_all_bytes / MIB == expected == pytest.approx(printed["all_to_all_mb"], rel=0.013)


def test_memory_is_what_table_2_prints_in_its_two_units():
    memory = {name: tables.count(name).memory_bytes for name in tables.NAMES}
    assert (memory["dlrm_small"] / 1024e6, memory["dlrm_large"] / 1024e6) == (2, 384)
    assert memory["dlrm_mlperf"] / (1 << 30) == pytest.approx(98, abs=0.7)


@pytest.mark.parametrize("name", list(tables.NAMES))
def test_the_all_to_all_is_what_the_steps_move(name):
    """Equation 2 is what all ranks together put into the exchange that an executor does."""
    from recsys_lab.plan import Placement, Shard, ShardingPlan, Workload
    from recsys_lab.plan.lower import lower
    from recsys_lab.precision import Precision
    from recsys_lab.tables import AccessStatistics, Table, TableAccess

    model, printed, ranks = tables.config_of(name), tables.published()["table1"][name], 4
    tables_of_model = tuple(Table(f"t{i}", rows, model.embedding_dim, (f"f{i}",)) for i, rows in enumerate(model.rows))
    placements = tuple(Placement(t.name, "table_wise", (Shard((i % ranks,), 0, t.rows, 0, t.dim),)) for i, t in enumerate(tables_of_model))
    access = AccessStatistics(
        {
            t.name: TableAccess(t.name, float(length), (t.rows,), (length / t.rows,), "formula", "uniform")
            for t, length in zip(tables_of_model, model.lengths)
        }
    )
    workload = Workload(printed["batch_strong"] // ranks, 1, 1.0, 1.0, 1.0, "sgd", "sgd")
    for exchange in ("all_to_all", "scatter_list", "fused_scatter"):
        steps = lower(
            ShardingPlan("by_hand", 1, ranks, tables_of_model, placements), access, Precision("fp32"), workload, exchange=exchange
        )
        moved = sum(step.bytes_on(rank) for step in steps.collectives if ".output." in step.name for rank in range(ranks))
        assert moved == tables.count(name).all_to_all_bytes


def test_table_1_is_what_the_configs_say_but_for_mlperfs_top_mlp(capsys):
    assert command.main(["table1", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    odd = {line["what"] for line in record["lines"] if line["ours"] != line["published"]}
    assert odd == {"MLPerf: layers of the top MLP", "MLPerf: widest of the top MLP"}
    assert command.main(["table2"]) == 0
    output = capsys.readouterr().out
    assert "9.5 | 9.533" in output and "1,024 | 1,024" in output


def test_figure_5_sets_each_product_against_the_peak(tmp_path):
    """On one small size, and without a word on how fast it is."""
    study = figure5.run("figure5", rounds=1, threads=1, widths=[256])
    assert all(path.stat().st_size > 10_000 for path in study.draw(tmp_path))
    record = study.to_json()
    assert record["peak_gflop_s"]["fp32"] > 0
    lines = {line["what"]: line for line in record["lines"]}
    formats = len(record["peak_gflop_s"])
    assert len(lines) == formats * 2 * (1 + 3) and all(line["ours"] > 0 and line["ours_origin"] == "measured" for line in lines.values())
    assert [lines[f"{whose}, fp32: mean of all"]["published"] for whose in ("ours", "torch")] == [72, 61]


@pytest.mark.parametrize(
    ("name", "shapes", "part"),
    [
        ("aten::add", [[1000000, 64], [1000000, 64]], "embeddings"),
        ("aten::_embedding_bag", [[1000000, 64], [102400], [2048]], "embeddings"),
        ("aten::index_select", [[2048, 64], [], [102400]], "embeddings"),
        ("aten::index_select", [[2048, 81], [], [36]], "rest"),
        ("Optimizer.step#SparseOptimizer.step", [], "embeddings"),
        ("mkldnn::_linear_pointwise", [[2048, 1024], [1024, 1024]], "MLPs"),
        ("aten::mm", [[1024, 2048], [2048, 1024]], "MLPs"),
        ("aten::bmm", [[2048, 9, 64], [2048, 64, 9]], "rest"),
    ],
)
def test_figure_8_knows_what_an_operation_is_for(name, shapes, part):
    assert figure8.part_of(name, shapes, {1000000}, {102400}) == part


def test_figures_7_and_8_say_what_was_measured(monkeypatch, tmp_path):
    ms, least = {"torch": 200.0, "fp32": 100.0, "split_sgd_bf16": 50.0}, {"fp32": 80.0, "split_sgd_bf16": 40.0}
    times = {"ms": ms, "limit_ms": least, "fp32_vs_torch": 2.0, "split_sgd_bf16_vs_torch": 4.0}
    monkeypatch.setattr(figure7, "benchmark", lambda script, rounds: times)
    before_after = figure7.run("figure7")
    assert [line.ours for line in before_after.lines if line.published == 110] == [2.0]
    monkeypatch.setattr(figure8.one_machine, "alone", lambda: None)
    monkeypatch.setattr(figure8.dlrm_contenders, "problem", lambda *words: words)
    monkeypatch.setattr(figure8, "shares_of", lambda figures, contender: {"embeddings": 15.0, "MLPs": 80.0, "rest": 5.0})
    shares = figure8.run("figure8")
    assert [line.error for line in shares.lines if line.published] == [-15.0] and shares.statements[0][1]
    for study in (before_after, shares):
        assert all(path.stat().st_size > 10_000 for path in study.draw(tmp_path))


@pytest.mark.long
def test_scaling_is_predicted_without_the_figure_that_it_predicts():
    lines = {line.what: line for line in scaling.run("figure9").lines}
    predicted, on_file = (lines[f"MLPerf, strong scaling to 26 sockets: {how}"] for how in ("predicted", "on file"))
    assert predicted.published == on_file.published == 8.5 and predicted.ours != on_file.ours
    assert on_file.by_construction and not predicted.by_construction


def fake(run: quality.Run, auc: float, collectives: Sequence[Collective] = ()) -> None:
    run.folder.mkdir(parents=True)
    (run.folder / "overrides.json").write_text(json.dumps(list(run.overrides)))
    record = make_result(seed=run.seed, auc=auc)
    quality = {"validation": {"auc": auc, "ne": 1 - auc}}
    write_result(run.folder, replace(record, quality=quality, measured=replace(record.measured, collectives=list(collectives))))
    log = MetricsCsv(run.folder)
    for step in (10, 20, 30):
        log.append({"step": step, "epoch": 0, "train_loss": 1 / step, "validation_auc": auc - 1 / step})


def test_figure_16_pairs_seeds_and_says_whether_the_bound_holds(tmp_path):
    runs = figure16.runs_of(9, 2, tmp_path, None)
    assert len(runs) == 2 * 9 + 4 * 2
    for one in runs:
        fake(one, 0.8 + one.seed / 100 + (0.0001 * (-1) ** one.seed if one.variant != "fp32" else 0))
    assert all(one.is_done for one in runs)
    record = figure16.run("figure16", seeds=9, others=2, runs=str(tmp_path)).to_json()  # nothing is left to run
    assert [one["holds"] for one in record["statements"]] == [True, False, False]  # both controls are as good, and of two seeds
    split = next(one for one in record["compared"] if one["variant"] == "split_sgd_bf16")
    assert len(split["differences"]) == 9 and split["low"] <= 0 <= split["high"] and split["confidence"] > 0.95
    assert split["ne"]["value"] == pytest.approx(-split["value"])
    changed = runs[0].__class__(**{**vars(runs[0]), "overrides": (*runs[0].overrides, "seed=99")})
    assert not changed.is_done


def test_figure_16_says_where_the_bound_does_not_hold_and_draws(tmp_path):
    runs = figure16.runs_of(3, 0, tmp_path, None)
    for one in runs:
        fake(one, 0.8 + (0.001 if one.variant != "fp32" else 0))
    study = figure16.study_of("figure16", runs)
    assert not study.statements[0][1]
    assert all(path.stat().st_size > 10_000 for path in study.draw(tmp_path))


def test_a_control_of_figure_16_falls_short_where_its_interval_does(tmp_path):
    runs = figure16.runs_of(6, 6, tmp_path, None)
    assert all({*figure16.SGD} <= {*one.overrides} for one in runs)
    for one in runs:
        worse = {"split_8": 0.001, "fp16_stochastic": 0.001 * (-1) ** one.seed}
        fake(one, 0.8 + one.seed / 100 - worse.get(one.variant, 0))
    assert [holds for _, holds in figure16.study_of("figure16", runs).statements] == [True, True, False]


def test_the_bound_is_for_the_interval_not_for_its_middle(tmp_path):
    """Differences with a mean of nearly nothing that are each far from it are no evidence."""
    runs = figure16.runs_of(9, 0, tmp_path, None)
    for one in runs:
        fake(one, 0.8 + (0.01 * (-1) ** one.seed if one.variant != "fp32" else 0))
    assert not figure16.study_of("figure16", runs).statements[0][1]


def test_fp16_comms_says_whether_quality_and_bytes_are_as_they_should_be(tmp_path):
    runs = fp16_comms.runs_of(9, tmp_path, None)
    for one in runs:
        of_rows = 100 if one.variant == "fp32" else 50
        ids = Collective("row_wise.input.ids", "all_to_all", "0-3", 8, 1.0)
        fake(one, 0.8 + one.seed / 100, [ids, Collective("row_wise.output.reduce_scatter", "reduce_scatter", "0-3", of_rows, 1.0)])
    study = fp16_comms.run("fp16_comms", seeds=9, runs=str(tmp_path))  # nothing is left to run
    assert [holds for _, holds in study.statements] == [True, True]
    record = json.loads((runs[1].folder / "result.json").read_text())
    record["measured"]["collectives"][1]["bytes"] = 100
    (runs[1].folder / "result.json").write_text(json.dumps(record))
    assert [holds for _, holds in fp16_comms.study_of("fp16_comms", runs).statements] == [True, False]


@pytest.mark.parametrize("name", ["figure16", "fp16_comms"])
def test_quality_wants_a_seed(name):
    with pytest.raises(UserError, match="seeds"):
        command.main([name, "--seeds", "0"])


def test_figures_10_and_11_take_an_iteration_apart(monkeypatch, tmp_path):
    times = {"iteration": 60.0, "embedding.preparation": 3.0, "embedding.waiting": 6.0, "embedding.transfer": 20.0}
    times |= {"dense.waiting": 4.0, "dense.transfer": 9.0}
    monkeypatch.setattr(figure10, "measured", lambda ranks, rounds: {"small": [times] * len(figure10.CASES)})
    study = figure10.run("figure10", rounds=1, ranks=[2])
    values = {line.what: line.ours for line in study.lines}
    assert values["small, 2 ranks, overlap, scatter_list: communication"] == 13 and len(values) == 3 * 6
    assert values["small, 2 ranks, blocking, all_to_all: compute"] == 47
    assert all(path.stat().st_size > 10_000 for path in study.draw(tmp_path))
    parts = [line.ours for line in figure10.run("figure11", rounds=1, ranks=[2]).lines[:5]]
    assert parts == [3.0, 6.0, 20.0, 4.0, 9.0]


@pytest.mark.long
def test_figures_10_and_11_are_measured_on_processes(monkeypatch):
    small = ("model=dlrm_small", f"model.rows={[200] * 8}", "data.batch_size=64", "data.distinct_rows=512")
    monkeypatch.setattr(figure10, "MODELS", {"tiny": small})
    times = figure10.measured(2, 1)["tiny"]
    assert len(times) == len(figure10.CASES)
    assert all(one["iteration"] > one["embedding.waiting"] + one["embedding.preparation"] > 0 for one in times)


def test_figure_6_is_five_products_and_a_ring_of_their_gradients() -> None:
    """By hand: 10.57 GFLOP at 72 % of 24 of 28 cores' 4.1 TFLOP/s; 7 eighths of 21 MB at 11 GB/s, and what a ring's copies and hops add."""
    study = figure6.run("figure6")
    by_data, by_weights, one, other = study.lines
    assert by_data.ours == by_weights.ours == pytest.approx(2 * 1008 * 5 * 1024**2 / (4.1e9 * 0.72 * 0.857), rel=1e-3)
    wire_ms = 7 / 8 * 5 * 1024**2 * 4 / 11e6
    assert one.ours == other.ours and wire_ms < one.ours < 1.5 * wire_ms
    assert [line.published for line in study.lines] == [5.40, 5.39, 2.84, 1.86]


def test_overlap_hides_communication_and_leaves_compute() -> None:
    """MLPerf on two sockets of the cluster: the same steps, blocking and beside compute; a blocking iteration waits for all of them."""
    blocking, beside = (sockets.parts("dlrm_mlperf", "clx64", 2, 4096, overlap=overlap) for overlap in (False, True))
    assert beside.compute == pytest.approx(blocking.compute) and beside.iteration < blocking.iteration
    assert beside.exposed_all_reduce < blocking.exposed_all_reduce <= blocking.all_reduce
    assert blocking.communication <= blocking.exchange + blocking.all_reduce

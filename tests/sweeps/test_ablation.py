"""The ablation table: folding against NumPy, failures said, and written at the end of a real Hydra sweep."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy.stats import wilcoxon

from recsys_lab.errors import UserError
from recsys_lab.record.result import Pruned, write_result
from recsys_lab.sweeps.ablation import print_ablation, read_ablation, write_ablation
from recsys_lab.sweeps.cells import change_tables, comparison_tables, value_tables
from tests.record.fake_run import failed, make_result, write_run

SIX = [0.70, 0.71, 0.72, 0.73, 0.74, 0.76]
AUCS = {("dlrm", "torchrec"): [0.71, 0.74, 0.72], ("dcn", "torchrec"): [0.75, 0.73, 0.77]}
ROOT = Path(__file__).resolve().parents[2]


def sweep(folder: Path, aucs=AUCS, extra=("trainer.max_steps=10",)) -> Path:
    job = 0
    for (model, sharder), values in aucs.items():
        for seed, auc in enumerate(values, start=1):
            result = make_result(seed=seed, auc=auc or 0.5, model=model, sharder=sharder)
            overrides = [f"model={model}", f"sharder={sharder}", *extra, f"seed={seed}", f"hydra.sweep.dir={folder}"]
            write_run(folder / str(job), result if auc else failed(result, "no | room"), overrides)
            job += 1
    return folder


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "ablation.csv").open() as file:
        return list(csv.DictReader(file))


def test_seeds_fold_to_median_and_range(tmp_path):
    write_ablation(sweep(tmp_path / "s"))
    rows = rows_of(tmp_path / "s")
    assert [row["model"] for row in rows] == ["dlrm", "dcn"] and "sharder" not in rows[0]  # it does not vary
    for row, values in zip(rows, AUCS.values()):
        assert float(row["validation_auc_median"]) == np.median(values)
        assert float(row["validation_auc_min"]) == min(values) and float(row["validation_auc_max"]) == max(values)
        assert row["seeds"] == row["completed"] == "3" and row["status"] == "completed" and not row["error"]
    assert "test_auc_median" not in rows[0]


def test_measured_and_simulated_have_columns_of_their_own(tmp_path):
    write_ablation(sweep(tmp_path / "s"))
    row = rows_of(tmp_path / "s")[0]
    assert float(row["measured_iteration_ms_median"]) == 24.8 and float(row["simulated_iteration_ms_median"]) == 2.4
    assert not [name for name in row if "iteration" in name and not name.startswith(("measured_", "simulated_"))]


def test_a_failed_configuration_keeps_its_row_and_its_reason(tmp_path):
    folder = sweep(tmp_path / "s", {("dlrm", "torchrec"): [0.7, None, 0.72], ("dcn", "torchrec"): [None, None, None]})
    (folder / "5/result.json").unlink()
    write_ablation(folder)
    partly, wholly = rows_of(folder)
    assert partly["status"] == "2 of 3 seeds completed" and partly["error"] == "UserError: no | room"
    assert float(partly["validation_auc_median"]) == pytest.approx(0.71)
    assert wholly["status"] == "failed" and wholly["completed"] == "0" and wholly["validation_auc_median"] == ""
    assert wholly["error"] == "seeds 1, 2: UserError: no | room; seed 3: ended before its record was written"
    markdown = (folder / "ablation.md").read_text()
    assert "no \\| room" in markdown and "failed" in markdown and "failed" in (folder / "ablation.html").read_text()


@pytest.mark.parametrize(
    "baseline", ["model=dlrm", "model=dlrm,sharder=torchrec", "model=dlrm, trainer.max_steps=10", "model=dlrm,cluster=h100x64"]
)
def test_a_baseline_by_override_choice_or_config(tmp_path, baseline):
    write_ablation(sweep(tmp_path / "s"), baseline)
    base, other = rows_of(tmp_path / "s")
    assert float(base["validation_auc_difference"]) == 0 and float(base["measured_examples_per_second_ratio"]) == 1
    assert float(other["validation_auc_difference"]) == pytest.approx(0.75 - 0.72)


@pytest.mark.parametrize(("baseline", "count"), [("model=hstu", "none"), ("sharder=torchrec", "2")])
def test_a_baseline_that_fits_no_row_or_all_is_said_and_the_table_still_written(tmp_path, baseline, count):
    write_ablation(sweep(tmp_path / "s"), baseline)
    assert f"fits {count} of the 2 rows" in (tmp_path / "s/ablation.md").read_text()
    assert "validation_auc_difference" not in rows_of(tmp_path / "s")[0]


def test_what_is_no_terminal_gets_80_columns(tmp_path, capsys):
    print_ablation(write_ablation(sweep(tmp_path / "s"), "model=dlrm"))
    out = capsys.readouterr().out
    table = [line for line in out.splitlines() if not line.startswith("written:")]
    assert max(map(len, table)) <= 80 and "[" not in out and "seeds " not in table[2]
    for words in (
        "0.7200",
        "median over 3 seeds",
        "Change from the baseline: quality, validation (measured)",
        "+0.0300",
        "3 paired seeds cannot show any difference at 5%, however large it is; at least 6 are needed",
        " baseline ",
        "109.2 M",
        "every job: sharder=torchrec trainer.max_steps=10",
    ):
        assert words in " ".join(out.split())


def test_a_change_too_small_to_write_is_written(tmp_path, capsys):
    print_ablation(write_ablation(sweep(tmp_path / "s", {("dlrm", "a"): [0.7], ("dcn", "a"): [0.7 - 2e-6]}), "model=dlrm"))
    assert "-2e-06" in (out := capsys.readouterr().out) and "-0.0000" not in out


def test_a_failed_configuration_says_why_in_the_terminal(tmp_path, capsys):
    print_ablation(write_ablation(sweep(tmp_path / "s", {("dlrm", "a"): [0.7], ("dcn", "a"): [None]})))
    assert "failed: UserError: no | room" in " ".join(capsys.readouterr().out.split())


def test_seeds_alone_are_one_row(tmp_path):
    write_ablation(sweep(tmp_path / "s", {("dcn", "torchrec"): [0.7, 0.8]}))
    (row,) = rows_of(tmp_path / "s")
    assert row["seeds"] == "2" and float(row["validation_auc_median"]) == pytest.approx(0.75)


def test_ten_jobs_stay_in_the_order_they_ran(tmp_path):
    aucs = {(f"m{i}", "torchrec"): [0.7] for i in range(12)}
    ablation = read_ablation(sweep(tmp_path / "s", aucs))
    assert [row.overrides["model"] for row in ablation.rows] == [f"m{i}" for i in range(12)]


def test_a_folder_without_jobs_is_one_line(tmp_path):
    with pytest.raises(UserError, match="not the folder of a sweep"):
        write_ablation(tmp_path)


def test_rows_of_other_data_are_never_compared(tmp_path):
    folder = sweep(tmp_path / "s", {("dlrm", "a"): [0.7, 0.71], ("dcn", "a"): [0.6, 0.61], ("xlrm", "a"): [0.8, 0.81]})
    for job in ("4", "5"):
        path = folder / job / "config.yaml"
        path.write_text(path.read_text().replace("root: null", "root: elsewhere"))
    write_ablation(folder, "model=dlrm")
    dlrm, dcn, xlrm = rows_of(folder)
    assert (dlrm["validation_auc_verdict"], dcn["validation_auc_verdict"], xlrm["validation_auc_verdict"]) == ("baseline", "too few", "")
    assert dcn["baseline"] == "model=dlrm" and xlrm["baseline"] == ""
    assert "1 of the 3 rows have no baseline with the same data" in (folder / "ablation.md").read_text()


def test_a_baseline_column_is_compared_with_line_by_line(tmp_path):
    aucs = {(m, s): [auc, auc + 0.01] for m, s, auc in [("dlrm", "a", 0.7), ("dlrm", "b", 0.72), ("dcn", "a", 0.8), ("dcn", "b", 0.83)]}
    write_ablation(sweep(tmp_path / "s", aucs), "sharder=a")
    rows = rows_of(tmp_path / "s")
    assert [row["baseline"] for row in rows] == ["model=dlrm sharder=a"] * 2 + ["model=dcn sharder=a"] * 2
    assert [round(float(row["validation_auc_difference"]), 6) for row in rows] == [0, 0.02, 0, 0.03]


@pytest.mark.parametrize(("baseline", "compared"), [(None, True), ("none", False)])
def test_without_a_baseline_the_first_row_is_it_and_with_none_there_is_none(tmp_path, baseline, compared):
    write_ablation(sweep(tmp_path / "s"), baseline)
    assert ("validation_auc_verdict" in rows_of(tmp_path / "s")[0]) == compared
    assert ("compared with the first configuration, model=dlrm" in (tmp_path / "s/ablation.md").read_text()) == compared
    assert bool((tmp_path / "s/ablation_statistics.csv").read_text()) == compared


def test_every_number_of_every_test_is_in_the_long_csv(tmp_path):
    write_ablation(sweep(tmp_path / "s"))
    with (tmp_path / "s/ablation_statistics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["figure"] for row in rows] == [
        *("validation_auc", "validation_ne", "validation_log_loss", "measured_examples_per_second", "measured_iteration_ms")
    ]
    auc = rows[0]
    assert (auc["model"], auc["baseline"], auc["better"], auc["verdict"]) == ("dcn", "model=dlrm", "higher", "too few")
    differences = np.subtract(AUCS["dcn", "torchrec"], AUCS["dlrm", "torchrec"])
    assert float(auc["p_signed_rank"]) == wilcoxon(differences).pvalue and float(auc["value"]) == pytest.approx(0.03)
    assert auc["least_seeds"] == "6"
    assert not any(auc[name] for name in ("p", "low", "high", "confidence", "seeds_needed"))  # three seeds carry none
    write_ablation(sweep(tmp_path / "six", {("dlrm", "a"): SIX, ("dcn", "a"): [auc + 0.01 + auc**9 / 100 for auc in SIX]}))
    with (tmp_path / "six/ablation_statistics.csv").open() as file:
        auc = next(csv.DictReader(file))
    assert float(auc["low"]) < float(auc["value"]) < float(auc["high"]) and float(auc["confidence"]) == 1 - 2 / 64
    assert auc["verdict"] == "better" and int(auc["seeds_needed"]) >= 6


def test_simulated_and_measured_never_share_a_table(tmp_path):
    ablation = write_ablation(sweep(tmp_path / "s"))
    for table in [*value_tables(ablation), *change_tables(ablation), *comparison_tables(ablation)]:
        assert ("(simulated)" in table.title) != ("(measured)" in table.title), table.title
    assert not [c for c in ablation.comparisons.values() if c.figure.simulated]


def test_no_cell_of_any_table_is_empty(tmp_path):
    folder = sweep(tmp_path / "s", {("dlrm", "a"): [0.7, None, 0.72], ("dcn", "a"): [None], ("xlrm", "a"): [0.7]})
    ablation = write_ablation(folder)
    cells = [
        cell
        for table in [*value_tables(ablation), *change_tables(ablation), *comparison_tables(ablation)]
        for row in table.rows
        for cell in row
    ]
    assert cells and all(cell.strip() for cell in cells)


@pytest.mark.timeout(120)
def test_a_run_that_a_search_cut_short_is_neither_failed_nor_a_figure(tmp_path):
    folder = sweep(tmp_path)
    cut = replace(make_result(seed=2, auc=0.6), status="pruned", pruned=Pruned("auc", 1, 0.6, 0.7))
    for job in ("3", "4", "5"):
        write_result(folder / job, cut)
    row = read_ablation(folder).rows[1]
    assert row.status == "pruned" and not row.completed and not any(job.failed for job in row.jobs)
    write_ablation(folder)
    assert "pruned: validation auc 0.6000 after epoch 1, bound 0.7000" in (folder / "ablation.md").read_text()
    assert "failed" not in (folder / "ablation.md").read_text()


def test_a_row_that_a_search_cut_short_after_some_seeds_says_so(tmp_path):
    folder = sweep(tmp_path)
    write_result(folder / "4", replace(make_result(seed=2, auc=0.6), status="pruned", pruned=Pruned("auc", 1, 0.6, 0.7)))
    row = read_ablation(folder).rows[1]
    assert row.status == "pruned, 2 of 3 seeds completed" and len(row.completed) == 2


def test_pipelines_that_are_unlike_are_told_in_one_line(tmp_path: Path) -> None:
    aucs = {("dcn", "torchrec_strong"): [0.7], ("dcn", "dmt"): [0.8]}
    for extra, told in (((), True), (("sharder.executor.pipeline=true",), False)):
        folder = sweep(tmp_path / str(told), aucs, extra)
        for job, ahead in ((0, True), (1, False)):
            file = folder / str(job) / "config.yaml"
            config = yaml.safe_load(file.read_text())
            config["sharder"] = {"executor": {"pipeline": ahead}}
            file.write_text(yaml.safe_dump(config))
        notes = [note for note in read_ablation(folder).notes if note.startswith("unlike pipelines")]
        says = "unlike pipelines: torchrec_strong sends the next batch's ids ahead, dmt does not"
        assert notes == ([f"{says}; sharder.executor.pipeline=true makes them alike"] if told else [])

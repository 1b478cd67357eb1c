"""Tables 3, 4 and 5 of DMT, counted on the models that run: within half a percent of every figure, and what is left explained."""

from __future__ import annotations

import json

import pytest
import yaml

from experiments.dmt import command, complexity
from recsys_lab.models.layers import LowRankCross

ROWS = [(table, row) for table in ("table3", "table4", "table5") for row in complexity.published()[table]]


@pytest.mark.parametrize(("table", "row"), ROWS, ids=[f"{table} {row['what']}" for table, row in ROWS])
def test_every_row_is_within_half_a_percent(table, row):
    counts = complexity.count(row)
    assert counts.mflops == pytest.approx(row["mflops"], rel=0.005)
    assert counts.parameters_g == pytest.approx(row["parameters_g"], rel=0.005)


@pytest.mark.parametrize("row", [row for _, row in ROWS if row["model"] == "dcn_dmt"], ids=lambda row: row["what"])
def test_dcn_comes_to_the_papers_last_digit_with_element_wise_work(row):
    """A cross layer's bias, product and sum forward and two products backward, one each a value; under towers, where the paper's
    figures have it, the gradient of the dense features too."""
    model, counts = complexity.model_of(row), complexity.count(row)
    crosses = [m for m in model.modules() if isinstance(m, LowRankCross)]
    element_wise = sum(5 * up.out_features for cross in crosses for up in cross.up)
    compressed = row.get("towers", 26) < 26
    of_dense = 2 * model.bottom[0].weight.numel() if compressed else 0
    assert round(counts.mflops + (element_wise + of_dense) / 1e6, 2) == row["mflops"]


def test_compression_is_what_table_5_says():
    compressions = [complexity.count(row).compression for row in complexity.published()["table5"]]
    assert compressions == [2, 4, 8, 16]


def test_the_published_rows_are_criteos_without_a_cap():
    for model in ("dlrm", "dcn"):
        assert sum(yaml.safe_load((complexity.MODELS / f"{model}_dmt.yaml").read_text())["rows"]) == 177_944_275
    assert round(177_944_275 * 128 / 1e9, 2) == 22.78


def test_naive_towers_are_the_papers():
    """Section 5.2.3 prints those for 8 towers."""
    towers = complexity.strided([str(i) for i in range(26)], 8)
    assert [[int(i) for i in tower] for tower in towers] == [
        [0, 8, 16, 24], [1, 9, 17, 25], [2, 10, 18], [3, 11, 19], [4, 12, 20], [5, 13, 21], [6, 14, 22], [7, 15, 23],
    ]  # fmt: skip


def test_the_command_prints_published_ours_and_the_error(capsys):
    assert command.main(["table5", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    line = record["lines"][0]
    assert line["published"] == 8.95 and line["ours"] == pytest.approx(8.9527, abs=1e-3) and abs(line["relative_error"]) < 0.005
    assert record["rows"][0]["auc_published"] == 0.8045 and record["rows"][0]["auc_ours"] is None
    assert command.main(["table3"]) == 0
    output = capsys.readouterr().out
    assert "96.22" in output and "paper's alone" in output

"""DMT's studies of speed and of Frappe: what they price and compare is what they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import recsys_lab
from experiments.dmt import auc, complexity, frappe
from experiments.dmt.alike import extra_ms
from experiments.dmt.speed import MOST_TOWERS, PLATFORMS, SIZES, Case, priced, tower_of, words
from recsys_lab.__main__ import main
from recsys_lab.config import command_line
from recsys_lab.config.frozen import fingerprint
from recsys_lab.errors import UserError
from recsys_lab.record.result import Result
from recsys_lab.sharders.torchrec.columns import factor
from recsys_lab.simulate import Simulated

SIXTEEN = ["sharder=dmt", "sharder.towers.count=16", "sharder.towers.groups=[item_user_*,item_*,user_*]"]


def exchanged(simulated: Simulated, name: str) -> float:
    return max(c.bytes for c in simulated.collectives if c.name == name)


def test_sptt_sends_as_much_as_the_baseline_and_towers_send_half() -> None:
    """Section 3.1.2: SPTT does not reduce bytes; c = 1 and D = 64 of 128 halve them (table 4). All in FP16."""
    flat, sptt, dmt = (priced(Case("dlrm", "a100", 16, kind)) for kind in ("baseline", "sptt", "dmt"))
    rows = 16_384 * 26 * 128 * 2
    assert exchanged(sptt, "towers.output.all_to_all") == rows <= exchanged(sptt, "towers.exchange.all_to_all")
    assert exchanged(dmt, "towers.output.all_to_all") == rows / 2
    assert sum(c.bytes for c in flat.collectives if c.name.endswith(".output.all_to_all")) >= rows
    assert flat.feasible and sptt.feasible and dmt.feasible


def test_time_that_both_have_makes_one_so_many_times_the_other() -> None:
    more = extra_ms(81.4, 26.0, 2.0)
    assert (81.4 + more) / (26.0 + more) == pytest.approx(2.0)
    assert extra_ms(20, 10, 2.0) == 0 and extra_ms(20, 15, 2.0) < 0


def test_towers_are_table_fours() -> None:
    assert dict(tower_of("dlrm", 16)) == {"c": 0, "p": 1, "dim": 128} and dict(tower_of("dlrm", 8))["dim"] == 64
    for platform, most in PLATFORMS.items():
        for gpus in (size for size in SIZES if size <= most):
            case = Case("dcn", platform, gpus, "dmt")
            assert case.towers == min(case.hosts, MOST_TOWERS)
            assert tower_of("dlrm", case.towers)
            assert f"sharder.towers.count={case.towers}" in words(case)


@pytest.mark.parametrize(("gpus", "shards"), [(26, None), (27, 2), (32, 2), (64, 4), (128, 8), (208, 8), (416, 16), (512, 32)])
def test_with_more_gpus_than_tables_every_gpu_of_the_baseline_has_a_column_shard(gpus: int, shards: int | None) -> None:
    assert factor(26, gpus) == shards and (shards is None or 26 * shards >= gpus > 26 * shards / 2)


def test_the_strong_baseline_exchanges_all_tables_at_once() -> None:
    """Two exchanges, of whole tables and of columns, would each wait for their own busiest rank (section 5.1)."""
    found = [c for c in priced(Case("dlrm", "h100", 32, "baseline")).collectives if c.name.endswith(".output.all_to_all")]
    assert len(found) == 1 and found[0].bytes == 16_384 * 32 * 128 * 2  # two shards of 64 columns of the global batch in FP16


def test_a_case_may_have_a_network_that_loses_more() -> None:
    assert "cluster.cross_host.fall_per_doubling=0.25" in words(Case("dlrm", "h100", 16, "dmt", fall=0.25))
    assert Case("dlrm", "h100", 512, "dmt", most_towers=16).towers == 16 and Case("dlrm", "h100", 416, "dmt").towers == 26


def test_quantised_xlrm_gains_by_the_papers_sixteen_towers_of_items_and_users() -> None:
    """Section 6: by up to 1.2 times on 1,024 H100. FP8 both ways, also in the baseline."""
    fp8 = ["precision.forward_comm=fp8", "precision.backward_comm=fp8"]
    words = ["model=xlrm", "data=random", "mode=simulate", "cluster=h100x1024", *fp8]
    flat, dmt = (recsys_lab.simulate(*words, *sharder).iteration_ms for sharder in (["sharder=dmt_baseline"], SIXTEEN))
    assert 1 < flat / dmt < 1.2


def test_a_figure_is_printed_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dmt", "figure11", "--gpus", "16", "--json", "--out", str(tmp_path)]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [line["ours_origin"] for line in record["lines"]] == ["simulated"]
    assert {platform: list(by_batch) for platform, by_batch in record["found"]["dlrm"].items()} == dict.fromkeys(PLATFORMS, ["16"])
    assert sorted(Path(path).suffix for path in record["pictures"]) == [".png", ".svg"]
    assert main(["dmt", "figure10", "--gpus", "8"]) == 2
    assert "16 or more" in capsys.readouterr().err


def test_frappe_compares_seed_by_seed() -> None:
    flat = [0.9860 + 0.0001 * seed for seed in range(9)]
    near, far = ([value - by for value in flat] for by in (0.0010, 0.0030))
    study = frappe.compared("frappe", {"flat": flat, "dmt24": near, "dmt16": far})
    assert [holds for _, holds in study.statements] == [True, False]
    assert study.data["tests"]["dmt24"]["paired"]["value"] == pytest.approx(-0.0010)
    assert study.data["tests"]["dmt16"]["mann_whitney_u_p"] == pytest.approx(2 / 48620)  # no value of one above any of the other
    json.dumps(study.to_json())


def test_frappe_keeps_only_runs_of_its_own_config(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = frappe.Run("dmt24", 3, tmp_path, tmp_path / "dmt24_seed3", (*frappe.WORDS, *frappe.ARMS["dmt24"]))
    assert one.auc() is None
    config = command_line.read(one.words).config
    assert config is not None and config.seed == 3 and config.model.tower.dim == 24
    one.folder.mkdir()
    quality = {"validation": {"auc": 0.5}}
    record = Result("completed", "train", 3, fingerprint(config), {}, quality=quality).to_json()
    (one.folder / "result.json").write_text(json.dumps(record))
    assert one.auc() == 0.5
    (one.folder / "result.json").write_text(json.dumps(record | {"config_fingerprint": "another"}))
    with pytest.raises(UserError, match="another config"):
        one.auc()
    for changes, says in (
        (["--root", str(tmp_path), "--towers", "dmt9"], "no such setting"),
        ([], "data.root"),
        (["--seeds", "0"], "out of range"),
    ):
        assert main(["dmt", "frappe", *changes]) == 2
        assert says in capsys.readouterr().err


@pytest.mark.parametrize("table", ["table3", "table4", "table5", "table6"])
def test_auc_s_lines_are_the_table_s_rows(table: str) -> None:
    """On Criteo's log the paper's recipe and widths; elsewhere narrower vectors, in proportion. Every line is one of run.py."""
    rows = auc.rows_of(table)
    assert not rows[0].get("towers") and len(rows) == len(complexity.published()[table]) + (table == "table5")
    paper = [command_line.read([*auc.words_of("criteo", row), "data.root=."]).config for row in rows]
    assert all(c is not None and c.data.batch_size == 131072 and c.trainer.max_epochs == 1 for c in paper)
    assert not any(c.model.rows for c in paper if c), "the log decides the tables"
    if table == "table5":
        small = [command_line.read([*auc.words_of("criteo_8k", row), "data.root=."]).config for row in rows[1:]]
        assert [c.model.tower.dim for c in paper[1:] if c] == [64, 32, 16, 8] and [c.model.tower.dim for c in small if c] == [8, 4, 2, 1]
        assert not any(c.model.rows for c in small if c)
    if table == "table6":
        towers = [c.sharder.towers.strategy for c in paper if c and "towers" in c.sharder]
        assert towers == ["strided", "coherent", "diverse"] * 2
        assert [c.optimizer.dense.lr for c in paper if c] == [2e-3] * 4 + [1e-3] * 4


def test_found_towers_are_compared_with_strided_ones() -> None:
    rows = auc.rows_of("table6")[:4]
    found = {row["what"]: [0.7 + 0.01 * number + 0.001 * seed for seed in range(6)] for number, row in enumerate(rows)}
    study = auc.compared("auc", "criteo_8k", rows, found)
    assert [base["what"] if (base := auc.base_of(row, rows)) else None for row in rows] == [None, "DCN", "naive 8T-DCN", "naive 8T-DCN"]
    assert [holds for _, holds in study.statements] == [True] * 3 and study.lines[-1].ours == pytest.approx(0.02)
    same = auc.compared("auc", "criteo_8k", rows, dict.fromkeys(found, found["DCN"]))
    assert [holds for _, holds in same.statements] == [True, False, False]


def test_auc_is_compared_with_the_paper_s_on_its_data_alone() -> None:
    rows = auc.rows_of("table5")[:2]
    found = {"DLRM": [0.8 + 0.001 * seed for seed in range(9)], "compression 2": [0.797 + 0.001 * seed for seed in range(9)]}
    on_criteo, elsewhere = (auc.compared("auc", data, rows, found) for data in ("criteo", "criteo_8k"))
    assert [line.published for line in on_criteo.lines] == [0.8047, 0.8045, None]
    assert [line.published for line in elsewhere.lines] == [None, None, None] and "not the paper's data set" in elsewhere.notes[0]
    assert on_criteo.statements[0][1] is False and on_criteo.lines[2].ours == pytest.approx(-0.003)
    json.dumps(on_criteo.to_json())

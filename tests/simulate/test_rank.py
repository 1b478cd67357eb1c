"""`rank`: all sharders of one model on one cluster, the fastest first, and why some cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import run
from recsys_lab.__main__ import main
from recsys_lab.commands import rank
from recsys_lab.config.command_line import CONF
from recsys_lab.errors import UserError

SHARDERS = "torchrec_row_wise,dmt_sptt"
WORDS = ["model=dcn", "data=random", "data.rows_train=4096", "data.rows_validation=64", "cluster=h100", "cluster.hosts=2"]


def ranked(capsys: pytest.CaptureFixture, *words: str) -> list[dict]:
    assert rank.main([*WORDS, *words, "--sharders", SHARDERS, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["ranked"]


def test_the_fastest_comes_first_with_its_interval_and_cost(capsys: pytest.CaptureFixture) -> None:
    found = ranked(capsys, "cluster.price_per_device_hour=2.0")
    assert {one["sharder"] for one in found} == set(SHARDERS.split(","))
    times = [one["iteration_ms"] for one in found]
    assert times == sorted(times) and all(one["fits"] and one["why_not"] is None for one in found)
    for one in found:
        assert one["interval_ms"][0] < one["iteration_ms"] < one["interval_ms"][1]
        assert one["cost_per_billion_samples"] == pytest.approx(1e9 / one["examples_per_second"] / 3600 * 2.0 * 16)
        assert (one["price"]["usd_per_device_hour"], one["price"]["origin"]) == (2.0, "given")


def test_what_does_not_fit_says_so_and_what_would(capsys: pytest.CaptureFixture) -> None:
    for one in ranked(capsys, "cluster.device.memory_gb=0.01"):
        assert not one["fits"] and one["iteration_ms"] is None and "nearest change that would fit" in one["why_not"]


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("precision=fp32,fp16_comms", "decide precisions=fp32,fp16_comms"),
        ("cluster=h100x8,a100x64", "decide clusters=h100x8,a100x64"),
        ("batch=65536", "decide batch=65536"),
    ],
)
def test_several_configs_are_for_decide(capsys: pytest.CaptureFixture, word: str, remedy: str) -> None:
    assert main(["rank", "model=dcn", word]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and remedy in err and "add -m" not in err


def test_options_and_words_stand_in_any_order(capsys: pytest.CaptureFixture) -> None:
    assert rank.main(["model=dcn", "--sharders", "dmt_sptt,torchrec_row_wise", *WORDS[1:], "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["ranked"]) == 2


def test_figures_are_whole_at_80_columns(capsys: pytest.CaptureFixture) -> None:
    assert rank.main([*WORDS, "cluster.price_per_device_hour=2.0", "--sharders", SHARDERS]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert all(len([line for line in lines if line.startswith(f"{name} ")]) == 1 for name in SHARDERS.split(","))


def test_a_sharder_among_the_words_is_refused() -> None:
    with pytest.raises(UserError, match="all sharders are ranked"):
        rank.main([*WORDS, "sharder=dmt"])


def test_every_sharder_is_priced_as_run_py_prices_it(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    assert rank.main([*WORDS, "--json"]) == 0
    priced = {one["sharder"]: one for one in json.loads(capsys.readouterr().out)["ranked"]}
    assert set(priced) == {path.stem for path in (CONF / "sharder").glob("*.yaml")}
    for sharder, one in priced.items():
        folder = tmp_path / sharder
        assert run.main([*WORDS, "mode=simulate", f"sharder={sharder}", "logger=none", f"hydra.run.dir={folder}"]) == 0
        simulated = json.loads((folder / "result.json").read_text())["simulated"]
        assert {key: simulated[key] for key in ("iteration_ms", "phases_ms", "profile")} == {
            key: one[key] for key in ("iteration_ms", "phases_ms", "profile")
        }, sharder


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["model.bottom_layers=[8,5]"], "model.bottom_layers"),
        (["data.rows_per_table=[5,-1]"], "data.rows_per_table[1]"),
        (["cluster.intra_host.bandwidth_gb_s=-1"], "bandwidth_gb_s"),
        (["model=dcnn"], "did you mean 'dcn'"),
    ],
)
def test_a_mistake_that_is_no_sharders_is_one_line(capsys: pytest.CaptureFixture, words: list[str], part: str) -> None:
    assert main(["rank", *WORDS, *words, "--sharders", SHARDERS]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and part in err


def test_the_table_names_the_cluster_where_nothing_fits(capsys: pytest.CaptureFixture) -> None:
    assert rank.main([*WORDS, "cluster.device.memory_gb=0.01", "--sharders", SHARDERS]) == 0
    assert "Sharders on h100, 16 ranks of 4,096 samples, profile torchrec" in " ".join(capsys.readouterr().out.split())

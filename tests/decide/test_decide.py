"""`decide`: the same figures as run.py's, Pareto and winner, and every mistake in one line."""

from __future__ import annotations

import json
import multiprocessing
import shlex
from pathlib import Path
from typing import Any

import pytest

import run
from recsys_lab.__main__ import main
from recsys_lab.base import paths
from recsys_lab.base.progress import Progress
from recsys_lab.decide.combinations import combinations, default_sharders
from recsys_lab.decide.decision import decide
from recsys_lab.decide.decision import decided as decision_of
from recsys_lab.decide.question import Question, parse_question
from recsys_lab.errors import UserError


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The page is written where one is."""
    monkeypatch.chdir(tmp_path)


SMALL = ["model=dcn", "data=random", "data.rows_train=4096", "data.rows_validation=64"]
CLUSTERS = "clusters=h100x16:2.50,a100x32:1.50"
WORDS = [*SMALL, CLUSTERS, "batch=65536"]
KEYS = [
    "cluster",
    "sharder",
    "precision",
    "optimizer",
    "profile",
    "batch",
    "ms",
    "ms_interval",
    "usd_per_1e9",
    "memory_gb",
    "fits",
    "pareto",
    "robust",
]


def decided(capsys: pytest.CaptureFixture, *words: str) -> dict[str, Any]:
    assert main(["decide", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def simulated_by_run_py(command: str, folder: Path) -> dict[str, Any]:
    """The record's `simulated` of the line that a row gives."""
    words = shlex.split(command)
    assert words[:2] == ["python", "run.py"]
    assert run.main([*words[2:], "logger=none", f"hydra.run.dir={folder}"]) == 0
    return json.loads((folder / "result.json").read_text())["simulated"]


def check_rows(rows: list[dict[str, Any]], folder: Path) -> None:
    for number, row in enumerate(rows):
        simulated = simulated_by_run_py(row["command"], folder / str(number))
        assert simulated["iteration_ms"] == row["ms"] and simulated["phases_ms"] == row["phases_ms"], row["command"]
        assert simulated["cost_per_billion_samples"] == row["usd_per_1e9"] and simulated["price"] == row["price"]
        assert (simulated["profile"], simulated["world_size"]) == (row["software"], row["ranks"])


def test_every_value_of_every_axis_gives_the_figures_of_run_py(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    rows = decided(capsys, *WORDS)["rows"]
    clusters, precisions, optimizers = ["h100x16", "a100x32"], ["fp32", "fp16_comms", "bf16"], ["adam", "row_wise_adagrad"]
    profiles = list(dict.fromkeys(row["profile"] for row in rows))
    assert len(rows) == 2 * len(default_sharders(Question(tuple(WORDS), (), 1))) * 3 * 2 * len(profiles) and len(profiles) >= 3
    chosen = [
        (clusters[n % 2], sharder, precisions[n % 3], optimizers[n // 2 % 2], profiles[n % len(profiles)])
        for n, sharder in enumerate(default_sharders(Question(tuple(WORDS), (), 1)))
    ]
    check_rows([row for row in rows if tuple(row[key] for key in KEYS[:5]) in chosen], tmp_path)


def test_on_one_cluster_the_cheapest_sharders_are_the_fastest(capsys: pytest.CaptureFixture) -> None:
    words = [*SMALL, "clusters=h100x16", "batch=65536", "precisions=fp32", "optimizers=adam", "profiles=torchrec"]
    rows = decided(capsys, *words)["rows"]
    assert {row["sharder"] for row in rows} == set(default_sharders(Question(tuple(WORDS), (), 1))) and all(row["fits"] for row in rows)
    assert sorted(rows, key=lambda row: row["usd_per_1e9"]) == sorted(rows, key=lambda row: row["ms"])


@pytest.mark.long
def test_every_combination_gives_the_figures_of_run_py(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    rows = decided(capsys, *WORDS, "profiles=torchrec")["rows"]
    assert len(rows) == 2 * len(default_sharders(Question(tuple(WORDS), (), 1))) * 3 * 2
    check_rows(rows, tmp_path)


def test_the_json_has_its_keys_and_its_rows_are_pareto_optimal_by_hand(capsys: pytest.CaptureFixture) -> None:
    found = decided(capsys, *WORDS, "sharders=torchrec_row_wise,dmt_sptt", "precisions=fp32")
    assert {"rows", "winner", "sensitivity", "pairs", "clusters", "assumptions", "evidence"} <= set(found)
    assert {"p_best", "regret", "trainable"} <= set(found["winner"]) and all(0 <= pair["p"] <= 1 for pair in found["pairs"])
    assert sum(row["p_best"] for row in found["rows"] if row["profile"] == "torchrec") == pytest.approx(1)
    assert sum(one["p_best"] for one in found["clusters"]) == pytest.approx(1) and found["evidence"]["profile"] == "torchrec"
    assert found["assumptions"]["over_layers"] and found["assumptions"]["batch_per_device"] == 4096
    for row in found["rows"]:
        weighed = row["profile"] == "torchrec"  # intervals and probabilities are of its draws
        assert set(KEYS) <= set(row) and (row["ms_interval"] is not None) == weighed and (row["p_best"] is None) is False
        assert not weighed or row["ms_interval"][0] < row["ms"] < row["ms_interval"][1]
        assert row["batch"] == 65536 == row["batch_per_rank"] * row["ranks"]
        beaten = [
            other
            for other in found["rows"]
            if other["profile"] == row["profile"] and other["ms"] < row["ms"] * (1 - 1e-9) and other["usd_per_1e9"] < row["usd_per_1e9"]
        ]
        assert row["pareto"] == (not beaten)
    for row in found["rows"]:
        alike = [other["pareto"] for other in found["rows"] if all(other[key] == row[key] for key in KEYS[:4])]
        assert row["robust"] == all(alike)


def test_the_winner_is_one_only_beyond_the_intervals_and_under_every_profile(capsys: pytest.CaptureFixture) -> None:
    found = decided(capsys, *WORDS, "precisions=fp32", "sharders=torchrec_row_wise,dmt_sptt,neo_4d")
    winner, rows = found["winner"], found["rows"]
    best = {
        profile: min((row for row in rows if row["profile"] == profile), key=lambda row: row["usd_per_1e9"])
        for profile in dict.fromkeys(row["profile"] for row in rows)
    }
    names = {tuple(row[key] for key in KEYS[:4]) for row in best.values()}
    assert {profile: row["ms"] for profile, row in winner["by_profile"].items()} == {profile: row["ms"] for profile, row in best.items()}
    assert (winner["status"] == "depends on the software") == (len(names) > 1)
    if len(names) == 1:
        assert (winner["status"] == "winner") == (not winner["not_distinguishable_from"])


def test_one_combination_alone_is_the_winner(capsys: pytest.CaptureFixture) -> None:
    words = [*SMALL, "batch=65536", "clusters=h100x16:2", "sharders=dmt_sptt", "precisions=fp32", "optimizers=adam"]
    assert decided(capsys, *words)["winner"]["status"] == "winner"


def test_without_a_price_device_hours_decide_and_the_table_says_what_to_write(capsys: pytest.CaptureFixture) -> None:
    assert main(["decide", *SMALL, "batch=65536", "clusters=h20x16", "sharders=dmt_sptt", "precisions=fp32", "profiles=torchrec"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "clusters=h20x16:2.50" in out and "device-hours" in out and "$ per" not in out


def test_a_list_price_is_used_and_dated_and_the_users_figure_wins(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    words = [*SMALL, "batch=65536", "clusters=h100x16,a100x32:1.50,h20x16", "sharders=dmt_sptt", "precisions=fp32", "optimizers=adam"]
    found = decided(capsys, *words)
    rows = {row["cluster"]: row for row in found["rows"] if row["profile"] == "torchrec"}
    hours = {cluster: row["device_hours_per_1e9"] for cluster, row in rows.items()}
    assert rows["h100x16"]["usd_per_1e9"] == pytest.approx(3.99 * hours["h100x16"])
    assert rows["h100x16"]["price"] == {
        "usd_per_device_hour": 3.99,
        "origin": "list price of 2026-09-20",
        "date": "2026-09-20",
        "source": "https://lambda.ai/instances",
        "extrapolates": "from 8 devices to 16",
    }
    assert rows["a100x32"]["usd_per_1e9"] == pytest.approx(1.5 * hours["a100x32"]) and rows["a100x32"]["price"]["origin"] == "given"
    assert rows["h20x16"]["usd_per_1e9"] is None and rows["h20x16"]["price"] is None
    assert found["winner"]["without_price"] == ["h20x16"]
    check_rows([rows["h100x16"]], tmp_path)
    assert main(["decide", *words, "profiles=torchrec"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "h100x16 3.99 (list price of 2026-09-20)" in out and "a100x32 1.50 (given)" in out
    assert "https://lambda.ai/instances, extrapolated from 8 devices to 16" in out and "no price" in out
    assert "list price of 2026-09-20" in Path("decide.html").read_text()


def test_the_output_begins_with_the_verdict(capsys: pytest.CaptureFixture) -> None:
    assert main(["decide", *WORDS, "sharders=torchrec_row_wise", "profiles=torchrec", "precisions=fp32", "optimizers=adam"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Rent h100x16 for torchrec_row_wise fp32 adam: ") and "per 1e9 samples" in " ".join(lines[:2])


def test_the_table_fits_80_columns(capsys: pytest.CaptureFixture) -> None:
    assert main(["decide", *WORDS, "sharders=torchrec_row_wise,flexshard_3tier", "profiles=torchrec", "--all"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80 and sum("flexshard_3tier" in line for line in lines) >= 12


def test_a_name_with_devices_is_a_cluster_of_that_size() -> None:
    question = parse_question([*SMALL, "clusters=a100x128:1.50", "batch=65536", "sharders=dmt_sptt", "precisions=fp32", "optimizers=adam"])
    (one,) = combinations(question)
    cluster = one.experiment.cluster
    assert (cluster.world_size, cluster.hosts, cluster.name, cluster.price_per_device_hour) == (128, 16, "a100x128", 1.5)
    assert one.experiment.batch_size == 512 and one.batch == 65536 and "cluster=a100x128" in one.words


def test_the_function_returns_rows_that_become_a_data_frame() -> None:
    pandas = pytest.importorskip("pandas")
    decision = decide(*SMALL, clusters=["h100x16:2.5"], batch=65536, sharders=["dmt_sptt"], precisions="fp32", workers=1)
    frame = pandas.DataFrame(decision.rows)
    assert set(KEYS) <= set(frame.columns) and len(frame) == len(decision.rows) and frame.ms.min() > 0


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["batch=65536"], ["decide: a model is needed", "model=tables"]),
        (["model=dcn", "batch=65536"], ["a cluster is needed", "clusters=h100x64:2.50"]),
        (["model=dcn", "clusters=h100x64"], ["a batch is needed", "batch=65536"]),
        (["model=dcn", "clusters=h100x46", "batch=65536"], ["no whole number of hosts", "h100x40 or h100x48"]),
        (["model=dcn", "clusters=h200x64,h1000", "batch=65536"], ["no such cluster", "given h1000", "did you mean"]),
        (["model=dcn", "clusters=h100x64:cheap", "batch=65536"], ["not a price", "h100x64:2.50"]),
        (["model=dcn", "clusters=h100x64:-2", "batch=65536"], ["price of h100x64", "given -2"]),
        (["model=dcn", "clusters=h100x64", "batch=1000"], ["does not divide", "960 or 1024"]),
        (["model=dcn", "clusters=h100x64:2,h100x64:3", "batch=65536"], ["clusters: named twice", "give h100x64 one price"]),
        (["model=dcn", "clusters=h100x64:2,50", "batch=65536"], ["given 50", "a price has a decimal point"]),
        (["model=dcn", "clusters=h100x64:0", "batch=65536"], ["price of h100x64", "given 0.0"]),
        (["model=dcn", "clusters=h100x64:nan", "batch=65536"], ["price of h100x64", "given nan"]),
        (["model=dcn", "clusters=", "batch=65536"], ["clusters: no value"]),
        (["model=dcn", "clusters=h100x64", "batch=0"], ["batch: out of range", "given 0"]),
        (["model=dcn", "clusters=h100x64", "batch=65536", "profiles=torchrek"], ["profiles: no such choice", "did you mean 'torchrec'"]),
        (["model=dcn", "clusters=h100x64", "batch=65536", "--page", "."], [".: cannot write", "given a folder"]),
        (["model=dcn", "clusters=h100x64", "batch=65536", "--page", "clicks.csv"], ["--page", "clicks.csv", "ends in .html"]),
        (["model=dcn", "clusters=h100x64", "batch=many"], ["not a number of samples", "given many"]),
        (["model=dcn", "clusters=h100x64,h100x64", "batch=65536"], ["named twice"]),
        (["model=dcn", "clusters=h100x64", "batch=65536", "sharders=dmtt"], ["sharders: no such choice", "did you mean 'dmt'"]),
        (["model=dcn", "clusters=h100x64", "batch=65536", "optimizers=adamw"], ["did you mean 'adam'"]),
        (["model=dcnn", "clusters=h100x64", "batch=65536"], ["did you mean 'dcn'"]),
        (["model=dcn", "clusters=h100x64", "batch=65536", "sharder=dmt", "sharders=dmt"], ["said twice"]),
        (
            ["model=dcn", "clusters=h100x64", "batch=65536", "simulate.batch_size=8"],
            ["simulate.batch_size: said twice; given simulate.batch_size=8 batch=65536; drop one of the two: batch says it"],
        ),
        (["model=dcn", "clusters=local", "batch=64", "++data.batch_size=8"], ["data.batch_size: said twice", "batch says it"]),
        (
            ["model=dcn", "clusters=h100x8:2.5", "batch=64", "cluster.price_per_device_hour=2"],
            ["cluster.price_per_device_hour: said twice", "clusters says it"],
        ),
        (
            ["model=dcn", "clusters=h100x8", "batch=64", "optimizers=adam", "optimizer.sparse.name=sgd"],
            ["optimizer.sparse.name: said twice", "optimizers says it"],
        ),
        (
            ["model=dcn", "clusters=h100x8", "batch=64", "profiles=neo", "profile@simulate.profile=sok"],
            ["profile@simulate.profile: said twice", "profiles says it"],
        ),
        (["model=dcn", "data=random", "clusters=h100x64", "batch=65536", "cluster.hosts=4"], ["another size", "given 32 devices"]),
        (["model=dcn", "data=random", "clusters=h100x16", "batch=65536", "cluster.hosts=4"], ["another size", "given 32 devices"]),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_do(capsys: pytest.CaptureFixture, words: list[str], parts: list[str]) -> None:
    assert main(["decide", *words]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1 and all(part in err for part in parts), err


def test_devices_without_a_bf16_peak_have_their_rows_beside_those_with_one(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    words = [*SMALL, "batch=65536", "sharders=torchrec_row_wise", "optimizers=sgd", "precisions=fp32,bf16", "profiles=torchrec"]
    rows = decided(capsys, *words, "clusters=h100x8:2,v100x8:0.9")["rows"]
    known = {(row["cluster"], row["precision"]): row for row in rows}
    assert all((known[name, precision]["ms"] is not None) == ((name, precision) != ("v100x8", "bf16")) for name, precision in known)
    assert "no peak for bf16" in known["v100x8", "bf16"]["why_not"] and len(known) == 4
    check_rows([known["v100x8", "fp32"]], tmp_path)
    assert main(["decide", *words, "clusters=v100x8:0.9"]) == 0
    assert "BF16 compute" not in capsys.readouterr().out, "nobody can buy that change"


def test_a_users_cluster_needs_no_price_in_its_file_and_the_price_is_not_rounded(
    capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = "{name: a, bandwidth_gb_s: 20.0, latency_us: 5.0, source: me}"
    device = "{name: My GPU, kind: cuda, memory_gb: 24.0, memory_bandwidth_gb_s: 900.0, host_link_gb_s: 25.0, source: me, "
    device += "peak_tflops: {fp32: 30.0}}"
    (tmp_path / "conf" / "cluster").mkdir(parents=True)
    (tmp_path / "conf" / "cluster" / "mine.yaml").write_text(
        "_target_: recsys_lab.cluster.Cluster\nname: mine\nhosts: 2\nranks_per_host: 4\nreserved_memory_share: 0.15\n"
        f"device: {device}\nintra_host: {link}\ncross_host: {link}\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["model=dlrm", "data=random", "batch=8192", "sharders=neo_4d", "precisions=fp32", "optimizers=sgd", "profiles=torchrec"]
    (row,) = decided(capsys, *words, "clusters=mine:2.3456789")["rows"]
    assert row["price"]["usd_per_device_hour"] == 2.3456789
    check_rows([row], tmp_path / "runs")


def test_what_cannot_be_asked_is_one_line_and_writes_nothing(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    """Each through the command itself, with a page and a table of changes to write."""
    (tmp_path / "old.json").write_text(json.dumps({"format": 1, "model": "dlrm", "batch": 65536, "rows": [], "winner": {"row": None}}))
    request = json.loads((paths.ROOT / "docs" / "dry_run.json").read_text())
    version = request["torchrec"]
    (tmp_path / "dry_run.json").write_text(json.dumps(request | {"torchrec": "2.0.0"}))
    asked, cluster = ["model=dcn", "data=random", "batch=65536"], "clusters=h100x8:2"
    cases = [
        ([*asked, "clusters=h100x8:nan"], "clusters: price of h100x8: out of range; given nan"),
        ([*asked, "clusters=h100x8..7"], "clusters: a range that ends below its first size; given h100x8..7"),
        ([*asked, cluster, "profiles=torchrec:0,hugectr:0"], "profiles: every weight is 0"),
        (
            [*asked, cluster, "--against", "old.json", "--markdown", "a.md"],
            "old.json: an answer of another model; given dlrm; allowed: dcn",
        ),
        (["model=tables", "model.file=dry_run.json", cluster], "of another version of TorchRec; given 2.0.0"),
    ]
    before = set(tmp_path.iterdir())
    for words, says in cases:
        assert main(["decide", *words]) == 2
        out, err = capsys.readouterr()
        assert not out and err.count("\n") == 1 and says in err, err
    assert set(tmp_path.iterdir()) == before and version.startswith("1.9")


def test_a_study_is_no_part_of_a_question() -> None:
    with pytest.raises(UserError, match="experiment: a study asks a question of its own; given neo/figure8"):
        decision_of(parse_question([*SMALL, CLUSTERS, "batch=65536", "experiment=neo/figure8"]))


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_keeps_what_was_priced(workers: int) -> None:
    """Its rows are those of a whole answer. Without `keep` it is Ctrl-C as everywhere, and no process is left either way."""
    before = multiprocessing.active_children()  # an agent of other tests
    question = parse_question(
        [*SMALL, CLUSTERS, "batch=65536", "sharders=torchrec_row_wise,neo_4d", "precisions=fp32", "profiles=torchrec"]
    )

    def interrupt(done: int, of: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    part, whole = decision_of(question, workers, interrupt, keep=True), decision_of(question)
    assert (len(part.rows), part.not_priced, whole.not_priced) == (3, 5, 0)
    figures = {row.name: (row.ms, row.ms_interval) for row in whole.rows}
    assert all((row.ms, row.ms_interval) == figures[row.name] for row in part.rows)
    with pytest.raises(KeyboardInterrupt):
        decision_of(question, workers, interrupt)
    assert set(multiprocessing.active_children()) <= set(before)


def test_an_answer_that_was_cut_short_says_so(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = ["decide", *WORDS, "sharders=torchrec_row_wise,neo_4d", "precisions=fp32", "optimizers=adam", "profiles=torchrec"]

    def interrupt(bar: Progress, done: float, *_: object) -> None:
        if done == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Progress, "advance_to", interrupt)
    assert main(words) == 130
    assert capsys.readouterr().out.startswith("Interrupted: 2 of 4 combinations were priced.") and not (tmp_path / "decide.html").exists()
    assert main([*words, "--json"]) == 130
    (tmp_path / "old.json").write_text(capsys.readouterr().out)
    assert main([*words, "--against", "old.json"]) == 2
    assert "old.json: an answer that was interrupted; given 2 not priced" in capsys.readouterr().err

"""Comparisons on the emulated network: their lines are configs that exist, and their ratios are what they say. No training runs here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from experiments.emulated.calibration import Calibrated
from experiments.emulated.comparisons import COMPARISONS, MODELS
from experiments.emulated.figures import Ratio, line_figures, ratios
from experiments.emulated.pairs import Pair, brier, pairs_of
from experiments.emulated.pairs import compared as paired
from experiments.emulated.runs import EVERY, SHORT, Ran, _simulated_transfer_ms, calibrations
from experiments.emulated.study import compared, run
from recsys_lab.calibrate.runs import Run, brief, plan_run
from recsys_lab.config.choices import built
from recsys_lab.config.command_line import read
from recsys_lab.errors import UserError
from recsys_lab.studies.catalogue import studies_of
from recsys_lab.studies.verdict import Tolerance, judge


def ran(transfer_ms: float, examples: float, link_bytes: float) -> Ran:
    times = {"under_way": transfer_ms + 5, "transfer": transfer_ms}
    measured = {
        "hosts": 4,
        "examples_per_second": examples,
        "iteration_ms": {"median": 1e6 / examples},
        "transfer_ms": {"embedding": times},
        "links": {"counted": 4 * link_bytes, "collectives": 3.9 * link_bytes},
    }
    return Ran({"measured": measured, "simulated": {"examples_per_second": 2 * examples, "iteration_ms": 1.0}}, transfer_ms / 2)


@pytest.mark.parametrize("name", COMPARISONS)
def test_lines_are_configs(name: str) -> None:
    """With the words of a calibration, which give the simulator other links than the launcher makes."""
    cluster, profile = built("cluster", "emulated_4x2"), built("profile", "emulated")
    words = Calibrated(0.05, cluster, profile).words()
    for line, own in COMPARISONS[name].lines.items():
        config = read([*EVERY, *words, *own, "hydra.run.dir=unused"]).config
        assert config is not None and config.launcher.link_gb_s == 0.05 and config.simulate.profile.overlaps == ["collectives"]
        assert config.cluster.hosts == COMPARISONS[name].hosts_of(line)


def test_a_network_is_measured_with_as_many_hosts_as_train(tmp_path: Path) -> None:
    file = tmp_path / "links.json"
    file.write_text(json.dumps({hosts: {"words": [f"hosts {hosts}"], "figures": {}} for hosts in (2, 4)}))
    assert calibrations([COMPARISONS["dmt"]], (), file)[4]["words"] == ["hosts 4"]
    with pytest.raises(UserError, match="--network .*links.json.*2, 4 hosts.*--hosts 1 3"):
        calibrations([COMPARISONS["scaling"]], (), file)


def test_ratios_are_medians_of_rounds() -> None:
    rounds = [
        {"torchrec_row_wise": ran(a, 10.0, 4e6), "flexshard_2tier": ran(b, 20.0, 1e6), "flexshard_3tier": ran(10.0, 30.0, 2e6)}
        for a, b in ((100.0, 50.0), (90.0, 30.0), (80.0, 20.0))
    ]
    two, three = ratios(COMPARISONS["flexshard"], rounds)
    assert (two.measured, two.range, two.bytes) == (3.0, (2.0, 4.0), 4.0)
    assert two.under_way == pytest.approx(95 / 35)
    assert three.measured == 9.0 and three.simulated == 9.0 and three.simulated_error == 0.0
    lines = line_figures(rounds, 0.05)
    assert lines["torchrec_row_wise"].wire_ms == 80.0 and lines["torchrec_row_wise"].of_link == pytest.approx(80 / 90)
    assert lines["flexshard_2tier"].counter_vs_steps == pytest.approx(4 / 3.9)


def test_a_comparison_is_a_study_of_measured_beside_simulated(tmp_path: Path) -> None:
    """Simulated is judged by how far it is off the measured ratio; the picture can be drawn."""
    comparisons = [Ratio("flexshard_2tier", 4.0, (3.9, 4.2), 3.3, 3.0, 4.1), Ratio("flexshard_3tier", 4.0, (3.9, 4.2), 3.1, 3.0, 4.1)]
    study = compared("flexshard", COMPARISONS["flexshard"], 2, 0.2, comparisons, {})
    assert [holds for _, holds in study.statements] == [True, False]
    assert [line.origin for line in study.lines] == ["measured", "simulated"] * 2
    assert judge(study, Tolerance(0.2, 1.0)).state == "deviates"
    assert study.draw is not None and all(path.stat().st_size > 5_000 for path in study.draw(tmp_path))
    with pytest.raises(UserError, match="network"):
        run("flexshard", rounds=1, bound=0.2, under="", network="nowhere")


def test_every_comparison_is_a_study() -> None:
    assert set(studies_of("emulated")) == {*COMPARISONS, "pairs"}


def trained(sharder: str, *times_ms: float) -> Run:
    """With its real plan for the emulated network, and made-up times."""
    experiment = brief([*SHORT, *MODELS["dlrm"], f"sharder={sharder}", "data.batch_size=2048", "simulate.batch_size=256"])
    return Run(sharder, 2048, tuple({"iteration_ms": {"median": ms}} for ms in times_ms), plan_run(experiment))


def test_the_more_probable_of_two_is_held_against_medians_of_rounds() -> None:
    """A sharder that moves several times the bytes is slower for sure; one against itself is a coin."""
    whole, by_rows = trained("torchrec", 100.0, 300.0, 110.0), trained("torchrec_row_wise", 200.0, 250.0, 190.0)
    pair, same = pairs_of("dlrm", [whole, by_rows, replace(whole, sharder="again")], built("profile", "emulated"))[:2]
    assert (pair.faster, pair.slower, pair.p > 0.99, pair.simulated > 1.5) == ("torchrec", "torchrec_row_wise", True, True)
    assert (pair.measured, pair.rounds, pair.is_right) == (pytest.approx(200 / 110), pytest.approx(2 / 3), True)
    assert same.simulated == 1.0 and 0.5 <= same.p < 0.55


def test_pairs_are_a_study_with_a_proper_score() -> None:
    pairs = [
        Pair("dlrm", "a", "b", 0.9, 1.2, 1.1, 1.0),
        Pair("dlrm", "a", "c", 0.6, 1.1, 0.9, 0.0),
        Pair("dcn", "a", "b", 1.0, 2.0, 3.0, 1.0),
    ]
    assert brier(pairs) == pytest.approx((0.1**2 + 0.6**2 + 0.0) / 3)
    study = paired("pairs", pairs, 2, 0.9, {})
    assert [holds for _, holds in study.statements] == [False, True] and judge(study, Tolerance(0.2, 1.0)).state == "deviates"
    assert [(line.what, round(line.ours)) for line in study.lines] == [
        ("the more probable of two is faster", 67),
        ("the same with dlrm", 50),
        ("the same with dcn", 100),
        ("the same of 1 pairs that say 60 %", 0),
        ("the same of 2 pairs that say 95 %", 100),
    ]
    assert study.shown is not None and [row[-1] for row in study.shown.rows] == ["2/2", "2/2", "0/2 wrong"]


def test_simulated_transfer_counts_overlaps_once_and_embeddings_only() -> None:
    def event(name: str, start_us: float, us: float, pid: int = 1, **args: str) -> dict:
        return {"name": name, "ph": "X", "pid": pid, "ts": start_us, "dur": us, "args": args}

    events = [
        event("row_sharded.output.all_to_all", 0, 4000, group="0-7"),
        event("host_sharded.output.all_to_all", 2000, 3000, group="0-1"),
        event("dense.all_reduce", 9000, 9000, group="0-7"),
        event("row_sharded.output.all_to_all", 20000, 4000, pid=2, group="0-7"),
        event("lookup", 0, 9000),
        {"name": "process_name", "ph": "M", "pid": 1, "args": {}},
    ]
    assert _simulated_transfer_ms({"traceEvents": events}) == 5.0

"""The command: a short training finds planted groups, a run's tables say the same, and the towers that it writes are used."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from recsys_lab.__main__ import main
from recsys_lab.config.frozen import save
from recsys_lab.errors import UserError
from recsys_lab.experiment import of_words
from recsys_lab.partition import probe
from recsys_lab.partition.find import balance
from recsys_lab.partition.of_run import of_run
from recsys_lab.partition.picture import draw
from recsys_lab.plan.serialise import save_plan
from recsys_lab.planning import plan_for, this_machine
from recsys_lab.sharders.dmt import TowerOptions
from recsys_lab.sharders.dmt.affinity import affinity, one_thread
from recsys_lab.sharders.dmt.partition_file import load_partition
from recsys_lab.train import checkpoint
from tests.simulate.clusters import cluster

WORDS = [
    "model=dlrm",
    "data=synthetic_groups",
    "data.groups=2",
    "data.rows_per_table=[12,12,12,12,12,12,12,12]",
    "data.rows_train=60000",
    "data.rows_validation=2000",
    "data.rows_test=0",
    "data.dense_features=0",
    "data.batch_size=512",
    "logger=none",
]
STEPS = 110


def test_a_short_training_finds_the_planted_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, picture = tmp_path / "towers.json", tmp_path / "towers.svg"
    options = ["--towers", "2", "--steps", str(STEPS), "--samples", "4096", "--absolute", "of_samples"]
    assert main(["partition", *WORDS, f"data.cache={tmp_path}", *options, "-o", str(file), "--picture", str(picture), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["agreement_with_planted"] == 1.0
    assert record["affinity_within"] > record["affinity_across"] + 0.05
    assert record["balance"]["tables"] == [4, 4] and record["balance"]["load_over_mean"] == 1.0
    partition = load_partition(file)
    assert partition.strategy == "coherent" and partition.source["model"] == "dlrm" and partition.source["steps"] == STEPS
    first = picture.read_bytes()
    draw(partition, picture)
    assert picture.read_bytes() == first and b"tower 1" in first

    experiment = of_words([*WORDS, f"data.cache={tmp_path}"], where="test")
    data = probe.opened(experiment)
    tables = experiment.model.tables(data, "fp32")
    assert TowerOptions(partition=str(file)).towers(tables, cluster(2, 2)) == partition.towers

    again = tmp_path / "again.json"
    assert main(["partition", *WORDS, f"data.cache={tmp_path}", *options, "-o", str(again), "--compare", str(file)]) == 0
    assert again.read_bytes() == file.read_bytes()
    assert "adjusted Rand index with the other partition: 1.000" in capsys.readouterr().out


def test_a_runs_tables_give_their_own_affinity(tmp_path: Path) -> None:
    experiment = of_words([*WORDS, f"data.cache={tmp_path}"], where="test")
    data = probe.opened(experiment)
    run = tmp_path / "run"
    run.mkdir()
    save(experiment.config, run)
    save_plan(plan_for(experiment, data, this_machine(experiment), 128).plan, run / "plan.json")
    with pytest.raises(UserError, match="no checkpoint"):
        of_run(run, experiment)
    with one_thread():
        model = probe.trained(experiment, data, 5, seed=4)
        pieces = [checkpoint.whole(f"table.{name}.weight", bag.weight.data) for name, bag in probe.bags(model).items()]
        checkpoint.save(run / "checkpoints" / "step=5", pieces, {}, 0, lambda: None)
        loaded, its_data = of_run(run, experiment)
        np.testing.assert_array_equal(affinity(probe.embeddings(loaded, its_data, 500)), affinity(probe.embeddings(model, data, 500)))
    assert main(["partition", str(run), "--towers", "4", "--samples", "500", "-o", str(tmp_path / "p.json")]) == 0
    assert load_partition(tmp_path / "p.json").source == {"run": "run", "model": "dlrm", "samples": 500, "absolute": "of_mean"}


def test_balance_tells_sizes_and_loads() -> None:
    assert balance([[0, 1], [2]], [4.0, 4.0, 16.0]) == {
        "tables": [2, 1],
        "size_ratio": 2.0,
        "look_up_bytes_per_sample": [8.0, 16.0],
        "load_over_mean": 4 / 3,
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--towers", "9"], "each tower needs a table.*9 towers, 8 tables"),
        (["--towers", "0"], "--towers.*too small|too small.*--towers"),
        (["--towers", "2", "--strategy", "alike"], "no such strategy.*given alike"),
        (["--towers", "2", "--ratio", "0.5"], "size ratio"),
        (["--towers", "2", "--dims", "0"], "--dims"),
        (["--towers", "2", "--picture", "x.gif"], "no file of this kind"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    file = tmp_path / "p.json"
    assert main(["partition", *WORDS, f"data.cache={tmp_path}", "--steps", "1", "--samples", "64", "-o", str(file), *words]) == 2
    output = capsys.readouterr().err
    assert re.search(says, output) and output.count("\n") == 1
    assert not file.exists()


def test_sequences_have_no_towers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["partition", "model=flexshard_rm1", "data=random", "--towers", "2", "-o", str(tmp_path / "p.json")]) == 2
    assert "towers are of pooled features" in capsys.readouterr().err

"""`sharder=dmt` as a user runs it: with the towers of a file, and refused in one line where a model cannot have them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import recsys_lab
from recsys_lab.base import paths
from recsys_lab.errors import UserError
from recsys_lab.experiment import of_words
from recsys_lab.partition import probe
from recsys_lab.plan.serialise import load_plan
from recsys_lab.planning import towers_for
from recsys_lab.sharders.dmt.partition_file import Partition
from recsys_lab.tables import Table
from tests.end_to_end.lines import line, result

FEW = ("data.rows_train=2000", "data.rows_validation=500", "data.rows_test=0", "data.batch_size=256", "trainer.max_steps=5")
WORDS = ("model=dlrm", "data.rows_per_table=[40,30,20,10,9,8]", "logger=none", "launcher.ranks_per_host=1", *FEW)
#: Not what strides would give, and of uneven sizes.
TOWERS = (("C5", "C1"), ("C2", "C3", "C6", "C4"))


def partition(path: Path) -> Path:
    names = tuple(f"C{i}" for i in range(1, 7))
    flat = tuple(tuple(float(a == b) for a in names) for b in names)
    Partition(TOWERS, "coherent", names, flat, ((0.0, 0.0),) * 6, 0.0, 1, 2.0, "drawn by hand", {}, {}).save(path)
    return path


@pytest.mark.timeout(240)
def test_a_run_trains_the_towers_of_a_file(tmp_path: Path) -> None:
    file = partition(tmp_path / "towers.json")
    words = [*WORDS, "sharder=dmt", f"sharder.towers.partition={file}", "cluster=h100x64", f"hydra.run.dir={tmp_path / 'run'}"]
    process = line(*words, cache=tmp_path)
    assert process.code == 0, process.err
    here = load_plan(tmp_path / "run" / "plan_here.json")
    assert here.towers == load_plan(tmp_path / "run" / "plan.json").towers == TOWERS
    record = result(tmp_path / "run")
    assert record["plan"]["towers"] == [list(tower) for tower in TOWERS]
    assert "towers.output.all_to_all" in {one["name"] for one in record["measured"]["collectives"]}


@pytest.mark.timeout(240)
def test_a_run_finds_its_towers_and_trains_them(tmp_path: Path) -> None:
    """Probe, partition and training in one line; the second plan of the same model and data trains no probe."""
    words = ["model=dlrm", "data=synthetic_groups", "data.groups=2", "data.rows_per_table=[12,12,12,12]", *FEW, "logger=none"]
    words += ["data.dense_features=0", "launcher.ranks_per_host=1", "sharder=dmt", "sharder.towers.count=2", "cluster=h100x16"]
    words += ["sharder.towers.strategy=coherent", "sharder.towers.probe_steps=3", f"data.cache={tmp_path}"]
    process = line(*words, f"hydra.run.dir={tmp_path / 'run'}", cache=tmp_path)
    assert process.code == 0, process.err
    assert "coherent, found on 3 steps of a short training" in process.out
    towers = load_plan(tmp_path / "run" / "plan_here.json").towers
    assert sorted(map(len, towers)) == [2, 2] and towers == load_plan(tmp_path / "run" / "plan.json").towers
    experiment = of_words(words, where="test")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "user_cache", lambda: tmp_path / "answers of this test")
        assert towers_for(experiment, experiment.open_data(), experiment.cluster) == towers
        patch.setattr(probe, "trained", None)
        assert towers_for(experiment, experiment.open_data(), experiment.cluster) == towers


def test_towers_are_not_sought_in_random_clicks() -> None:
    experiment = of_words(["model=dcn_dmt", "data=random", "sharder=dmt", "sharder.towers.strategy=diverse"], where="test")
    with pytest.raises(UserError, match="towers.strategy: nothing to find towers on; given diverse, with random labels"):
        towers_for(experiment, experiment.open_data(), experiment.cluster)


@pytest.mark.timeout(240)
def test_more_memory_does_not_make_the_plan_slower() -> None:
    """One of MLPerf's tables has half of all look-ups. Cut for want of memory alone, it was whole on a large device, and others waited."""
    words = ["model=dcn_mlperf", "data=random", "cluster=h100x16", "sharder=dmt_sptt", "sharder.store=none"]
    times = [recsys_lab.simulate(*words, f"cluster.device.memory_gb={gb}").iteration_ms for gb in (36, 40, 80, 320)]
    assert times == sorted(times, reverse=True)


def test_a_sequence_model_has_no_towers(tmp_path: Path) -> None:
    experiment = of_words(["model=sequence", "data=interactions", f"data.root={tmp_path}"], where="test")
    with pytest.raises(UserError, match="no tower modules.*2 towers for.*a sharder without tower modules") as refusal:
        experiment.model.build((), 0, torch.device("meta"), (("a",), ("b",)))
    assert "\n" not in str(refusal.value)
    with pytest.raises(UserError, match="compress pooled rows, and it reads sequences.*sharder=torchrec"):
        experiment.model.build((Table("item", 5, 8, ("a",), "none"),), 0, torch.device("meta"), (("a",),))

"""A small DLRMv4 on events by law, under every sharder that holds sequences, on two hosts of two ranks: as one process trains it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.lines import bits, killed, line, result

#: Few events, and nothing that depends on which samples a rank has: no dropout, and attention divided by the cap.
WORDS = (
    "experiment=dlrm_v4/small",
    "mode=train",
    "model.divisor=max_length",
    "model.input_dropout=0.0",
    "model.dropout=0.0",
    "data.users=300",
    "data.max_history=30",
    "trainer.max_steps=12",
    "trainer.measure_steps=4",
    "trainer.evaluate_train_rows=0",
    "trainer.evaluate_every_epochs=0",
    "trainer.device=cpu",
    "logger=none",
    "data.batch_size=64",
)
SHARDERS = {
    "row_wise": ("sharder=torchrec_row_wise",),
    "planned": ("sharder=torchrec",),
    "column_wise": ("sharder=torchrec", "sharder.planner.sharding_types=[column_wise]", "sharder.planner.column_shards=2"),
    "tiers": ("sharder=flexshard_3tier", "cluster=a100x32", "simulate.batch_size=64"),
}


def trained(folder: Path, cache: Path, ranks: int, *words: str) -> dict[str, Any]:
    where = (f"launcher.hosts={ranks}", f"launcher.ranks_per_host={ranks}", f"hydra.run.dir={folder}")
    done = line(*WORDS, *words, *where, cache=cache)
    assert done.code == 0, done.err
    return result(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("alone") / "run"


@pytest.fixture(scope="module")
def alone(folder: Path, cache: Path) -> dict[str, Any]:
    return trained(folder, cache, 1)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("way", SHARDERS)
def test_it_trains_sharded_as_alone(tmp_path: Path, cache: Path, alone: dict[str, Any], way: str) -> None:
    sharded = trained(tmp_path / "run", cache, 2, *SHARDERS[way])
    for split in ("validation", "test"):
        ours, theirs = sharded["quality"][split], alone["quality"][split]
        assert ours["examples"] == theirs["examples"]
        assert ours["log_loss"] == pytest.approx(theirs["log_loss"], rel=2e-4) and ours["auc"] == pytest.approx(theirs["auc"], abs=2e-3)
    assert sharded["measured"]["world_size"] == 4
    plan = json.loads((tmp_path / "run" / "plan.json").read_text())
    assert len(plan["tables"]) == 11


#: Equal ids travel once, each rank has as much work, and dropout draws: what a resumed run must draw and deal again.
UNEVEN = (
    *("data.batch_size=48", "data.balance=work", "sharder.dedup=true", "model.dropout=0.1", "sharder=torchrec_row_wise"),
    *("trainer.max_steps=40", "trainer.checkpoint_every_steps=4", "launcher.hosts=2", "launcher.ranks_per_host=2"),
)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_killed_run_resumes_to_the_same_bits(tmp_path: Path, cache: Path) -> None:
    folder, undisturbed = tmp_path / "run", tmp_path / "undisturbed"
    words = (*(word for word in WORDS if "max_steps" not in word and "batch_size" not in word), *UNEVEN)
    killed(*words, f"hydra.run.dir={folder}", cache=cache, when=(folder / "checkpoints" / "step=4").is_dir, pause_s=0.0, timeout_s=400)
    done = line(f"resume={folder}", cache=cache, timeout_s=400)
    assert done.code == 0 and "resumes  from step" in done.out, done.err
    done = line(*words, f"hydra.run.dir={undisturbed}", cache=cache, timeout_s=400)
    assert done.code == 0, done.err
    assert bits(folder) == bits(undisturbed) and bits(folder)[1] == "step=40"


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("balance", ["tokens", "work"])
def test_balanced_batches_train_as_one_process_does(tmp_path: Path, cache: Path, alone: dict[str, Any], balance: str) -> None:
    """The samples of a step are the same; which rank has them does not matter."""
    balanced = trained(tmp_path / "run", cache, 2, "sharder=torchrec_row_wise", f"data.balance={balance}")
    for split in ("validation", "test"):
        ours, theirs = balanced["quality"][split], alone["quality"][split]
        assert ours["log_loss"] == pytest.approx(theirs["log_loss"], rel=2e-4) and ours["auc"] == pytest.approx(theirs["auc"], abs=2e-3)


@pytest.mark.long
@pytest.mark.timeout(200)
def test_it_is_judged_by_day_and_not_exported(tmp_path: Path, cache: Path, folder: Path, alone: dict[str, Any]) -> None:
    words = ("mode=evaluate", f"start_from={folder}", "evaluate.by=window", "evaluate.min_rows=1", f"hydra.run.dir={tmp_path / 'again'}")
    done = line(*words, cache=cache)
    assert done.code == 0, done.err
    assert result(tmp_path / "again")["quality"]["test"] == alone["quality"]["test"] and "window" in done.out
    refused = line("export", str(folder), "--out", str(tmp_path / "out"), cache=cache, program=("-m", "recsys_lab"))
    assert refused.code == 2 and "times and actions of histories cannot be exported" in refused.err and not (tmp_path / "out").exists()


@pytest.mark.long
@pytest.mark.timeout(200)
def test_towers_say_that_they_hold_no_sequences(tmp_path: Path, cache: Path) -> None:
    done = line(*WORDS, "sharder=dmt", f"hydra.run.dir={tmp_path / 'run'}", cache=cache)
    assert done.code == 2 and "sequences" in done.err and done.err.count("\n") == 1

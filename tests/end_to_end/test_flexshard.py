"""FlexShard from the command line: what the tiers were to save of the global exchange is what they save."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.lines import line, result

DATA = os.environ.get("RECSYS_LAB_DATA")
QUICK = ("trainer.max_steps=24", "trainer.evaluate_every_epochs=0", "trainer.evaluate_train_rows=0", "logger=none", "seed=3")
#: A sequence model over a power law, small enough for four processes here.
POWER_LAW = (
    "model=flexshard_rm4",
    "model.law=null",
    "model.rows=[20000]",
    "model.lengths=[40]",
    "model.embedding_dim=16",
    "model.over_layers=[16,1]",
    "data=random",
    "data.exponent=1.05",
    "data.rows_validation=256",
    "data.batch_size=512",
)


def run(folder: Path, cache: Path, *words: str) -> dict[str, Any]:
    done = line(*words, *QUICK, f"hydra.run.dir={folder}", cache=cache)
    assert done.code == 0, done.err
    return result(folder)


def global_exchange_bytes(made: dict[str, Any]) -> float:
    """Recorded bytes of the rows' gradients that a rank puts into all-to-alls over all four ranks: a row for each of its look-ups."""
    found = [c for c in made["measured"]["collectives"] if c["group"] == "0-3" and c["name"].endswith(".gradient.all_to_all")]
    assert len(found) <= 1, found
    return sum(c["bytes"] for c in found)


def check_reduction(baseline: dict[str, Any], tiered: dict[str, Any]) -> float:
    """Predicted from frequencies and recorded while training, within 2 points. The recorded reduction."""
    recorded = 1 - global_exchange_bytes(tiered) / global_exchange_bytes(baseline)
    coverage = tiered["measured"]["coverage"]
    assert recorded == pytest.approx(1 - coverage["planned"]["row_sharded"], abs=0.02)
    assert recorded == pytest.approx(1 - coverage["measured"]["row_sharded"], abs=0.02)
    return recorded


@pytest.mark.timeout(300)
def test_a_power_law_saves_what_was_predicted(tmp_path: Path, cache: Path) -> None:
    baseline = run(tmp_path / "row_wise", cache, *POWER_LAW, "sharder=torchrec_row_wise")
    three = run(tmp_path / "three", cache, *POWER_LAW, "sharder=flexshard_3tier", "cluster=a100x32", "simulate.batch_size=512")
    assert 0.3 < check_reduction(baseline, three) < 0.99
    assert three["plan"]["tiers"]["host_sharded"]["rows"] > 0 and not three["measured"]["coverage"]["replanning"]["worth_it"]
    assert any(c["name"] == "host_sharded.gradient.all_reduce" for c in three["measured"]["collectives"])
    shown = line("show", str(tmp_path / "three"), "--plan", cache=cache, program=("-m", "recsys_lab")).out
    for said in ("tier begins at row", "This plan and others", "row-wise only", "rule=optimal", "no replica would save memory"):
        assert said in " ".join(shown.split()), said


@pytest.mark.timeout(300)
def test_frequencies_of_another_day_are_told_to_be_stale(tmp_path: Path, cache: Path) -> None:
    """Planned with the look-ups of other draws, whose hot rows are others: the run says what a new plan would save."""
    words = (*POWER_LAW, "data.seed_of_draws=7", "--rows", "20000", "-o", str(tmp_path / "f.npz"))
    counted = line("frequencies", *words, cache=cache, program=("-m", "recsys_lab"))
    assert counted.code == 0, counted.err
    goal = ("sharder=flexshard_2tier", "sharder.planner.goal=max_memory_savings", "cluster=a100x32", "simulate.batch_size=512")
    folder = tmp_path / "run"
    done = line(*POWER_LAW, *goal, *QUICK, f"data.frequencies={tmp_path / 'f.npz'}", f"hydra.run.dir={folder}", cache=cache)
    assert done.code == 0, done.err
    again = result(folder)["measured"]["coverage"]["replanning"]
    assert again["worth_it"] and again["access_share_new"]["row_sharded"] < again["access_share_now"]["row_sharded"] - 0.2
    assert "plan again" in done.out and "plan again" in (folder / "report.html").read_text()


@pytest.mark.skipif(DATA is None, reason="set RECSYS_LAB_DATA to the folder that holds amazon_beauty")
@pytest.mark.timeout(400)
def test_amazon_beauty_saves_what_was_predicted(tmp_path: Path, cache: Path) -> None:
    beauty = ("model=sequence", "data=interactions", f"data.root={DATA}/amazon_beauty", "cluster=a100x32")
    baseline = run(tmp_path / "row_wise", cache, *beauty, "sharder=torchrec_row_wise")
    tiered = run(tmp_path / "two", cache, *beauty, "sharder=flexshard_2tier", "sharder.planner.goal=max_memory_savings")
    assert 0.5 < check_reduction(baseline, tiered) < 0.99
    for split in ("validation", "test"):
        quality = tiered["quality"][split]
        assert quality["users"] == 22_363
        assert 0 < quality["hit_rate_10"] < quality["hit_rate_10_of_100"] < 1 and 0 < quality["ndcg_10"] < quality["ndcg_10_of_100"] < 1
    assert json.loads((tmp_path / "two" / "plan.json").read_text())["hosts"] == 4

"""What the counts of a log decide for a model of the next item, and that a key of the user wins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recsys_lab.config.next_item_defaults import FEW_ITEMS, LogCounts, next_item_defaults
from recsys_lab.errors import UserError
from recsys_lab.experiment import of_words

SPARSE = LogCounts(500, 5000, 30)


def log(folder: Path) -> tuple[str, ...]:
    rows = [f"{user},{(user * 7 + i * i) % 23},{i}" for user in range(60) for i in range(4 + user % 5)]
    (folder / "log.csv").write_text("\n".join(["user_id,item_id,timestamp", *rows]) + "\n")
    return "data=interactions", f"data.root={folder}", f"data.cache={folder / 'cache'}", "sharder=torchrec_row_wise", "logger=none"


def test_counts_decide_what_is_open(tmp_path: Path) -> None:
    experiment = of_words([*log(tmp_path), "model=sequence"], "a test")
    keys, trainer, optimizer = experiment.model.keys, experiment.trainer, experiment.optimizer
    fit, model = next_item_defaults(SPARSE, keys, trainer, optimizer, True)
    assert model == {"dropout": 0.5, "max_length": 30, "loss": "softmax", "temperature": 0.05}
    assert fit.trainer.early_stopping.metric == "ndcg_10" and fit.trainer.restore_best and fit.trainer.early_stopping.patience
    assert {f"model.{key}" for key in model} < set(fit.chosen) and fit.chosen["trainer.max_epochs"] > 1
    many = replace(SPARSE, items=FEW_ITEMS + 1, interactions=100 * FEW_ITEMS + 100)
    assert next_item_defaults(many, keys, trainer, optimizer, True)[1] == model | {"loss": "sampled_softmax", "dropout": 0.2}
    assert next_item_defaults(SPARSE, keys, trainer, optimizer, False)[1]["loss"] == "sampled_softmax"


def test_a_log_is_opened_with_the_negatives_of_the_loss_that_was_chosen(tmp_path: Path) -> None:
    experiment = of_words([*log(tmp_path), "model=hstu", "data.batch_size=20", "launcher.ranks_per_host=2"], "a test")
    data = experiment.open_data()
    decided = experiment.with_default_hyperparameters(data)
    assert decided.model.loss == "softmax" and decided.chosen["model.max_length"] == data.history_counts.max_length == 20
    negative = {f.name: f for f in decided.open_data().features}["negative"]
    assert negative.mean_length * decided.batch_size_here == negative.rows - 1


def test_a_key_of_the_user_wins(tmp_path: Path) -> None:
    own = ("model.loss=binary", "model.dropout=0.1", "model.max_length=7", "data.max_length=5", "trainer.max_epochs=2")
    own = (*own, "trainer.early_stopping.patience=1", "trainer.early_stopping.metric=hit_rate_10", "trainer.max_minutes=3.0")
    experiment = of_words([*log(tmp_path), "model=sequence", "trainer.restore_best=true", *own], "a test")
    decided = experiment.with_default_hyperparameters(experiment.open_data())
    assert not decided.chosen and decided.model.keys == experiment.model.keys and decided.trainer == experiment.trainer


def test_a_full_softmax_has_one_batch_here_and_on_the_named_cluster(tmp_path: Path) -> None:
    words = (
        *log(tmp_path),
        "model=sequence",
        "model.loss=softmax",
        "cluster=a100x32",
        "data.batch_size=64",
        "launcher.hosts=1",
        "launcher.ranks_per_host=2",
    )
    experiment = of_words([*words, "simulate.batch_size=512"], "a test")
    with pytest.raises(UserError, match="model.loss: .*512 samples a rank of a100x32, 32 here"):
        experiment.check(experiment.open_data())
    same = of_words([*words, "simulate.batch_size=32"], "a test")
    same.check(same.open_data())

"""What a run that resumes for longer, or under another plan, says and refuses before anything is written."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recsys_lab.config.command_line import read_run
from recsys_lab.config.frozen import plain, save
from recsys_lab.data.protocol import DataSet
from recsys_lab.errors import UserError
from recsys_lab.experiment import Experiment, resolve
from recsys_lab.plan import ShardingPlan
from recsys_lab.precision import Precision
from recsys_lab.tables import Table
from recsys_lab.train.column_cuts import column_cuts, merged_tables
from recsys_lab.train.resume import goes_on
from recsys_lab.train.same_bits import OtherBits, other_bits
from tests.plan.plans import placement

TABLES = (Table("user", 40, 16, ("user",)), Table("item", 30, 16, ("item",)))
WORDS = ("model=dcn", "data.rows_train=1000", "data.batch_size=100", "logger=none", "trainer.max_epochs=2")
FP32 = Precision("fp32")


def plan(*schemes: str, hosts: int = 1, ranks: int = 2) -> ShardingPlan:
    placements = [placement(table, scheme, 0, hosts, ranks) for table, scheme in zip(TABLES, schemes)]
    return ShardingPlan("by_hand", hosts, ranks, TABLES, tuple(placements))


@pytest.fixture(scope="module")
def data() -> DataSet:
    return experiment().open_data()


def experiment(*words: str) -> Experiment:
    return resolve(read_run([*WORDS, *words], "test").config)


def run_in(folder: Path, *words: str, **state: Any) -> Path:
    """A run with a checkpoint of step 20, which is all of its two epochs."""
    save(plain(read_run([*WORDS, *words], "test").config), folder)
    (folder / "checkpoints" / "step=20").mkdir(parents=True)
    schedule = {"last_epoch": 20, "base_lrs": [0.5], "_last_lr": [0.5]}
    content = {"global_step": 20, "lr_schedulers": [schedule], "callbacks": {}, "columns": {}} | state
    (folder / "checkpoints" / "step=20" / "trainer.json").write_text(json.dumps(content))
    return folder


def sentences(folder: Path, data: DataSet, *words: str, before: str = "table_wise", now: str = "table_wise") -> list[str]:
    return goes_on(experiment(*words), data, plan(now, now), folder, plan(before, before))


def test_more_epochs_go_on_without_a_word_where_rates_do_not_depend_on_them(data: DataSet, tmp_path: Path) -> None:
    assert sentences(run_in(tmp_path), data, "trainer.max_epochs=3") == []


def test_a_schedule_over_all_steps_is_said(data: DataSet, tmp_path: Path) -> None:
    linear = ("optimizer.schedule.name=linear", "optimizer.schedule.final_ratio=0")
    folder = run_in(tmp_path, *linear, lr_schedulers=[{"last_epoch": 20, "base_lrs": [0.5], "_last_lr": [0.0]}])
    assert sentences(folder, data, *linear) == []
    [said] = sentences(folder, data, *linear, "trainer.max_epochs=4")
    assert said == "the linear schedule is over 40 steps now: the learning rate goes from 0 to 0.5 of its highest"


@pytest.mark.parametrize(
    ("words", "state", "says"),
    [
        (("trainer.max_epochs=1",), {}, "trained for longer already; given 10 steps; allowed: 20 steps or more"),
        (("trainer.max_steps=7",), {}, "trainer.max_steps: the run has trained for longer already; given 7 steps"),
        (
            ("trainer.max_epochs=9", "trainer.early_stopping.patience=2"),
            {"callbacks": {"ResumableEarlyStopping{'mode': 'max'}": {"wait_count": 2}}},
            "early stopping has ended this run.*patience=4",
        ),
        (
            ("trainer.max_epochs=9", "trainer.max_minutes=2"),
            {"callbacks": {"TimeLimit": {"spent": 121.0, "reached": True}}},
            "time limit has ended this run; given 2.0 minutes.*max_minutes=5",
        ),
    ],
)
def test_what_would_train_nothing_more_is_refused(data: DataSet, tmp_path: Path, words: tuple, state: dict, says: str) -> None:
    folder = run_in(tmp_path, *words[1:], **state)
    with pytest.raises(UserError, match=says):
        sentences(folder, data, *words)


def test_state_of_column_shards_joins_and_does_not_divide(data: DataSet, tmp_path: Path) -> None:
    halves, whole = plan("column_wise", "table_wise"), plan("table_wise", "row_wise")
    assert column_cuts(halves) == {"user": [[0, 8], [8, 16]]} and column_cuts(whole) == {}
    assert merged_tables(column_cuts(halves), whole) == ["user"] and merged_tables(column_cuts(halves), halves) == []
    with pytest.raises(UserError, match="table user: .*cannot be divided; given columns 0-8, 8-16 under this plan, 0-16 in the checkpoint"):
        merged_tables({}, halves)
    adagrad = "optimizer=row_wise_adagrad"
    with pytest.raises(UserError, match="cannot be divided"):
        sentences(run_in(tmp_path / "a", adagrad), data, adagrad, now="column_wise")
    said = sentences(run_in(tmp_path / "b", adagrad, columns=column_cuts(plan("column_wise", "column_wise"))), data, adagrad)
    assert "state of 2 tables is the mean of its column shards" in said[0]


def test_which_plans_have_the_same_bits() -> None:
    def between(a: ShardingPlan, b: ShardingPlan, one_id: bool = True, optimizer: str = "adam", precision: Precision = FP32) -> OtherBits:
        return other_bits(a, b, ("user", "item") if one_id else (), precision, optimizer)

    in_order = [plan(one, other) for one in ("table_wise", "row_wise", "column_wise") for other in ("row_wise", "table_wise")]
    assert {between(a, b) for a in in_order for b in in_order} == {OtherBits()}
    tables, rows, replicas = plan("table_wise", "table_wise"), plan("row_wise", "row_wise"), plan("data_parallel", "row_wise")
    assert "bags first of 2 tables" in between(tables, rows, one_id=False).sentence()
    assert between(rows, replicas).last == ("replicas or hosts add gradients first of 1 table",)
    assert between(replicas, replicas) == OtherBits()
    assert "other column shards of 1 table" in between(tables, plan("column_wise", "row_wise"), optimizer="row_wise_adagrad").sentence()
    assert between(tables, rows, precision=replace(FP32, forward_comm="fp8")).more and not between(tables, rows).more
    assert "dropout" in between(tables, plan("table_wise", "table_wise", ranks=4)).sentence()
    assert between(tables, rows).sentence() == "elsewhere, to the same bits as if it had stayed"

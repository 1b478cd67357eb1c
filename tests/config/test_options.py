"""The ranges and defaults of the options without a `_target_`, as a user reads them."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any

import numpy as np
import pytest
import yaml

from recsys_lab.base.paths import CONF
from recsys_lab.base.ranges import Range
from recsys_lab.config.options import DataCommon, ExecutorOptions, SharderCommon, StudyCommon
from recsys_lab.config.schema import PLAIN
from tests.config.declared import of_group

MILLION, BILLION = "1,000,000", "1,000,000,000"
COUNT, FROM_ZERO, ROWS = f"1 or more, at most {BILLION}", f"0 or more, at most {BILLION}", "0 or more, at most 1,099,511,627,776"
SHARE, SOME, NOT_NEGATIVE = "0 or more, at most 1", f"1e-09 or more, at most {BILLION}", f"0 or more, at most {BILLION}"
METRIC = "auc, ne, log_loss, ndcg_10, hit_rate_10"
STATED = {
    "seed": "0 or more, at most 4,294,967,295",
    "mode": "auto, plan, simulate, train",
    "optimizer.dense.name": "sgd, adagrad, adam",
    "optimizer.dense.lr": f"0 or more, at most {MILLION}",
    "optimizer.dense.eps": "1e-30 or more, at most 1",
    "optimizer.dense.weight_decay": NOT_NEGATIVE,
    "optimizer.dense.momentum": "0 or more, less than 1",
    "optimizer.sparse.name": "sgd, adagrad, row_wise_adagrad, adam",
    "optimizer.sparse.lr": f"0 or more, at most {MILLION}",
    "optimizer.sparse.eps": "1e-30 or more, at most 1",
    "optimizer.sparse.weight_decay": NOT_NEGATIVE,
    "optimizer.schedule.name": "constant, linear, cosine, step",
    "optimizer.schedule.warmup_steps": FROM_ZERO,
    "optimizer.schedule.final_ratio": SHARE,
    "optimizer.schedule.step_epochs": SOME,
    "optimizer.schedule.gamma": SHARE,
    "trainer.device": "auto, cpu, cuda",
    "trainer.max_epochs": f"1 or more, at most {MILLION}",
    "trainer.max_minutes": SOME,
    "trainer.max_steps": f"-1 or more, at most {BILLION}",
    "trainer.evaluate_every_epochs": FROM_ZERO,
    "trainer.evaluate_train_rows": ROWS,
    "trainer.evaluate_pairs": ROWS,
    "trainer.checkpoint_every_steps": FROM_ZERO,
    "trainer.log_every_steps": COUNT,
    "trainer.gradient_clip_norm": SOME,
    "trainer.early_stopping.metric": METRIC,
    "trainer.early_stopping.patience": FROM_ZERO,
    "trainer.measure_steps": "1 or more, at most 100,000",
    "trainer.replan_saving": NOT_NEGATIVE,
    "ablation.level": "more than 0, less than 1",
    "ablation.prune.metric": METRIC,
    "ablation.prune.bounds": f"-{BILLION} or more, at most {BILLION}",
    "simulate.batch_size": COUNT,
    "sharder.memory_budget_gb": SOME,
    "sharder.store": "auto, none, host, host_cached, disk_cached",
    "sharder.cache_policy": "lfu, lru",
    "sharder.scratch": "a folder, at most 4095 characters",
    "study.budget": "quick, long",
    "study.within": NOT_NEGATIVE,
    "study.within_points": NOT_NEGATIVE,
    "data.batch_size": COUNT,
    "data.prefetch_batches": "1 or more, at most 1,024",
}


def declared() -> dict[str, Any]:
    """What each option declares, by its name."""
    groups = PLAIN | {"study": StudyCommon, "data": DataCommon}
    return {option.name: option.rule for where, schema in groups.items() for option in of_group(where, schema, {})}


def test_every_range_is_the_one_that_users_read() -> None:
    assert {name: str(rule) for name, rule in declared().items() if rule is not None} == STATED


def test_a_range_holds_its_ends_and_nothing_beyond_them() -> None:
    """But for those that are said to be outside."""
    ranges = {name: rule for name, rule in declared().items() if isinstance(rule, Range)}
    assert len(ranges) > 25
    for name, rule in ranges.items():
        for end, outwards, belongs in (
            (rule.least, -np.inf, True),
            (rule.most, np.inf, True),
            (rule.above, -np.inf, False),
            (rule.below, np.inf, False),
        ):
            if np.isfinite(end):
                assert rule.has(float(end)) == belongs, (name, end)
                assert not rule.has(float(np.nextafter(float(end), outwards))), (name, end)
                assert rule.has(float(np.nextafter(float(end), -outwards))), (name, end)


def test_the_least_eps_is_a_number_of_float32() -> None:
    """Smaller than the least normal one it would lose digits, and end as 0."""
    assert declared()["optimizer.sparse.eps"].least >= np.finfo(np.float32).tiny > 1e-38
    assert np.float32(1e-30) == pytest.approx(1e-30)


def defaults(kind: Any) -> dict[str, Any]:
    return {field.name: field.default for field in fields(kind) if field.default is not MISSING}


def test_defaults_are_those_of_the_files() -> None:
    """An experiment that Python makes has the options of a command line that says nothing."""
    config = yaml.safe_load((CONF / "config.yaml").read_text())
    common = yaml.safe_load((CONF / "sharder" / "common" / "stores.yaml").read_text())
    assert defaults(PLAIN[""]) == {key: config[key] for key in ("overwrite", "baselines")} == {"overwrite": False, "baselines": True}
    assert defaults(SharderCommon) == common | {"tower_modules": False}
    assert defaults(PLAIN["ablation"]) == {"prune": None} and defaults(PLAIN["trainer"]) == {"start_from_baseline": None, "device": "auto"}


def test_the_executor_s_defaults() -> None:
    options = {"exchange": "all_to_all", "overlap": True, "communication_cores": 0, "pipeline": False, "dense_bucket_mib": 25}
    assert defaults(ExecutorOptions) == options  # 25 MiB are DistributedDataParallel's own
    assert (ExecutorOptions().in_flight, ExecutorOptions(pipeline=True).in_flight) == (1, 2)

"""Values at their ends, and what the YAML may ask of a machine, without a command line."""

from __future__ import annotations

from functools import cache
from typing import Any

import psutil
import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from recsys_lab.config.checks import check_values
from recsys_lab.config.choices import apart_from_hydra, built, cluster_here
from recsys_lab.config.command_line import CONF, read
from recsys_lab.config.frozen import freeze, load, register_resolvers, save
from recsys_lab.config.options import ExecutorOptions
from recsys_lab.config.schema import check_config
from recsys_lab.errors import UserError


@cache
def plain() -> DictConfig:
    config = read([]).config
    assert config is not None
    return config


def checked(**changes: Any) -> None:
    """The default config with other values, `__` for a dot."""
    config = OmegaConf.create(OmegaConf.to_container(plain()))
    for key, value in changes.items():
        OmegaConf.update(config, key.replace("__", "."), value)
    check_config(config, OmegaConf.to_container(config))
    check_values(config)


@pytest.mark.parametrize(
    ("key", "least"),
    [
        ("seed", 0),
        ("data__batch_size", 4),
        ("data__prefetch_batches", 1),
        ("simulate__batch_size", 1),
        ("launcher__hosts", 1),
        ("launcher__ranks_per_host", 1),
        ("trainer__max_epochs", 1),
        ("trainer__max_steps", -1),
        ("trainer__checkpoint_every_steps", 0),
        ("trainer__log_every_steps", 1),
        ("trainer__measure_steps", 1),
        ("trainer__replan_saving", 0),
        ("trainer__early_stopping__patience", 0),
        ("trainer__evaluate_every_epochs", 0),
        ("trainer__evaluate_train_rows", 0),
        ("trainer__evaluate_pairs", 0),
        ("optimizer__dense__lr", 0),
        ("optimizer__sparse__lr", 0),
        ("optimizer__schedule__warmup_steps", 0),
    ],
)
def test_the_least_value_is_taken_and_one_less_is_not(key: str, least: int) -> None:
    checked(**{key: least})
    with pytest.raises(UserError, match=key.replace("__", r"\.")):
        checked(**{key: least - 1})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"trainer__max_steps": 0}, "trainer.max_steps: nothing to train"),
        ({"trainer__max_steps": 1}, None),
        ({"ablation__level": 0.0}, "ablation.level"),
        ({"ablation__level": 1.0}, "ablation.level"),
        ({"ablation__level": 0.99}, None),
        ({"trainer__gradient_clip_norm": 0.0}, "gradient_clip_norm"),
        ({"trainer__gradient_clip_norm": 0.1}, None),
        ({"trainer__evaluate_every_epochs": 0}, None),
        ({"trainer__evaluate_every_epochs": 0, "trainer__restore_best": True}, "need evaluations on the way"),
        ({"trainer__evaluate_every_epochs": 0, "trainer__early_stopping__patience": 1}, "need evaluations on the way"),
        ({"trainer__evaluate_every_epochs": 1, "trainer__restore_best": True}, None),
        ({"precision__compute": "bf16"}, "bf16 for weights in fp32"),
        ({"precision__dense": "bf16"}, "fp32 for weights in bf16"),
        ({"precision__dense": "bf16", "precision__compute": "bf16"}, None),
        ({"precision__forward_comm": "int8"}, "training has no such format"),
        ({"precision__forward_comm": "int8", "mode": "plan"}, None),
        ({"precision__forward_comm": "int8", "mode": "train"}, "training has no such format"),
        ({"precision__forward_comm": "fp8", "mode": "train"}, None),
        ({"launcher__hosts": 8, "launcher__ranks_per_host": 8, "data__batch_size": 63}, "63 for 64 ranks; allowed: 64 or more"),
        ({"launcher__hosts": 8, "launcher__ranks_per_host": 8, "data__batch_size": 64}, None),
    ],
    ids=str,
)
def test_what_goes_together(changes: dict[str, Any], says: str | None) -> None:
    if says is None:
        checked(**changes)
    else:
        with pytest.raises(UserError, match=says):
            checked(**changes)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${host_link_gb_s:4,2.5}", 10.0),
        ("${of_ranks:4,2.5}", 10.0),
        ("${of_host:4,10}", 2.5),
        ("${run_name:null,dlrm,dmt}", "dlrm_dmt"),
        ("${run_name:flexshard,dlrm,dmt}", "dlrm_dmt"),
        ("${run_name:flexshard/table5,dlrm,dmt}", "flexshard_table5"),
        ("${torchrun_hosts:}", 3),
        ("${torchrun_ranks_per_host:}", 2),
        ("${core_share:10,2,4}", 2.5),
        ("${core_share:10,1,1}", 10.0),
    ],
)
def test_what_the_yaml_may_ask(monkeypatch: pytest.MonkeyPatch, text: str, value: Any) -> None:
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    monkeypatch.setattr("recsys_lab.config.calibrated.os.sched_getaffinity", lambda _: {0, 1})
    register_resolvers()
    assert OmegaConf.create({"x": text}).x == value


def test_memory_is_shared_by_the_ranks_of_a_machine() -> None:
    register_resolvers()
    gb = psutil.virtual_memory().total / 1e9
    assert OmegaConf.create({"x": "${local_memory_gb:2,2}"}).x == round(gb / 4, 1)
    assert OmegaConf.create({"x": "${local_memory_gb:0,2}"}).x == round(gb, 1)


def test_alone_a_process_is_one_rank_of_one_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    register_resolvers()
    assert (OmegaConf.create({"x": "${torchrun_hosts:}"}).x, OmegaConf.create({"x": "${torchrun_ranks_per_host:}"}).x) == (1, 1)


def test_this_machine_as_a_cluster_has_the_ranks_asked_for() -> None:
    on = cluster_here(2, 3)
    assert (on.hosts, on.ranks_per_host, on.device.kind) == (2, 3, "cpu")


def test_a_choice_is_built_within_a_job_of_hydras() -> None:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert GlobalHydra.instance().hydra is not None
        with apart_from_hydra():
            assert GlobalHydra.instance().hydra is None and built("cluster", "h100x8").world_size == 8


def test_the_executor_s_options_unless_told() -> None:
    options = ExecutorOptions()
    assert (options.exchange, options.overlap, options.communication_cores, options.pipeline) == ("all_to_all", True, 0, False)


def test_a_frozen_config_is_itself_and_goes_into_a_file_and_back(tmp_path) -> None:
    assert freeze(plain()) is plain()
    save(OmegaConf.to_container(plain()), tmp_path)
    assert load(tmp_path) == plain()
    with pytest.raises(UserError, match="no run to resume here"):
        load(tmp_path / "none")
    (tmp_path / "config.yaml").write_text("a: [")
    with pytest.raises(UserError, match="config.yaml cannot be read"):
        load(tmp_path)

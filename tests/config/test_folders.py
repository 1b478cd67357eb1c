"""Which folder a command line means, and whose code the config in it may name."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from recsys_lab.base.paths import CONF
from recsys_lab.config.command_line import read
from recsys_lab.config.folders import own_folder, stored, to_start_from, words_after, words_of
from recsys_lab.config.frozen import plain, save
from recsys_lab.config.targets import Named, check_targets
from recsys_lab.errors import UserError

#: Keys that may be null, or any word.
FREE = ("resume", "start_from", "predictions", "overwrite", "study")


@pytest.mark.parametrize(
    "name", ["", " ", ".", "./", "/", "..", None, 5, ["a"], os.path.expanduser("~"), "~nobody_here/a", str(CONF.parent), "runs/.."]
)
def test_a_folder_that_a_run_would_not_have_to_itself(name):
    with pytest.raises(UserError, match="hydra.run.dir"):
        own_folder(name, "hydra.run.dir")


@pytest.mark.parametrize("name", ["runs/a", "/scratch/run", "x~", "...", "a b"])
def test_a_folder_of_its_own(name):
    assert own_folder(name, "hydra.run.dir") == Path(name)


@pytest.fixture(scope="module")
def whole() -> dict:
    return plain(read(["logger=none"]).config)


def refused(folder: Path, text: str | bytes) -> str:
    (folder / "config.yaml").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(UserError) as caught:
        stored(folder, Named())
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_a_run_saved_is_read_back(tmp_path, whole):
    save(whole, tmp_path)
    assert plain(stored(tmp_path, Named())) == whole and os.listdir(tmp_path) == ["config.yaml"]


@pytest.mark.parametrize("text", [b"", b"[]", b"5", b"seed: 1\n", b"a: [", b"\x00\x01", b"\xff\xfe\x00", b"a: 1\na: 2\n"])
def test_a_config_that_is_none(text, tmp_path):
    assert "config.yaml" in refused(tmp_path, text)


def test_a_config_with_a_part_of_another_shape(tmp_path, whole):
    for key in whole:
        for value in (5, [1, 2], {"a": 1}, None):
            if (key, value) not in [("seed", 5), ("choices", {"a": 1}), ("baselines", 5)] and key not in FREE:
                refused(tmp_path, yaml.safe_dump(whole | {key: value}))


def test_words_that_are_none(tmp_path):
    (tmp_path / ".hydra").mkdir()
    for text in ("5", "{a: 1}", "[1]", "a: ["):
        (tmp_path / ".hydra" / "overrides.yaml").write_text(text)
        with pytest.raises(UserError, match="overrides.yaml"):
            words_of(tmp_path)
    (tmp_path / ".hydra" / "overrides.yaml").write_text(
        "[model=dcn, +hydra.searchpath=x, ++resume=y, overwrite=true, hydra/launcher=z, seed=3]"
    )
    assert words_of(tmp_path) == ["model=dcn", "seed=3"]


@pytest.mark.parametrize(
    "target",
    [
        "os.system",
        "foreign.f",
        "recsys_lab.job.os.system",
        "launchers.torchrun.os.system",
        "recsys_labs.f",
        "torch.load",
        5,
        None,
        "",
        "${seed}",
    ],
)
def test_code_that_is_not_ours(target, tmp_path, whole):
    for where in ("logger", "model"):
        config = whole | {where: whole[where] | {"_target_": target}}
        assert f"{where}._target_" in refused(tmp_path, yaml.safe_dump(config))


def test_code_of_a_module_that_the_command_names(tmp_path, whole):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "mine.yaml").write_text("# mine\n_target_: my_models.wide.Wide\n")
    config = read(["logger=none"]).config.copy()
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    OmegaConf.set_readonly(config, False)
    config.model._target_ = "my_models.wide.Deep"
    for words in ([f"hydra.searchpath=[file://{tmp_path}]"], ["model._target_=my_models.wide.Wide"], ["model={_target_:my_models.wide.f}"]):
        check_targets(config, Named.of(OverridesParser.create().parse_overrides(words)), tmp_path)
    check_targets(config, Named.of([], str(tmp_path)), tmp_path)
    for words in ([], ["model._target_=my_models.other.Wide"], ["hydra.searchpath=[pkg://my_models]"]):
        with pytest.raises(UserError, match="model._target_"):
            check_targets(config, Named.of(OverridesParser.create().parse_overrides(words)), tmp_path)


def test_every_target_of_ours_is_known_as_ours(tmp_path):
    """But for Hydra's own plugins, which a config of a run does not hold."""
    from omegaconf import OmegaConf

    targets = {m for file in CONF.rglob("*.yaml") for m in re.findall(r"^\s*_target_: ([\w.]+)", file.read_text(), re.MULTILINE)}
    own_targets = sorted(target for target in targets if not target.startswith("hydra_plugins."))
    assert len(own_targets) > 50
    check_targets(OmegaConf.create([{"_target_": target} for target in own_targets]), Named(), tmp_path)


@pytest.mark.parametrize("target", ["recsys_lab.nowhere.made", "recsys_lab.units.nothing"])
def test_a_target_of_ours_that_is_gone_is_left_to_who_needs_it(target):
    check_targets(OmegaConf.create({"model": {"_target_": target}}), Named(), Path("run"))


def test_words_come_after_those_of_the_run_that_they_start_from():
    earlier = ["sharder=dmt", "sharder.towers.strategy=weighted", "data.root=a", "+profile@simulate.profile=neo", "seed=3"]
    words = ["sharder=torchrec", "seed=4", "start_from=b"]
    assert words_after(earlier, words) == ["data.root=a", "+profile@simulate.profile=neo", *words]


@pytest.mark.parametrize("name", ["nothing_here", "", [1]])
def test_no_run_to_start_from(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="start_from"):
        to_start_from(name)


def test_a_line_starts_from_a_run_or_one_of_its_checkpoints(tmp_path, whole):
    save(whole, tmp_path)
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text("[seed=3, model=dlrm]")
    (tmp_path / "checkpoints" / "step=7").mkdir(parents=True)
    for folder in (tmp_path, tmp_path / "checkpoints" / "step=7"):
        config = read([f"start_from={folder}", "mode=evaluate"]).config
        assert (config.seed, config.choices.model, config.start_from) == (3, "dlrm", str(folder))
    with pytest.raises(UserError, match="start_from: no run"):
        read([f"start_from='{tmp_path / 'checkpoints'}'", "mode=evaluate"])


def test_jobs_of_a_sweep_start_from_runs_and_others_from_such_a_job(tmp_path, whole):
    """A job's words come after those of its own run. Its folder keeps its own alone, by which the sweep finds it again."""
    for name, words in (("a", "[model=dlrm, seed=3]"), ("b", "[model=dcn, data.batch_size=64]")):
        save(whole, tmp_path / name)
        (tmp_path / name / ".hydra").mkdir()
        (tmp_path / name / ".hydra" / "overrides.yaml").write_text(words)
    a, b = tmp_path / "a", tmp_path / "b"
    seeds = read(["-m", f"start_from={a}", "seed=1,2"])
    assert [(c.choices.model, c.seed, c.start_from) for c in seeds.configs] == [("dlrm", 1, str(a)), ("dlrm", 2, str(a))]
    runs = read(["-m", f"start_from={a},{b}", "mode=evaluate"])
    assert [(c.choices.model, c.seed, c.data.batch_size == 64) for c in runs.configs] == [("dlrm", 3, False), ("dcn", 1, True)]
    assert list(runs.composed[runs.jobs[0]].hydra.overrides.task) == list(runs.jobs[0]) == [f"start_from={a}", "mode=evaluate"]

    job = tmp_path / "sweep" / "0"
    shutil.copytree(a, job)
    (job / ".hydra" / "overrides.yaml").write_text(f"[start_from={a}, seed=5]")
    (job.parent / "sweep.json").write_text("{}")
    config = read([f"start_from={job}", "mode=evaluate"]).config
    assert (config.choices.model, config.seed, config.start_from) == ("dlrm", 5, str(job))
    shutil.rmtree(a)
    with pytest.raises(UserError, match="start_from: no run"):
        read([f"start_from={job}", "mode=evaluate"])
    with pytest.raises(UserError, match="predictions: not in a sweep"):
        read(["-m", f"start_from={b}", "seed=1,2", "mode=evaluate", "predictions=p.parquet"])


def test_code_of_a_run_that_is_not_ours_is_not_run(tmp_path, whole):
    save(whole, tmp_path)
    (tmp_path / ".hydra").mkdir()
    (tmp_path / ".hydra" / "overrides.yaml").write_text("[logger._target_=os.system]")
    with pytest.raises(UserError, match="code that is not ours"):
        read([f"start_from={tmp_path}"])
    with pytest.raises(UserError, match="code that is not ours"):
        read(["-m", f"start_from={tmp_path}", "seed=1,2"])

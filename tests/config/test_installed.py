"""A choice whose package is missing is refused when the config is composed: one line, exit code 2, no folder and no plan."""

from __future__ import annotations

import sys

import pytest
import yaml
from hydra.errors import MissingConfigException
from hydra.utils import get_object

import run
from recsys_lab.base import packages
from recsys_lab.base.paths import CONF
from recsys_lab.config import command_line
from recsys_lab.config.composition import hydra_errors
from recsys_lab.config.installed import check_packages
from recsys_lab.errors import OF_EXTRAS, UserError

CHOICES = {
    "logger=mlflow": ("mlflow", r"^logger: mlflow is not installed; given mlflow; pip install '\.\[mlflow\]', or use logger=csv$"),
    "logger=wandb": ("wandb", r"^logger: wandb is not installed; given wandb; pip install '\.\[wandb\]', or use logger=none$"),
    "logger=csv": ("lightning", r"^logger: lightning is not installed; given csv; pip install '\.\[cpu\]', or use logger=none$"),
    "launcher=ray": ("ray", r"^launcher: ray is not installed; given ray; pip install '\.\[ray\]', or use launcher=local$"),
}


def ready(words):
    """The line with its folder, as run.py has it before a job begins."""
    line = command_line.read(words)
    check_packages(line)
    return line


@pytest.fixture
def without(monkeypatch):
    """Hides a package, and lets every other be there."""

    def hide(package):
        for name in ("mlflow", "ray", "wandb"):
            monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.setattr(packages, "is_there", lambda name: name != package)

    return hide


@pytest.mark.parametrize("word", CHOICES)
def test_a_choice_without_its_package_is_refused_before_a_run(word, without):
    package, says = CHOICES[word]
    without(package)
    mode = "mode=train" if word.startswith("launcher") else "mode=plan"
    with pytest.raises(UserError, match=says):
        ready([word, mode])
    with pytest.raises(UserError, match=says):
        ready(["-m", word, mode, "seed=1,2"])
    assert command_line.read([word, mode]).config is not None  # what only looks at it needs no package


def test_the_second_of_a_sweeps_choices_is_refused_before_the_first_runs(without):
    without("mlflow")
    with pytest.raises(UserError, match="mlflow is not installed"):
        ready(["-m", "logger=none,mlflow", "mode=plan"])


def test_a_launcher_that_starts_nothing_needs_no_package(without):
    without("ray")
    assert ready(["launcher=ray", "mode=simulate", "logger=none"]).config.mode == "simulate"


@pytest.mark.parametrize("package", OF_EXTRAS)
def test_a_training_without_torch_or_lightning_is_refused_before_it_is_planned(package, without):
    without(package)
    with pytest.raises(UserError, match=rf"^{package}: not installed; pip install 'recsys_lab\[cpu\]'"):
        ready(["mode=train", "logger=none"])
    assert ready(["mode=simulate", "logger=none"]).config.mode == "simulate"


def test_one_line_exit_code_2_and_no_folder(tmp_path, without, capsys):
    without("mlflow")
    assert run.main(["mode=plan", "logger=mlflow", f"hydra.run.dir={tmp_path / 'run'}"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("error: logger: mlflow is not installed")
    assert not list(tmp_path.iterdir())


def test_a_launcher_whose_plugin_of_hydras_is_missing_is_refused():
    """Hydra finds out while it composes, in these words."""
    says = r"^launcher: hydra-submitit-launcher is not installed; given slurm; pip install '\.\[slurm\]', or use launcher=local$"
    with pytest.raises(UserError, match=says), hydra_errors():
        raise MissingConfigException("In 'hydra/config': Could not find 'hydra/launcher/submitit_slurm'\n\nAvailable options:", None)


@pytest.mark.parametrize("mode", ["plan", "train"])
def test_a_sweep_goes_to_slurm_only_where_slurm_is(monkeypatch, mode):
    words = ["-m", "launcher=slurm", f"mode={mode}", "logger=none", "seed=1,2"]
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UserError, match=r"^launcher: SLURM is not installed here; given slurm; .* launcher=local$"):
        ready(words)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert len(ready(words).jobs) == 2


def test_what_the_choices_need_is_in_an_extra_of_that_name():
    """Every `needs` of conf/ names an extra that installs the package."""
    import tomllib

    extras = tomllib.loads((CONF.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    found = set()
    for group in ("logger", "launcher"):
        for file in (CONF / group).glob("*.yaml"):
            given = yaml.safe_load(file.read_text())
            target = given.get("_target_") or given[group]["_target_"]
            found |= {(one.name, one.extra) for one in getattr(get_object(target), "needs", ())}
    assert {name for name, _ in found} == {"mlflow", "wandb", "lightning", "ray"}
    for name, extra in found:
        assert any(line.startswith(name) for line in extras[extra]), (name, extra)

"""What Hydra, OmegaConf and YAML refuse, as one line of ours."""

from __future__ import annotations

import errno
from typing import Any

import pytest
import yaml
from hydra import initialize_config_dir
from hydra.errors import HydraException, MissingConfigException
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, InterpolationKeyError

from recsys_lab.base.paths import CONF
from recsys_lab.config.composition import _unreadable, composed, hydra_errors, parsed, with_choices
from recsys_lab.config.frozen import register_resolvers
from recsys_lab.config.schema import MOST_SHOWN
from recsys_lab.errors import UserError

HELP = "see python run.py --help"


def told(error: BaseException) -> dict[str, Any]:
    with pytest.raises(UserError) as caught, hydra_errors():
        raise error
    assert caught.value.__suppress_context__ and caught.value.__cause__ is None
    return {name: part for name, part in caught.value.parts.items() if part is not None}


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (HydraException("one"), {"what": "one", "where": "command line", "remedy": HELP}),
        (HydraException("  one\n\n  two  \nthree"), {"what": "one two", "where": "command line", "remedy": HELP}),
        (
            ConfigKeyError("no a\n  full_key: a\n  object_type=dict\nthen"),
            {"what": "no a then", "where": "command line", "remedy": HELP},
        ),
        (InterpolationKeyError("no b"), {"what": "no b", "where": "command line", "remedy": HELP}),
        (ValueError("full_key: a\nb"), {"what": "b", "where": "command line", "remedy": HELP}),
        (OverflowError("object_type=x\n c"), {"what": "c", "where": "command line", "remedy": HELP}),
        (ValueError(""), {"what": "", "where": "command line", "remedy": HELP}),
        (ValueError("x" * (MOST_SHOWN + 1)), {"what": "x" * MOST_SHOWN, "where": "command line", "remedy": HELP}),
        (RecursionError("deep"), {"what": "nested too deeply, or leads back to itself", "where": "command line"}),
        (yaml.YAMLError("bad\n  mark"), {"what": "not valid YAML", "where": "conf", "given": "bad mark"}),
    ],
)
def test_a_refusal_is_one_line(error: BaseException, parts: dict[str, str]) -> None:
    assert told(error) == parts


def test_hydras_plugin_for_slurm_is_named() -> None:
    error = MissingConfigException("Could not find 'hydra/launcher/submitit_slurm'", None)
    assert told(error)["what"] == "hydra-submitit-launcher is not installed" and told(error)["given"] == "slurm"


@pytest.mark.parametrize("error", [KeyError("x"), TypeError("x"), OSError(errno.EACCES, "x"), UserError("x")])
def test_what_is_not_theirs_is_passed_on(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, hydra_errors():
        raise error
    assert caught.value is error


def test_a_file_that_cannot_be_opened_is_named() -> None:
    with pytest.raises(UserError) as caught, _unreadable():
        raise PermissionError(errno.EACCES, "Permission denied", "conf/x.yaml")
    assert str(caught.value) == "conf/x.yaml: cannot read: Permission denied; check the file and its permissions"
    with pytest.raises(UserError, match="^conf: cannot read"), _unreadable():
        raise OSError(errno.EIO, "Input/output error")
    with pytest.raises(OSError, match="of Hydra's own"), _unreadable():
        raise OSError("of Hydra's own")


def test_choices_are_those_of_groups_alone() -> None:
    config = OmegaConf.create({"seed": 1, "hydra": {"run": 2}})
    OmegaConf.set_struct(config, True)
    choices = {"model": "dcn", "experiment": None, "hydra/launcher": "x", "sharder/common@sharder": "y", "profile@simulate.profile": "z"}
    assert with_choices(config, choices) == {"seed": 1, "choices": {"model": "dcn", "experiment": None}}
    assert config == {"seed": 1, "hydra": {"run": 2}}
    assert with_choices(OmegaConf.create({}), {}) == {"choices": {}}


def test_the_folder_is_a_run_s_or_a_sweep_s() -> None:
    register_resolvers()
    words = ["hydra.run.dir=runs/${hydra:runtime.choices.model}", "hydra.sweep.dir=sweeps/x", "model=dlrm"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config, folder = composed(words)
        assert (folder, config.choices.model, "hydra" in config) == ("runs/dlrm", "dlrm", False)
        assert composed(words, "sweep")[1] == "sweeps/x"
        assert [override.key_or_group for override in parsed(words)] == ["hydra.run.dir", "hydra.sweep.dir", "model"]
        with pytest.raises(UserError, match="^command line"):
            parsed(["a=[1"])
        with pytest.raises(UserError, match="^command line: In 'config': Could not find 'model/nowhere'"):
            composed(["model=nowhere"])

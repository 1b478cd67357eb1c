"""The config of a list of overrides, as Hydra composes it from conf/. Its refusals are one line of ours."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import yaml
from hydra import compose
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from recsys_lab.base.packages import Package
from recsys_lab.config.hydra_keys import FOLDERS
from recsys_lab.config.schema import MOST_SHOWN
from recsys_lab.errors import UserError, cannot_read

#: What `launcher=slurm` needs, and what Hydra says where it is not there.
SUBMITIT, NO_SUBMITIT = Package("hydra-submitit-launcher", "slurm", "launcher=local"), "Could not find 'hydra/launcher/submitit"


def composed(overrides: list[str], kind: str = "run") -> tuple[DictConfig, Any]:
    """The config, and what `hydra.run.dir` or, of `kind` sweep, `hydra.sweep.dir` names."""
    with hydra_errors(), _unreadable():
        config = compose("config", overrides=overrides, return_hydra_config=True)
        HydraConfig.instance().set_config(config)  # `hydra.run.dir` names the choices
        choices = OmegaConf.to_container(config.hydra.runtime.choices)
        folder = config.hydra[kind].dir
    assert isinstance(choices, dict)
    return with_choices(config, choices), folder


@contextmanager
def _unreadable() -> Iterator[None]:
    """A file of choices that cannot be opened as one line of ours."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # Hydra's own, of a choice that there is not
            raise
        raise cannot_read(error, "conf") from None


def parsed(overrides: list[str]) -> list[Override]:
    """UserError for the first word that is no override."""
    with hydra_errors(), _unparsed():
        return OverridesParser.create(config_loader=GlobalHydra.instance().config_loader()).parse_overrides(overrides)


@contextmanager
def _unparsed() -> Iterator[None]:
    """What Hydra's grammar refuses, in our words: its own name tokens. What a function such as range() refuses stays."""
    try:
        yield
    except OverrideParseException as error:
        if " while evaluating " in str(error):
            raise
        remedy = "put a value with other signs into quotes of both kinds: \"key='value'\""
        given = repr(error.override)[1:-1][:MOST_SHOWN]
        raise UserError("not an override", where="command line", given=given, allowed="key=value", remedy=remedy) from None


def with_choices(config: DictConfig, choices: dict[str, Any]) -> DictConfig:
    """`config` without Hydra's own node and with the chosen name of every group, which the record shows."""
    config = config.copy()
    with open_dict(config):
        config.pop("hydra", None)
        config.choices = {str(group): choice for group, choice in choices.items() if "/" not in group and "@" not in group}
    return config


@contextmanager
def _replaced(owner: Any, name: str, method: Callable[..., Any]) -> Iterator[None]:
    """Inside a class of Hydra's has our method."""
    before = getattr(owner, name)
    setattr(owner, name, method)
    try:
        yield
    finally:
        setattr(owner, name, before)


def mode_is_read() -> AbstractContextManager[None]:
    """Inside Hydra does as the line says. It would compose the whole config to ask it for `hydra.mode`, which no line can set."""
    return _replaced(Hydra, "get_mode", lambda *_, **__: None)


def lists_are_read() -> AbstractContextManager[None]:
    """Inside Hydra lists choices as it has them. It would copy all that it knows for each of some 170 lists of `--help`."""
    asks = ConfigLoaderImpl.get_group_options

    def listed(self: Any, group_name: str, results_filter: Any = ObjectType.CONFIG, **others: Any) -> list[str]:
        if any(others.values()):  # which may name other folders
            return asks(self, group_name, results_filter, **others)
        return self.repository.get_group_options(group_name, results_filter)

    return _replaced(ConfigLoaderImpl, "get_group_options", listed)


def _locals(error: BaseException, function: str) -> Iterator[dict[str, Any]]:
    """Of each call of Hydra's `function` that `error` went through: Hydra names no file."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == function:
            yield frame.f_locals


def _nested(error: RecursionError) -> UserError:
    """With the files whose defaults lists lead back to the first of them, if it came from these."""
    what, calls = "nested too deeply, or leads back to itself", _locals(error, "_create_defaults_tree_impl")
    files = [f"{inner['loaded'].path.removeprefix('file://')}/{inner['path']}.yaml" for inner in calls if inner.get("loaded")]
    first = next((number for number, file in enumerate(files) if file in files[:number]), None)
    if first is None:
        return UserError(what, where="command line")
    around = files[files.index(files[first]) : first + 1]
    remedy = "take the entry that leads back out of a defaults list"
    return UserError(f"its defaults list leads back to itself: {' > '.join(around)}", where=around[0], remedy=remedy)


def _of_another_kind(why: OmegaConfBaseException, said: str) -> UserError:
    """An override whose value cannot take the place of what is there. Hydra says the override alone."""
    kinds = {dict: "a mapping, such as {KEY: VALUE}", list: "a list, such as [A, B]"} if "Cannot merge" in str(why) else {}
    allowed = "the name of a folder" if why.full_key in FOLDERS else kinds.get(why.object_type)
    what = "wrong type" if allowed else f"wrong type ({str(why).splitlines()[0]})"
    return UserError(what, where=why.full_key, given=said.partition("=")[2].splitlines()[0][:MOST_SHOWN], allowed=allowed)


@contextmanager
def hydra_errors() -> Iterator[None]:
    """Hydra's and OmegaConf's own refusals as one line of ours."""
    try:
        yield
    except RecursionError as error:
        raise _nested(error) from None
    except UnicodeDecodeError as error:
        file = next((inner["full_path"] for inner in _locals(error, "load_config") if "full_path" in inner), "command line")
        raise UserError("not UTF-8 text", where=file, given=f"byte 0x{error.object[error.start]:02x}", remedy="save it as UTF-8") from None
    except yaml.YAMLError as error:
        raise UserError("not valid YAML", where="conf", given=" ".join(str(error).split())) from None
    except (HydraException, OmegaConfBaseException, ValueError, OverflowError) as error:  # Hydra raises those two as well
        if NO_SUBMITIT in str(error):
            raise SUBMITIT.refusal("launcher", "slurm") from None
        if isinstance(error.__cause__, OmegaConfBaseException) and str(error).startswith("Error merging override "):
            raise _of_another_kind(error.__cause__, str(error)) from None
        said, _, _ = str(error).partition("Config search path:")
        said, _, options = said.partition("Available options")
        lines = [line.strip() for line in said.splitlines() if line.strip() and "full_key" not in line and "object_type" not in line]
        allowed = ", ".join(options.partition(":")[2].split()) or None
        remedy = "leave out its +" if said.startswith("Multiple values for ") else "see python run.py --help"
        raise UserError(" ".join(lines[:2])[:MOST_SHOWN], where="command line", allowed=allowed, remedy=remedy) from None

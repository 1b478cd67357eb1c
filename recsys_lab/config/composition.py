"""The config of a list of overrides, as Hydra composes it from conf/. Its refusals are one line of ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Sweep
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from recsys_lab.base.packages import Package
from recsys_lab.base.paths import CONF
from recsys_lab.config import sized
from recsys_lab.errors import UserError, cannot_read, did_you_mean

#: What `launcher=slurm` needs, and what Hydra says where it is not there.
SUBMITIT, NO_SUBMITIT = Package("hydra-submitit-launcher", "slurm", "launcher=local"), "Could not find 'hydra/launcher/submitit"
#: Characters of a value that an error shows.
MOST_SHOWN = 400


def parsed(words: Sequence[str]) -> list[Override]:
    """UserError for the first word that is no override."""
    with hydra_errors():
        return OverridesParser.create(config_loader=GlobalHydra.instance().config_loader()).parse_overrides(list(words))


def composed(words: Sequence[str]) -> DictConfig:
    """The whole config of a single run, Hydra's own node in it."""
    with hydra_errors():
        config = _recorded(compose("config", overrides=with_any_key(words), return_hydra_config=True), words)
    HydraConfig.instance().set_config(config)  # `hydra.run.dir` names the choices in it
    return config


def composed_sweep(words: Sequence[str]) -> DictConfig:
    """The config that a sweep's jobs have in common, Hydra's own node in it: where it lies, its sweeper and launcher."""
    loader = GlobalHydra.instance().config_loader()
    with hydra_errors():
        config = _recorded(loader.load_configuration("config", overrides=with_any_key(words), run_mode=RunMode.MULTIRUN), words)
    HydraConfig.instance().set_config(config)
    return config


def composed_job(common: DictConfig, words: Sequence[str]) -> DictConfig:
    """The whole config of one job of a sweep, as Hydra composes it from what the jobs have in `common`."""
    loader = GlobalHydra.instance().config_loader()
    with hydra_errors():
        return _recorded(loader.load_sweep_config(common, list(with_any_key(words))), words)


def _recorded(config: Any, words: Sequence[str]) -> DictConfig:
    """`config` with the words as they were given, which its record shows."""
    given = dict(zip(with_any_key(words), words))
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.overrides.task = [given.get(word, word) for word in config.hydra.overrides.task]
    return config


def with_any_key(words: Sequence[str]) -> list[str]:
    """The words with `++` before each key of the config: the schema of its group says which keys there are, and names the nearest one."""
    groups = GlobalHydra.instance().config_loader().list_groups("")
    overrides = parsed(words)
    for override in overrides:
        if override.key_or_group in groups and (override.is_delete() or not isinstance(override.value(), str | int | float | Sweep)):
            remedy = f"{override.key_or_group}=CHOICE; python run.py --help lists them"
            raise UserError("one choice is needed", where=override.key_or_group, given=override.input_line, remedy=remedy)
    return [f"++{word.input_line}" if _names_key(word, groups) else str(word.input_line) for word in overrides]


def _names_key(word: Override, groups: Sequence[str]) -> bool:
    key, plain = word.key_or_group, not (word.is_add() or word.is_force_add() or word.is_delete())
    return plain and key not in groups and "/" not in key and not key.startswith("hydra.")


def task_config(config: DictConfig) -> DictConfig:
    """What Hydra composed without its own node, and with the choices."""
    return with_choices(config, config.hydra.runtime.choices)


def with_choices(config: DictConfig, choices: DictConfig) -> DictConfig:
    """`config` without Hydra's own node and with the chosen name of every group, which the record shows."""
    config = config.copy()
    with open_dict(config):
        config.pop("hydra", None)
        config.choices = {str(group): choice for group, choice in choices.items() if "/" not in group and "@" not in group}
    return config


@contextmanager
def hydra_errors() -> Iterator[None]:
    """Hydra's and OmegaConf's own refusals as one line of ours."""
    try:
        yield
    except OverrideParseException as error:
        raise _unparsed(error) from None
    except MissingConfigException as error:
        raise _missing(error) from None
    except RecursionError:
        raise UserError("nested too deeply, or a defaults list leads back to itself", where=_looping() or "command line") from None
    except UnicodeDecodeError as error:
        byte = f"byte 0x{error.object[error.start]:02x}"
        raise UserError("not UTF-8 text", where=_not_utf8(), given=byte, remedy="save it as UTF-8") from None
    except yaml.YAMLError as error:
        raise UserError("not valid YAML", where="conf", given=" ".join(str(error).split())) from None
    except OSError as error:
        raise cannot_read(error, "conf") from None
    except (HydraException, OmegaConfBaseException, ValueError, OverflowError) as error:  # Hydra raises those two as well
        raise _refused(error) from None


def _unparsed(error: OverrideParseException) -> UserError:
    """What Hydra's grammar refuses, in our words: its own name tokens. What a function such as range() refuses stays."""
    if " while evaluating " in str(error):
        return _refused(error)
    remedy = "put a value with other signs into quotes of both kinds: \"key='value'\""
    given = repr(error.override)[1:-1][:MOST_SHOWN]
    return UserError("not an override", where="command line", given=given, allowed="key=value", remedy=remedy)


def _missing(error: MissingConfigException) -> UserError:
    if NO_SUBMITIT in str(error):
        return SUBMITIT.refusal("launcher", "slurm")
    group, _, choice = str(error.missing_cfg_file or "").rpartition("/")
    if group == sized.GROUP:
        return sized.no_such_cluster(choice)
    options = [str(option) for option in error.options or ()]
    allowed, given = ", ".join(options) or None, choice or str(error).splitlines()[0]
    return UserError("no such choice", where=group or "conf", given=given, allowed=allowed, remedy=did_you_mean(choice, options))


def _refused(error: Exception) -> UserError:
    """Anything else that Hydra refuses."""
    why, text = error.__cause__, str(error)
    if isinstance(why, OmegaConfBaseException) and text.startswith("Error merging override "):
        kinds = {dict: "a mapping, such as {KEY: VALUE}", list: "a list, such as [A, B]"} if "Cannot merge" in str(why) else {}
        what = f"wrong type ({str(why).splitlines()[0]})"
        given = text.partition("=")[2].splitlines()[0][:MOST_SHOWN]
        return UserError(what, where=why.full_key, given=given, allowed=kinds.get(why.object_type))
    key = text.split("'")[1] if text.startswith("Could not override '") else None
    if key is not None and "/" in key:
        return _no_such_part(key)
    lines = [line.strip() for line in text.splitlines() if line.strip() and "full_key" not in line and "object_type" not in line]
    remedy = "leave out its +" if text.startswith(("Multiple values for ", "Could not append")) else "see python run.py --help"
    return UserError(" ".join(lines[:2])[:MOST_SHOWN], where=key or "command line", remedy=remedy)


def _no_such_part(name: str) -> UserError:
    """The parts that choices are made of are groups too, as cluster/device. None has this name, or the choice is not made of it."""
    loader, (outer, _, _) = GlobalHydra.instance().config_loader(), name.partition("/")
    parts = [f"{outer}/{part}" for part in loader.list_groups(outer)] or loader.list_groups("")
    if name.partition("@")[0] in parts:
        remedy = f"name a {outer} that is made of it, such as {outer}=h100" if outer == sized.GROUP else f"name another {outer}"
        return UserError(f"the chosen {outer} is not made of this part", where=name, remedy=remedy)
    return UserError("no such group", where=name, allowed=", ".join(parts), remedy=did_you_mean(name, parts))


def _files() -> Iterator[Path]:
    """The YAML files that Hydra looks through."""
    for source in GlobalHydra.instance().config_loader().get_search_path().get_path():
        if source.path is not None and source.path.startswith("file://"):
            yield from sorted(Path(source.path.removeprefix("file://")).rglob("*.yaml"))


def _not_utf8() -> str:
    for file in _files():
        try:
            file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return str(file)
    return "command line"


def _looping() -> str | None:
    """A file of the user's whose defaults list leads back to itself, if one does."""
    for file in (file for file in _files() if not file.is_relative_to(CONF)):
        seen, ahead = set(), [file]
        while ahead:
            at = ahead.pop()
            names = [name for name in (OmegaConf.load(at).get("defaults") or []) if isinstance(name, str)] if at.is_file() else []
            inner = [(at.parent / f"{name}.yaml") for name in names if name != "_self_"]
            if file in inner:
                return str(file)
            ahead += [one for one in inner if one not in seen]
            seen.update(inner)
    return None

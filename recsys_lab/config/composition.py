"""The config of a list of overrides, as Hydra composes it from conf/. Its refusals are one line of ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from recsys_lab.base import paths
from recsys_lab.base.packages import Package
from recsys_lab.config import absent, sized
from recsys_lab.config.targets import Named
from recsys_lab.errors import UserError, cannot_read, did_you_mean

#: What `launcher=slurm` needs, and what Hydra says where it is not there.
SUBMITIT, NO_SUBMITIT = Package("hydra-submitit-launcher", "slurm", "launcher=local"), "Could not find 'hydra/launcher/submitit"
#: Characters of a value that an error shows.
MOST_SHOWN = 400


def parsed(words: Sequence[str]) -> list[Override]:
    """UserError for the first word that is no override."""
    with hydra_errors():
        return OverridesParser.create(config_loader=GlobalHydra.instance().config_loader()).parse_overrides(list(words))


def code_of(words: Sequence[str]) -> Named:
    """The modules that `words`, such as `hydra.searchpath=[file://CONF]`, allow the config of a folder to name. UserError as `parsed`."""
    paths.importable()
    with hydra_errors():
        return Named.of(OverridesParser.create().parse_overrides(list(words)))


def composed(words: Sequence[str]) -> DictConfig:
    """The whole config of a single run, Hydra's own node in it."""
    config = _composed(words, lambda overrides: compose("config", overrides=overrides, return_hydra_config=True))
    HydraConfig.instance().set_config(config)  # `hydra.run.dir` names the choices in it
    return config


def composed_sweep(words: Sequence[str]) -> DictConfig:
    """The config that a sweep's jobs have in common, Hydra's own node in it: where it lies, its sweeper and launcher."""
    loader = GlobalHydra.instance().config_loader()
    config = _composed(words, lambda overrides: loader.load_configuration("config", overrides, run_mode=RunMode.MULTIRUN))
    HydraConfig.instance().set_config(config)
    return config


def composed_job(common: DictConfig, words: Sequence[str]) -> DictConfig:
    """The whole config of one job of a sweep, as Hydra composes it from what the jobs have in `common`."""
    loader = GlobalHydra.instance().config_loader()
    return _composed(words, lambda overrides: loader.load_sweep_config(common, overrides))


def _composed(words: Sequence[str], compose_with: Callable[[list[str]], Any]) -> DictConfig:
    """What Hydra makes of the words. Its record shows them as they were given."""
    with hydra_errors(words):
        overrides = with_any_key(words)
        try:
            config = compose_with(overrides)
        except OSError as error:
            if error.errno is None:  # Hydra's own, of a choice that there is not
                raise
            raise cannot_read(error, "conf") from None
        typed = dict(zip(overrides, words))
        with read_write(config.hydra), open_dict(config.hydra):
            task: Any = OmegaConf.to_container(config.hydra.overrides.task, resolve=False)
            config.hydra.overrides.task = [typed.get(word, word) for word in task]
        return config


def with_any_key(words: Sequence[str]) -> list[str]:
    """The words with `++` before each key of the config: the schema of its group says which keys there are, and names the nearest one."""
    loader, overrides = GlobalHydra.instance().config_loader(), parsed(words)
    groups = [group for group in loader.list_groups("") if group != "hydra"]
    for override in overrides:
        outer, _, inner = override.key_or_group.rpartition("/")
        if outer and inner not in loader.list_groups(outer):
            raise _no_such_part(override.key_or_group)
        if override.key_or_group.split(".")[0] == "choices":  # ours: what was chosen
            raise UserError("no such key", where=override.key_or_group, allowed=", ".join(groups), remedy="GROUP=CHOICE chooses")
        is_choice = override.is_sweep_override() or (not override.is_delete() and isinstance(override.value(), str | int | float))
        if override.key_or_group in groups and not is_choice:
            remedy = f"{override.key_or_group}=CHOICE; python run.py --help lists them"
            raise UserError("one choice is needed", where=override.key_or_group, given=override.input_line, remedy=remedy)
    plain = [o for o in overrides if not (o.is_add() or o.is_force_add() or o.is_delete() or "/" in o.key_or_group)]
    keys = {o.input_line for o in plain if o.key_or_group not in groups and not o.key_or_group.startswith("hydra.")}
    return [f"++{o.input_line}" if o.input_line in keys else str(o.input_line) for o in overrides]


def with_choices(config: DictConfig, hydra: DictConfig | None = None) -> DictConfig:
    """`config` without Hydra's own node, which may stand apart, and with the chosen name of every group, which the record shows."""
    choices = (config.hydra if hydra is None else hydra).runtime.choices
    config = config.copy()
    with open_dict(config):
        config.pop("hydra", None)
        config.choices = {str(group): choice for group, choice in choices.items() if "/" not in group and "@" not in group}
    return config


@contextmanager
def hydra_errors(words: Sequence[str] = ()) -> Iterator[None]:
    """Hydra's and OmegaConf's own refusals as one line of ours. `words`: may name folders of choices, of which a file may be broken."""
    try:
        yield
    except OverrideParseException as error:
        raise _unparsed(error) from None
    except MissingConfigException as error:
        raise _missing(error) from None
    except RecursionError:
        raise UserError("nested too deeply, or a defaults list leads back to itself", where=_looping(words) or "command line") from None
    except UnicodeDecodeError as error:
        byte = f"byte 0x{error.object[error.start]:02x}"
        raise UserError("not UTF-8 text", where=_not_utf8(words), given=byte, remedy="save it as UTF-8") from None
    except yaml.YAMLError as error:
        raise UserError("not valid YAML", where="conf", given=" ".join(str(error).split())) from None
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
    loader = GlobalHydra.instance().config_loader()
    if group == sized.GROUP:
        return sized.no_such_cluster(choice)
    options = [str(option) for option in error.options or ()]
    if group.split("/")[0] == "experiment":  # its folders hold choices too
        group, choice = "experiment", "/".join([*group.split("/")[1:], choice])
        inner = [f"{folder}/{name}" for folder in loader.list_groups(group) for name in loader.get_group_options(f"{group}/{folder}")]
        options = [*loader.get_group_options(group), *inner]
    allowed, given = ", ".join(options) or None, choice or str(error).splitlines()[0]
    return UserError(
        "no such choice",
        where=group or "conf",
        given=given,
        allowed=allowed,
        remedy=absent.CHOICES.get(group, {}).get(choice) or did_you_mean(choice, options),
    )


def _refused(error: Exception) -> UserError:
    """Anything else that Hydra refuses."""
    why, text = error.__cause__, str(error)
    if isinstance(why, OmegaConfBaseException) and text.startswith("Error merging override "):
        kinds = {dict: "a mapping, such as {KEY: VALUE}", list: "a list, such as [A, B]"} if "Cannot merge" in str(why) else {}
        what = f"wrong type ({str(why).splitlines()[0]})"
        given = text.partition("=")[2].splitlines()[0][:MOST_SHOWN]
        return UserError(what, where=why.full_key, given=given, allowed=kinds.get(why.object_type))
    key = text.split("'")[1] if text.startswith("Could not override '") or "config group '" in text else None
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
        remedy = f"use +{name}=CHOICE to add it, or choose a {outer} that is made of it"
        return UserError(f"the chosen {outer} is not made of this part", where=name, remedy=remedy)
    where = name.partition("@")[0]
    return UserError("no such group", where=where, allowed=", ".join(parts), remedy=did_you_mean(where, parts))


def _files_of_user(words: Sequence[str]) -> Iterator[Path]:
    """The YAML files in the folders of choices that `words` name."""
    for word in parsed(words):
        for folder in word.value() if word.key_or_group == "hydra.searchpath" else ():
            yield from sorted(Path(str(folder).removeprefix("file://")).rglob("*.yaml"))


def _not_utf8(words: Sequence[str]) -> str:
    for file in _files_of_user(words):
        try:
            file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            return str(file)
    return "command line"


def _looping(words: Sequence[str]) -> str | None:
    """A file of the user's that holds itself, by an anchor or by its defaults list, if one does."""
    for file in _files_of_user(words):
        try:
            OmegaConf.load(file)
        except RecursionError:
            return str(file)
        seen, ahead = set(), [file]
        while ahead:
            at = ahead.pop()
            written = yaml.safe_load(at.read_text(encoding="utf-8")) if at.is_file() else None
            names = [name for name in (written or {}).get("defaults") or [] if isinstance(name, str)]
            inner = [(at.parent / f"{name}.yaml") for name in names if name != "_self_"]
            if file in inner:
                return str(file)
            ahead += [one for one in inner if one not in seen]
            seen.update(inner)
    return None

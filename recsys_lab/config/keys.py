"""Every group, choice and key that a command line names must exist. The nearest spelling is offered where it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from recsys_lab.config import sized
from recsys_lab.config.composition import composed
from recsys_lab.config.schema import unknown_key
from recsys_lab.errors import UserError, did_you_mean


def composed_at_once(words: list[str], overrides: list[Override], extra: list[str]) -> tuple[DictConfig, Any] | None:
    """The config of a line that Hydra accepts as it stands, most of them; None where a closer look must say what is wrong, or free-form."""
    if any(o.is_sweep_override() or o.is_force_add() or o.key_or_group.split(".")[0] == "choices" for o in overrides):
        return None
    if any("/" in o.key_or_group for o in overrides):  # Hydra takes a misspelt part of a choice for a key
        return None
    groups = _groups()
    for override in overrides:
        if override.key_or_group in groups:
            _check_one_choice(override)
    try:
        return composed([*words, *extra])
    except UserError:
        return None


def offer_sizes(overrides: list[Override], folder: str | None) -> None:
    """Lets the clusters that are named be of any number of devices. Raises UserError for one of no whole number of hosts.

    A file of such a name in a folder of the user's own is what is meant.
    """
    searched = [str(path) for o in overrides if o.key_or_group == "hydra.searchpath" for path in o.value() or []]
    folders = [Path(path.removeprefix("file://")) for path in (*searched, folder) if path is not None]
    for override in overrides:
        if override.key_or_group == sized.GROUP and not override.is_delete():
            for value in values_of(override):
                own = any((one / sized.GROUP / f"{value}.yaml").is_file() for one in folders)
                (sized.withdraw if own else sized.offer)(value)


def _groups() -> list[str]:
    return [group for group in GlobalHydra.instance().config_loader().list_groups("") if group != "hydra"]


def check_keys(overrides: list[Override], extra: list[str]) -> set[str]:
    """Every group, choice and key that is named must exist. The nearest spelling is offered if it does not.

    Returns the overrides whose keys are the user's own: those inside an empty mapping, such as sharder.planner.force.
    """
    free = set()
    loader, groups = GlobalHydra.instance().config_loader(), _groups()
    selection = []
    for override in overrides:
        key = override.key_or_group
        if key in groups:
            _check_one_choice(override)
        is_part = "/" in key and not key.startswith("hydra")
        if is_part:
            _check_part(loader, key, groups)
        if (key in groups or is_part) and not override.is_delete():
            _check_choices(override, _choices(loader, key), has_searchpath=bool(extra) or "hydra.searchpath" in str(overrides))
            first = next(iter(values_of(override)), None)
            if first is not None:
                selection.append(f"{override.input_line.split('=')[0]}={first}")
    config, _ = composed([*selection, *extra, *[str(o.input_line) for o in overrides if o.key_or_group == "hydra.searchpath"]])
    for override in overrides:
        key = override.key_or_group
        if key in groups or "/" in key or key.startswith("hydra"):
            continue
        parts = key.split(".")
        if parts[0] == "choices":  # ours: what was chosen
            raise unknown_key(key, sorted({str(k) for k in config if k != "choices"} | set(groups)))
        for depth in range(len(parts)):
            parent = OmegaConf.select(config, ".".join(parts[:depth])) if depth else config
            if not isinstance(parent, DictConfig):
                raise unknown_key(key, allowed=[])
            if parts[depth] not in parent:
                if depth and _free_form(parent):
                    free.add(str(override.input_line))
                if override.is_add() or override.is_force_add() or (depth and _free_form(parent)):
                    break  # `+key=`, `++key=` and free-form mappings: the typed schema of the group decides
                names = {str(k) for k in parent if k not in ("_target_", "choices")} | (set(groups) if not depth else set())
                raise unknown_key(".".join(parts[: depth + 1]), sorted(names), () if depth else keys_named(config, parts[0]))
        else:
            if _free_form(OmegaConf.select(config, key, throw_on_resolution_failure=False)):
                free.add(str(override.input_line))
    return {word for word in free if not word.startswith("+")}


def _check_part(loader: ConfigLoader, name: str, groups: list[str]) -> None:
    """The parts that choices are made of are groups too, as cluster/device: that of `name` must exist."""
    *outer, last = name.split("/")
    parts = loader.list_groups("/".join(outer)) if outer[0] in groups else []
    if last not in parts:
        allowed = [f"{'/'.join(outer)}/{part}" for part in parts]
        raise UserError("no such group", where=name, allowed=", ".join(allowed or groups), remedy=did_you_mean(name, allowed or groups))


def keys_named(config: DictConfig, name: str) -> list[str]:
    """Keys of groups that are called `name`. Where none is, those that have it as a word, as data.batch_size has batch."""
    nodes = [(group, node) for group, node in config.items() if isinstance(node, DictConfig)]
    keys = [(f"{group}.{key}", str(key)) for group, node in nodes for key in node if key != "_target_"]
    exact = sorted(path for path, key in keys if key == name)
    return exact or sorted(path for path, key in keys if name in key.split("_"))


def _choices(loader: ConfigLoader, group: str) -> list[str]:
    """Of a group. Folders of experiments hold choices too, as flexshard/table6; those of other groups hold parts of choices."""
    folders = loader.list_groups(group) if group == "experiment" else ()
    inner = [f"{folder}/{choice}" for folder in folders for choice in loader.get_group_options(f"{group}/{folder}")]
    return [*loader.get_group_options(group), *inner]


def _check_one_choice(override: Override) -> None:
    """A group has one choice: not none, not several at once, and it cannot be left out."""
    group, value = override.key_or_group, None if override.is_delete() else override.value()
    if value is None or isinstance(value, (list, dict)):
        remedy = f"{group}=CHOICE; python run.py --help lists them"
        raise UserError("one choice is needed", where=group, given=override.input_line, remedy=remedy)


def _free_form(node: Any) -> bool:
    return isinstance(node, DictConfig) and len(node) == 0


def values_of(override: Override) -> Iterator[str]:
    if override.is_sweep_override():
        if override.is_choice_sweep():
            yield from override.sweep_string_iterator()
    elif override.value() is not None:
        yield str(override.get_value_element_as_str())


def _check_choices(override: Override, options: list[str], has_searchpath: bool) -> None:
    if has_searchpath:
        return  # the user's own folder may hold it: Hydra's composition decides
    for value in values_of(override):
        if value not in options and value.strip("[]'\"") not in options:
            if override.key_or_group == sized.GROUP:
                raise sized.no_such_cluster(value)
            raise UserError(
                "no such choice", where=override.key_or_group, given=value, allowed=", ".join(options), remedy=did_you_mean(value, options)
            )

"""`cluster=a100x128`: a cluster of conf/cluster with another number of devices, wherever a choice of the group can be named.

What Hydra gets is what a file of the name would say: conf/cluster/a100x64.yaml is one. It stands behind all files, those of a user's own
folder too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.types import Override

from recsys_lab.base.paths import CONF
from recsys_lab.errors import UserError, did_you_mean

GROUP = "cluster"
SIZED = re.compile(r"(?P<name>.+)x(?P<devices>[1-9]\d{0,8})")


def on_file() -> list[str]:
    """The choices of conf/cluster."""
    return sorted(path.stem for path in (CONF / GROUP).glob("*.yaml"))


def sized(choice: str) -> tuple[str, int] | None:
    """(cluster on file that can have another size, devices) of a name that no file has; None of any other name.

    The x of `mi350x16` is the cluster's own.
    """
    match, names = SIZED.fullmatch(choice), on_file()
    if match is None or choice in names:
        return None
    name = next((name for name in (match["name"], f"{match['name']}x") if name in names), None)
    if name is None or "${" in _text(name):
        return None  # a cluster with interpolations is as large as the launcher
    return name, int(match["devices"])


def register(overrides: Sequence[Override], config_dir: str | None = None) -> None:
    """Lets Hydra take the clusters that are named with a number of devices. Raises UserError for one of no whole number of hosts.

    A file of such a name in a folder of the user's own is what is meant.
    """
    searched = [str(path) for o in overrides if o.key_or_group == "hydra.searchpath" for path in o.value() or []]
    folders = [Path(path.removeprefix("file://")) for path in (*searched, config_dir) if path is not None]
    for override in (one for one in overrides if one.key_or_group == GROUP and not one.is_delete()):
        swept = override.sweep_string_iterator() if override.is_choice_sweep() else ()
        for choice in swept or [override.get_value_element_as_str()]:
            if any((folder / GROUP / f"{choice}.yaml").is_file() for folder in (CONF, *folders)):
                ConfigStore.instance().repo.get(GROUP, {}).pop(f"{choice}.yaml", None)  # of an earlier line of this process
            else:
                store(choice)


def store(choice: str) -> None:
    """Puts `choice` into Hydra's store of configs, if it is such a name."""
    if sized(choice) is not None:
        ConfigStore.instance().store(group=GROUP, name=choice, node=as_file(choice), provider="recsys_lab")


def as_file(choice: str) -> dict[str, Any]:
    """What a YAML of the name would say. Raises UserError where the devices are no whole number of hosts."""
    found = sized(choice)
    assert found is not None
    name, devices = found
    ranks = min(_value(name, "ranks_per_host"), devices)
    hosts, rest = divmod(devices, ranks)
    if rest:
        near = " or ".join(f"{name.removesuffix('x')}x{count * ranks}" for count in (hosts, hosts + 1))
        raise UserError("no whole number of hosts", where=GROUP, given=choice, allowed=f"whole hosts of {ranks}, such as {near}")
    return {"defaults": [name, "_self_"], "name": choice, "hosts": hosts, "ranks_per_host": ranks}


def no_such_cluster(name: str) -> UserError:
    """The mistake that there is none of this name."""
    names = on_file()
    allowed = f"{', '.join(names)}, and most of these with a number of devices, such as a100x128"
    remedy = _of_device(name) or did_you_mean(name, names) or "describe it in a YAML of your own: docs/add_a_cluster.md"
    return UserError("no such cluster", where=GROUP, given=name, allowed=allowed, remedy=remedy)


def _of_device(name: str) -> str | None:
    """How to have a cluster of a device that is on file without one; None where no device has the name."""
    match = SIZED.fullmatch(name)
    devices = [path.stem for path in (CONF / GROUP / "device").glob("*.yaml")]
    device = next((one for one in (name, match["name"] if match else None) if one in devices), None)
    return device and f"that device is on file: cluster=h100 cluster/device={device} cluster/link@cluster.intra_host=LINK"


def _text(choice: str) -> str:
    return (CONF / GROUP / f"{choice}.yaml").read_text(encoding="utf-8")


def _value(choice: str, key: str) -> Any:
    """Of a file, or of that which it is made from."""
    content = yaml.safe_load(_text(choice))
    return content[key] if key in content else next(_value(entry, key) for entry in content["defaults"] if isinstance(entry, str))

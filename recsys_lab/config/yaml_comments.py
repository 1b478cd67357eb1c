"""What the YAML files say of themselves. Each group has a purpose, its choices, and a comment for each key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from recsys_lab.base.files import read_text
from recsys_lab.errors import UserError

#: The groups in the order of `conf/config.yaml`, and what each says.
GROUPS = {
    "model": "What is trained.",
    "sharder": "How the tables are placed and exchanged: a planner with its executor.",
    "precision": "The number formats of tables, dense layers and what travels.",
    "cluster": "The machines that are planned for and simulated; `local` is this one.",
    "data": "What is read, or made.",
    "optimizer": "How the dense arch and the tables are updated.",
    "trainer": "How long, how often evaluated, when to stop.",
    "launcher": "How processes start here.",
    "logger": "Where a run is logged beside its own folder.",
    "profile": "The efficiency of the software that a simulation assumes: `profile@simulate.profile=NAME`.",
    "experiment": "Settings that do well on a data set, and the studies of papers: only what differs from the defaults.",
}
_KEY = re.compile(r"""^(\s*)([\w@./-]+):(?:\s+('[^']*'|"[^"]*"|[^#\s].*?))?(?:\s+#\s*(.*))?$""")


def comments(path: Path) -> dict[str, str]:
    """What the comments behind the keys of a YAML say, by key with its parents."""
    by_key: dict[str, str] = {}
    parents: list[tuple[int, str]] = []
    for line in read_text(path).splitlines():
        match = _KEY.match(line)
        if not match or line.lstrip().startswith(("#", "-")):
            continue
        indent, key, _, comment = match.groups()
        parents = [(depth, name) for depth, name in parents if depth < len(indent)]
        parents.append((len(indent), key))
        if comment:
            by_key[".".join(name for _, name in parents)] = comment
    return by_key


def loaded(path: Path) -> Any:
    """A YAML as it is written; OmegaConf, which takes longer to import than to read, sees some numbers otherwise."""
    try:
        return yaml.load(read_text(path), Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError("not valid YAML", where=path, given=" ".join(str(error).split())) from None


def is_global(path: Path) -> bool:
    """Whether the keys of a YAML are the whole config's, and not its group's."""
    return read_text(path).startswith("# @package _global_")


def meanings(conf: Path, group: str, builds: str | None = None) -> dict[str, str]:
    """The comment of each key of a group: that of the first choice which has one.

    `builds`: of the choices that name it as `_target_`. Others count only where all of them say the same.
    """
    own: dict[str, str] = {}
    others: dict[str, dict[str, None]] = {}
    for path in sorted((conf / group).glob("*.yaml")):
        prefix = f"{group}." if is_global(path) else ""
        for name, comment in comments(path).items():
            if builds is None or builds in _builds(path):
                own.setdefault(name.removeprefix(prefix), comment)
            else:
                others.setdefault(name.removeprefix(prefix), {})[comment] = None
    return {key: next(iter(texts)) for key, texts in others.items() if len(texts) == 1} | own


def _builds(path: Path) -> set[str]:
    """What a choice names as `_target_`, itself or in the choices of its group that it starts from."""
    config = loaded(path)
    bases = [path.with_name(f"{base}.yaml") for base in (config or {}).get("defaults", []) if isinstance(base, str) and base != "_self_"]
    inherited = (_builds(base) for base in bases if base.is_file())
    return {target for _, target in _targets(config)}.union(*inherited)


def targets(conf: Path, group: str) -> dict[str, tuple[str, ...]]:
    """What the choices of a group name as `_target_`, by the key under which it stands: "" of the group itself, else a part of it."""
    by_key: dict[str, dict[str, None]] = {}
    for path in sorted((conf / group).rglob("*.yaml")):
        for key, target in _targets(loaded(path)):
            by_key.setdefault(key.removeprefix(group).strip(".") if is_global(path) else key, {})[target] = None
    return {key: tuple(names) for key, names in by_key.items()}


def _targets(config: Any, where: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(config, dict):
        for key, value in config.items():
            yield from [(where, value)] if key == "_target_" else _targets(value, f"{where}.{key}".strip("."))

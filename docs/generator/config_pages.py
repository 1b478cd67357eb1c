"""A page a config group, made from the YAML files, their comments, and the signatures that are their schema."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hydra.utils import get_object
from omegaconf import OmegaConf

from recsys_lab.config import options
from recsys_lab.config.schema import BESIDE_TARGET, PLAIN, schema_of
from recsys_lab.config.yaml_comments import GROUPS, comments, is_global

_COMMAND = re.compile(r"^(?:python|torchrun)\b")
_NAMES = "|".join(GROUPS)
#: model.dropout, data=table, +cluster/disk@cluster.disk=nvme4_x8; commands; variables of the environment
_KEY_WORD = re.compile(
    rf"(?<![\w./@=+-])(\+?(?:{_NAMES})(?:[./@][\w/@.]*\w)?=[\w./:@=,-]*\w|(?:{_NAMES})\.\w[\w.]*\w"
    r"|python -m recsys_lab \w+|kubectl apply|[A-Z]+(?:_[A-Z]+)+(?:=\w+)?)"
)
_BESIDE = re.compile(r"^    (\w+): [^#\n]*?  # (.+)$", re.MULTILINE)
_ATTRIBUTE = re.compile(r"    (\w+(?:, \w+)*): (.+)")
DEFAULTS_SAY = "Each choice below lists only the keys that differ from the default. Keys without a default are always listed."
MOST_SHOWN = 60  # letters of a value's parts

#: What a group's page links to.
GUIDES = {
    "cluster": " [What each key means](../add_a_cluster.md).",
    "data": " [Your own table](../own_data.md), [another data set](../add_a_dataset.md).",
    "launcher": " [How each starts its processes](../launchers.md).",
    "model": " [A model of your own](../add_a_model.md).",
    "sharder": " [How each works](../sharders.md), [one of your own](../add_a_sharder.md).",
}


def config_pages(root: Path) -> dict[str, str]:
    """Place in the site -> text. A key's meaning is its YAML comment, here or where another choice of the group has the key."""
    conf = root / "conf"
    pages = {f"config/{group}.md": _group_page(conf, group, about) for group, about in GROUPS.items()}
    return {"config/index.md": _first_page(conf)} | pages


def _first_page(conf: Path) -> str:
    rows = [
        f"| [`{group}`]({group}.md) | {about} | {', '.join(f'`{_name(conf, group, p)}`' for p in _choices(conf, group))} |"
        for group, about in GROUPS.items()
    ]
    meanings = comments(conf / "config.yaml")
    keys = [*_rows("", options.TopLevel, OmegaConf.load(conf / "config.yaml"), meanings)]
    keys += _rows("ablation", options.AblationOptions, OmegaConf.load(conf / "config.yaml").ablation, meanings)
    keys += _rows("simulate", options.SimulateOptions, OmegaConf.load(conf / "config.yaml").simulate, meanings)
    return "\n".join(
        [
            "# Groups and keys",
            "",
            "`group=choice` picks a file of `conf/GROUP/`; `key=value` sets a key of it. The schema of a group is the signature of what it",
            "builds, so these pages are made from code and YAML each time the site is built. `python run.py --cfg job` prints every key",
            "with the value that it would have.",
            "",
            "| group | what it is | choices |",
            "|---|---|---|",
            *rows,
            "",
            "## Keys outside every group",
            "",
            *_table(keys),
            "",
        ]
    )


def _group_page(conf: Path, group: str, about: str) -> str:
    paths = _choices(conf, group)
    shared: dict[tuple[str, str], str] = {}
    for path in paths:
        at = _targets_of(conf, group, path)
        for key, said in _meanings(group, path).items():
            shared.setdefault((_target_at(at, key), key), said)
    where = "simulate.profile" if group == "profile" else group
    says = "" if group == "experiment" else f" A key below is written with the group before it: `{where}.KEY=VALUE`."
    parts = [f"# {group}", "", about + says + GUIDES.get(group, ""), "", "| choice | what it is |", "|---|---|"]
    for path in paths:
        name = _name(conf, group, path)
        parts.append(f"| [`{name}`](#{name.replace('/', '')}) | {_escaped(_coded(_first_sentence(path)))} |")
    schema, told = _schema_of_all(conf, group, paths), set[str]()
    if schema is not None:
        meanings = {key: said for (_, key), said in shared.items()}
        parts += ["", "## Keys of every choice", "", DEFAULTS_SAY, ""]
        parts += _table([*_defaults("", schema, meanings)], "default")
    for path in paths:
        parts += ["", *_choice(conf, group, path, shared, told, schema)]
    return "\n".join([*parts, ""])


def _schema_of_all(conf: Path, group: str, paths: list[Path]) -> type | None:
    """What every choice of a group builds, where it is the same and they are several."""
    if group in PLAIN or group in ("experiment", "sharder") or len(paths) == 1:
        return None
    targets = {_config(conf, group, path).get("_target_") for path in paths}
    return schema_of(get_object(targets.pop()), BESIDE_TARGET.get(group)) if len(targets) == 1 else None


def _meanings(group: str, path: Path) -> dict[str, str]:
    """Key of the group -> its comment in the file of one choice."""
    return {key.removeprefix(f"{group}.") if is_global(path) else key: said for key, said in comments(path).items()}


def _targets_of(conf: Path, group: str, path: Path) -> dict[str, str]:
    """Part of a choice ("" for the whole) -> what it builds. A comment holds for other choices that build the same."""
    config = _config(conf, group, path)
    parts = {"": config, **{str(key): part for key, part in config.items_ex(resolve=False) if OmegaConf.is_dict(part)}}
    return {part: built for part, its in parts.items() if (built := its.get("_target_"))}


def _target_at(targets: dict[str, str], key: str) -> str:
    return targets.get(key.split(".")[0], targets.get("", ""))


def _config(conf: Path, group: str, path: Path) -> Any:
    config = loaded(conf, group, _name(conf, group, path))
    return config.get(group, config) if is_global(path) else config


def _choice(conf: Path, group: str, path: Path, shared: dict[tuple[str, str], str], told: set[str], schema: type | None) -> Iterator[str]:
    """A choice's part of its group's page. `told`: what has been explained on it. `schema`: of all choices, whose keys are explained."""
    words, commands = _head(path)
    name = _name(conf, group, path)
    yield f"## {name}"
    yield ""
    yield _coded(" ".join(words))
    if commands:
        yield ""
        yield from (f"    {command}" for command in commands)
    yield ""
    config = _config(conf, group, path)
    at = _targets_of(conf, group, path)
    meanings = {key: said for (target, key), said in shared.items() if target == _target_at(at, key)} | _meanings(group, path)
    if schema is not None:
        usual, common = {key: (default, said) for key, _, default, said in _defaults("", schema, {})}, {*shared.values()}
        own = {key: said for key, said in _meanings(group, path).items() if said not in common and said != usual[key][1]}
        rows = [(key, "", value, own.get(key, "")) for key, _, value, _ in _rows("", schema, config, {}) if value != usual[key][0]]
    elif group == "experiment":
        rows = [(key, "", value, meanings.get(key, "")) for key, value in _flat(config) if not key.startswith("defaults")]
    elif group == "sharder":
        rows = [
            row for part in ("towers", "planner", "executor") if part in config for row in _of_target(part, config[part], meanings, None)
        ]
    elif group in PLAIN:
        rows = list(_rows("", PLAIN[group], config, meanings))
    else:
        rows = list(_of_target("", config, meanings, BESIDE_TARGET.get(group)))
    yield from _table(rows)
    target = config.planner._target_ if group == "sharder" else config.get("study", config).get("_target_")
    if target and (doc := inspect.getdoc(get_object(target))):
        file = get_object(target).__module__.replace(".", "/") + ".py"
        file = file if (conf.parent / file).is_file() else file.removesuffix(".py") + "/__init__.py"
        yield ""
        says = "" if target in told else f": {_escaped(doc.split(chr(10) * 2)[0].replace(chr(10), ' '))}"
        told.add(target)
        yield f"[`{target}`](../../{file}){says}"


def loaded(conf: Path, group: str, choice: str) -> Any:
    """The choice with what its defaults list takes from other files of its group; interpolations as they are written."""
    own = OmegaConf.load(conf / group / f"{choice}.yaml")
    made = OmegaConf.create({})
    for entry in own.pop("defaults", None) or []:
        if isinstance(entry, str) and entry != "_self_":
            made = OmegaConf.merge(made, loaded(conf, group, entry))
        elif not isinstance(entry, str):
            made = OmegaConf.merge(made, _part(conf, group, entry))
    return OmegaConf.merge(made, own)


def _part(conf: Path, group: str, entry: Any) -> Any:
    """`device@device: h100` as {device: ...}; what overrides other groups is not this one's."""
    key, choice = next(iter(entry.items()))
    folder, _, place = str(key).partition("@")
    if key.startswith(("override ", "/")) or not place or choice is None:
        return {}
    return {place: OmegaConf.load(conf / group / folder / f"{choice}.yaml")}


def _of_target(prefix: str, config: Any, meanings: dict[str, str], beside: type | None) -> Iterator[tuple[str, str, Any, str]]:
    target: Callable = get_object(config._target_)
    yield from _rows(prefix, schema_of(target, beside), config, meanings)


def _rows(prefix: str, schema: type, config: Any, meanings: dict[str, str]) -> Iterator[tuple[str, str, Any, str]]:
    """(key, type, value, meaning) of every field of `schema`, those of nested dataclasses too."""
    hints = typing.get_type_hints(schema)
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    for field in dataclasses.fields(schema):
        key, hint, value = f"{prefix}.{field.name}".strip("."), hints[field.name], plain.get(field.name, _default(field))
        if dataclasses.is_dataclass(hint) and isinstance(value, dict):
            yield from _rows(key, typing.cast(type, hint), OmegaConf.create(value), meanings)
        else:
            yield key, _type_words(hint), value, meanings.get(key) or _documented(schema).get(field.name, "")


def _defaults(prefix: str, schema: type, meanings: dict[str, str]) -> Iterator[tuple[str, str, Any, str]]:
    """(key, type, default or None, meaning) of every field of `schema`, and in place of a dataclass its own fields."""
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        key, hint = f"{prefix}.{field.name}".strip("."), hints[field.name]
        inner = [kind for kind in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(kind)]
        if hint not in inner:  # a dataclass may be null
            needed = field.default is field.default_factory is dataclasses.MISSING
            said = _documented(schema).get(field.name) or meanings.get(key, "")
            yield key, _type_words(hint), "" if needed else _default(field), said
        if inner:
            yield from _defaults(key, typing.cast(type, inner[0]), meanings)


@functools.cache
def _documented(kind: type) -> dict[str, str]:
    """Attribute -> what the docstring of `kind` says of it, or the comment behind it. `hosts, ranks: ...` is of both."""
    says, names = {}, []
    for line in (inspect.getdoc(kind) or "").partition("Attributes:\n")[2].splitlines():
        if entry := _ATTRIBUTE.match(line):
            names = entry[1].split(", ")
            says |= dict.fromkeys(names, entry[2])
        elif line.startswith(" " * 8):
            says |= {name: f"{says[name]} {line.strip()}" for name in names}
        elif line.strip():
            break
    try:
        source = inspect.getsource(kind)
    except OSError:  # it was made from a signature
        source = ""
    beside = {found[1]: found[2] for found in _BESIDE.finditer(source)}
    return {name: said.removesuffix(".").replace("None:", "null:") for name, said in {**beside, **says}.items()}


def _default(field: Any) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


def _type_words(hint: Any) -> str:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(map(_type_words, typing.get_args(hint)))
    if hint is types.NoneType:
        return "null"
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def _flat(config: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in OmegaConf.to_container(config, resolve=False).items():
        if isinstance(value, dict) and value:
            yield from _flat(OmegaConf.create(value), f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _head(path: Path) -> tuple[list[str], list[str]]:
    """The sentences and the commands of the comment that a YAML begins with."""
    words, commands = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        said = line.removeprefix("#").strip()
        if said.startswith("@package"):
            continue
        (commands if _COMMAND.match(said) else words).append(said)
    return words, commands


def _first_sentence(path: Path) -> str:
    """Of a study the whole line, which says of which paper and which table."""
    words = " ".join(_head(path)[0])
    ends = r"(?<=\.)\s" if "\nstudy:" in path.read_text(encoding="utf-8") else r"(?<=[.:])(?<!al\.)\s"
    return re.split(ends, words)[0].rstrip(":.") + "."


def _choices(conf: Path, group: str) -> list[Path]:
    """Those in folders only of experiments, where they are choices; elsewhere they are parts of choices."""
    inner = sorted((conf / group).glob("*/*.yaml"), key=_place) if group == "experiment" else []
    return [*sorted((conf / group).glob("*.yaml")), *inner]


def _place(path: Path) -> tuple[str, str, int]:
    """table2 before table10."""
    kind = path.stem.rstrip("0123456789")
    return str(path.parent), kind, int(path.stem[len(kind) :] or 0)


def _name(conf: Path, group: str, path: Path) -> str:
    """As a command line says it: dcn, dmt/figure10."""
    return path.relative_to(conf / group).with_suffix("").as_posix()


def _table(rows: list[tuple[str, str, Any, str]], value_is: str = "value") -> Iterator[str]:
    """Of (key, type, value, meaning). A column in which nothing stands is left out."""
    if not rows:
        yield "It has no keys."
        return
    heads = ("key", "type", value_is, "what it is")
    kept = [at for at in range(4) if at in (0, 2) or any(row[at] for row in rows)]
    yield "| " + " | ".join(heads[at] for at in kept) + " |"
    yield "|---" * len(kept) + "|"
    for key, kind, value, said in rows:
        shown = _shown(value)
        cells = (f"`{key}`", _escaped(kind), f"`{shown}`" if shown else "", _escaped(_coded(said)))
        yield f"| {' | '.join(cells[at] for at in kept)} |".replace("`|`", "`\\|`")


def _shown(value: Any) -> str:
    """As a command line takes it. Of a long list or mapping the first parts; a sentence is whole."""
    if isinstance(value, dict):
        return _first_parts([f"{_part_of_value(key)}: {_part_of_value(part)}" for key, part in value.items()], "{", "}")
    if isinstance(value, (list, tuple)):
        return _first_parts([_part_of_value(part) for part in value], "[", "]")
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else " ".join(str(value).split())


def _part_of_value(part: Any) -> str:
    shown = _shown(part)
    quote = '"' if "'" in shown else "'"
    return f"{quote}{shown}{quote}" if isinstance(part, str) and set(shown) & set(" ,:{}[]") else shown


def _first_parts(parts: list[str], opening: str, closing: str) -> str:
    fitting = [number for number in range(1, len(parts) + 1) if len(", ".join(parts[:number])) <= MOST_SHOWN]
    kept = parts[: max(fitting, default=1)]
    return opening + ", ".join([*kept, "..."] if len(kept) < len(parts) else kept) + closing


def _coded(words: str) -> str:
    """Keys of the config and overrides as code."""
    return words if "`" in words else _KEY_WORD.sub(r"`\1`", words)


def _escaped(words: str) -> str:
    """Words of a cell. A brace at its end would be taken for attributes; in code it cannot be."""
    words = words.replace("|", "\\|").replace("<", "&lt;")
    return "`".join(part if number % 2 else part.replace("{", "&#123;").replace("*", "\\*") for number, part in enumerate(words.split("`")))

"""The typed options as JSON Schema, a document for each group of conf/. With it an editor completes, explains and checks a YAML.

Types, ranges and choices come from the annotations (ranges.py), defaults from signatures, descriptions from the comments in conf/. Any
value may be an interpolation. A group that names a `_target_` is held to that one's keys. A group that inherits it is held to the keys of
any.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from recsys_lab.base.schema import alternatives, hints_of, json_schema
from recsys_lab.config.schema import BESIDE_TARGET, PLAIN, schema_of, target_of
from recsys_lab.config.yaml_comments import GROUPS, is_global, meanings, targets

DRAFT = "https://json-schema.org/draft/2020-12/schema"
#: Where a group stands in the whole config, where that is not its name.
PLACES = {"profile": "simulate.profile"}
#: The keys of a sharder that are built from a `_target_` of their own.
PARTS = ("planner", "executor", "towers")
#: Folders of parts that a cluster is put together from, and the field that each of their files is.
CLUSTER_PARTS = {"device": "device", "link": "intra_host", "price": "list_price", "host": "host", "disk": "disk", "failures": "failures"}
INTERPOLATION = {"$ref": "#/$defs/interpolation"}
DEFINED = {"interpolation": {"description": "an interpolation, such as ${model.embedding_dim}", "type": "string", "pattern": r"\$\{"}}
DEFAULTS = {"description": "what this file is put together from, in order", "type": "array", "items": {"type": ["string", "object"]}}

Json = dict[str, Any]


def documents(conf: Path) -> dict[str, Json]:
    """The schema of each kind of file in `conf`, by the pattern of its files from there, such as "model/*.yaml"."""
    groups = {group: of_group(conf, group) for group in GROUPS if group != "experiment"}
    whole = _whole(conf, groups)
    schemas = {f"{group}/*.yaml": _of_files(conf, group, schema, whole["properties"]) for group, schema in groups.items()}
    cluster = hints_of(schema_of(target_of("recsys_lab.cluster.Cluster", "cluster")))
    for folder, field in CLUSTER_PARTS.items():
        kind = next(one for one in (cluster[field], *typing.get_args(cluster[field])) if dataclasses.is_dataclass(one))  # some may be null
        schemas[f"cluster/{folder}/*.yaml"] = of_dataclass(kind, meanings(conf / "cluster", folder))
    schemas["sharder/by_hand/*.yaml"] = schemas["sharder/*.yaml"]
    schemas["sharder/common/*.yaml"] = of_dataclass(PLAIN["sharder"], meanings(conf / "sharder", "common"))
    schemas["experiment/**/*.yaml"] = schemas["config.yaml"] = whole
    return {files: _document(files, schema) for files, schema in schemas.items()}


def of_group(conf: Path, group: str) -> Json:
    """A choice of `group`."""
    comments, target_names = meanings(conf, group), targets(conf, group)
    about: Json = {"description": GROUPS[group]}
    if group in PLAIN and group != "sharder":
        return about | _with_keys(of_dataclass(PLAIN[group], comments), {"defaults": DEFAULTS})
    if group != "sharder":
        return about | of_targets(target_names[""], group, BESIDE_TARGET.get(group), partial(meanings, conf, group))
    parts: Json = {}
    for part in PARTS:
        built = of_targets(target_names[part], f"sharder.{part}", None, partial(_meanings_below, conf, group, part))
        parts[part] = _or_interpolation([built, {"type": "null"}])
    return about | _with_keys(of_dataclass(PLAIN["sharder"], comments), parts | {"defaults": DEFAULTS})


def of_targets(names: Iterable[str], where: str, beside: type | None, comments: Callable[[str], Mapping[str, str]]) -> Json:
    """A mapping whose `_target_` is one of `names`, or somebody else's with keys of its own. `comments`: what keys mean, by name."""
    names = tuple(names)
    each = {name: of_dataclass(schema_of(target_of(name, where), beside), comments(name)) for name in names}
    keys: dict[str, list[Json]] = {}
    for schema in each.values():
        for key, value in schema["properties"].items():
            same = keys.setdefault(key, [])
            same += [value] if value not in same else []
    common = {key: values[0] if len(values) == 1 else {"anyOf": values} for key, values in keys.items()}
    target = {
        "description": "what is built from these keys",
        "anyOf": [{"enum": list(names)}, {"pattern": r"^(?!(recsys_lab|launchers)\.).+\."}],
    }
    is_named = {name: {"properties": {"_target_": {"const": name}}, "required": ["_target_"]} for name in names}
    alone: Json = {"not": {"required": ["defaults"]}}
    key_rules = [
        {
            "if": is_named[name],
            "then": {"propertyNames": {"enum": [*schema["properties"], "_target_", "defaults"]}, "properties": schema["properties"]},
        }
        for name, schema in each.items()
    ]
    required_rules = [
        {"if": {"allOf": [is_named[name], alone]}, "then": {"required": required}}
        for name, schema in each.items()
        if (required := schema["required"])
    ]
    inherits = {"if": {"not": {"required": ["_target_"]}}, "then": {"propertyNames": {"enum": [*common, "defaults"]}, "properties": common}}
    # properties: for what an editor offers; `then` above decides
    return {"type": "object", "properties": {"_target_": target, "defaults": DEFAULTS}, "allOf": [inherits, *key_rules, *required_rules]}


def _meanings_below(conf: Path, group: str, part: str, builds: str) -> dict[str, str]:
    return _below(meanings(conf, group, builds), part)


def of_dataclass(kind: Any, comments: Mapping[str, str]) -> Json:
    """A mapping with the fields of the dataclass `kind` and no other key. `comments`: what its keys mean."""
    root = json_schema(kind)
    return _mapping(root, root, comments) | {"required": root.get("required", [])}


def _mapping(node: Json, root: Json, comments: Mapping[str, str]) -> Json:
    """A dataclass's node of Pydantic's schema, any value of which may be an interpolation."""
    properties = {name: _property(one, root, name, comments) for name, one in node.get("properties", {}).items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _property(node: Json, root: Json, name: str, comments: Mapping[str, str]) -> Json:
    about: Json = {"description": comments[name]} if name in comments else {}
    about |= {"default": node["default"]} if "default" in node else {}
    return about | _or_interpolation(_kinds(node, root, _below(comments, name)))


def _kinds(node: Json, root: Json, comments: Mapping[str, str]) -> list[Json]:
    """What a node of Pydantic's schema takes, as alternatives."""
    return [_kind(dict(one), root, comments) for one in alternatives(node, root)]


def _kind(node: Json, root: Json, comments: Mapping[str, str]) -> Json:
    plain = {key: value for key, value in node.items() if key not in ("title", "default")}
    if "properties" in plain:
        return _mapping(plain, root, comments)
    for inner in ("items", "additionalProperties"):
        if isinstance(plain.get(inner), dict):
            plain[inner] = _or_interpolation(_kinds(plain[inner], root, comments))
    if plain.get("type") == "string" and "enum" not in plain and "const" not in plain:
        plain["type"] = ["string", "number", "boolean"]  # YAML's words need no quotes
    return plain


def vscode_settings(folder: str, files: Iterable[str]) -> Json:
    """The setting of VS Code's YAML extension that has the schemas in `folder` apply to the configs of any `conf` folder."""
    return {"yaml.schemas": {f"{folder}/{name_of(pattern)}": f"**/conf/{pattern}" for pattern in files}}


def name_of(files: str) -> str:
    """The file of the schema: model.schema.json of model/*.yaml."""
    return files.removesuffix(".yaml").rstrip("/*").replace("/", "_") + ".schema.json"


def _document(files: str, schema: Json) -> Json:
    return {"$schema": DRAFT, "title": f"recsys_lab: conf/{files}", "$defs": DEFINED} | schema


def _of_files(conf: Path, group: str, schema: Json, keys: Iterable[str]) -> Json:
    """A choice of a group; or a part of the whole config with these `keys`, where a file says so.

    The part then has the group as one of its keys.
    """
    if not any(map(is_global, (conf / group).glob("*.yaml"))):
        return schema
    return {
        "if": {"required": [group]},
        "then": {"propertyNames": {"enum": list(keys)}, "properties": {group: _partial(schema)}},
        "else": schema,
    }


def _whole(conf: Path, groups: Mapping[str, Json]) -> Json:
    """The whole config, of which a file says as much as it wants."""
    parts: Json = {group: _partial(schema) for group, schema in groups.items() if group not in PLACES}
    comments = meanings(conf, ".")
    for name in ("ablation", "simulate"):
        parts[name] = _partial(of_dataclass(PLAIN[name], _below(comments, name)))
    parts["simulate"]["properties"]["profile"] = _partial(groups["profile"])
    studies = targets(conf, "experiment")["study"]
    parts["study"] = {"anyOf": [{"type": "null"}, _partial(of_targets(studies, "study", BESIDE_TARGET["study"], lambda _: {}))]}
    parts |= {"hydra": {"type": "object"}, "defaults": DEFAULTS}
    return _partial(_with_keys(of_dataclass(PLAIN[""], comments), parts))


def _with_keys(schema: Json, more: Json) -> Json:
    """`schema` with further keys. All of a group without `_target_` may come from its defaults."""
    return _partial(schema | {"properties": schema["properties"] | more})


def _partial(schema: Json) -> Json:
    """Without what a whole group needs: other files may say it."""
    optional = {key: value for key, value in schema.items() if key != "required"}
    if "allOf" in optional:
        optional["allOf"] = [rule for rule in optional["allOf"] if "required" not in rule["then"]]
    return optional


def _or_interpolation(kinds: list[Json]) -> Json:
    return {} if {} in kinds else {"anyOf": [*kinds, INTERPOLATION]}


def _below(comments: Mapping[str, str], name: str) -> dict[str, str]:
    return {key.removeprefix(f"{name}."): words for key, words in comments.items() if key.startswith(f"{name}.")}

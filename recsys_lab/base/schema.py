"""The one schema: annotations of dataclasses, held by Pydantic. What is wrong becomes one line that says what is allowed.

A dataclass's fields, or the keyword-only parameters of a function, declare keys, types, ranges (ranges.py) and defaults. The same adapter
checks a group of the config, a file that was written as JSON, and a value that a Python program has put together.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import json
import re
import types
import typing
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError

from recsys_lab.errors import UserError, did_you_mean

#: Of a dataclass whose keys a user writes: no other keys, no nan, and a number may stand for text.
CLOSED = ConfigDict(
    extra="forbid", allow_inf_nan=False, coerce_numbers_to_str=True, regex_engine="python-re", revalidate_instances="always"
)
#: Characters of a value that an error shows.
MOST_SHOWN = 400
#: Of a number that is no figure.
_DIGITS = re.compile(r"\d{101}")
UNKNOWN = ("unexpected_keyword_argument", "extra_forbidden")
_NAMES = {"integer": "a whole number", "number": "a number", "boolean": "true or false", "string": "text", "object": "a mapping"}
_ENDS = {"minimum": "{} or more", "exclusiveMinimum": "more than {}", "maximum": "at most {}", "exclusiveMaximum": "less than {}"}


@functools.cache
def hints_of(target: Any) -> dict[str, Any]:
    """The annotations of a dataclass's fields or a function's parameters, by name, with what they declare."""
    hints = typing.get_type_hints(target, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(target)} if dataclasses.is_dataclass(target) else hints


@functools.cache
def schema_of(target: Callable, beside: type | None = None) -> type:
    """A dataclass with the keyword-only parameters of `target` (or its fields, if it is a dataclass) and those of `beside`."""
    if dataclasses.is_dataclass(target):
        return typing.cast(type, target)
    function: Any = target.__init__ if inspect.isclass(target) else target
    keys = [one for one in inspect.signature(target).parameters.values() if one.kind is one.KEYWORD_ONLY]
    # other parameters may name types that only a type checker imports
    own = {one.name: function.__annotations__[one.name] for one in keys if one.name in function.__annotations__}
    hints = typing.get_type_hints(types.SimpleNamespace(__annotations__=own), inspect.unwrap(function).__globals__, include_extras=True)
    stand_beside = dataclasses.fields(beside) if beside else ()
    fields: list[Any] = [(one.name, hints_of(beside)[one.name], dataclasses.field(default=one.default)) for one in stand_beside]
    for key in keys:
        default: dict[str, Any] = {} if key.default is key.empty else {"default": key.default}
        if type(key.default).__hash__ is None:  # a list, which each call gets anew
            default = {"default_factory": functools.partial(copy.copy, key.default)}
        fields.append((key.name, hints.get(key.name, Any), dataclasses.field(**default)))
    return dataclasses.make_dataclass(f"{target.__name__}Keys", fields, kw_only=True)


@functools.cache
def adapter(kind: Any) -> TypeAdapter:
    """Pydantic's adapter of a type. Dataclasses in it take no other keys than their fields."""
    pending = [kind]
    while pending:
        hint = pending.pop()
        pending += typing.get_args(hint)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint) and "__pydantic_config__" not in vars(hint):
            hint.__pydantic_config__ = CLOSED  # type: ignore[attr-defined]
            pending += hints_of(hint).values()
    return TypeAdapter(kind)


def checked(values: Any, kind: Any, where: str) -> Any:
    """`values`, plain, as the type `kind`: a dataclass from a mapping of its fields, a number, a list. `where` is their key, for errors.

    Raises UserError for an unknown key, a missing value, a wrong type, and one out of its range.
    """
    try:
        return adapter(kind).validate_python(values)
    except ValidationError as error:
        raise line_of(error.errors(include_url=False)[0], kind, where) from None


def check_fields(instance: Any, where: str) -> None:
    """Raises UserError for the first field of a dataclass that is not as it declares. For `__post_init__`: of what a program builds."""
    values = {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance)}
    checked(values, _fields(instance.__class__), where)


@functools.cache
def _fields(kind: Any) -> Any:
    """The fields of `kind` in a dataclass that does nothing after it is made."""
    return dataclasses.make_dataclass(f"{kind.__name__}Fields", list(hints_of(kind).items()), kw_only=True)


def check_shape(data: Any, kind: Any, path: Path, remedy: str) -> None:
    """Raises UserError, which names `path` and the place in it, where `data`, read from JSON, do not have the shape of the type `kind`.

    Fields with a default may be missing, and fields may be there that the type does not know. A number may be null, as figures are written
    that are not finite.
    """
    text = json.dumps(data)
    if _DIGITS.search(text):
        raise UserError("of another shape", where=path, given="a number of too many digits", remedy=remedy)
    try:
        adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_context=False):
            if each["type"] not in UNKNOWN and not (each["input"] is None and each["type"] == "float_type"):
                what = f"{_key('', each['loc'])} is of another shape" if each["loc"] else "of another shape"
                raise UserError(what, where=path, given=_short(each["input"]), allowed=each["msg"].lower(), remedy=remedy) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"of another shape ({error})", where=path, remedy=remedy) from None


def first_written(error: ValidationError, written: Any) -> Any:
    """The first detail of `error` that is about a value as it was `written`, and not about what an interpolation stood for; None: none."""
    return next((one for one in error.errors(include_url=False) if not _interpolates(written, one["loc"])), None)


def line_of(detail: Any, kind: Any, where: str, more_keys: Sequence[str] = ()) -> UserError:
    """A detail of Pydantic's error as one line. `more_keys`: those beside the fields of `kind` that a misspelt key may mean."""
    *outer, last = detail["loc"] or ("",)
    key, root = _key(where, detail["loc"]), json_schema(kind)
    if detail["type"] in UNKNOWN:
        fields = [name for one in alternatives(_at(root, outer), root) for name in one.get("properties", ())]
        names = [*fields, *(more_keys if not outer else ())]
        return UserError("no such key", where=key, allowed=", ".join(names) or None, remedy=did_you_mean(str(last), names))
    if last == "[key]":  # of a mapping whose keys are names
        outer, given = outer[:-1], str(outer[-1])
        names = [name for one in alternatives(_at(root, outer), root) for name in one.get("propertyNames", {}).get("enum", ())]
        where = _key(where, outer)
        return UserError("no such key", where=where, given=given, allowed=", ".join(names) or None, remedy=did_you_mean(given, names))
    allowed = _words(_at(root, detail["loc"]), root)
    if detail["type"] == "missing":
        return UserError("a value is needed", where=key, given="nothing", allowed=allowed, remedy=f"set {key}=...")
    choices = [one for one in _choices(_at(root, detail["loc"]), root) if isinstance(one, str)]
    what = "no such choice" if choices else "wrong type" if detail["type"].endswith("_type") else "out of range"
    return UserError(what, where=key, given=_short(detail["input"]), allowed=allowed, remedy=did_you_mean(str(detail["input"]), choices))


@functools.cache
def json_schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a type. An empty one where a part has none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of defaults that JSON does not have
        try:
            return adapter(kind).json_schema()
        except PydanticUserError:
            return {}


def _interpolates(written: Any, path: Sequence[int | str]) -> bool:
    for part in path:
        if isinstance(written, str):
            break
        try:
            written = written[part]
        except (KeyError, IndexError, TypeError):
            return False
    return isinstance(written, str) and "${" in written


def _key(where: str, path: Sequence[int | str]) -> str:
    for part in path:
        where += f"[{part}]" if isinstance(part, int) else f".{part}"
    return where.strip(".")


def _short(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value if abs(value) < 1e100 or isinstance(value, float) else "a number of too many digits"
    text = "null" if value is None else "an empty word" if value == "" else str(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]} ..."


def alternatives(node: Mapping[str, Any], root: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What a node of a JSON Schema may be, without references."""
    if "$ref" in node:
        return alternatives(root["$defs"][node["$ref"].rpartition("/")[2]], root)
    return [one for inner in node["anyOf"] for one in alternatives(inner, root)] if "anyOf" in node else [node]


def _at(root: Mapping[str, Any], path: Sequence[int | str]) -> Mapping[str, Any]:
    """The node of a JSON Schema at a place. Parts that only name an alternative of a union are passed over."""
    node: Mapping[str, Any] = root
    for part in path:
        for one in alternatives(node, root):
            any_key = one.get("additionalProperties") or next(iter(one.get("patternProperties", {}).values()), None)
            inner = one.get("items") if isinstance(part, int) else one.get("properties", {}).get(part, any_key)
            if isinstance(inner, Mapping):
                node = inner
                break
    return {"anyOf": alternatives(node, root)}


def _choices(node: Mapping[str, Any], root: Mapping[str, Any]) -> list[Any]:
    return [choice for one in alternatives(node, root) for choice in one.get("enum", [one["const"]] if "const" in one else [])]


def _words(node: Mapping[str, Any], root: Mapping[str, Any]) -> str | None:
    """What a node of a JSON Schema allows, in words."""
    return " or ".join(dict.fromkeys(words for one in alternatives(node, root) if (words := _of_one(one, root)))) or None


def _of_one(node: Mapping[str, Any], root: Mapping[str, Any]) -> str | None:
    if choices := _choices(node, root):
        return ", ".join(str(choice).lower() if isinstance(choice, bool) else str(choice) for choice in choices)
    if node.get("type") == "array":
        return f"a list, each {_words(node['items'], root)}" if node.get("items") else "a list"
    if "properties" in node:
        return f"keys {', '.join(node['properties'])}"
    if node.get("type") == "string" and "description" in node:
        return str(node["description"])
    kind, bounds = str(node.get("type", "")), [words.format(_figure(node[end])) for end, words in _ENDS.items() if end in node]
    return ", ".join(filter(None, [_NAMES.get(kind, kind), *bounds])) or None


def _figure(figure: float) -> str:
    return f"{int(figure):,}" if abs(figure) < 1e15 and figure == int(figure) else f"{figure:g}"

"""Whether plain data, as JSON gives them, have the shape of a type. A dataclass is an object with its fields."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recsys_lab.errors import UserError

#: Beyond it nothing is a figure, and sums are infinite.
MOST = 1e100
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", type(None): "null"}


def check_shape(data: Any, expected: Any, path: Path, remedy: str) -> None:
    """UserError, which names `path` and the place in it, where `data` do not have the shape of the type `expected`.

    Fields with a default may be missing, others may be there that the type does not know. A number may be null: figures that are not
    finite are written so.
    """
    if (found := _misfit(data, expected, "")) is not None:
        place, given, allowed = found
        what = f"{place.removeprefix('.')} is of another shape" if place else "of another shape"
        raise UserError(what, where=path, given=given, allowed=allowed, remedy=remedy)


def _misfit(data: Any, expected: Any, place: str) -> tuple[str, str, str] | None:
    """The first place that does not fit, what stands there and what may; None where all fits."""
    if expected is Any:
        return None
    kind, inner = typing.get_origin(expected) or expected, typing.get_args(expected)
    if kind in (typing.Union, types.UnionType):
        misfits = [_misfit(data, each, place) for each in inner]
        return None if None in misfits else max((m for m in misfits if m), key=lambda misfit: len(misfit[0]))
    if dataclasses.is_dataclass(kind):
        return _misfit_of_object(data, kind, place)
    if kind in (dict, Mapping):
        if not isinstance(data, dict):
            return place, _shown(data), "an object"
        return next((m for key, item in data.items() if (m := _misfit(item, inner[1], f"{place}.{key}"))), None)
    if kind in (list, tuple, Sequence):
        if not isinstance(data, list):
            return place, _shown(data), "a list"
        return next((m for at, item in enumerate(data) if (m := _misfit(item, inner[0], f"{place}[{at}]"))), None)
    return None if _fits(data, kind) else (place, _shown(data), _WORDS[kind])


def _misfit_of_object(data: Any, kind: Any, place: str) -> tuple[str, str, str] | None:
    if not isinstance(data, dict):
        return place, _shown(data), "an object"
    for name, expected, needed in _fields(kind):
        if name in data:
            if misfit := _misfit(data[name], expected, f"{place}.{name}"):
                return misfit
        elif needed:
            return f"{place}.{name}", "nothing", "a value"
    return None


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """(name, type, whether it has no default)."""
    hints, missing = typing.get_type_hints(kind), dataclasses.MISSING
    return tuple((f.name, hints[f.name], f.default is missing and f.default_factory is missing) for f in dataclasses.fields(kind))


def _fits(data: Any, kind: Any) -> bool:
    if kind is float:
        return data is None or isinstance(data, (int, float)) and not isinstance(data, bool) and abs(data) <= MOST
    if kind is int:
        return isinstance(data, int) and not isinstance(data, bool) and abs(data) <= MOST
    return isinstance(data, kind)


def _shown(data: Any) -> str:
    if isinstance(data, (dict, list)):
        return f"{'an object' if isinstance(data, dict) else 'a list'} of {len(data)}"
    text = repr(data) if not isinstance(data, int) or abs(data) <= MOST else "a number of too many digits"
    return text if len(text) <= 60 else f"{text[:57]}..."

"""A study's function: `run(name, *, option, ...) -> Study`, named by its YAML's `_target_`."""

from __future__ import annotations

import importlib
import inspect
import typing
from collections.abc import Callable
from types import NoneType
from typing import Any

from recsys_lab.errors import UserError


def function_of(target: str) -> Callable[..., Any]:
    module, _, name = target.rpartition(".")
    return typing.cast(Callable[..., Any], getattr(importlib.import_module(module), name))


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotation of each of its options, which are keyword-only."""
    hints = typing.get_type_hints(function)
    parameters = inspect.signature(function).parameters.values()
    return {of.name: hints[of.name] for of in parameters if of.kind is inspect.Parameter.KEYWORD_ONLY}


def option_value(hint: Any, text: str, where: str) -> Any:
    """A word of a command line as `hint`, lists with commas between their items. Raises UserError."""
    if typing.get_origin(hint) is list:
        return [option_value(typing.get_args(hint)[0], part, where) for part in text.split(",")]
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not NoneType]
    if kinds == [int]:
        try:
            return int(text)
        except ValueError:
            raise UserError("not a whole number", where=where, given=text) from None
    return text

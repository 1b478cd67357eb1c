"""Overrides of the command line from Python's values: `model="dcn"`, `seed=3`, `data.drop=["id"]`, a Path with spaces."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from os import PathLike, fspath
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.errors import HydraException

from recsys_lab.errors import UserError

#: What needs no quotes anywhere.
_PLAIN = re.compile(r"[\w./:+@%-]+", re.ASCII)


def overrides_from_kwargs(words: Sequence[object], keys: Mapping[str, Any], where: str) -> list[str]:
    """`words` and then `keys` as words of the command line.

    Args:
        words: text, as on the command line.
        keys: values by key. Text stands as it is where the command line can read it, and in quotes otherwise.
        where: the function that was called, for errors.

    Returns:
        The words.

    Raises:
        UserError: for a word that is no text, and for a value that no word has.
    """
    for word in words:
        if not isinstance(word, str):
            remedy = "a list of words: compose(*words)" if isinstance(word, list | tuple) else "keys are keywords: compose(model='dcn')"
            raise UserError("a word is text such as 'model=dcn'", where=where, given=_kind(word), remedy=remedy)
    return [*map(str, words), *(f"{key}={_value(key, value, where)}" for key, value in keys.items())]


def _value(key: str, value: Any, where: str) -> str:
    if isinstance(value, str):
        return value if _is_read(f"{key}={value}") else _quoted(value)
    return _inside(key, value, where)


def _inside(key: str, value: Any, where: str) -> str:
    """The same where it may stand in a list, so that no text is two values."""
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()  # a scalar of numpy or torch
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) or (isinstance(value, float) and not math.isnan(value)):
        return repr(value)
    if isinstance(value, str | PathLike):
        text = str(fspath(value))
        return text if _PLAIN.fullmatch(text) else _quoted(text)
    if isinstance(value, list | tuple):
        return f"[{','.join(_inside(key, one, where) for one in value)}]"
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return "{" + ",".join(f"{name}:{_inside(key, one, where)}" for name, one in value.items()) + "}"
    allowed = "text, a number, True, False, None, a path, a list or a mapping of them"
    raise UserError("no word has such a value", where=f"{where} {key}", given=_kind(value), allowed=allowed)


def _is_read(word: str) -> bool:
    try:
        OverridesParser.create().parse_override(word)
    except HydraException:
        return False
    return True


def _quoted(text: str) -> str:
    return QuotedString(text, Quote.single).with_quotes()


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__

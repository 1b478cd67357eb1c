"""What an option can be: declared in its annotation, such as `lr: Annotated[float, Range(0, 1e6)]`, and checked here.

A declaration stands on a dataclass's field or on a keyword-only parameter, and inside containers: `list[Count]`, `Positive | None`,
`dict[Annotated[str, OneOf(("fp32", "bf16"))], Positive]`.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Annotated, Any

from recsys_lab.errors import UserError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Range:
    """`least` and `most` belong to it, but `above` and `below` do not. Neither nan nor an infinity is in any."""

    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf
    below: float = math.inf

    def has(self, value: Any) -> bool:
        """False for what is not a number."""
        if isinstance(value, bool) or not isinstance(value, Real):
            return False
        number: Any = value
        return self.least <= number <= self.most and self.above < number < self.below and abs(number) != math.inf

    def __str__(self) -> str:
        ends = ((self.least, "{} or more"), (self.above, "more than {}"), (self.most, "at most {}"), (self.below, "less than {}"))
        return ", ".join(words.format(_said(end)) for end, words in ends if abs(end) != math.inf)

    def refusal(self, value: Any, where: str, otherwise: str) -> UserError:
        return UserError("out of range", where=where, given=_given(value), allowed=f"{self}{otherwise}")


@dataclasses.dataclass(frozen=True)
class OneOf:
    """One of a few names or numbers."""

    choices: tuple[Any, ...]

    def has(self, value: Any) -> bool:
        return any(type(value) is type(choice) and value == choice for choice in self.choices)

    def __str__(self) -> str:
        return ", ".join(map(str, self.choices))

    def refusal(self, value: Any, where: str, otherwise: str) -> UserError:
        remedy = did_you_mean(str(value), [choice for choice in self.choices if isinstance(choice, str)])
        return UserError("no such choice", where=where, given=_given(value), allowed=f"{self}{otherwise}", remedy=remedy)


@dataclasses.dataclass(frozen=True)
class Text:
    """Text that matches `pattern` as a whole, of at most `longest` characters. `says`: the same in words."""

    pattern: str
    longest: int
    says: str

    def has(self, value: Any) -> bool:
        return isinstance(value, str) and len(value) <= self.longest and re.fullmatch(self.pattern, value) is not None

    def __str__(self) -> str:
        return f"{self.says}, at most {self.longest} characters"

    def refusal(self, value: Any, where: str, otherwise: str) -> UserError:
        return UserError("not allowed", where=where, given=repr(value), allowed=f"{self}{otherwise}")


Rule = Range | OneOf | Text

Count = Annotated[int, Range(1, 10**9)]
CountFromZero = Annotated[int, Range(0, 10**9)]
RowCount = Annotated[int, Range(1, 2**40)]  # of a table or a split: a number that fits 63 bits when it is multiplied
RowCountFromZero = Annotated[int, Range(0, 2**40)]
Width = Annotated[int, Range(1, 2**16)]  # of a layer
Depth = Annotated[int, Range(1, 1024)]  # layers on top of each other, heads beside each other
DepthFromZero = Annotated[int, Range(0, 1024)]
Dimension = Annotated[int, Range(1, 2**12)]  # of an embedding
Length = Annotated[int, Range(1, 2**16)]  # look-ups of a feature in a sample, places of a history
DenseFeatures = Annotated[int, Range(0, 2**13)]
Hosts = Annotated[int, Range(1, 2**16)]
RanksPerHost = Annotated[int, Range(1, 1024)]
Threads = Annotated[int, Range(1, 1024)]  # of a rank
Timeout = Annotated[float, Range(1, 30 * 86400)]  # seconds
Rounds = Annotated[int, Range(1, 1000)]  # of a measurement, or seeds of a comparison
Seed = Annotated[int, Range(0, 2**32 - 1)]
Positive = Annotated[float, Range(1e-9, 1e9)]  # of memory, of a bandwidth, of a price; above, it is in a wrong unit
NotNegative = Annotated[float, Range(0, 1e9)]  # of a time, of a weight
Factor = Annotated[float, Range(1, 1e9)]
Day = Annotated[str, Text(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])", 10, "a day such as 2026-09-20")]
Share = Annotated[float, Range(0, 1)]
ShareBelowOne = Annotated[float, Range(0, below=1)]
ShareOfPeak = Annotated[float, Range(1e-9, 1)]


def check(value: Any, hint: Any, where: str, otherwise: str = "") -> None:
    """Raises UserError for the first part of `value` that is not as `hint`, a resolved annotation, declares.

    Types are checked only where a rule stands.
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        _check_rules(value, inner, where, otherwise)
    elif origin in (typing.Union, types.UnionType):
        if value is not None or types.NoneType not in inner:
            check(value, next(kind for kind in inner if kind is not types.NoneType), where, ", or null")
    elif origin is list and isinstance(value, Iterable):
        for place, item in enumerate(value):
            check(item, inner[0], f"{where}[{place}]")
    elif origin is dict and isinstance(value, Mapping):
        for key, item in value.items():
            check(key, inner[0], where)
            check(item, inner[1], f"{where}.{key}")
    elif dataclasses.is_dataclass(hint) and value is not None:
        check_fields(value, where, typing.cast(type, hint))


def check_fields(part: Any, where: str, kind: type | None = None) -> None:
    """Checks every field of `part` likewise. `part` is a dataclass, or a mapping that has the keys of the dataclass `kind`."""
    for name, hint in hints_of(kind or type(part)).items():
        if not isinstance(part, Mapping):
            check(getattr(part, name), hint, f"{where}.{name}".lstrip("."))
        elif name in part:
            check(part[name], hint, f"{where}.{name}".lstrip("."))


@functools.cache
def hints_of(target: Any) -> dict[str, Any]:
    """The annotations of a dataclass's fields or a function's parameters, by name, with what they declare."""
    hints = typing.get_type_hints(target, include_extras=True)
    if dataclasses.is_dataclass(target):
        return {field.name: hints[field.name] for field in dataclasses.fields(target)}
    return hints


def _check_rules(value: Any, declared: tuple[Any, ...], where: str, otherwise: str) -> None:
    base, *rules = declared
    whole = base is int and not (isinstance(value, Integral) and not isinstance(value, bool))
    for rule in rules:
        if isinstance(rule, Rule) and (whole or not rule.has(value)):
            raise rule.refusal(value, where, (", whole" if base is int and isinstance(rule, Range) else "") + otherwise)


def _given(value: Any) -> Any:
    return "null" if value is None else "an empty word" if value == "" else value


def _said(figure: float) -> str:
    return f"{int(figure):,}" if abs(figure) < 1e15 and figure == int(figure) else f"{figure:g}"

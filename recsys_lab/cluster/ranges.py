"""What a figure of a cluster can be: declared where its field is, checked in one place."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

from recsys_lab.errors import UserError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Range:
    """`least` and `most` belong to it, but `above` and `below` do not. Above `most` a figure is in a wrong unit."""

    least: float = -math.inf
    above: float = -math.inf
    most: float = 1e9
    below: float = math.inf
    whole: bool = False

    def has(self, value: Any) -> bool:
        """False for what is not a number, and for nan."""
        if isinstance(value, bool) or not isinstance(value, Integral if self.whole else Real):
            return False
        value = float(value)
        return self.least <= value <= self.most and self.above < value < self.below

    def __str__(self) -> str:
        low = f"{self.least:g} or more" if self.above == -math.inf else f"more than {self.above:g}"
        high = f"at most {self.most:g}" if self.below == math.inf else f"less than {self.below:g}"
        return f"{low}, {high}" + (", whole" if self.whole else "")


#: The metadata of a field: `range` of its figure, or of each figure by name; `names`: what it, or each of its keys, can be.
COUNT = {"range": Range(least=1, whole=True)}
COUNT_OR_NONE = {"range": Range(least=0, whole=True)}
POSITIVE = {"range": Range(above=0)}  # of memory, of bandwidths, of a peak, of a price
TIME = {"range": Range(least=0)}
SHARE = {"range": Range(least=0, below=1)}
FACTOR = {"range": Range(least=1)}


def check_ranges(part: Any, where: str) -> None:
    """Raises UserError for the first field of `part`, or of a part of it, outside what the field declares."""
    for field in dataclasses.fields(part):
        key, value = f"{where}.{field.name}", getattr(part, field.name)
        figures, names = field.metadata.get("range"), field.metadata.get("names", ())
        if dataclasses.is_dataclass(value):
            check_ranges(value, key)
        elif isinstance(value, Mapping) and figures:
            for name, figure in value.items():
                _check_name(name, names, key)
                _check_figure(figure, figures, f"{key}.{name}")
        elif figures:
            if value is not None or field.default is not None:
                _check_figure(value, figures, key, ", or null" if field.default is None else "")
        elif names:
            _check_name(value, names, key)
        else:
            assert isinstance(value, (bool, str, list)), f"{key} has no range"


def _check_figure(value: Any, figures: Range, where: str, otherwise: str = "") -> None:
    if not figures.has(value):
        raise UserError("out of range", where=where, given="null" if value is None else value, allowed=f"{figures}{otherwise}")


def _check_name(value: Any, names: tuple[str, ...], where: str) -> None:
    if value not in names:
        raise UserError("no such choice", where=where, given=value, allowed=", ".join(names), remedy=did_you_mean(str(value), names))

"""What an option can be, declared in its annotation: `lr: Annotated[float, Strict(), Interval(ge=0, le=1e6)]`, `mode: Literal["a", "b"]`.

A declaration stands on a dataclass's field or on a keyword-only parameter, and inside containers: `list[Count]`, `Positive | None`,
`dict[Literal["fp32", "bf16"], Positive]`. Pydantic holds values to it (schema.py). `Strict` refuses `true` and text for a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Interval
from pydantic import Field, GetCoreSchemaHandler, Strict
from pydantic_core import CoreSchema
from pydantic_core.core_schema import literal_schema

Count = Annotated[int, Strict(), Interval(ge=1, le=10**9)]
CountFromZero = Annotated[int, Strict(), Interval(ge=0, le=10**9)]
RowCount = Annotated[int, Strict(), Interval(ge=1, le=2**40)]  # of a table or a split: it fits 63 bits when it is multiplied
RowCountFromZero = Annotated[int, Strict(), Interval(ge=0, le=2**40)]
Width = Annotated[int, Strict(), Interval(ge=1, le=2**16)]  # of a layer
Depth = Annotated[int, Strict(), Interval(ge=1, le=1024)]  # layers on top of each other, heads beside each other
DepthFromZero = Annotated[int, Strict(), Interval(ge=0, le=1024)]
Dimension = Annotated[int, Strict(), Interval(ge=1, le=2**12)]  # of an embedding
Length = Annotated[int, Strict(), Interval(ge=1, le=2**16)]  # look-ups of a feature in a sample, places of a history
DenseFeatures = Annotated[int, Strict(), Interval(ge=0, le=2**13)]
Hosts = Annotated[int, Strict(), Interval(ge=1, le=2**16)]
RanksPerHost = Annotated[int, Strict(), Interval(ge=1, le=1024)]
Threads = Annotated[int, Strict(), Interval(ge=1, le=1024)]  # of a rank
Timeout = Annotated[float, Strict(), Interval(ge=1, le=30 * 86400)]  # seconds
Rounds = Annotated[int, Strict(), Interval(ge=1, le=1000)]  # of a measurement, or seeds of a comparison
Seed = Annotated[int, Strict(), Interval(ge=0, le=2**32 - 1)]
Positive = Annotated[float, Strict(), Interval(ge=1e-9, le=1e9)]  # of memory, a bandwidth, a price; above, it is in a wrong unit
NotNegative = Annotated[float, Strict(), Interval(ge=0, le=1e9)]  # of a time, of a weight
Factor = Annotated[float, Strict(), Interval(ge=1, le=1e9)]
Day = Annotated[str, Field(pattern=r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$", description="a day such as 2026-09-20")]
Share = Annotated[float, Strict(), Interval(ge=0, le=1)]
ShareBelowOne = Annotated[float, Strict(), Interval(ge=0, lt=1)]
ShareOfPeak = Annotated[float, Strict(), Interval(ge=1e-9, le=1)]


@dataclass(frozen=True)
class OneOf:
    """One of the names of a table elsewhere, as `Literal` of names that stand here: `Annotated[str, OneOf(STORES)]`."""

    choices: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return literal_schema(list(self.choices))


def text_like(pattern: str, longest: int, words: str) -> Any:
    """Text that matches `pattern` as a whole, of at most `longest` characters; in `words` for whoever wrote another."""
    return Field(pattern=f"^(?:{pattern})$", max_length=longest, description=f"{words}, at most {longest} characters")

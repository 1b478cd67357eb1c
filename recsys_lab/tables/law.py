"""Power laws in pieces. They say how look-ups fall over a table's rows, most frequent first. Ids can be drawn from the formula.

    density(x) ~ (x + shift) ** -exponent_i    between the knees i and i + 1, continuous, x in [0, rows]

Row k (0 is the most frequent) has the integral over [k, k + 1). One piece is Zipf-Mandelbrot's law. With shift 1 it is Zipf's. With
exponent 0 it is uniform. More pieces follow real tables, whose slope changes on the way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.ranges import Positive, RowCount
from recsys_lab.errors import UserError
from recsys_lab.tables.access import TableAccess, each_once


@dataclass(frozen=True)
class LawOptions:
    """The keys of a model's `law`: those of `RankLaw`."""

    rows: RowCount
    exponents: list[Annotated[float, Strict(), Interval(ge=0, le=10)]]
    shift: Positive = 1.0
    knees: list[Positive] = field(default_factory=list)


@dataclass(frozen=True)
class RankLaw:
    """`exponents` has one entry a piece, `knees` (in rows, rising, inside the table) one fewer. `shift` (in rows) is above 0."""

    rows: int
    exponents: tuple[float, ...]
    shift: float = 1.0
    knees: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for name, right, allowed in (
            ("rows", self.rows >= 1, "1 or more"),
            ("shift", self.shift > 0, "above 0"),
            ("exponents", len(self.exponents) == len(self.knees) + 1, f"{len(self.knees) + 1}, one more than knees"),
            ("exponents", all(s >= 0 for s in self.exponents), "0 or more: rows are in falling frequency"),
            ("knees", list(self.edges) == sorted(set(self.edges)), f"rising, between 0 and {self.rows}"),
        ):
            if not right:
                raise UserError("no such law", where=f"law.{name}", given=getattr(self, name), allowed=allowed)

    @property
    def edges(self) -> tuple[float, ...]:
        return (0.0, *self.knees, float(self.rows))

    def share(self, x: np.ndarray | float) -> np.ndarray:
        """The share of look-ups that go to the first `x` rows; x may lie between rows."""
        x = np.clip(np.asarray(x, np.float64), 0, self.rows)
        piece = np.minimum(np.searchsorted(self.edges, x, side="right") - 1, len(self.exponents) - 1)
        return (self._mass_before[piece] + self._factors[piece] * self._integral(x + self.shift, piece)) / self._mass_before[-1]

    def density(self, x: np.ndarray | float) -> np.ndarray:
        """The share of look-ups of a row at `x`: the derivative of `share`."""
        x = np.clip(np.asarray(x, np.float64), 0, self.rows)
        piece = np.minimum(np.searchsorted(self.edges, x, side="right") - 1, len(self.exponents) - 1)
        return self._factors[piece] * (x + self.shift) ** -np.asarray(self.exponents)[piece] / self._mass_before[-1]

    def ranks(self, u: np.ndarray) -> np.ndarray:
        """Ranks (int64, 0 the most frequent) of uniform draws `u` in [0, 1): the inverse of `share`, rounded down."""
        mass = np.asarray(u, np.float64) * self._mass_before[-1]
        piece = np.minimum(np.searchsorted(self._mass_before, mass, side="right") - 1, len(self.exponents) - 1)
        inside = (mass - self._mass_before[piece]) / self._factors[piece]
        start = np.asarray(self.edges)[piece] + self.shift
        power = 1.0 - np.asarray(self.exponents)[piece]
        grown = np.where(power == 0, inside, np.log1p(inside * power * start**-power) / np.where(power == 0, 1.0, power))
        return np.clip((start * np.exp(grown) - self.shift).astype(np.int64), 0, self.rows - 1)

    def access(self, table: str, rows: int, mean_length: float, buckets: int = 4096) -> TableAccess:
        """Access statistics of a table of `rows` rows with `mean_length` look-ups a sample, in up to `buckets` geometric groups of rows.

        p is the expected number of look-ups of a row a sample. It may exceed 1 where the sequences repeat an id. See `TableAccess`.
        """
        law = self.scaled(rows)
        edges = each_once(np.geomspace(1, rows + 1, num=min(buckets, rows) + 1).round().astype(np.int64)) - 1
        sizes = np.diff(edges)
        p = np.diff(law.share(edges)) * mean_length / sizes
        p = np.minimum.accumulate(p)  # rounding must not make a later bucket the more frequent one
        return TableAccess(table, mean_length, tuple(sizes.tolist()), tuple(p.tolist()), "formula", self.describe())

    def scaled(self, rows: int) -> RankLaw:
        """The same curve, share of look-ups over share of rows, for a table of another size. Zipf's law keeps its exponent and shift."""
        if rows == self.rows or (not self.knees and self.shift == 1.0):
            return RankLaw(rows, self.exponents, self.shift, self.knees)
        factor = rows / self.rows
        return RankLaw(rows, self.exponents, self.shift * factor, tuple(knee * factor for knee in self.knees))

    def describe(self) -> str:
        exponents = ", ".join(f"{s:.3g}" for s in self.exponents)
        if self.knees:
            return f"power law in {len(self.exponents)} pieces, exponents {exponents}"
        if self.exponents == (0.0,):
            return "uniform"
        return f"zipf, exponent {exponents}" if self.shift == 1.0 else f"zipf-mandelbrot, exponent {exponents}, shift {self.shift:.4g}"

    def to_config(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @staticmethod
    def from_config(config: Mapping[str, Any]) -> RankLaw:
        """From a mapping with the fields' names. UserError for a law that cannot be."""
        if unknown := sorted(set(config) - {"rows", "exponents", "shift", "knees"}):
            raise UserError("no such key", where=f"law.{unknown[0]}", allowed="rows, exponents, shift, knees")
        if missing := sorted({"rows", "exponents"} - set(config)):
            raise UserError("a value is needed", where=f"law.{missing[0]}", given="nothing")
        return RankLaw(
            int(config["rows"]),
            tuple(float(s) for s in config["exponents"]),
            float(config.get("shift", 1.0)),
            tuple(float(x) for x in config.get("knees", ())),
        )

    @cached_property
    def _factors(self) -> np.ndarray:
        """[pieces] what makes the density continuous. The first is 1."""
        knees = np.asarray(self.knees) + self.shift
        return np.concatenate([[1.0], np.exp(np.cumsum(np.diff(self.exponents) * np.log(knees)))]) if self.knees else np.ones(1)

    @cached_property
    def _mass_before(self) -> np.ndarray:
        """[pieces + 1] the integral up to each edge."""
        pieces = np.arange(len(self.exponents))
        whole = self._factors * self._integral(np.asarray(self.edges[1:]) + self.shift, pieces)
        return np.concatenate([[0.0], np.cumsum(whole)])

    def _integral(self, y: np.ndarray, piece: np.ndarray) -> np.ndarray:
        """Of t ** -exponent from the start of the piece to `y`, both counted with the shift."""
        start = np.asarray(self.edges)[piece] + self.shift
        power = 1.0 - np.asarray(self.exponents)[piece]
        grown = np.log(y / start)
        return start**power * np.where(power == 0, grown, np.expm1(power * grown) / np.where(power == 0, 1.0, power))


def zipf_mandelbrot(rows: int, exponent: float, shift: float) -> RankLaw:
    """p of the row of rank k = 0, 1, ... proportional to (k + shift) ** -exponent, integrated over the row."""
    return RankLaw(rows, (exponent,), shift)

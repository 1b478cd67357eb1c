"""Ratios of a comparison: the median over rounds and its range, the simulator's, and how far the links themselves would let it go."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from experiments.emulated.comparisons import TRANSFER, Comparison

if TYPE_CHECKING:
    from experiments.emulated.runs import Ran


@dataclass(frozen=True)
class Ratio:
    """Of one line against the baseline; above 1 is a gain. `under_way`: of the time in which embeddings are in flight, late ranks included.
    `bytes`: the baseline's on a host's link over the line's.
    """

    line: str
    measured: float
    range: tuple[float, float]
    simulated: float
    under_way: float
    bytes: float

    @property
    def simulated_error(self) -> float:
        return self.simulated / self.measured - 1


@dataclass(frozen=True)
class LineFigures:
    """Of one line, medians over rounds, ms of an iteration. `wire_ms`: what the bytes counted on a host's link take at its rate.

    `of_link`: what share of the time in which embeddings are under way the link would need for all bytes, those of the dense arch too.
    """

    transfer_ms: float
    under_way_ms: float
    wire_ms: float
    iteration_ms: float
    simulated_transfer_ms: float
    simulated_iteration_ms: float
    counter_vs_steps: float

    @property
    def of_link(self) -> float:
        return self.wire_ms / self.transfer_ms


def ratios(comparison: Comparison, rounds: Sequence[dict[str, Ran]]) -> list[Ratio]:
    """Round by round, since what the machine does changes from one to the next."""
    base, made = comparison.baseline, []
    for name in comparison.lines:
        if name == base:
            continue
        found = [_gain(comparison.figure, one[base], one[name]) for one in rounds]
        simulated = statistics.median(_simulated_gain(comparison.figure, one[base], one[name]) for one in rounds)
        under_way = statistics.median(one[base].under_way_ms / one[name].under_way_ms for one in rounds)
        carried = rounds[0][base].link_bytes, rounds[0][name].link_bytes
        made.append(
            Ratio(name, statistics.median(found), (min(found), max(found)), simulated, under_way, carried[0] / max(carried[1], 1.0))
        )
    return made


def line_figures(rounds: Sequence[dict[str, Ran]], link_gb_s: float) -> dict[str, LineFigures]:
    def median(name: str, what: str) -> float:
        return statistics.median(float(getattr(one[name], what)) for one in rounds)

    return {
        name: LineFigures(
            transfer_ms=median(name, "transfer_ms"),
            under_way_ms=median(name, "under_way_ms"),
            wire_ms=median(name, "link_bytes") / (link_gb_s * 1e6),
            iteration_ms=median(name, "iteration_ms"),
            simulated_transfer_ms=median(name, "simulated_transfer_ms"),
            simulated_iteration_ms=statistics.median(one[name].record["simulated"]["iteration_ms"] for one in rounds),
            counter_vs_steps=median(name, "counter_vs_steps"),
        )
        for name in rounds[0]
    }


def as_json(found: Sequence[Ratio], lines: dict[str, LineFigures]) -> dict[str, Any]:
    return {
        "ratios": {one.line: asdict(one) | {"simulated_error": one.simulated_error} for one in found},
        "lines": {name: asdict(one) | {"of_link": one.of_link} for name, one in lines.items()},
    }


def _gain(figure: str, base: Ran, other: Ran) -> float:
    if figure == TRANSFER:
        return base.transfer_ms / other.transfer_ms
    return other.examples_per_second / base.examples_per_second


def _simulated_gain(figure: str, base: Ran, other: Ran) -> float:
    if figure == TRANSFER:
        return base.simulated_transfer_ms / other.simulated_transfer_ms
    return float(other.record["simulated"]["examples_per_second"] / base.record["simulated"]["examples_per_second"])

"""Few figures of a profile fitted to a framework's published points, and how well each point is told by a fit without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from scipy.optimize import least_squares

Software = TypeVar("Software")  # a Profile, or a Cluster
#: Figures that are shares of a peak; all others are only above zero.
SHARES = ("lookup_efficiency_forward", "lookup_efficiency_backward", "memory_efficiency", "dense_mfu", "link_efficiency")
LEAST, MOST = 1e-3, 1e4
#: A point this far off (in logarithms) counts less than its square.
OUTLIER = 0.1
#: Of published figures: an iteration's or a collective's ms; how often one time goes into another, or percent of linear scaling; a time
#: that the source bounds from below and does not tell.
KINDS = ("time", "ratio", "bound")


@dataclass(frozen=True)
class Point(Generic[Software]):
    """A published figure, and what the simulator makes of it with given software. `fitted`: whether a fit may use it. `bound`: the source
    says no more than that the time is at least this.
    """

    group: str
    what: str
    published: float
    simulate: Callable[[Software], float]
    unit: str = "ms"
    fitted: bool = True
    bound: bool = False


@dataclass(frozen=True)
class Found:
    """A point with its errors: by the figures on file, and by a fit to the other points (the same where nothing was fitted to it)."""

    group: str
    what: str
    published: float
    simulated: float
    left_out: float
    unit: str
    fitted: bool
    bound: bool = False

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        return "bound" if self.bound else "time" if self.unit == "ms" else "ratio"

    @property
    def holds(self) -> bool | None:
        """Whether a bound is kept; None of what is none."""
        return self.simulated >= self.published if self.bound else None

    @property
    def error(self) -> float:
        return self.simulated / self.published - 1

    @property
    def left_out_error(self) -> float:
        return self.left_out / self.published - 1


Change = Callable[[Software, dict[str, float]], Software]


def with_figures(given: Software, figures: dict[str, float]) -> Software:
    """A dataclass with other figures."""
    return replace(given, **figures)  # type: ignore[type-var]


def fit(
    points: Sequence[Point[Software]], start: Software, names: Sequence[str], values: Sequence[float], change: Change
) -> dict[str, float]:
    """The figures `names` that make the logarithms of simulated over published least, from `values` on."""

    def errors(x: np.ndarray) -> list[float]:
        software = change(start, dict(zip(names, map(float, x))))
        return [np.log(point.simulate(software) / point.published) for point in points]

    most = [1.0 if name in SHARES else MOST for name in names]
    first = [float(np.clip(v, LEAST * 2, m * 0.999)) for v, m in zip(values, most)]
    bounds = ([LEAST] * len(names), most)
    found = least_squares(errors, first, bounds=bounds, x_scale=first, loss="soft_l1", f_scale=OUTLIER, diff_step=1e-3)
    return dict(zip(names, map(float, found.x)))


def validate(
    points: Sequence[Point[Software]],
    on_file: Software,
    names: Sequence[str],
    values: Sequence[float],
    change: Change = with_figures,
) -> list[Found]:
    """Every point by the figures on file, and by a fit of `names` without it."""
    found = []
    for point in points:
        simulated = left_out = point.simulate(on_file)
        others = [other for other in points if other is not point and other.fitted]
        if point.fitted and names:
            left_out = point.simulate(change(on_file, fit(others, on_file, names, values, change)))
        used = bool(names) and point.fitted
        found.append(Found(point.group, point.what, point.published, simulated, left_out, point.unit, used, point.bound))
    return found

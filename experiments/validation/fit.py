"""Few figures of a profile fitted to a framework's published points, and how well a fit without a point predicts it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import t as students

Software = TypeVar("Software")  # a Profile, or a Cluster
#: What a figure can plausibly be; shares of a peak are at most 1.
RANGES = {
    "lookup_efficiency_forward": (0.02, 1.0),
    "lookup_efficiency_backward": (0.02, 1.0),
    "memory_efficiency": (0.1, 1.0),
    "dense_mfu": (0.02, 1.0),
    "link_efficiency": (0.1, 1.0),
    "kernel_us": (0.5, 20.0),
    "launch_overhead_us": (0.05, 300.0),
    "table_overhead_us": (0.5, 500.0),
    "lookup_ns": (0.001, 50.0),
    "iteration_overhead_ms": (0.001, 10.0),
}
ANY = (1e-3, 1e4)
#: A point this far off (in logarithms) counts less than its square.
OUTLIER = 0.1
#: Relative step of a derivative, and how often a fit goes on from where the last straight line led.
STEP, ROUNDS = 1e-3, 4
#: Of published figures. A time is an iteration's or a collective's ms. A ratio is how often one time goes into another, or percent of
#: linear scaling. A bound is a time that the source bounds from below and does not tell.
KINDS = ("time", "ratio", "bound")
#: What is left out of a fit, beside single points: a family of systems, all with more than one host, or all later generations.
PROTOCOLS = ("family", "scale", "generation")
#: Standard deviation of the logarithm of a figure before any point is seen: a factor of e, either way, is two of them.
PRIOR = 0.5
#: What two runs of one system and model may differ in, to be held against each other.
CHANGES = ("sharding", "precision", "scale")
#: Units of which a ratio of 1 has so many.
ONE = {"%": 100.0}


@dataclass(frozen=True)
class Setting:
    """What a published time is of. `system`: software, device and who measured; `scale`: hosts and ranks of each; `batch` of all ranks."""

    system: str
    model: str
    sharding: str = ""
    precision: str = ""
    scale: tuple[int, int] = (1, 1)
    batch: int = 1

    def change_to(self, other: Setting) -> str | None:
        """The one of `CHANGES` in which `other` differs; None where it is none or several, or the system is another.

        The batch is the same. Of another scale it may grow as much as the ranks do (weak scaling).
        """
        changed = [name for name in CHANGES if getattr(self, name) != getattr(other, name)]
        if (self.system, self.model) != (other.system, other.model) or len(changed) != 1:
            return None
        few, many = sorted((self, other), key=lambda setting: setting.ranks)
        return changed[0] if few.batch <= many.batch <= few.batch * many.ranks / few.ranks else None

    @property
    def ranks(self) -> int:
        return math.prod(self.scale)


@dataclass(frozen=True)
class Point(Generic[Software]):
    """A published figure, and what the simulator makes of it with given software. `fitted`: whether a fit may use it. `bound`: the source
    says no more than that the time is at least this. `family`: its device; `hosts`: how many. `setting`: of a time that others of the
    same system can be held against; `change`: one of `CHANGES`, of a published ratio.
    """

    group: str
    what: str
    published: float
    simulate: Callable[[Software], float]
    unit: str = "ms"
    fitted: bool = True
    bound: bool = False
    family: str = ""
    hosts: int = 1
    setting: Setting | None = None
    change: str = ""


@dataclass(frozen=True)
class Found:
    """A point with its errors: by the figures on file, and by a fit to the other points (the same where nothing was fitted to it).

    `outside`: the same by fits that had nothing of its family, of its scale or of its generation.
    """

    group: str
    what: str
    published: float
    simulated: float
    left_out: float
    unit: str
    fitted: bool
    bound: bool = False
    outside: dict[str, float] = field(default_factory=dict)
    setting: Setting | None = None
    change: str = ""

    @property
    def one(self) -> float:
        """A ratio of 1 in the point's unit."""
        return ONE.get(self.unit, 1.0)

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

    def outside_error(self, protocol: str) -> float:
        return self.outside[protocol] / self.published - 1


Change = Callable[[Software, dict[str, float]], Software]


def with_figures(given: Software, figures: dict[str, float]) -> Software:
    """A dataclass with other figures."""
    return replace(given, **figures)  # type: ignore[type-var]


@dataclass(frozen=True)
class Line:
    """Logarithms of simulated over published [P] at figures [N], and how they change with the logarithms of these [P, N]."""

    figures: np.ndarray
    errors: np.ndarray
    slopes: np.ndarray

    def fitted(self, of: Sequence[int], names: Sequence[str]) -> np.ndarray:
        """The figures that make the errors of the points `of` least, where the line is straight."""
        least, most = np.log(np.array([RANGES.get(name, ANY) for name in names])).T
        errors, slopes, first = self.errors[list(of)], self.slopes[list(of)], np.log(self.figures)

        def at(x: np.ndarray) -> np.ndarray:
            return errors + slopes @ (x - first)

        begin = np.clip(first, least + 1e-6, most - 1e-6)
        found = least_squares(at, begin, jac=lambda x: slopes, bounds=(least, most), loss="soft_l1", f_scale=OUTLIER)
        return np.exp(found.x)


def line_at(points: Sequence[Point[Software]], start: Software, names: Sequence[str], figures: Sequence[float], change: Change) -> Line:
    """The line of `points` at `figures`."""

    def errors(x: Sequence[float]) -> np.ndarray:
        software = change(start, dict(zip(names, map(float, x))))
        return np.array([np.log(point.simulate(software) / point.published) for point in points])

    here = np.array([np.clip(v, *RANGES.get(name, ANY)) for name, v in zip(names, figures)])
    at = errors(here)
    slopes = []
    for number, name in enumerate(names):
        step = -STEP if here[number] * (1 + STEP) > RANGES.get(name, ANY)[1] else STEP
        there = here.copy()
        there[number] *= 1 + step
        slopes.append((errors(there) - at) / np.log1p(step))
    return Line(here, at, np.array(slopes).T)


def fit(
    points: Sequence[Point[Software]],
    start: Software,
    names: Sequence[str],
    values: Sequence[float],
    change: Change,
    rounds: int = ROUNDS,
) -> dict[str, float]:
    """The figures `names` that make the logarithms of simulated over published least, from `values` on."""
    figures = np.asarray(values, dtype=float)
    for _ in range(rounds):
        line = line_at(points, start, names, figures, change)
        figures = line.fitted(range(len(points)), names)
        if np.abs(np.log(figures / line.figures)).max() < STEP:
            break
    return dict(zip(names, map(float, figures)))


def spread(line: Line, names: Sequence[str]) -> list[dict[str, float]]:
    """How sure the fit is, as directions: the columns of the Cholesky factor of the covariance of the figures' logarithms.

    `line` is that of systems, each counted once. Their errors beyond the fit tell its variance; of few systems, Student's t widens it. What
    they do not tell is within `PRIOR`.
    """
    free = len(line.errors) - len(names)
    if free < 1:
        return []
    wider = students.ppf(0.95, free) / students.ppf(0.95, np.inf)
    variance = (line.errors**2).sum() / free * wider**2
    factor = np.linalg.cholesky(np.linalg.inv(line.slopes.T @ line.slopes / variance + np.eye(len(names)) / PRIOR**2))
    return [{name: round(float(by), 3) for name, by in zip(names, column) if abs(by) >= 5e-4} for column in factor.T]


def of_systems(points: Sequence[Point[Software]]) -> list[Point[Software]]:
    """Near copies, which are runs of one system by several submitters, as one point: the geometric mean of their times."""
    alike: dict[Callable[[Software], float], list[Point[Software]]] = {}
    for point in points:
        alike.setdefault(point.simulate, []).append(point)
    return [replace(own[0], published=math.exp(np.mean([math.log(point.published) for point in own]))) for own in alike.values()]


def validate(
    points: Sequence[Point[Software]],
    on_file: Software,
    names: Sequence[str],
    values: Sequence[float],
    change: Change = with_figures,
    left_out: dict[str, Callable[[Point[Software]], bool]] | None = None,
) -> list[Found]:
    """Every point by the figures on file, by a fit of `names` without it, and by fits without those that `left_out` tells, by protocol.

    A fit without one point follows the straight line at the figures on file; its time is simulated with what the line gives.
    """
    usable = [number for number, point in enumerate(points) if point.fitted] if names else []
    line = line_at([points[n] for n in usable], on_file, names, values, change) if usable else None
    outside = _outside([points[n] for n in usable], on_file, names, values, change, left_out or {})
    found = []
    for number, point in enumerate(points):
        simulated = without = point.simulate(on_file)
        if line is not None and number in usable:
            others = [place for place, n in enumerate(usable) if n != number]
            without = point.simulate(change(on_file, dict(zip(names, map(float, line.fitted(others, names))))))
        fields = (point.group, point.what, point.published, simulated, without, point.unit, number in usable, point.bound)
        found.append(Found(*fields, outside=outside.get(point.what, {}), setting=point.setting, change=point.change))
    return found


def _outside(
    points: Sequence[Point[Software]],
    on_file: Software,
    names: Sequence[str],
    values: Sequence[float],
    change: Change,
    left_out: dict[str, Callable[[Point[Software]], bool]],
) -> dict[str, dict[str, float]]:
    """By point and protocol, what a fit to the rest gives. Families are left out one by one; a fit needs more systems than figures."""
    rounds: list[tuple[str, list[Point[Software]]]] = []
    for protocol, out in left_out.items():
        chosen = [point for point in points if out(point)]
        families = dict.fromkeys(point.family for point in chosen) if protocol == "family" else (None,)
        rounds += [(protocol, [p for p in chosen if family in (None, p.family)]) for family in families]
    found: dict[str, dict[str, float]] = {}
    for protocol, out_points in rounds:
        rest = [point for point in points if point not in out_points]
        if not out_points or len({point.published for point in rest}) <= len(names):
            continue
        software = change(on_file, fit(rest, on_file, names, values, change))
        for point in out_points:
            found.setdefault(point.what, {})[protocol] = point.simulate(software)
    return found

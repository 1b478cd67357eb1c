"""Few figures of a profile fitted to a framework's published points, and how well a fit without a point predicts it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

import numpy as np
from scipy.optimize import least_squares
from scipy.stats import t as students

from recsys_lab.cluster import Cluster
from recsys_lab.simulate.posterior import hosts_seen

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
#: Standard deviation of the logarithm of a figure before any point is seen: a factor of e, either way, is two of them.
PRIOR = 0.5
#: What two runs of one system and model may differ in, to be held against each other.
CHANGES = ("sharding", "precision", "scale", "hardware")
#: Units of which a ratio of 1 has so many.
ONE = {"%": 100.0}


@dataclass(frozen=True)
class Setting:
    """What a published time is of. `system`: the software; `hardware`: devices and links; `scale`: hosts and ranks of each.

    `batch`: samples of all ranks.
    """

    system: str
    model: str
    sharding: str = ""
    precision: str = ""
    scale: tuple[int, int] = (1, 1)
    batch: int = 1
    hardware: str = ""

    def change_to(self, other: Setting) -> str | None:
        """The one of `CHANGES` in which `other` differs; None where it is none or several, or the software or the model is another.

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
    """A published figure, and what the simulator makes of it with given software.

    Attributes:
        fitted: whether a fit may use it.
        bound: the source says no more than that the time is at least this.
        cluster: of an iteration, with `time_ms`: what it takes by any software on any cluster.
        setting: of a time that others of the same system can be held against.
        change: one of `CHANGES`, of a published ratio.
        together: points of one name are one benchmark. None of them is predicted by a fit to another.
        runs: the published times of near copies, whose mean `published` is.
    """

    group: str
    what: str
    published: float
    simulate: Callable[[Software], float]
    unit: str = "ms"
    fitted: bool = True
    bound: bool = False
    cluster: Cluster | None = None
    time_ms: Callable[[Software, Cluster], float] | None = None
    setting: Setting | None = None
    change: str = ""
    together: str = ""
    runs: tuple[float, ...] = ()


@dataclass(frozen=True)
class Prediction:
    """By a fit that had nothing of some points. `systems`: the devices that it had, each with the most hosts."""

    simulated: float
    systems: dict[str, int]


@dataclass(frozen=True)
class Found(Generic[Software]):
    """A point by the figures on file, and by fits that had nothing of it: by protocol, one of `intervals.PROTOCOLS`.

    A point that nothing was fitted to has no prediction; its figures on file are one.
    """

    point: Point[Software]
    simulated: float
    predictions: dict[str, Prediction] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.point.group

    @property
    def what(self) -> str:
        return self.point.what

    @property
    def published(self) -> float:
        return self.point.published

    @property
    def fitted(self) -> bool:
        return "system" in self.predictions

    @property
    def left_out(self) -> float:
        """By a fit without its system."""
        return self.predictions["system"].simulated if self.fitted else self.simulated

    @property
    def runs(self) -> tuple[float, ...]:
        """The published times of all near copies."""
        return self.point.runs or (self.published,)

    @property
    def one(self) -> float:
        """A ratio of 1 in the point's unit."""
        return ONE.get(self.point.unit, 1.0)

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        return "bound" if self.point.bound else "time" if self.point.unit == "ms" else "ratio"

    @property
    def holds(self) -> bool | None:
        """Whether a bound is kept; None of what is none."""
        return self.simulated >= self.published if self.point.bound else None

    @property
    def error(self) -> float:
        return self.simulated / self.published - 1

    @property
    def left_out_error(self) -> float:
        return self.left_out / self.published - 1

    def error_without(self, protocol: str) -> float:
        return self.predictions[protocol].simulated / self.published - 1


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
    return [_one_of(own) for own in alike.values()]


def _one_of(own: Sequence[Point[Software]]) -> Point[Software]:
    if len(own) == 1:
        return own[0]
    runs = tuple(point.published for point in own)
    what = f"{own[0].what} and {len(own) - 1} more, {min(runs):.4g} to {max(runs):.4g}"
    return replace(own[0], what=what, published=math.exp(np.mean(np.log(runs))), runs=runs)


#: What is left out with a point: all with the same key. None: the protocol does not leave the point out.
Key = Callable[[Point[Software]], Hashable | None]


@dataclass(frozen=True)
class Fits(Generic[Software]):
    """Fits of the figures `names` to `points`, of which each is a system, without some of them.

    A fit follows the straight line at the figures on file. It needs as many systems as figures.
    """

    points: list[Point[Software]]
    on_file: Software
    names: Sequence[str]
    change: Change
    line: Line | None

    @staticmethod
    def of(
        points: Sequence[Point[Software]],
        on_file: Software,
        names: Sequence[str] = (),
        values: Sequence[float] = (),
        change: Change = with_figures,
    ) -> Fits[Software]:
        systems = of_systems(points)
        fitted = [point for point in systems if point.fitted]
        return Fits(systems, on_file, names, change, line_at(fitted, on_file, names, values, change) if names and fitted else None)

    def without(self, out: Collection[str]) -> tuple[Software, dict[str, int]] | None:
        """The software by the points of other names, and their systems. None where they are too few, or nothing is fitted."""
        fitted = [point for point in self.points if point.fitted]
        rest = [place for place, point in enumerate(fitted) if point.what not in out]
        if self.line is None or len(rest) < len(self.names):
            return None
        figures = dict(zip(self.names, map(float, self.line.fitted(rest, self.names))))
        return self.change(self.on_file, figures), systems_of([fitted[place] for place in rest])


def validate(fits: Fits[Software], left_out: dict[str, Key] | None = None) -> list[Found[Software]]:
    """Every system by the figures on file, and by fits without it and without those that go with it in a protocol."""
    predictions: dict[str, dict[str, Prediction]] = {point.what: {} for point in fits.points}
    for protocol, key in {"system": of_system, **(left_out or {})}.items():
        groups: dict[Hashable, list[Point[Software]]] = {}
        for point in fits.points:
            if point.fitted and (of := key(point)) is not None:
                groups.setdefault(of, []).append(point)
        for out in groups.values():
            if (made := fits.without({point.what for point in out})) is not None:
                for point in out:
                    predictions[point.what][protocol] = Prediction(point.simulate(made[0]), made[1])
    return [Found(point, point.simulate(fits.on_file), predictions[point.what]) for point in fits.points]


def of_system(point: Point[Software]) -> str:
    """Its benchmark, or itself."""
    return point.together or point.what


def systems_of(points: Sequence[Point[Software]]) -> dict[str, int]:
    """Their devices, each with the most hosts."""
    systems: dict[str, int] = {}
    for cluster in (point.cluster for point in points if point.cluster is not None):
        systems[cluster.device.name] = max(systems.get(cluster.device.name, 0), hosts_seen(cluster))
    return systems

"""How far the simulated ratio of two runs of one system and model is from the measured one: another sharding, precision or scale.

Users choose a sharder by such a ratio. What both runs are wrong by alike cancels in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from statistics import median

from experiments.validation.fit import CHANGES, Found, Setting
from experiments.validation.order import exposed


@dataclass(frozen=True)
class Run:
    """A time of an iteration, or of what nothing hides in one: published, simulated, and simulated by a fit without it."""

    what: str
    setting: Setting
    published: float
    simulated: float
    left_out: float


@dataclass(frozen=True)
class Pair:
    """Time a sample of one run over another's. `independent_error`: what the error would be if those of the two times were independent;
    None where the source has the ratio alone.
    """

    what: str
    change: str
    published: float
    simulated: float
    left_out: float
    independent_error: float | None = None

    @property
    def error(self) -> float:
        return _off(self.simulated / self.published)

    @property
    def left_out_error(self) -> float:
        return _off(self.left_out / self.published)

    @property
    def order_right(self) -> bool:
        return (self.simulated < 1) == (self.published < 1)


def pairs(found: Sequence[Found]) -> list[Pair]:
    """Runs of one system and model, two by two, and published ratios."""
    made = []
    for one, other in combinations(runs(found), 2):
        if change := one.setting.change_to(other.setting):
            a_sample = other.setting.batch / one.setting.batch
            times = ((one.published, other.published), (one.simulated, other.simulated), (one.left_out, other.left_out))
            independent = math.expm1(math.hypot(*(math.log(run.simulated / run.published) for run in (one, other))))
            made.append(Pair(f"{one.what} / {other.what}", change, *(a_sample * a / b for a, b in times), independent))
    ratios = [point for point in found if point.kind == "ratio" and point.change]
    return made + [Pair(p.what, p.change, p.published / p.one, p.simulated / p.one, p.left_out / p.one) for p in ratios]


def runs(found: Sequence[Found]) -> list[Run]:
    """Whole iterations, and FlexShard's exposed collectives of each sharding."""
    whole = [Run(p.what, p.setting, p.published, p.simulated, p.left_out) for p in found if p.kind == "time" and p.setting]
    parts = [(model, sharding, of) for (model, sharding), of in exposed(found).items()]
    return whole + [Run(f"FlexShard {model} {sharding}", Setting("flexshard", model, sharding), *of) for model, sharding, of in parts]


def _off(ratio: float) -> float:
    """0.1 of 1.1 and of 1 / 1.1."""
    return math.expm1(abs(math.log(ratio)))


def summary(found: Sequence[Found]) -> dict[str, object]:
    """Errors in percent, of all pairs and by what they differ in, and every pair."""
    made = pairs(found)
    return {
        **_figures(made),
        "changes": {change: _figures([pair for pair in made if pair.change == change]) for change in CHANGES},
        "points": [
            {
                "what": pair.what,
                "change": pair.change,
                "published": pair.published,
                "simulated": pair.simulated,
                "left_out": pair.left_out,
                "error": pair.error,
                "left_out_error": pair.left_out_error,
                "independent_error": pair.independent_error,
                "order_right": pair.order_right,
            }
            for pair in made
        ],
    }


def _figures(made: Sequence[Pair]) -> dict[str, float | int | None]:
    of_times = [(pair.error, pair.independent_error) for pair in made if pair.independent_error is not None]
    return {
        "pairs": len(made),
        "median_error": _percent(median, [pair.error for pair in made]),
        "largest_error": _percent(max, [pair.error for pair in made]),
        "left_out_median_error": _percent(median, [pair.left_out_error for pair in made]),
        "left_out_largest_error": _percent(max, [pair.left_out_error for pair in made]),
        "order_right": sum(pair.order_right for pair in made),
        "pairs_of_times": len(of_times),
        "median_error_of_times": _percent(median, [error for error, _ in of_times]),
        "median_error_if_independent": _percent(median, [independent for _, independent in of_times]),
    }


def _percent(of: Callable[[Sequence[float]], float], errors: Sequence[float]) -> float | None:
    return 100 * of(errors) if errors else None


def line(figures: dict) -> str:
    """Of `summary`'s figures."""
    told = partial("{pairs} pairs, median {median_error:.1f} %, largest {largest_error:.1f} %, order right in {order_right}".format_map)
    parts = [f"{change} {told(of)}" for change, of in figures["changes"].items() if of["pairs"]]
    return f"ratios of two runs of one system: {'; '.join(parts)}"

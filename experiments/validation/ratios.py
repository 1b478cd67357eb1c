"""Whether the simulator picks the faster of two runs that differ in one thing alone, and how sure it is of that.

They differ in sharding, precision, scale or hardware. Users choose by such a ratio. What both runs are wrong by alike cancels in it. A fit
that had nothing of either run predicts each pair. Its probability is the share of draws in which the first is faster, as in `decide`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from statistics import NormalDist, median
from typing import Any

import numpy as np

from experiments.validation.fit import CHANGES, Fits, Found, Point, of_system
from experiments.validation.intervals import changes_of, responses_of
from experiments.validation.order import exposed
from recsys_lab.simulate import Profile
from recsys_lab.simulate.posterior import OF_ROW, OF_SHARDING, Response

#: Of a table of probabilities: each pair by how sure the simulator is of the run that it picks.
BINS = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
#: The spread of the logarithm of a ratio whose two runs share everything but the sharding.
ALONE = math.sqrt(2) * math.hypot(OF_SHARDING, OF_ROW)


@dataclass(frozen=True)
class Pair:
    """Time a sample of one run over another's: published, by the figures on file, and by a fit without both.

    `p`: that the first is faster; None: it is not known.
    """

    what: str
    change: str
    published: float
    simulated: float
    left_out: float
    p: float | None = None

    @property
    def error(self) -> float:
        return _off(self.simulated / self.published)

    @property
    def left_out_error(self) -> float:
        return _off(self.left_out / self.published)

    @property
    def order_right(self) -> bool:
        return (self.left_out < 1) == (self.published < 1)

    @property
    def sure(self) -> float:
        """The probability of the run that is picked."""
        assert self.p is not None
        return max(self.p, 1 - self.p)

    @property
    def picked_right(self) -> bool:
        """Whether the run that is more probably faster was."""
        assert self.p is not None
        return (self.p > 0.5) == (self.published < 1)


@dataclass(frozen=True)
class Choice:
    """Of runs that differ in one thing alone, whether the fastest by a fit without all of them was the fastest. `runs`: how many."""

    what: str
    change: str
    runs: int
    right: bool


def pairs_of_fits(fits: Fits, profile: Profile) -> list[Pair]:
    """Of systems of one software, two by two, each by a fit without both. None where a fit lacks systems."""
    settled = [point for point in fits.points if point.setting is not None and point.unit == "ms" and not point.bound]
    of: dict[str, Mapping[str, Response]] = {}
    made = []
    for one, other in combinations(settled, 2):
        assert one.setting is not None and other.setting is not None
        change = one.setting.change_to(other.setting)
        without = fits.without(_with_copies(fits, (one, other))) if change else None
        if change is None or (without is None and fits.names):
            continue
        software, systems = without or (fits.on_file, profile.fitted_systems)
        a_sample = other.setting.batch / one.setting.batch
        for point in (one, other):
            of.setdefault(point.what, responses_of(point, profile))
        by_fit = replace(profile, fitted_systems=systems)
        draws = [changes_of(point, by_fit, of[point.what]) for point in (one, other)]
        left_out = a_sample * one.simulate(software) / other.simulate(software)
        p = None if draws[0] is None or draws[1] is None else _share_below(math.log(left_out) + draws[0] - draws[1])
        ratios = (a_sample * one.published / other.published, a_sample * one.simulate(profile) / other.simulate(profile), left_out)
        made.append(Pair(f"{one.what} / {other.what}", change, *ratios, p))
    return made


def choices_of_fits(fits: Fits) -> Iterator[Choice]:
    """Of the largest sets of systems that differ in one thing alone, those of one name."""
    settled = [point for point in fits.points if point.setting is not None and point.unit == "ms" and not point.bound]
    for change in CHANGES:
        for runs in _alike(settled, change):
            without = fits.without(_with_copies(fits, runs))
            if without is None and fits.names:
                continue
            software = (without or (fits.on_file, {}))[0]
            batches = [point.setting.batch for point in runs if point.setting]
            fastest = min(range(len(runs)), key=lambda n: runs[n].published / batches[n])
            picked = min(range(len(runs)), key=lambda n: runs[n].simulate(software) / batches[n])
            yield Choice(f"{runs[0].group}: {', '.join(point.what for point in runs)}", change, len(runs), fastest == picked)


def _with_copies(fits: Fits, runs: Sequence[Point]) -> set[str]:
    """The names of `runs`, and of what is one benchmark with one of them."""
    out = {of_system(point) for point in runs}
    return {point.what for point in fits.points if of_system(point) in out}


def _alike(settled: Sequence[Point], change: str) -> list[list[Point]]:
    """Sets of two or more of which every two differ in `change` alone."""
    sets: list[list[Point]] = []
    for point in settled:
        home = next((own for own in sets if all(_change(point, other) == change for other in own)), None)
        if home is None:
            sets.append([point])
        else:
            home.append(point)
    return [own for own in sets if len(own) > 1]


def _change(one: Point, other: Point) -> str | None:
    assert one.setting is not None and other.setting is not None
    return one.setting.change_to(other.setting)


def pairs_of_ratios(found: Sequence[Found]) -> list[Pair]:
    """Published ratios, and FlexShard's exposed collectives of two shardings: what the two runs share cancels."""
    made = []
    for ((model, one), a), ((other_model, other), b) in combinations(exposed(found).items(), 2):
        if model == other_model:
            ratios = [mine / theirs for mine, theirs in zip(a, b)]
            made.append(Pair(f"FlexShard {model} {one} / {other}", "sharding", *ratios, p_of(ratios[2])))
    for one in found:
        if one.kind == "ratio" and one.point.change:
            ratios = [figure / one.one for figure in (one.published, one.simulated, one.left_out)]
            made.append(Pair(one.what, one.point.change, *ratios, p_of(ratios[2]) if one.point.change == "sharding" else None))
    return made


def p_of(ratio: float) -> float:
    """That a ratio is below 1, of which nothing but the shardings' own is unknown."""
    return NormalDist(math.log(ratio), ALONE).cdf(0.0)


def _share_below(draws: np.ndarray) -> float:
    return float((draws < 0).mean() + (draws == 0).mean() / 2)


def _off(ratio: float) -> float:
    """0.1 of 1.1 and of 1 / 1.1."""
    return math.expm1(abs(math.log(ratio)))


def summary(made: Sequence[Pair], choices: Sequence[Choice] = ()) -> dict[str, Any]:
    """Errors in percent of all pairs, and by what they differ in. Then how often picks and probabilities are right, and every pair."""
    return {
        **_figures(made),
        **picks(made, choices),
        "changes": {change: _figures([pair for pair in made if pair.change == change]) for change in CHANGES},
        "choices": [{"what": one.what, "change": one.change, "runs": one.runs, "right": one.right} for one in choices],
        "points": [
            {
                "what": pair.what,
                "change": pair.change,
                "published": pair.published,
                "simulated": pair.simulated,
                "left_out": pair.left_out,
                "error": pair.error,
                "left_out_error": pair.left_out_error,
                "order_right": pair.order_right,
                "p_first_faster": pair.p,
            }
            for pair in made
        ],
    }


def picks(made: Sequence[Pair], choices: Sequence[Choice]) -> dict[str, Any]:
    """How often the fastest was picked; then of pairs with a probability, two proper scores and how often each is right.

    `brier`: the mean square of a probability less what came, 0.25 of a coin; `log_score`: the mean logarithm of what came, -0.69 of a coin.
    """
    told = [pair for pair in made if pair.p is not None]
    table = [
        {
            "from": low,
            "to": high,
            "pairs": len(own),
            "said": _mean([one.sure for one in own]),
            "right": _mean([one.picked_right for one in own]),
        }
        for low, high in zip(BINS, BINS[1:])
        for own in [[one for one in told if low <= one.sure < high or (high == 1.0 and one.sure == 1.0)]]
    ]
    came = [(pair.p, pair.published < 1) for pair in told if pair.p is not None]
    return {
        "pick_best_rate": _mean([one.right for one in choices]),
        "pick_best_of": len(choices),
        "pairs_with_probability": len(told),
        "pairs_picked_right": _mean([pair.picked_right for pair in told]),
        "brier": _mean([(p - first) ** 2 for p, first in came]),
        "log_score": _mean([math.log(max(p if first else 1 - p, 1e-4)) for p, first in came]),
        "reliability": table,
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _figures(made: Sequence[Pair]) -> dict[str, float | int | None]:
    return {
        "pairs": len(made),
        "median_error": _percent(median, [pair.error for pair in made]),
        "largest_error": _percent(max, [pair.error for pair in made]),
        "left_out_median_error": _percent(median, [pair.left_out_error for pair in made]),
        "left_out_largest_error": _percent(max, [pair.left_out_error for pair in made]),
        "order_right": sum(pair.order_right for pair in made),
    }


def _percent(of: Callable[[Sequence[float]], float], errors: Sequence[float]) -> float | None:
    return 100 * of(errors) if errors else None


def line(figures: Mapping[str, Any]) -> str:
    """Of `summary`'s figures."""
    told = partial("{pairs} pairs, median {median_error:.1f} %, largest {largest_error:.1f} %, order right in {order_right}".format_map)
    parts = [f"{change} {told(of)}" for change, of in figures["changes"].items() if of["pairs"]]
    said = f"ratios of two runs: {'; '.join(parts)}"
    if figures["pick_best_of"]:
        said += f"\nof runs that differ in one thing alone the fastest is picked in {figures['pick_best_rate']:.0%} of"
        said += f" {figures['pick_best_of']} cases"
    if figures["pairs_with_probability"]:
        said += (
            f"\nof two runs the more probable one is faster in {figures['pairs_picked_right']:.0%} of {figures['pairs_with_probability']}"
        )
        said += f" pairs; Brier score {figures['brier']:.3f} (0.25 of a coin)"
        bins = [f"{one['said']:.0%}: {one['right']:.0%} of {one['pairs']}" for one in figures["reliability"] if one["pairs"]]
        said += f"\nsaid, and right: {'; '.join(bins)}"
    return said

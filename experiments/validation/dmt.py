"""DMT's breakdown of an iteration: how many times less each part takes than under the strong baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from experiments.dmt.speed import Case, priced
from experiments.validation.fit import Point
from experiments.validation.models import published
from recsys_lab.simulate import Profile

BASELINE = Case("dcn", "h100", 64, "baseline")


def points() -> list[Point[Profile]]:
    return [Point("dmt", given.what, given.times, _times_less(given.phase), unit="times") for given in published().dmt.points]


def _times_less(phase: str) -> Callable[[Profile], float]:
    """Both cases are simulated with the profile on file: nothing is fitted to them."""

    def simulated(_: Profile) -> float:
        ours = priced(replace(BASELINE, kind="dmt"))
        return float(priced(BASELINE).phases_ms[phase] / ours.phases_ms[phase])

    return simulated

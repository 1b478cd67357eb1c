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
    given = published().dmt.points
    return [Point("dmt", of.what, of.times, _times_less(of.phase), unit="times", change="sharding") for of in given]


def _times_less(phase: str) -> Callable[[Profile], float]:
    """Both cases are simulated with the profile on file: nothing is fitted to them."""

    def simulated(_: Profile) -> float:
        ours = priced(replace(BASELINE, kind="dmt"))
        return float(priced(BASELINE).phases_ms[phase] / ours.phases_ms[phase])

    return simulated

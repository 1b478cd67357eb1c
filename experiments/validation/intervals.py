"""How wide a 90 % interval must be, by errors of predictions of points that a fit had nothing of, and what share of points intervals hold.

A prediction is one of three kinds, and a profile has an error of each. It is of a system that the profile was fitted to, of another device
(`family`, `generation`), or of more hosts (`scale`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from scipy.stats import t as students

from experiments.validation.fit import PROTOCOLS, Found
from recsys_lab.simulate import Profile
from recsys_lab.simulate.posterior import Z_OF_90_PERCENT, error_of

HELD = 0.9
#: So many errors tell 90 % of them by themselves.
ENOUGH = 9
#: Protocols that leave out more hosts; the others leave out devices.
OF_HOSTS = ("scale",)


def typical(errors: Sequence[float]) -> float:
    """The error whose 90 % interval, in times and over, holds the next point as those of `errors`, simulated over published less one.

    The ceil(0.9 (n + 1))-th smallest of n, as in conformal prediction. Of fewer than nine points there is none: Student's t of n tells then
    how far the next may be from their RMS.
    """
    logs = np.sort(np.abs(np.log1p(np.asarray(errors, dtype=float))))
    number = len(logs)
    rank = math.ceil(HELD * (number + 1))
    if rank <= number:
        most = float(logs[rank - 1])
    else:
        most = float(np.sqrt((logs**2).mean()) * students.ppf((1 + HELD) / 2, number))
    return round(math.expm1(most) / Z_OF_90_PERCENT, 3)


def of_outside(outside: Sequence[float], within: Sequence[float]) -> float:
    """The error outside. Where too few errors tell it, those `within` count too: what lies outside is not told better."""
    return typical(outside if len(outside) >= ENOUGH else [*outside, *within])


def errors_outside(found: Iterable[Found], *, hosts: bool) -> list[float]:
    """Of times by fits without more hosts, or without devices."""
    return [p.outside_error(name) for p in found if p.kind == "time" for name in p.outside if (name in OF_HOSTS) == hosts]


def coverage(found: Sequence[Found], profiles: dict[str, Profile]) -> dict[str, float | int | None]:
    """Of predictions of times by fits without them, the share that the profiles' 90 % intervals hold, by what was left out."""
    held: dict[str, list[bool]] = {name: [] for name in ("point", *PROTOCOLS)}
    for point in found:
        if point.group not in profiles or point.kind != "time" or not point.fitted:
            continue
        profile = profiles[point.group]
        held["point"].append(_holds(point.left_out_error, error_of(profile)))
        for name in point.outside:
            more = name in OF_HOSTS
            held[name].append(_holds(point.outside_error(name), error_of(profile, other_device=not more, more_hosts=more)))
    every = [one for of in held.values() for one in of]
    return {"all": _share(every), **{name: _share(of) for name, of in held.items()}, "of": len(every)}


def _share(held: Sequence[bool]) -> float | None:
    return sum(held) / len(held) if held else None


def _holds(error: float, relative_error: float) -> bool:
    return abs(math.log1p(error)) <= math.log1p(Z_OF_90_PERCENT * relative_error)

"""How wide a 90 % interval must be, by errors of predictions of systems that a fit had nothing of, and what share of runs intervals hold.

A prediction is one of three kinds, and a profile has an error of each. It is of a system like those that the profile was fitted to, of
another device, or of more hosts. Each system counts once, however many runs of it were published.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import t as students

from experiments.validation.fit import Found, Point
from recsys_lab.simulate import Profile
from recsys_lab.simulate.posterior import Z_OF_90_PERCENT, Interval, Response, error_on, interval_of, log_changes, responses

HELD = 0.9
#: So many systems tell 90 % of their errors by themselves.
ENOUGH = 9
#: Devices that came after those that a fit to earlier generations has.
LATER = ("H200", "GH200", "B200", "GB200", "B300")


def _of_cluster(key: Callable[..., Hashable | None]) -> Callable[[Point], Hashable | None]:
    return lambda point: None if point.cluster is None else key(point.cluster)


#: What leaves a fit with a system: all of its device and links within a host, of its network, or of as many devices. Then all on several
#: hosts, and all of later generations.
PROTOCOLS: dict[str, Callable[[Point], Hashable | None]] = {
    "board": _of_cluster(lambda on: (on.device.name, on.intra_host.name)),
    "network": _of_cluster(lambda on: on.cross_host.name if on.hosts > 1 else None),
    "scale": _of_cluster(lambda on: on.world_size),
    "hosts": _of_cluster(lambda on: on.hosts > 1 or None),
    "generation": _of_cluster(lambda on: on.device.name.startswith(LATER) or None),
}
#: Of which the worst is a prediction's error on another device, and on more hosts.
OF_DEVICES, OF_HOSTS = ("system", "board", "scale", "generation"), ("system", "network", "scale", "hosts")
#: Those that leave out all runs of a board, a network or a scale.
WHOLE = ("board", "network", "scale")
#: Each with its weight.
Errors = Sequence[tuple[float, float]]


def errors_without(found: Iterable[Found], protocols: Sequence[str], *, hosts: int = 1) -> list[tuple[float, float]]:
    """Of every run of every predicted time on so many hosts or more: the largest error by these protocols, and its weight.

    An error is the logarithm of simulated over published.
    """
    errors = []
    for point in found:
        by = [point.predictions[name].simulated for name in protocols if name in point.predictions]
        if point.kind == "time" and by and (hosts == 1 or (point.point.cluster is not None and point.point.cluster.hosts >= hosts)):
            errors += [(max((math.log(ms / run) for ms in by), key=abs), 1 / len(point.runs)) for run in point.runs]
    return errors


def typical(errors: Errors) -> float:
    """The error whose 90 % interval, in times and over, holds the next system's run as those of `errors`.

    The 0.9 (n + 1)-th smallest of n systems, as in conformal prediction. Of fewer than nine there is none: Student's t of n tells then
    how far the next may be from their RMS.
    """
    sizes, weights = np.abs([error for error, _ in errors]), np.array([weight for _, weight in errors])
    order, number = np.argsort(sizes), float(weights.sum())
    wanted = HELD * (number + 1)
    if wanted <= number:
        most = float(sizes[order][np.searchsorted(weights[order].cumsum(), wanted - 1e-9)])
    else:
        most = math.sqrt(float((sizes**2 * weights).sum()) / number) * float(students.ppf((1 + HELD) / 2, max(number, 1)))
    return round(math.expm1(most) / Z_OF_90_PERCENT, 3)


def of_submitters(found: Iterable[Found], *, hosts: int) -> float:
    """The standard deviation of a run's logarithm within its system, of systems of so many hosts or more; 0: no two runs are of one."""
    logs = [np.log(one.runs) for one in found if one.kind == "time" and one.point.cluster is not None and one.point.cluster.hosts >= hosts]
    free = sum(len(of) - 1 for of in logs)
    return round(math.sqrt(sum(((of - of.mean()) ** 2).sum() for of in logs) / free), 3) if free else 0.0


def changes_of(point: Point[Profile], profile: Profile, of: Mapping[str, Response]) -> np.ndarray | None:
    """[DRAWS] of the logarithm of a point's time over what is simulated of it; None where nothing is known of the error."""
    if point.cluster is None or error_on(profile, point.cluster) is None:
        return None
    return log_changes(of, profile, point.cluster, point.setting.sharding if point.setting else "", point.what)


def responses_of(point: Point[Profile], profile: Profile) -> dict[str, Response]:
    """What each unknown does to a point's time."""
    if point.cluster is None or point.time_ms is None or error_on(profile, point.cluster) is None:
        return {}
    return responses(point.time_ms, profile, point.cluster)


def intervals(found: Sequence[Found[Profile]], profiles: Mapping[str, Profile]) -> list[dict[str, Interval]]:
    """Of each time, the 90 % interval by the profile on file ("file"), and by those without the point, by protocol."""
    made = []
    for one in found:
        own: dict[str, Interval] = {}
        profile = profiles.get(one.group)
        if profile is not None and one.kind == "time":
            of = responses_of(one.point, profile)
            seen = {"file": (one.simulated, profile)}
            seen |= {name: (by.simulated, replace(profile, fitted_systems=by.systems)) for name, by in one.predictions.items()}
            for name, (ms, by_fit) in seen.items():
                if (changes := changes_of(one.point, by_fit, of)) is not None:
                    own[name] = interval_of(changes, ms)
        made.append(own)
    return made


def coverage(found: Sequence[Found[Profile]], made: Sequence[Mapping[str, Interval]]) -> dict[str, float | int | None]:
    """By protocol, the share of the runs that their intervals hold, each system once; `left_out_whole`: of board, network and scale.

    `width_...`: the median of an interval's upper end over its lower, of systems that the fit had and of those that it had not.
    """
    held: dict[str, list[float]] = {}
    widths: dict[str, list[float]] = {}
    for one, own in zip(found, made):
        for name, interval in own.items():
            within = [interval.low <= run <= interval.high for run in one.runs]
            held.setdefault(name, []).append(sum(within) / len(within))
            widths.setdefault(name, []).append(interval.high / interval.low)
    whole = [share for name in WHOLE for share in held.get(name, [])]
    every = [share for name, of in held.items() if name != "file" for share in of]
    return {
        "all": _share(every),
        "left_out_whole": _share(whole),
        **{name: _share(held.get(name, [])) for name in ("file", "system", *PROTOCOLS)},
        "of": len(every),
        "of_left_out_whole": len(whole),
        "width_fitted": _median(widths.get("file", [])),
        "width_left_out_whole": _median([width for name in WHOLE for width in widths.get(name, [])]),
    }


def _share(held: Sequence[float]) -> float | None:
    """The mean, each system once; None of no system."""
    return sum(held) / len(held) if held else None


def _median(widths: Sequence[float]) -> float | None:
    return float(np.median(widths)) if widths else None

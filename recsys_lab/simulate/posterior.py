"""What nobody knows of a system before it is measured, as a joint distribution, and what it does to a simulated time.

An unknown is a figure, or figures that a fit moves together, in standard deviations from what is on file. Each has a name. Two times whose
unknowns have the same name share its draws, so what makes both slow cancels in their ratio:

    software   the fit's own error (`Profile.spread`), and figures that were assumed (`Profile.assumed`): of every row under the profile
    links      what collectives reach on a link, and its latencies: of every row on it
    system     a submitter's tuning, a board, a fabric: what a fit left over of systems that it had nothing of. Of every row on the cluster;
               clusters of one device share a part of it
    sharding   what the simulator has wrong of a sharder alone; and of one combination alone

The first two are simulated: a time is priced `AT` standard deviations below and above what is on file, and changes along straight lines
between (in logarithms). The others are added to a time's logarithm. Together they make no interval narrower than the errors of points that
a fit had nothing of (`Profile.relative_error`).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from statistics import NormalDist

import numpy as np

from recsys_lab.cluster import Cluster, Link
from recsys_lab.simulate.profile import Profile

#: Of each unknown, and where on either side a time is simulated, in standard deviations.
DRAWS, AT = 4096, 1.5
#: A link's latencies are so many times as uncertain as its bandwidths: a message on NDR takes 2.7 us in one public table, 10 in another.
OF_LATENCIES = 2.5
#: Of a sharder, and of one combination, in a time's logarithm. Six sharders measured two by two are 6.7 % off in the median.
OF_SHARDING, OF_ROW = 0.06, 0.03
#: The share of a system's own variance that clusters of one device have in common. Two scales of one system are 11.7 % off in the median,
#: where 13.6 would be if they had nothing in common.
OF_DEVICE = 0.26
#: Of one system alone: 22 submitters' runs of 8 H100 differ by so much. On several hosts a profile may know of more.
OF_TUNING = 0.03
Z_OF_90_PERCENT = 1.645
#: Most hosts have so many at most.
RANKS_OF_HOST = 8
#: Figures that are shares of a peak: at most 1.
SHARES = {one.name for one in fields(Profile) if "ShareOfPeak" in str(one.type)}


@dataclass(frozen=True)
class Interval:
    """The 90 % interval."""

    low: float
    high: float


Change = Callable[[Profile, Cluster, float], tuple[Profile, Cluster]]


@dataclass(frozen=True)
class Unknown:
    """`change`: the software and the cluster with it so many standard deviations above what is on file."""

    name: str
    change: Change


@dataclass(frozen=True)
class Response:
    """How the logarithm of a time changes `AT` standard deviations below and above."""

    below: float
    above: float

    def to(self, normal: np.ndarray) -> np.ndarray:
        """[DRAWS] changes, along straight lines."""
        return np.where(normal < 0, -normal * self.below, normal * self.above) / AT


def unknowns(profile: Profile, cluster: Cluster) -> list[Unknown]:
    """All that is simulated of the two."""
    fitted = {figure for direction in profile.spread for figure in direction}
    directions = [*profile.spread, *({figure: sd} for figure, sd in profile.assumed.items() if figure not in fitted)]
    software = [Unknown(f"{profile.name}: {', '.join(one)}", _figures(one)) for one in directions if any(getattr(profile, f) for f in one)]
    named = [name for name, there in (("intra_host", cluster.ranks_per_host > 1), ("cross_host", cluster.hosts > 1)) if there]
    links = [Unknown(f"{getattr(cluster, name).name}: {part}", _link(name, part)) for name in named for part in ("bandwidth", "latency")]
    return [*software, *links]


def responses(time_ms: Callable[[Profile, Cluster], float], profile: Profile, cluster: Cluster) -> dict[str, Response]:
    """Of each unknown by its name, what it does to `time_ms`. What does nothing is left out."""
    now, found = math.log(time_ms(profile, cluster)), {}
    for unknown in unknowns(profile, cluster):
        below, above = (math.log(time_ms(*unknown.change(profile, cluster, sd))) - now for sd in (-AT, AT))
        if below or above:
            found[unknown.name] = Response(below, above)
    return found


@cache
def normal(name: str) -> np.ndarray:
    """[DRAWS] of a standard normal, the same for every time that asks for `name`: its quantiles, in an order of their own."""
    return np.random.default_rng(zlib.crc32(name.encode())).permutation(_quantiles())


@cache
def _quantiles() -> np.ndarray:
    return np.array([NormalDist().inv_cdf((number + 0.5) / DRAWS) for number in range(DRAWS)])


def simulated_part(of: Mapping[str, Response]) -> np.ndarray:
    """[DRAWS] changes of a time's logarithm by what is simulated."""
    return sum((response.to(normal(name)) for name, response in of.items()), np.zeros(DRAWS))


def system_part(profile: Profile, cluster: Cluster, error: float, explained: float) -> np.ndarray:
    """[DRAWS] changes by the system's own: what `error_on` has beyond the variance that is `explained` by what is simulated."""
    total = math.log1p(Z_OF_90_PERCENT * error) / Z_OF_90_PERCENT
    tuning = max(OF_TUNING, profile.tuning_hosts if cluster.hosts > 1 else 0.0)
    own = math.sqrt(max(total**2 - explained - OF_SHARDING**2 - OF_ROW**2, tuning**2))
    common, alone = normal(f"{profile.name}: system of {cluster.device.name}"), normal(f"{profile.name}: system {cluster.name}")
    return own * (math.sqrt(OF_DEVICE) * common + math.sqrt(1 - OF_DEVICE) * alone)


def log_changes(of: Mapping[str, Response], profile: Profile, cluster: Cluster, sharder: str, combination: str) -> np.ndarray:
    """[DRAWS] of the logarithm of a time over what is simulated of it, where the profile's error on such a system is known."""
    error = error_on(profile, cluster)
    assert error is not None
    simulated = simulated_part(of)
    return simulated + system_part(profile, cluster, error, float(simulated.var())) + sharding_part(sharder, combination)


def interval_of(log_changes: np.ndarray, ms: float) -> Interval:
    """The 90 % interval of a time that is `ms` by the figures on file."""
    low, high = np.quantile(log_changes, (0.05, 0.95))
    return Interval(ms * math.exp(low), ms * math.exp(high))


def sharding_part(sharder: str, combination: str) -> np.ndarray:
    """[DRAWS] changes by what is wrong of a sharder, and of one combination."""
    return OF_SHARDING * normal(f"sharder {sharder}") + OF_ROW * normal(f"combination {combination}")


def error_on(profile: Profile, cluster: Cluster) -> float | None:
    """The profile's relative error on systems such as `cluster`; None for another kind of device than those that it was fitted to."""
    fitted = profile.fitted_systems
    if profile.relative_error is None or profile.fitted_kind != cluster.device.kind:
        return None
    other = bool(fitted) and cluster.device.name not in fitted
    more = bool(fitted) and hosts_seen(cluster) > fitted.get(cluster.device.name, max(fitted.values()))
    return error_of(profile, other_device=other, more_hosts=more)


def hosts_seen(cluster: Cluster) -> int:
    """Its hosts as a fit counts them: a rack whose ranks NVLink joins as one is as many as hosts of `RANKS_OF_HOST` would be."""
    return max(cluster.hosts, math.ceil(cluster.world_size / RANKS_OF_HOST))


def error_of(profile: Profile, *, other_device: bool = False, more_hosts: bool = False) -> float:
    """The profile's relative error on a system that it was fitted to, on another device, on more hosts, or on more hosts of another device.

    None of them is smaller than on a system that it was fitted to. What lies outside adds what its square has over that within.
    """
    within = profile.relative_error or 0.0
    devices = max(profile.relative_error_outside or within, within)
    hosts = max(profile.relative_error_hosts or devices, within)
    squares = (devices**2 - within**2) * other_device + (hosts**2 - within**2) * more_hosts
    return math.sqrt(within**2 + squares)


def _figures(direction: Mapping[str, float]) -> Change:
    """Figures that move together. One that is off or unknown stays so."""

    def change(profile: Profile, cluster: Cluster, sd: float) -> tuple[Profile, Cluster]:
        there = {figure: by for figure, by in direction.items() if getattr(profile, figure)}
        moved = {figure: getattr(profile, figure) * math.exp(sd * by) for figure, by in there.items()}
        shares = {figure: min(value, 1.0) if figure in SHARES else value for figure, value in moved.items()}
        return replace(profile, **shares), cluster

    return change


def _link(name: str, part: str) -> Change:
    """All bandwidths of a link, or all its latencies."""

    def change(profile: Profile, cluster: Cluster, sd: float) -> tuple[Profile, Cluster]:
        link: Link = getattr(cluster, name)
        moved = link.faster(math.exp(sd * link.spread)) if part == "bandwidth" else link.later(math.exp(sd * OF_LATENCIES * link.spread))
        return profile, replace(cluster, **{name: moved})  # type: ignore[arg-type]

    return change

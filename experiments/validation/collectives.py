"""Collectives alone: published figures, and those of FlexShard's table 6, beside the simulator's. Nothing here depends on a profile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from experiments.flexshard.models import MODELS
from experiments.flexshard.times import SHARDINGS, Volumes, by_links, published_times, published_volumes
from experiments.validation.fit import Fits, Found, Point, validate
from experiments.validation.models import published
from recsys_lab.cluster import Cluster
from recsys_lab.config.choices import built
from recsys_lab.plan import Step
from recsys_lab.simulate.collectives import collective_ms
from recsys_lab.units import GB, MIB, MS_PER_S

#: Of the links of a100x32: what was fitted to table 6, as a user finds it in conf/cluster/link.
FITTED = ("cross_host.exchange_us", "cross_host.bandwidth_gb_s", "cross_host.ring_gb_s", "intra_host.bandwidth_gb_s")
TIMES = {
    "global_ms": "all-to-all",
    "intra_ms": "all-to-all within hosts",
    "all_reduce_ms": "all-reduce of all",
    "cross_ms": "all-reduce of peers",
}


def found() -> list[Found]:
    """Of FlexShard's table 6, with a fit of the links without each point; and of the others, to which nothing of a cluster is fitted."""
    cluster = built("cluster", "a100x32")
    fits = Fits.of(_flexshard(), cluster, FITTED, [_value(cluster, name) for name in FITTED], _with_links)
    return [*validate(fits), *validate(Fits.of(points(), None))]


def on_file() -> list[Found]:
    """FlexShard's alone, by the cluster as it is on file."""
    return validate(Fits.of(_flexshard(), built("cluster", "a100x32")))


def points() -> list[Point]:
    made = []
    for given in published().collectives.all_reduce_bus:
        cluster = built("cluster", given.cluster)
        for mib, bus_gb_s in given.gb_s.items():
            size = float(mib) * MIB
            ms = 2 * (given.ranks - 1) / given.ranks * size / (bus_gb_s * GB) * MS_PER_S
            what = f"{given.ranks} x {cluster.device.name.split()[0]}, all-reduce of {mib} MiB"
            made.append(_point(what, ms, cluster.reshaped(1, given.ranks), "all_reduce", size))
    for given in published().collectives.times:
        cluster = built("cluster", given.cluster).reshaped(given.hosts, given.ranks)
        made.append(_point(given.what, given.ms, cluster, given.kind, given.bytes))
    return made


def _point(what: str, ms: float, cluster: Cluster, kind: str, size_bytes: float) -> Point:
    step = Step("s", kind, "forward", (size_bytes,), (cluster.ranks,))
    return Point("collectives", what, ms, lambda _: collective_ms(step, cluster), fitted=False)


def _flexshard() -> list[Point[Cluster]]:
    made: list[Point[Cluster]] = []
    for model in MODELS:
        for sharding in SHARDINGS:
            times, volumes = published_times(model, sharding), published_volumes(model, sharding)
            for field, what in TIMES.items():
                if getattr(times, field):
                    name = f"FlexShard {model} {sharding}: {what}"
                    made.append(Point("flexshard", name, getattr(times, field), _time_of(volumes, field)))
    return made


def _time_of(volumes: Volumes, field: str) -> Callable[[Cluster], float]:
    return partial(_named, volumes=volumes, field=field)


def _named(cluster: Cluster, volumes: Volumes, field: str) -> float:
    return float(getattr(by_links(volumes, cluster), field))


def _value(cluster: Cluster, name: str) -> float:
    link, figure = name.split(".")
    return float(getattr(getattr(cluster, link), figure))


def _with_links(cluster: Cluster, figures: dict[str, float]) -> Cluster:
    for name, value in figures.items():
        link, figure = name.split(".")
        cluster = replace(cluster, **{link: replace(getattr(cluster, link), **{figure: value})})
    return cluster

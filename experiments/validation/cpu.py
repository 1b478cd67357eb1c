"""The CPU paper's runs: one socket's time, and how far it scales."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from experiments.validation.cases import System, cases, only_whole_tables, roomy, whole_tables
from experiments.validation.fit import Point
from experiments.validation.models import model, published
from recsys_lab.config.choices import built
from recsys_lab.plan.lower import lower
from recsys_lab.plan.scheme import ALL_TO_ALL
from recsys_lab.precision import Precision
from recsys_lab.simulate import Profile

FP32 = Precision("fp32")


def points() -> list[Point[Profile]]:
    found = []
    for given in published().cpu.points:
        run = dict(given)
        if "base" in given:
            times_faster = speed_up(run, run | dict(given.base))
            found.append(Point("cpu", given.what, given.times, times_faster, unit="times", change="scale", cluster=_system(run).cluster))
        else:
            own = system_of(given.model, given.cluster, given.sockets, given.batch)
            found.append(Point("cpu", given.what, given.ms, own.simulated_ms, cluster=own.cluster, time_ms=own.time_ms))
    return found + [case.point for case in cases("cpu")]


def speed_up(run: dict[str, Any], base: dict[str, Any]) -> Callable[[Profile], float]:
    """Samples a second of `run` over those of `base`."""

    def simulated(profile: Profile) -> float:
        fast, slow = (_system(r).simulated_ms(profile) / r["batch"] for r in (run, base))
        return slow / fast

    return simulated


def _system(run: dict[str, Any]) -> System:
    return system_of(run["model"], run["cluster"], run["sockets"], run["batch"], run.get("exchange", ALL_TO_ALL), run.get("columns", True))


@cache
def system_of(name: str, cluster_name: str, sockets: int, batch: int, exchange: str = ALL_TO_ALL, columns: bool = True) -> System:
    """Ranks fill machines in order; a run of one socket has none to talk to. `exchange`: of pooled rows, of `EXCHANGES`.

    `columns`: tables may be cut by columns, which scatters cannot carry.
    """
    cluster = built("cluster", cluster_name)
    on_host = min(cluster.ranks_per_host, sockets)
    cluster = cluster.reshaped(sockets // on_host, on_host)
    work = model(name).workload(max(batch // sockets, 1), "sgd")
    planner = whole_tables if columns else only_whole_tables
    plan = planner(model(name), roomy(cluster), FP32, work)
    return System(cluster, lower(plan, model(name).access, FP32, work, exchange=exchange), work)

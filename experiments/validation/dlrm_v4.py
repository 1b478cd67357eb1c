"""MLPerf's DLRMv4 on MI350X: steps of its reference, with and without equal ids once."""

from __future__ import annotations

from experiments.dlrm_v4.priced import Case, Priced, as_run, priced, published
from experiments.validation.fit import Point, Setting
from recsys_lab.cluster import Cluster
from recsys_lab.simulate import Profile
from recsys_lab.simulate.simulated import iteration_ms


def points() -> list[Point[Profile]]:
    return [_point(given) for given in published()["times"]]


def case_of(given: dict) -> Case:
    return Case(given["cluster"], given["hosts"], published()["events"][given["events"]], given["plan"], given["dedup"])


def time_ms(of: Priced, profile: Profile, cluster: Cluster) -> float:
    return iteration_ms(of.steps, cluster, as_run(profile), of.plan, of.workload, None, of.memory)


def _point(given: dict) -> Point[Profile]:
    """Times of one run, with and without equal ids once, leave a fit together."""
    of, run = priced(case_of(given)), given["what"].split(":")[0]
    sharding = f"{given['plan']}, {'dedup' if given['dedup'] else 'no dedup'}"
    on = of.cluster
    setting = Setting(
        "dlrm_v4", run, sharding, "mixed", (on.hosts, on.ranks_per_host), of.workload.batch_size * on.world_size, on.device.name
    )
    return Point(
        "dlrm_v4",
        given["what"],
        given["ms"],
        lambda profile: time_ms(of, profile, on),
        cluster=on,
        time_ms=lambda profile, cluster: time_ms(of, profile, cluster),
        setting=setting,
        together=run,
    )

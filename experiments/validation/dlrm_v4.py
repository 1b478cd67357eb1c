"""MLPerf's DLRMv4 on MI350X: steps of its reference, with and without equal ids once."""

from __future__ import annotations

from experiments.dlrm_v4.priced import as_run, priced, published, time_ms
from experiments.dlrm_v4.times import case_of
from experiments.validation.fit import Point, Setting
from recsys_lab.simulate import Profile


def points() -> list[Point[Profile]]:
    return [_point(given) for given in published()["times"]]


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
        lambda profile: time_ms(of, as_run(profile), on),
        cluster=on,
        time_ms=lambda profile, cluster: time_ms(of, as_run(profile), cluster),
        setting=setting,
        together=run,
    )

"""Where TorchRec keeps one large table: in device memory, in the host's, or there with a cache (torchrec#4099). The GPU is not named.

So only ratios of its times count. They are simulated on two H100, which the time in device memory fits best.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from experiments.validation.cases import PRECISIONS, roomy
from experiments.validation.models import model, published
from experiments.validation.ratios import Choice, Pair, p_of
from recsys_lab.config.choices import built
from recsys_lab.plan.lower import lower
from recsys_lab.plan.store import Store
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.torchrec import TorchRec
from recsys_lab.simulate.timeline import place

WHAT = "torchrec#4099: the large table in"


def pairs() -> list[Pair]:
    """Every two places. Nothing was fitted to them."""
    made = []
    for (one, (a, ours)), (other, (b, theirs)) in combinations(_times().items(), 2):
        ratio = ours / theirs
        made.append(Pair(f"{WHAT} {one} / in {other}", "sharding", a / b, ratio, ratio, p_of(ratio)))
    return made


def choice() -> Choice:
    """Of the best place."""
    times = _times()
    fastest = [min(times, key=lambda name: times[name][number]) for number in (0, 1)]
    return Choice(f"{WHAT} {', '.join(times)}", "sharding", len(times), fastest[0] == fastest[1])


def _times() -> dict[str, tuple[float, float]]:
    """By the table's place: published and simulated ms."""
    given = published().placements
    found, cluster, precision = model(given.model), built("cluster", given.cluster).reshaped(1, given.ranks), PRECISIONS["fp32"]
    large = max(found.tables, key=lambda table: table.weight_bytes)
    tables = tuple(replace(table, dtype="fp16") if table == large else table for table in found.tables)
    work = found.workload(given.batch // given.ranks, "sgd")
    force = {table.name: "row_wise" if table.name == large.name else "table_wise" for table in tables}
    plan = TorchRec(force=force).plan(PlanInputs(tables, found.access, roomy(cluster), precision, work))
    profile = built("profile", "torchrec")
    profile = replace(profile, peak_of_format=profile.peak_of_format | {"fp32": "fp32"})
    times = {}
    for one in given.points:
        store = Store(one.store, one.get("cached_share", 0.0), "lru") if "store" in one else None
        placements = tuple(replace(p, store=store) if p.table == large.name else p for p in plan.placements)
        steps = lower(replace(plan, placements=placements), found.access, precision, work)
        times[one.what] = (one.ms, float(place(steps, cluster, profile, work).ends.max()))
    return times

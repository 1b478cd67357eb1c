"""Neo's models on ZionEX: throughput, and how it scales. Nothing of the profile is fitted to any of it."""

from __future__ import annotations

from collections.abc import Callable

from experiments.neo.priced import FP32, HOSTS, OF_MODEL, Case, cluster, priced
from experiments.validation.fit import Point
from experiments.validation.models import published
from recsys_lab.simulate import Profile
from recsys_lab.simulate.timeline import place
from recsys_lab.units import MS_PER_S


def points() -> list[Point[Profile]]:
    found = []
    for given in published().neo.points:
        precision = FP32 if given.get("precision") == "fp32" else OF_MODEL[given.model]
        case = Case(given.model, HOSTS, given.batch_of_gpu, precision, given.get("placement", "karmarkar_karp"))
        samples = given.batch_of_gpu * cluster(HOSTS).world_size
        least = bool(given.get("at_most"))  # queries below a figure: more ms than that
        found.append(Point("neo", given.what, samples / given.queries * MS_PER_S, _ms(case), bound=least))
    for given in published().neo.scaling:
        many, one = (_ms(Case(given.model, hosts, given.batch_of_gpu, OF_MODEL[given.model])) for hosts in (HOSTS, 1))
        found.append(Point("neo", given.what, given.percent, _share(one, many), unit="%", change="scale"))
    return found


def _ms(case: Case) -> Callable[[Profile], float]:
    def simulated(profile: Profile) -> float:
        made = priced(case)
        return float(place(made.steps, cluster(case.hosts), profile.pipelined, made.workload).ends.max())

    return simulated


def _share(one: Callable[[Profile], float], many: Callable[[Profile], float]) -> Callable[[Profile], float]:
    """Of linear scaling, the batch of a GPU held, %."""
    return lambda profile: 100 * one(profile) / many(profile)

"""An iteration of the paper's models on its sockets, simulated: what it computes, what its exchanges take, and what of them shows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from experiments.cpu_dlrm.tables import published
from experiments.validation.cpu import system_of
from recsys_lab.config.choices import built
from recsys_lab.plan.scheme import ALL_TO_ALL
from recsys_lab.simulate import Profile
from recsys_lab.simulate.phases import COMPUTE, EMBEDDING_COMM, EXPOSED_SYNC, SYNCS, exposed_phases
from recsys_lab.simulate.timeline import place

SIMULATED = "Simulated with profile cpu, which has two figures that were fitted to five published points; figure9 and figure12 judge it."
#: What the simulator lacks, so that nothing here compares it.
LACKS = (
    "Not modelled: PyTorch's MPI backend, whose thread slows compute down, and the loader that reads the global batch on each rank. "
    "Communication has cores of its own, as with oneCCL, so compute is the same blocking and overlapped by assumption."
)


@dataclass(frozen=True)
class Parts:
    """ms of the slowest rank. `exchange`, `all_reduce`: of embeddings and dense gradients, whole; `exposed_*`: what shows."""

    iteration: float
    compute: float
    exchange: float
    all_reduce: float
    exposed_exchange: float
    exposed_all_reduce: float

    @property
    def communication(self) -> float:
        """What shows of both."""
        return self.exposed_exchange + self.exposed_all_reduce


@cache
def profile(overlap: bool = True) -> Profile:
    found = built("profile", "cpu")
    return found if overlap else replace(found, overlaps=[])


@cache
def parts(model: str, cluster: str, sockets: int, batch: int, exchange: str = ALL_TO_ALL, overlap: bool = True) -> Parts:
    """`batch`: of all sockets."""
    system = system_of(model, cluster, sockets, batch, exchange)
    schedule = place(system.steps, system.cluster, profile(overlap), system.workload)
    events = schedule.events(schedule.slowest)
    phases = exposed_phases(events, float(schedule.host_ms.max()))
    ms = {True: 0.0, False: 0.0}  # by whether it is of dense gradients
    for event in events:
        if event.step.is_collective:
            ms[event.step.role in SYNCS] += event.ms
    return Parts(sum(phases.values()), phases[COMPUTE], ms[False], ms[True], phases[EMBEDDING_COMM], phases[EXPOSED_SYNC])


def batch_of(model: str, kind: str, sockets: int) -> int:
    """The global batch of table I. `kind`: strong | weak."""
    row = published()["table1"][model]
    return int(row["batch_strong"] if kind == "strong" else row["batch_weak"] * sockets)

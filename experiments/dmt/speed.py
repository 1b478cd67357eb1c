"""What an iteration of the paper's models takes on its clusters: the strong baseline, SPTT alone and DMT. All of it simulated.

The setting is section 5.1's and 5.3's: one look-up a feature, Adam, 16,384 samples a GPU, quantised exchanges, the input a batch ahead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from experiments.dmt.complexity import published
from recsys_lab.base.progress import Progress
from recsys_lab.base.quiet import quiet_torchrec
from recsys_lab.experiment import of_words
from recsys_lab.planning import plan_for, price
from recsys_lab.simulate import Simulated

GPUS_PER_HOST = 8
#: Files of conf/cluster with its networks, all of them Ethernet (table 1).
CLUSTERS = {"v100": "v100", "a100": "a100", "h100": "h100_roce"}
#: The paper's three generations, and how many GPUs of each its figure 10 goes up to.
PLATFORMS = {"v100": 128, "a100": 512, "h100": 512}
#: GPUs, as the paper's figure 10. On 32 and 64 hosts 26 towers lie on unlike numbers of hosts.
SIZES = (16, 32, 64, 128, 256, 512)
MOST_TOWERS = 26  # one a feature; beyond as many hosts a tower is over several (3.1.3)
SHARDERS = {"baseline": "dmt_baseline", "sptt": "dmt_sptt", "dmt": "dmt"}


@dataclass(frozen=True)
class Case:
    """`kind`: baseline | sptt | dmt. `tower`: of the tower modules, where not those of table 4. `peak`: of the device; null: the profile's,
    which is TF32 where the device has it, as the paper's table 1 counts A100s.

    `pipelined`, `quantised`: what makes the baseline strong. `fall`: of the network (`Link.fall_per_doubling`); None: its own.
    `most_towers`: where there are more hosts, some or all of them share a tower.
    """

    model: str
    platform: str
    gpus: int
    kind: str
    tower: tuple[tuple[str, int], ...] | None = None
    peak: str | None = None
    batch_of_gpu: int = 16_384
    pipelined: bool = True
    quantised: bool = True
    fall: float | None = None
    most_towers: int = MOST_TOWERS

    @property
    def hosts(self) -> int:
        return self.gpus // GPUS_PER_HOST

    @property
    def towers(self) -> int:
        return min(self.hosts, self.most_towers)


def words(case: Case) -> list[str]:
    """As for run.py."""
    given = [
        f"model={case.model}_dmt",
        "data=random",
        "mode=simulate",
        f"cluster={CLUSTERS[case.platform]}",
        f"cluster.hosts={case.hosts}",
        f"precision={'fp16_comms' if case.quantised else 'fp32'}",
        f"sharder={SHARDERS[case.kind]}",
        f"simulate.batch_size={case.batch_of_gpu}",
    ]
    if case.peak is not None:
        given.append(f"simulate.profile.peak_of_format.fp32={case.peak}")
    if not case.pipelined:
        given.append("sharder.executor.pipeline=false")
    if case.fall is not None:
        given.append(f"cluster.cross_host.fall_per_doubling={case.fall}")
    if case.kind != "baseline":
        given.append(f"sharder.towers.count={case.towers}")
    if case.kind == "dmt":
        given += [f"model.tower.{key}={value}" for key, value in (case.tower or tower_of(case.model, case.towers))]
    return given


def tower_of(model: str, towers: int) -> tuple[tuple[str, int], ...]:
    """The tower module that table 4 has for so many towers."""
    rows = [row for row in published()["table4"] if row["model"] == f"{model}_dmt" and row.get("towers") == towers]
    return tuple(rows[0].get("tower", {}).items()) if rows else ()


@cache
def priced(case: Case) -> Simulated:
    """What `run.py` would simulate of it."""
    quiet_torchrec()
    experiment = of_words(words(case), where="speed")
    return price(plan_for(experiment, experiment.open_data()), experiment.profile)[0]


def speed_up(case: Case, over: str) -> float:
    """How many times faster `case` is than the same of another kind."""
    return float(priced(replace(case, kind=over, tower=None)).iteration_ms / priced(case).iteration_ms)


def price_all(cases: list[Case], what: str) -> None:
    """Prices `cases`, with a bar: the planner takes half a minute for 512 GPUs."""
    with Progress(len(cases), what, "plans") as bar:
        for case in cases:
            priced(case)
            bar.update()

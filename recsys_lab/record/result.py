"""The record of a run: `result.json`, schema 1. Measured and simulated are separate objects. What was not done is null, never zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from recsys_lab.base.files import NOTHING, read_json, what_is, write_json
from recsys_lab.base.schema import check_shape
from recsys_lab.errors import UserError
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.plan.store_facts import StoreFacts
from recsys_lab.plan.tiers import tier_rows
from recsys_lab.record.baselines import Baselines
from recsys_lab.record.breakdown import Breakdown
from recsys_lab.record.item_baselines import ItemBaselines
from recsys_lab.record.started_from import StartedFrom
from recsys_lab.simulate.simulated import Collective, Simulated, Spread, without_times
from recsys_lab.tables import AccessStatistics
from recsys_lab.tables.tiers import TIERS

SCHEMA = 1
RESULT_FILE = "result.json"
CHOICES = ("model", "sharder", "precision", "cluster", "data", "launcher")
SPLITS = ("train", "validation", "test")
STATES = ("completed", "failed", "pruned")
#: Iterations that are not measured at first: allocations, DDP's last exchanges about its buckets.
WARM_UP = 3
#: What to do about a record that is of no use.
BROKEN = "run it again, or name another run folder"


@dataclass(frozen=True)
class IterationTime:
    median: float
    p95: float


@dataclass(frozen=True)
class Checkpoints:
    """Those that were saved before training ended. Means are over them.

    Attributes:
        count: how many.
        mean_s: how long training waits for one.
        in_background: how many of them were copied, and written while training went on.
        write_s: until one is on disk, mean.
        bytes: of the files of all ranks, mean.
        copy_bytes: of the host's memory, that the fullest rank keeps for copies.
        stall_share: of the time of training, evaluations included, that it waits for them.
        incremental: how many have only the rows that were updated since a full one.
        incremental_bytes_share: the mean size of these over that of the full ones.
    """

    count: int
    mean_s: float
    in_background: int = 0
    write_s: float | None = None
    bytes: float | None = None
    copy_bytes: int | None = None
    stall_share: float | None = None
    incremental: int = 0
    incremental_bytes_share: float | None = None


@dataclass(frozen=True)
class WireBytes:
    """What a rank sends per iteration, by kind of link."""

    intra_host: float
    cross_host: float


@dataclass(frozen=True)
class Replanning:
    """What a plan made from the last look-ups would cover, by tier. Beside it is what this plan covers of the same `judged_on` look-ups.

    `saving`: of the global exchange, the row-sharded share. `worth_it`: it is more than `threshold`.
    """

    access_share_now: Mapping[str, float]
    access_share_new: Mapping[str, float]
    saving: float
    threshold: float
    worth_it: bool
    judged_on: int


@dataclass(frozen=True)
class Coverage:
    """Shares of the look-ups by tier, over the tables that are placed row by row. `replanning` None: too few look-ups to tell."""

    planned: Mapping[str, float]
    measured: Mapping[str, float]
    replanning: Replanning | None


@dataclass(frozen=True)
class LinkBytes:
    """Bytes an iteration over the links of all hosts together: `counted` by the kernel, headers included, and the payload of the
    recorded `collectives`.
    """

    counted: float
    collectives: float


@dataclass(frozen=True)
class Measured:
    """What really ran here. `phases_ms` are means over iterations; `wire_bytes` per rank per iteration; `data_wait_share` of the time.

    `peak_memory_bytes`: of the whole process on a CPU, of its tensors on a GPU; `added_memory_bytes`: what came on top of what it used
    when it had no model yet, without copies for checkpoints. `coverage` is of plans that place tables row by row; `links` of launchers
    whose hosts have links of their own. `exchange_ms`, of plans whose tables lie whole on a rank: what communication takes, {embedding:
    {preparation, transfer, waiting}, dense: {transfer, waiting}}. `transfer_ms`, of launchers with links: {embedding, dense:
    {under_way, transfer}}. under_way is how long any such collective is in flight, transfer how long after all of its ranks have come.
    `stores`: of each rank, by table with a cache, hits and misses (distinct rows) and bytes read and written an iteration.
    `hits_expected` and `misses_expected` follow from the access statistics. `checkpoints`: those written before training ended. No
    iteration's time has them. `transport`: what CPU ranks exchange through, "shared_memory" or "gloo" (sockets); "nccl" of GPUs.
    """

    backend: str
    world_size: int
    hosts: int
    ranks_per_host: int
    examples_per_second: float
    iteration_ms: IterationTime
    phases_ms: Mapping[str, float]
    wire_bytes: WireBytes | None
    collectives: Sequence[Collective]
    peak_memory_bytes: int | None
    data_wait_share: float | None
    coverage: Coverage | None = None
    exchange_ms: Mapping[str, Mapping[str, float]] | None = None
    links: LinkBytes | None = None
    transfer_ms: Mapping[str, Mapping[str, float]] | None = None
    added_memory_bytes: int | None = None
    stores: Sequence[Mapping[str, Mapping[str, float]]] | None = None
    transport: str | None = None
    checkpoints: Checkpoints | None = None


@dataclass(frozen=True)
class PlanSummary:
    """`plan.json` in figures. `bytes_per_rank`: what lasts from step to step, table weights, optimizer state and dense arch. `stores`: of
    the tables that are not in device memory as a whole. `fullest_bytes`: the memory of the fullest rank, which is that, the buffers of a
    step and kept ids; None: without a workload it is not known. `dedup`: equal ids of a rank's batch travel once, where sequences travel.
    """

    world_size: int
    tables: int
    rows: int
    parameters: int
    bytes_per_rank: Spread
    tiers: Mapping[str, Mapping[str, float | None]]
    towers: Sequence[Sequence[str]] | None
    stores: Sequence[StoreFacts] | None = None
    fullest_bytes: int | None = None
    dedup: bool = False


@dataclass(frozen=True)
class Failure:
    """Why a run failed: the name of the exception and its message."""

    type: str
    message: str


@dataclass(frozen=True)
class Pruned:
    """What cut a run short: after `epoch` epochs the `metric` of the validation split was `value`, worse than `bound`."""

    metric: str
    epoch: int
    value: float
    bound: float


@dataclass(frozen=True)
class EndedBy:
    """The limit that ended training before its last epoch did: a `key` of the config, after `steps` of `of_steps`."""

    key: str
    steps: int
    of_steps: int


@dataclass(frozen=True)
class Predictions:
    """A file with `rows` predictions of a `split`."""

    file: str
    split: str
    rows: int


@dataclass(frozen=True)
class Result:
    """`result.json`. `quality` is {split: {metric: value}}: metrics.QUALITY of clicks, metrics.RETRIEVAL of held-out items.

    `breakdown`: of clicks, by split: reliability, and quality by columns that were named. `chosen`: the keys that the config left open,
    with the values that suit the data. `baselines`: of clicks, unless switched off. `error` is written for a failed run only; `study` for a
    study, whose figures lie in it; `pruned` for a run that a search cut short; `ended_by` for one that a limit did; `started_from` for one
    that began with trained weights; `predictions` where they were written; `unknown_values` of a new test file: by column, rows with a
    value that training did not know. `item_baselines` and `protocol`: of next items, what stands beside the model, and how places were
    counted.
    """

    status: str  # completed | failed | pruned
    mode: str
    seed: int
    config_fingerprint: str
    choices: Mapping[str, str | None]
    plan_fingerprint: str | None = None
    quality: Mapping[str, Mapping[str, float | int | None]] | None = None
    plan: PlanSummary | None = None
    measured: Measured | None = None
    simulated: Simulated | None = None
    error: Failure | None = None
    study: Mapping[str, Any] | None = None
    pruned: Pruned | None = None
    chosen: Mapping[str, Any] | None = None
    baselines: Baselines | None = None
    started_from: StartedFrom | None = None
    predictions: Predictions | None = None
    breakdown: Mapping[str, Breakdown] | None = None
    unknown_values: Mapping[str, int] | None = None
    ended_by: EndedBy | None = None
    item_baselines: ItemBaselines | None = None
    protocol: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        assert self.status in STATES, self.status
        assert (self.error is not None) == (self.status == "failed"), "a failed run says why, and only a failed one"
        assert (self.pruned is not None) == (self.status == "pruned"), "a run that was cut short says where, and only such a one"
        assert set(self.choices) <= set(CHOICES), self.choices
        assert set(self.quality or ()) <= set(SPLITS), self.quality

    def to_json(self) -> dict[str, Any]:
        record = {
            "schema": SCHEMA,
            "status": self.status,
            "mode": self.mode,
            "seed": self.seed,
            "config_fingerprint": self.config_fingerprint,
            "plan_fingerprint": self.plan_fingerprint,
            "choices": {key: self.choices.get(key) for key in CHOICES},
            "quality": {split: dict(self.quality[split]) for split in SPLITS if split in self.quality} if self.quality else None,
            "plan": _plan(self.plan),
            "measured": _measured(self.measured),
            "simulated": _simulated(self.simulated),
        }
        record |= {"error": _part(self.error)} if self.error else {}
        record |= {"pruned": _part(self.pruned)} if self.pruned else {}
        record |= {"ended_by": _part(self.ended_by)} if self.ended_by else {}
        record |= {"chosen": dict(self.chosen)} if self.chosen else {}
        record |= {"baselines": _part(self.baselines)} if self.baselines else {}
        record |= {"item_baselines": _part(self.item_baselines)} if self.item_baselines else {}
        record |= {"protocol": dict(self.protocol)} if self.protocol else {}
        record |= {"breakdown": {split: _part(one) for split, one in self.breakdown.items()}} if self.breakdown else {}
        record |= {"unknown_values": dict(self.unknown_values)} if self.unknown_values is not None else {}
        record |= {"started_from": _part(self.started_from)} if self.started_from else {}
        record |= {"predictions": _part(self.predictions)} if self.predictions else {}
        return record | ({"study": dict(self.study)} if self.study else {})


def _plan(plan: PlanSummary | None) -> dict | None:
    """`stores` only where the plan has some."""
    figures = _part(plan)
    return figures and {key: value for key, value in figures.items() if value is not None or key != "stores"}


def _measured(measured: Measured | None) -> dict | None:
    """`coverage` is there only where the plan has tiers, `exchange_ms` only where its tables are whole.

    `checkpoints` only where some were written on the way. `links` and `transfer_ms` need hosts with links, `added_memory_bytes` a system
    that reports it, `stores` a plan with stores.
    """
    figures = _part(measured)
    sometimes = ("coverage", "exchange_ms", "links", "transfer_ms", "added_memory_bytes", "stores", "transport", "checkpoints")
    return figures and {key: value for key, value in figures.items() if value is not None or key not in sometimes}


def _simulated(simulated: Simulated | None) -> dict | None:
    """`in_run` only where the plan has stores and trains here. Without times where the machine is not calibrated: then it says so."""
    figures = _part(simulated)
    if figures and not figures["calibrated"]:
        return without_times(figures)
    sometimes = ("in_run", "bound_by", "torchrec_ms", "torchrec_host_ms", "doubt")
    return figures and {k: v for k, v in figures.items() if k != "calibrated" and (v is not None or k not in sometimes)}


def _part(part: Any) -> dict | None:
    return None if part is None else asdict(part)


def plan_summary(
    plan: ShardingPlan, access: AccessStatistics | None, workload: Workload | None, stores: Sequence[StoreFacts] = ()
) -> PlanSummary:
    """`plan` in figures. Without `workload`, bytes are those of the weights alone. Without a table's `access`, shares are None.

    Every tier is named, also one that holds no row: its zero is a count.
    """
    memory = bytes_of_ranks(plan, workload) if workload else None
    bytes_of_rank = memory.lasting if memory else plan.weight_bytes_of_ranks()
    return PlanSummary(
        world_size=plan.world_size,
        tables=len(plan.tables),
        rows=sum(table.rows for table in plan.tables),
        parameters=sum(table.parameters for table in plan.tables),
        bytes_per_rank=Spread(max(bytes_of_rank), sum(bytes_of_rank) / len(bytes_of_rank)),
        tiers=_tiers(plan, access),
        towers=[list(tower) for tower in plan.towers] or None,
        stores=list(stores) or None,
        fullest_bytes=max(memory.totals) if memory else None,
        dedup=workload is not None and workload.dedup,
    )


def _tiers(plan: ShardingPlan, access: AccessStatistics | None) -> dict[str, dict[str, float | None]]:
    rows = dict.fromkeys(TIERS, 0)
    lookups = dict.fromkeys(TIERS, 0.0)
    has_access = access is not None and all(table.name in access.tables for table in plan.tables)
    for table, placement in zip(plan.tables, plan.placements):
        begin = 0
        for tier, count in tier_rows(placement).items():
            rows[tier] += count
            lookups[tier] += access[table.name].length_of(begin, begin + count) if has_access and access else 0.0
            begin += count
    total = sum(lookups.values())
    return {tier: {"rows": rows[tier], "access_share": lookups[tier] / total if total else None} for tier in TIERS}


def write_result(folder: Path, result: Result) -> Path:
    """Write `folder`/result.json, whole or not at all."""
    return write_json(Path(folder) / RESULT_FILE, result.to_json())


def read_result(folder: Path) -> dict[str, Any]:
    """The record in the run folder `folder`. UserError where it is missing, broken or of another schema."""
    path = Path(folder) / RESULT_FILE
    if what_is(path) == NOTHING:
        raise UserError(
            "no result.json here: not a run folder, or its run has not ended", where=folder, remedy="name the folder of a finished run"
        )
    data = read_json(path)
    expected = {
        "schema",
        "status",
        "mode",
        "seed",
        "config_fingerprint",
        "plan_fingerprint",
        "choices",
        "quality",
        "plan",
        "measured",
        "simulated",
    }
    if not isinstance(data, dict) or data.get("schema") != SCHEMA:
        given = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise UserError("unknown schema of a record", where=path, given=given, allowed=SCHEMA, remedy=BROKEN)
    if missing := sorted(expected - set(data)):
        raise UserError("the record is incomplete", where=path, given=f"no {', '.join(missing)}", remedy=BROKEN)
    check_shape(data, Result, path, BROKEN)
    if data["status"] not in STATES or (data["status"] == "failed") != bool(data.get("error")):
        raise UserError("a status that there is not", where=path, given=data["status"], allowed=", ".join(STATES), remedy=BROKEN)
    return data

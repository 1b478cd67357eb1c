"""A run folder read back.

All that the page, the terminal and the comparison show comes from here. It has the shape that it had when it was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from recsys_lab.base.calibrated import is_calibrated
from recsys_lab.base.files import NOTHING, read_json, read_text, what_is
from recsys_lab.base.schema import check_shape
from recsys_lab.errors import UserError
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.serialise import load_plan
from recsys_lab.record.environment import ENVIRONMENT_FILE
from recsys_lab.record.metrics_csv import read_metrics
from recsys_lab.record.result import RESULT_FILE, read_result
from recsys_lab.simulate.simulated import without_times

REASONS_FILE = "reasons.json"
STORES_FILE = "stores.json"
#: Where a sweep puts a finished run whose config has changed since.
SUPERSEDED = "superseded"
#: Below a folder runs are looked for so many levels down: a sweep's are one down, those of a folder of sweeps two.
DEEPEST = 3
#: What to do about a broken file that is no more than shown.
LEAVE_OUT = "take the file away to see the rest, or run it again"


@dataclass(frozen=True)
class Explanation:
    """What `show` needs of reasons.json: sentences, and a table of the plan and others."""

    sentences: Sequence[str]
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""  # what the columns are; runs of earlier versions have none


@dataclass(frozen=True)
class ReasonsFile:
    told: Explanation


@dataclass(frozen=True)
class CachePoint:
    """`memory_gb`: a rank may use so much. `cached_share`: of all tables' rows, those in the ranks' memory. `tables`: with a store."""

    memory_gb: float
    cached_share: float
    tables: int
    iteration_ms: float
    chosen: bool


@dataclass(frozen=True)
class StoresFile:
    """The curve of caches: memory a rank against the simulated iteration, from the least memory to all tables in memory."""

    cluster: str
    profile: str
    points: Sequence[CachePoint]


@dataclass(frozen=True)
class TraceEvent:
    """Of Chrome's trace format, where the timeline's picture needs it."""

    name: str
    ph: str
    pid: int
    tid: int | None = None
    ts: float = 0.0
    dur: float = 0.0
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TraceFile:
    traceEvents: Sequence[TraceEvent]


@dataclass(frozen=True)
class Gpu:
    name: str


@dataclass(frozen=True)
class Hardware:
    cpu: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None
    gpus: Sequence[Gpu] | None = None


@dataclass(frozen=True)
class DataNotes:
    notes: Sequence[str] | None = None
    best_auc: Mapping[str, float] | None = None


@dataclass(frozen=True)
class EnvironmentFile:
    commit: str | None = None
    dirty: bool | None = None
    argv: Sequence[str] | None = None
    python: str | None = None
    hardware: Hardware | None = None
    packages: Mapping[str, str] | None = None
    data: DataNotes | None = None


@dataclass(frozen=True)
class DeviceMemory:
    memory_gb: float | None = None


@dataclass(frozen=True)
class ClusterMemory:
    device: DeviceMemory | None = None
    reserved_memory_share: float | None = None


@dataclass(frozen=True)
class ConfigFile:
    """What is read of config.yaml beside its keys and values."""

    cluster: ClusterMemory | None = None
    choices: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Run:
    """One run folder. A part that the run did not leave is None (or empty)."""

    folder: Path
    result: dict[str, Any]
    config: dict[str, Any]
    plan: ShardingPlan | None  # for the named cluster
    plan_here: ShardingPlan | None  # that trained here, where that is another
    metrics: list[dict[str, float | None]]
    environment: dict[str, Any]
    trace: dict[str, Any] | None = None  # the simulated timeline
    reasons: dict[str, Any] | None = None  # why the plan is as it is, for people: {sentences, columns, rows}
    stores: dict[str, Any] | None = None  # what other sizes of cache would take, as `StoresFile`

    @property
    def memory_limit_bytes(self) -> float | None:
        """What a plan may fill of one rank of the named cluster, from the run's config."""
        cluster = self.config.get("cluster") or {}
        memory_gb = (cluster.get("device") or {}).get("memory_gb")
        reserved = cluster.get("reserved_memory_share")
        return None if not memory_gb or reserved is None or reserved == 1 else memory_gb * 1e9 * (1 - reserved)

    @property
    def memory_there_bytes(self) -> float | None:
        """What the fullest rank may fill: its device's memory, or `sharder.memory_budget_gb`; None where the config does not say."""
        sizes_gb = [value_at(self.config, key) for key in ("cluster.device.memory_gb", "sharder.memory_budget_gb")]
        known = [size for size in sizes_gb if isinstance(size, int | float)]
        return min(known) * 1e9 if known else None

    @property
    def hides_simulation(self) -> bool:
        return hides_simulation(self.result)

    @property
    def best_auc(self) -> dict[str, float]:
        """The best reachable AUC of splits that no model was trained on, where the truth was planted. Empty where unknown."""
        known = (self.environment.get("data") or {}).get("best_auc") or {}
        return {split: auc for split, auc in known.items() if split != "train"}

    @property
    def data_notes(self) -> list[str]:
        return list((self.environment.get("data") or {}).get("notes") or [])


def hides_simulation(result: Mapping[str, Any]) -> bool:
    """Whether the record has a simulation without its times, since the machine is not calibrated."""
    return (result["simulated"] or {}).get("calibrated") is False


def read_record(folder: Path) -> dict[str, Any]:
    """`folder`/result.json without times of a machine that is not calibrated, as records of earlier versions have them. UserError."""
    result = read_result(folder)
    if not result["simulated"] or is_calibrated(str(value_at(read_config(folder), "cluster.device.source"))):
        return result
    return result | {"simulated": without_times(result["simulated"])}


def read_run(folder: Path | str) -> Run:
    """The run in `folder`. UserError where it is not a run folder, has not ended, or a file in it is broken."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError("not a folder" if folder.exists() else "no such folder", where=folder, remedy="name the folder of a run")
    result = read_record(folder)
    reasons = _read(folder / REASONS_FILE, ReasonsFile)
    if reasons is not None and any(len(row) != len(reasons["told"]["columns"]) for row in reasons["told"]["rows"]):
        raise UserError("a row has more or fewer cells than columns", where=folder / REASONS_FILE, remedy=LEAVE_OUT)
    stores = _read(folder / STORES_FILE, StoresFile)
    points = [] if stores is None else stores["points"]
    if stores is not None and (sum(p["chosen"] is True for p in points) != 1 or any(None in p.values() for p in points)):
        raise UserError("a point lacks a figure, or not one of them is the plan's", where=folder / STORES_FILE, remedy=LEAVE_OUT)
    return Run(
        folder=folder,
        result=result,
        config=read_config(folder),
        plan=load_plan(folder / "plan.json") if _exists(folder / "plan.json") else None,
        plan_here=load_plan(folder / "plan_here.json") if _exists(folder / "plan_here.json") else None,
        metrics=read_metrics(folder),
        environment=_read(folder / ENVIRONMENT_FILE, EnvironmentFile) or {},
        trace=_read(folder / "trace.json", TraceFile),
        reasons=reasons["told"] if reasons is not None else None,
        stores=stores,
    )


def _exists(path: Path) -> bool:
    return what_is(path) != NOTHING


def _read(path: Path, shape: type) -> Any:
    """The JSON in `path`, which has this shape; None where there is no such file. UserError where it is broken."""
    if not _exists(path):
        return None
    data = read_json(path)
    check_shape(data, shape, path, LEAVE_OUT)
    return data


class _PlainLoader(yaml.SafeLoader):
    """YAML without anchors, which the config never has and which can stand for more than any memory holds."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("an alias")
        return super().compose_node(parent, index)


def read_config(folder: Path) -> dict[str, Any]:
    """`folder`/config.yaml, empty where it is missing. UserError where it is no mapping of plain values."""
    path = folder / "config.yaml"
    if not _exists(path):
        return {}
    try:
        config = yaml.load(read_text(path), _PlainLoader)  # noqa: S506 - a SafeLoader
        if not isinstance(config, dict) or not config:
            given = f"a {type(config).__name__}" if config else "nothing"
            raise UserError("the config is no mapping", where=path, given=given, allowed="the config of a run", remedy=LEAVE_OUT)
        foreign = _foreign(config)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UserError(f"not YAML: {error}", where=path, remedy=LEAVE_OUT) from None
    if foreign is not None:
        raise UserError("a value that is not plain", where=path, given=foreign, allowed="text, numbers, lists, mappings", remedy=LEAVE_OUT)
    check_shape(config, ConfigFile, path, LEAVE_OUT)
    return config


def _foreign(value: Any) -> str | None:
    """The type of the first value in it that JSON does not have."""
    if isinstance(value, (dict, list)):
        inner = value.values() if isinstance(value, dict) else value
        return next((kind for item in inner if (kind := _foreign(item)) is not None), None)
    return None if isinstance(value, (str, int, float, type(None))) else type(value).__name__


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"a": {"b": 1}}` as `{"a.b": 1}`."""
    keys: dict[str, Any] = {}
    for key, value in config.items():
        keys |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
    return keys


def value_at(data: Any, path: str) -> Any:
    """The value at `a.b.c`, None where a part is absent."""
    for key in path.split("."):
        data = data.get(key) if isinstance(data, dict) else None
    return data


def runs_below(folder: Path, levels: int = DEEPEST) -> Iterator[Path]:
    """`folder` if a run ended there, else those below it, in the order of their names.

    Nothing is looked for within a run, in what sweeps have superseded, in hidden folders, or behind links to folders.
    """
    if (folder / RESULT_FILE).is_file():
        yield folder
    elif levels and folder.is_dir():
        for below in sorted(folder.iterdir()):
            if below.is_dir() and not below.is_symlink() and below.name != SUPERSEDED and not below.name.startswith("."):
                yield from runs_below(below, levels - 1)

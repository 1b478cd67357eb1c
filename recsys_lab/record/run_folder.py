"""A run folder read back: everything that the page, the terminal and the comparison show comes from here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from recsys_lab.errors import UserError
from recsys_lab.files import read_json
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.serialise import load_plan
from recsys_lab.record.environment import ENVIRONMENT_FILE
from recsys_lab.record.metrics_csv import read_metrics
from recsys_lab.record.result import read_result

REASONS_FILE = "reasons.json"


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

    @property
    def memory_limit_bytes(self) -> float | None:
        """What a plan may fill of one rank of the named cluster, from the run's config."""
        cluster = self.config.get("cluster") or {}
        memory_gb = (cluster.get("device") or {}).get("memory_gb")
        reserved = cluster.get("reserved_memory_share")
        return None if memory_gb is None or reserved is None else memory_gb * 1e9 * (1 - reserved)

    @property
    def best_auc(self) -> dict[str, float]:
        """The best reachable AUC by split, where the truth was planted; empty where unknown."""
        return (self.environment.get("data") or {}).get("best_auc") or {}

    @property
    def data_notes(self) -> list[str]:
        return list((self.environment.get("data") or {}).get("notes") or [])


def read_run(folder: Path | str) -> Run:
    """The run in `folder`. UserError where it is not a run folder, has not ended, or a file in it is broken."""
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError("no such folder", where=folder, remedy="name the folder of a run")
    result = read_result(folder)
    environment = folder / ENVIRONMENT_FILE
    return Run(
        folder=folder,
        result=result,
        config=read_config(folder),
        plan=load_plan(folder / "plan.json") if (folder / "plan.json").exists() else None,
        plan_here=load_plan(folder / "plan_here.json") if (folder / "plan_here.json").exists() else None,
        metrics=read_metrics(folder),
        environment=read_json(environment) if environment.exists() else {},
        trace=read_json(folder / "trace.json") if (folder / "trace.json").exists() else None,
        reasons=read_json(folder / REASONS_FILE)["told"] if (folder / REASONS_FILE).exists() else None,
    )


def read_config(folder: Path) -> dict[str, Any]:
    """`folder`/config.yaml, empty where it is missing."""
    path = folder / "config.yaml"
    if not path.exists():
        return {}
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise UserError(f"not YAML: {error}", where=path) from None


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

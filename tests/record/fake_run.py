"""A run folder as the pipeline leaves it, made from the real dataclasses; the figures in it are invented."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from pathlib import Path

import yaml

from recsys_lab.base.files import write_json
from recsys_lab.plan import Placement, Shard, ShardingPlan, Workload
from recsys_lab.record.breakdown import Bin, Breakdown, ByColumn, Grouped, OfValue, Others, PartQuality
from recsys_lab.record.environment import ENVIRONMENT_FILE, environment
from recsys_lab.record.metrics_csv import MetricsCsv
from recsys_lab.record.result import (
    Collective,
    Failure,
    IterationTime,
    Measured,
    Result,
    Simulated,
    Spread,
    WireBytes,
    plan_summary,
    write_result,
)
from recsys_lab.tables import AccessStatistics, Table, power_law_access

WORKLOAD = Workload(
    batch_size=4096,
    dense_parameters=1_000_000,
    forward_flops_per_sample=2e6,
    backward_flops_per_sample=4e6,
    activation_bytes_per_sample=10_000,
    sparse_optimizer="row_wise_adagrad",
    dense_optimizer="adam",
)


def make_tables(scale: int = 1) -> tuple[Table, ...]:
    sizes = (400_000, 39_060, 17_295, 7_424, 63, 300_000, 10, 120_000)
    return tuple(Table(f"cat_{i}", rows * scale if rows > 100 else rows, 64, (f"cat_{i}",)) for i, rows in enumerate(sizes))


def make_plan(hosts: int, ranks_per_host: int, scale: int = 1) -> ShardingPlan:
    """Small tables replicated, middling ones whole on a rank, large ones by rows over all ranks."""
    tables, world, placements = make_tables(scale), hosts * ranks_per_host, []
    for i, t in enumerate(tables):
        if t.rows < 100:
            placements.append(Placement(t.name, "data_parallel", (Shard(tuple(range(world)), 0, t.rows, 0, t.dim),)))
        elif t.rows < 100_000 * scale or world == 1:
            placements.append(Placement(t.name, "table_wise", (Shard((i % world,), 0, t.rows, 0, t.dim),)))
        else:
            block = math.ceil(t.rows / world)
            cuts = [(r, min(r * block, t.rows), min((r + 1) * block, t.rows)) for r in range(world)]
            placements.append(Placement(t.name, "row_wise", tuple(Shard((r,), a, b, 0, t.dim) for r, a, b in cuts)))
    return ShardingPlan("torchrec", hosts, ranks_per_host, tables, tuple(placements))


def make_access(tables: tuple[Table, ...]) -> AccessStatistics:
    return AccessStatistics({t.name: power_law_access(t.name, t.rows, 1.0, 1.05) for t in tables})


def make_result(
    mode: str = "auto", seed: int = 1, auc: float = 0.7731, model: str = "dcn", sharder: str = "torchrec", hosts: int = 8
) -> Result:
    plan = make_plan(hosts, 8, scale=100)
    summary = plan_summary(plan, make_access(plan.tables), WORKLOAD)
    figures = {"auc": auc, "ne": 0.8132, "log_loss": 0.4412, "calibration": 1.0031, "examples": 20_000}
    trained, simulated = mode in ("auto", "train"), mode in ("auto", "simulate")
    return Result(
        status="completed",
        mode=mode,
        seed=seed,
        config_fingerprint="0123456789abcdef",
        plan_fingerprint=plan.fingerprint,
        choices={"model": model, "sharder": sharder, "precision": "fp32", "cluster": "h100x64", "data": "synthetic", "launcher": "local"},
        quality={"train": figures | {"auc": auc + 0.01}, "validation": figures} if trained else None,
        plan=summary,
        measured=_measured() if trained else None,
        simulated=_simulated(hosts, summary.bytes_per_rank) if simulated else None,
    )


def make_breakdown() -> Breakdown:
    """Of 2,000 rows, with a long name, a value of one class and groups."""
    parts = [PartQuality(0.71, 0.9, 0.4, 1.2, 1200), PartQuality(0.66, 0.97, 0.5, 0.7, 600), PartQuality(None, None, 0.2, None, 180)]
    names = ("phone", "set-top box of some maker with a long name", "watch")
    by = ByColumn(100, [OfValue(*one) for one in zip(names, parts)], Others(3, PartQuality(0.5, 1.0, 0.5, 1.0, 20)))
    bins = [Bin(200, 10 + 8 * part, 0.05 + 0.041 * part) for part in range(10)]
    return Breakdown(bins, {"device type": by}, Grouped("user_id", 0.64, 70, 1500, 40, 500))


def _measured() -> Measured:
    return Measured(
        backend="gloo",
        world_size=4,
        hosts=2,
        ranks_per_host=2,
        examples_per_second=41_250.5,
        iteration_ms=IterationTime(24.8, 31.2),
        phases_ms={"input": 0.4, "forward": 9.1, "backward": 12.2, "optimizer": 1.9},
        wire_bytes=WireBytes(1_310_720, 2_621_440),
        collectives=[
            Collective("ids", "all_to_all", "0-3", 131_072, 1.2),
            Collective("pooled", "all_to_all", "0-3", 524_288, 2.2),
            Collective("dense gradients", "all_reduce", "0-3", 4_000_000, 5.1),
        ],
        peak_memory_bytes=812_000_000,
        data_wait_share=0.013,
    )


def _simulated(hosts: int, memory: Spread) -> Simulated:
    world = hosts * 8
    return Simulated(
        cluster=f"h100x{world}",
        world_size=world,
        profile="torchrec",
        examples_per_second=world * 4096 / 2.4e-3,
        iteration_ms=2.4,
        added_memory_bytes=2.5e9,
        phases_ms={
            "compute": 0.9,
            "exposed_embedding_comm": 1.1,
            "exposed_dense_sync": 0.3,
            "host_launch": 0.05,
            "input_copy": 0.05,
            "other": 0.0,
        },
        collectives=[
            Collective("ids", "all_to_all", f"0-{world - 1}", 262_144, 0.21),
            Collective("pooled", "all_to_all", f"0-{world - 1}", 8_388_608, 0.55),
            Collective("dense gradients", "all_reduce", f"0-{world - 1}", 4_000_000, 0.3),
        ],
        bytes_per_rank=memory,
        feasible=True,
    )


def failed(result: Result, message: str = "split validation has only label 0: AUC is undefined") -> Result:
    return replace(result, status="failed", quality=None, measured=None, simulated=None, error=Failure("UserError", message))


def make_config(result: Result, hosts: int = 8) -> dict:
    """The resolved config's shape: a group a key, beside the top-level keys."""
    return {
        "seed": result.seed,
        "mode": result.mode,
        "resume": None,
        "choices": dict(result.choices),
        "model": {"_target_": "recsys_lab.models.dcn.DCN", "layers": 3, "rank": 512},
        "cluster": {
            "name": f"h100x{hosts * 8}",
            "hosts": hosts,
            "ranks_per_host": 8,
            "device": {"name": "H100 <SXM5>", "kind": "cuda", "memory_gb": 80.0},
            "reserved_memory_share": 0.15,
        },
        "data": {"batch_size": 1024, "root": None},
        "ablation": {"baseline": None},
    }


@cache
def made_environment() -> dict:
    data = {"notes": ["best reachable AUC on validation: 0.7812"], "best_auc": {"validation": 0.7812}}
    return environment(["run.py", "model=dcn", "cluster=h100x64"], data)


@cache
def plan_json(hosts: int, ranks_per_host: int, scale: int = 1) -> dict:
    return make_plan(hosts, ranks_per_host, scale).to_json()


def write_run(folder: Path, result: Result | None = None, overrides: list[str] | None = None, steps: int = 400, hosts: int = 8) -> Path:
    """Everything that a finished run leaves, for `result` (default: completed, mode=auto)."""
    result = result or make_result(hosts=hosts)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".hydra").mkdir(exist_ok=True)
    (folder / ".hydra/overrides.yaml").write_text(yaml.safe_dump(overrides or []))
    (folder / "config.yaml").write_text(yaml.safe_dump(make_config(result, hosts), sort_keys=False))
    write_json(folder / "plan.json", plan_json(hosts, 8, scale=100))
    if result.measured:
        write_json(folder / "plan_here.json", plan_json(2, 2))
        metrics = MetricsCsv(folder)
        for step in range(20, steps + 1, 20):
            row = {"step": step, "epoch": step // 200, "examples": step * 1024, "train_loss": 0.45 + 0.25 * math.exp(-step / 120)}
            if step % 100 == 0:
                row |= {"validation_auc": 0.77 - 0.1 * math.exp(-step / 100), "validation_ne": 0.82, "validation_log_loss": 0.44}
            metrics.append(row | {"learning_rate": 0.001, "examples_per_second": 41_000.0})
    write_json(folder / ENVIRONMENT_FILE, made_environment())
    write_result(folder, result)
    return folder

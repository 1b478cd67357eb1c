"""What a tracker keeps of a finished run: the page, and what its tables and charts show. Figures are numbers, so that it can sort them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recsys_lab.base.files import write_text
from recsys_lab.cluster import ranks_text
from recsys_lab.plan import ShardingPlan
from recsys_lab.record.loggers import Tables, finish
from recsys_lab.record.metrics import QUALITY, RETRIEVAL
from recsys_lab.record.run_folder import Run, read_run
from recsys_lab.report import sections
from recsys_lab.report.baselines import baseline_rows
from recsys_lab.report.page import PAGE_FILE, page

ORIGINS = ("measured", "simulated")


def publish(logger: Any | None, folder: Path) -> None:
    """Writes the page of the run in `folder`, whose record is there. Gives `logger` the page and its tables, and closes it."""
    run = read_run(folder)
    text = page(run)
    write_text(folder / PAGE_FILE, text)
    if logger is not None and hasattr(logger, "log_tables"):
        logger.log_tables("report", tables(run), text)
    finish(logger, "completed")


def tables(run: Run) -> Tables:
    """By name, those that have rows."""
    headline, others = sections.headline(run), sections.alternatives(run)
    every = {
        "headline": (headline.columns, headline.rows),
        "quality": _quality(run.result["quality"] or {}, run.best_auc),
        "baselines": _quality(baseline_rows(run.result), {}),
        "learning_curve": (list(run.metrics[0]), [list(row.values()) for row in run.metrics]) if run.metrics else ((), ()),
        "iteration": (("origin", "phase", "ms"), _phases(run)),
        "collectives": (("origin", "name", "kind", "group", "bytes", "ms"), _collectives(run)),
        "other_plans": (others.columns, others.rows) if others else ((), ()),
    }
    for name, plan in (("plan", run.plan), ("plan_here", run.plan_here)):
        if plan is not None:
            every[f"{name}_by_rank"] = (("rank", "host", "tables", "weight_bytes"), _ranks(plan))
            every[f"{name}_by_table"] = (("table", "rows", "dim", "type", "bytes", "scheme", "shards", "ranks"), _placements(plan))
    return {name: (columns, rows) for name, (columns, rows) in every.items() if rows}


def _quality(splits: Mapping[str, Mapping[str, float]], best_auc: Mapping[str, float]) -> tuple[tuple[str, ...], list[list[Any]]]:
    metrics = [name for name in (*QUALITY, *RETRIEVAL) if any(name in figures for figures in splits.values())]
    rows = [[split, *(figures.get(name) for name in metrics), best_auc.get(split)] for split, figures in splits.items()]
    return ("split", *metrics, "best_auc"), rows


def _phases(run: Run) -> list[list[Any]]:
    parts = [(origin, (run.result[origin] or {}).get("phases_ms") or {}) for origin in ORIGINS]
    return [[origin, name, ms] for origin, phases in parts for name, ms in phases.items() if ms is not None]


def _collectives(run: Run) -> list[list[Any]]:
    parts = [(origin, (run.result[origin] or {}).get("collectives") or []) for origin in ORIGINS]
    return [[origin, c["name"], c["kind"], _group(c["group"]), c["bytes"], c["ms"]] for origin, every in parts for c in every]


def _group(group: Any) -> str:
    return group if isinstance(group, str) else ranks_text(group)


def _ranks(plan: ShardingPlan) -> list[list[Any]]:
    counts = Counter(rank for placement in plan.placements for rank in {*placement.ranks})
    return [[rank, rank // plan.ranks_per_host, counts[rank], size] for rank, size in enumerate(plan.weight_bytes_of_ranks())]


def _placements(plan: ShardingPlan) -> list[list[Any]]:
    return [
        [t.name, t.rows, t.dim, t.dtype, t.weight_bytes, p.scheme, len(p.shards), ranks_text(p.ranks)]
        for t, p in zip(plan.tables, plan.placements)
    ]

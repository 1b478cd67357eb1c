"""What a tracker outside of the run folder gets when a run ends. It is the record's figures by flat name, and which files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Files of a run folder that a tracker keeps, and of what kind each is.
ARTIFACTS = {"plan.json": "plan", "plan_here.json": "plan", "result.json": "result"}


def headline(result: Mapping[str, Any]) -> dict[str, Any]:
    """The record's figures by flat name: `validation/auc`, `measured/examples_per_second`, `simulated/iteration_ms`, ..."""
    figures = {f"{split}/{name}": value for split, metrics in (result.get("quality") or {}).items() for name, value in metrics.items()}
    measured, simulated, plan = (result.get(part) or {} for part in ("measured", "simulated", "plan"))
    for name, splits in (result.get("baselines") or {}).items():
        figures |= {f"baselines/{name}/{split}/auc": own.get("auc") for split, own in splits.items()} if isinstance(splits, Mapping) else {}
    figures["plan/fullest_bytes"] = plan.get("fullest_bytes")
    figures["measured/examples_per_second"] = measured.get("examples_per_second")
    figures["measured/iteration_ms"] = (measured.get("iteration_ms") or {}).get("median")
    figures["measured/peak_memory_bytes"] = measured.get("peak_memory_bytes")
    interval = simulated.get("interval_ms") or {}
    figures |= {f"simulated/interval_ms/{end}": interval.get(end) for end in ("low", "high")}
    for name in ("examples_per_second", "iteration_ms", "cost_per_billion_samples"):
        figures[f"simulated/{name}"] = simulated.get(name)
    figures["plan/fits"] = simulated.get("feasible")
    for origin, part in (("measured", measured), ("simulated", simulated)):
        figures |= {f"{origin}/phases_ms/{phase}": ms for phase, ms in (part.get("phases_ms") or {}).items()}
    if study := result.get("study"):
        figures |= {"study/name": study["name"], "study/state": study["verdict"]["state"], "study/verdict": study["verdict"]["sentence"]}
    figures["status"] = result.get("status")
    return {name: value for name, value in figures.items() if value is not None}

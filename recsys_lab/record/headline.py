"""What a tracker outside of the run folder gets when a run ends. It is the record's figures by flat name, and which files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Files of a run folder that a tracker keeps, and of what kind each is.
ARTIFACTS = {"plan.json": "plan", "plan_here.json": "plan", "result.json": "result"}


def headline(result: Mapping[str, Any]) -> dict[str, Any]:
    """The record's figures by flat name: `validation/auc`, `measured/examples_per_second`, `simulated/iteration_ms`, ..."""
    figures = {f"{split}/{name}": value for split, metrics in (result.get("quality") or {}).items() for name, value in metrics.items()}
    measured, simulated = result.get("measured") or {}, result.get("simulated") or {}
    figures["measured/examples_per_second"] = measured.get("examples_per_second")
    figures["measured/iteration_ms"] = (measured.get("iteration_ms") or {}).get("median")
    figures["simulated/examples_per_second"] = simulated.get("examples_per_second")
    figures["simulated/iteration_ms"] = simulated.get("iteration_ms")
    if study := result.get("study"):
        figures |= {"study/name": study["name"], "study/state": study["verdict"]["state"], "study/verdict": study["verdict"]["sentence"]}
    figures["status"] = result.get("status")
    return {name: value for name, value in figures.items() if value is not None}

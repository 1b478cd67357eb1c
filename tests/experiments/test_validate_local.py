"""Runs here beside simulations: phases add up, errors are of what they say, and what calibrate fitted to is marked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.validation import local
from recsys_lab.calibrate.runs import Run, brief
from recsys_lab.planning import plan_for


@pytest.fixture(scope="module")
def run() -> Run:
    """Two rounds of made-up measurements, and one in which the machine was busy."""
    experiment = brief(["data=synthetic_brief", "data.batch_size=256"])
    rounds = []
    for ms in (20.0, 22.0, 90.0):
        phases = {"data_wait": 1.0, "forward": ms / 2, "backward": ms / 4, "optimizer": 1.0, "other": 2.0}
        rounds.append({"iteration_ms": {"median": ms}, "phases_ms": phases, "added_memory_bytes": ms * 1e6})
    return Run("torchrec", 256, tuple(rounds), plan_for(experiment, experiment.open_data()))


def test_a_point_holds_medians_beside_the_simulation(run: Run) -> None:
    profile = brief([]).profile
    point = local.compared(run, profile, fitted=False)
    assert point.measured_ms == 22.0 and point.measured_memory_bytes == 22e6
    assert point.measured_phases_ms == {"forward": 11.0, "backward": 5.5, "optimizer": 1.0, "other": 3.0}
    assert point.simulated_ms == run.simulated(run.planned.cluster, profile).iteration_ms
    assert sum(point.simulated_phases_ms.values()) == pytest.approx(point.simulated_ms)
    assert point.simulated_phases_ms["other"] >= profile.iteration_overhead_ms
    assert point.error == pytest.approx(point.simulated_ms / 22 - 1)
    assert point.memory_error == pytest.approx(point.simulated_memory_bytes / 22e6 - 1)


def test_errors_of_what_was_fitted_are_apart(run: Run) -> None:
    point = local.compared(run, brief([]).profile, fitted=True)
    fitted = replace(point, measured_ms=point.simulated_ms)
    free = replace(point, fitted=False, measured_ms=point.simulated_ms / 1.2, measured_memory_bytes=None)
    summary = local.summary([fitted, free])
    assert summary["mape"] == pytest.approx(10.0) and summary["not_fitted_mape"] == pytest.approx(20.0)
    assert summary["sharders"]["torchrec"] == pytest.approx(10.0) and summary["sharders"]["dmt"] is None
    assert summary["memory_mape"] == pytest.approx(100 * abs(point.memory_error or 0)) and len(summary["points"]) == 2


def test_tables_are_updated_in_the_optimizers_step_and_ids_travel_in_the_forward_pass() -> None:
    kinds = {"update": "backward", "all_to_all": "input", "dense": "backward"}
    assert [local.phase_of(kind, phase) for kind, phase in kinds.items()] == ["optimizer", "forward", "backward"]

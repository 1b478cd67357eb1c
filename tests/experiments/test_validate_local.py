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
    found = local.compared(run, profile, fitted=False)
    assert found.measured_ms == 22.0 and found.measured_memory_bytes == 22e6
    assert found.measured_phases_ms == {"forward": 11.0, "backward": 5.5, "optimizer": 1.0, "other": 3.0}
    assert found.simulated_ms == run.simulated(run.planned.cluster, profile).iteration_ms
    assert sum(found.simulated_phases_ms.values()) == pytest.approx(found.simulated_ms)
    assert found.simulated_phases_ms["other"] >= profile.iteration_overhead_ms
    assert found.error == pytest.approx(found.simulated_ms / 22 - 1)
    assert found.memory_error == pytest.approx(found.simulated_memory_bytes / 22e6 - 1)


def test_errors_of_what_was_fitted_are_apart(run: Run) -> None:
    point = local.compared(run, brief([]).profile, fitted=True)
    fitted = replace(point, measured_ms=point.simulated_ms)
    free = replace(point, fitted=False, measured_ms=point.simulated_ms / 1.2, measured_memory_bytes=None)
    made = local.summary([fitted, free])
    assert made["mape"] == pytest.approx(10.0) and made["not_fitted_mape"] == pytest.approx(20.0)
    assert made["sharders"]["torchrec"] == pytest.approx(10.0) and made["sharders"]["dmt"] is None
    assert made["memory_mape"] == pytest.approx(100 * abs(point.memory_error or 0)) and len(made["points"]) == 2


def test_tables_are_updated_in_the_optimizers_step_and_ids_travel_in_the_forward_pass() -> None:
    kinds = {"update": "backward", "all_to_all": "input", "dense": "backward"}
    assert [local.phase_of(kind, phase) for kind, phase in kinds.items()] == ["optimizer", "forward", "backward"]

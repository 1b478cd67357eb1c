"""What bounds a step: the part of the cluster whose double shortens it most."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recsys_lab.cluster import Host
from recsys_lab.plan.steps import DENSE, FETCH, Step
from recsys_lab.plan.store import HOST_CACHED
from recsys_lab.simulate.bounds import FIXED, TWICE, bounds_of
from tests.plan.plans import workload
from tests.simulate.clusters import cluster, profile

EVERYWHERE, IN_HOSTS = ((0, 1, 2, 3),), ((0, 1), (2, 3))


@pytest.mark.parametrize(
    ("step", "bound"),
    [
        (Step("lookup", "lookup", "forward", (1e9,)), "memory bandwidth"),
        (Step("dense", "dense", "forward", (1e3,), flops=1e12, number_format="fp32", role=DENSE), "arithmetic"),
        (Step("dense", "dense", "forward", (1e9,), flops=1e3, number_format="fp32"), "memory bandwidth"),
        (Step("far", "all_to_all", "forward", (1e8,), EVERYWHERE), "links between hosts"),
        (Step("near", "all_to_all", "forward", (1e8,), IN_HOSTS), "links in a host"),
        (Step("small", "all_to_all", "forward", (8.0,), EVERYWHERE), FIXED),
        (Step("copy", "host_to_device", "input", (1e8,)), "host link"),
    ],
)
def test_a_step_is_bound_by_what_it_waits_for(step: Step, bound: str) -> None:
    assert {bound} <= {*TWICE, FIXED}
    assert bounds_of([step], cluster(2, 2), profile(), workload()) == {step.name: bound}


@pytest.mark.parametrize(("memory_gb_s", "bound"), [(1.0, "host memory"), (1000.0, "host link")])
def test_rows_of_a_host_are_bound_by_its_memory_or_the_link_to_it(memory_gb_s: float, bound: str) -> None:
    on = replace(cluster(1, 2), host=Host("memory", 1000.0, memory_gb_s, "for the test"))
    step = Step("fetch", FETCH, "input", (1e9,), store=HOST_CACHED, rows_of_rank=(0.0,))
    assert bounds_of([step], on, profile(), workload()) == {"fetch": bound}

"""What bounds a step: the part of the cluster whose double shortens it most."""

from __future__ import annotations

import pytest

from recsys_lab.plan.steps import DENSE, Step
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

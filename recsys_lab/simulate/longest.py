"""The wait for the rank whose batch has the longest histories: its dense work takes longest, and all meet after it.

A rank on average has the mean length. What the longest rank's dense work takes beyond that is a step of its own, before the gradients
travel. Rows of the longest rank that travel count as the mean rank's.
"""

from __future__ import annotations

from dataclasses import replace

from recsys_lab.cluster import Cluster
from recsys_lab.plan.steps import DENSE, WAIT, Step, Steps
from recsys_lab.plan.workload import DenseLayer, Workload
from recsys_lab.simulate.costs import compute_step_ms, of_profile
from recsys_lab.simulate.order import is_dense_work
from recsys_lab.simulate.profile import Profile
from recsys_lab.tables.lengths import Load

NAME = "wait.longest_rank"


def with_wait(steps: Steps, cluster: Cluster, profile: Profile, workload: Workload) -> Steps:
    """`steps` with the wait behind the dense backward pass. Themselves where histories are alike, or a rank is alone."""
    most = longest_over_mean(workload, steps.batch_size, steps.world_size)
    if most is None:
        return steps
    cluster, of_longest = of_profile(cluster, profile), _of_longest(workload, most)
    dense = [step for step in steps.steps if is_dense_work(step)]
    there = sum(float(compute_step_ms(_longer(step, most), cluster, profile, of_longest).max()) for step in dense)
    ms = there - sum(float(compute_step_ms(step, cluster, profile, workload).max()) for step in dense)
    if ms <= 0:
        return steps
    last = dense[-1].name
    wait = Step(NAME, WAIT, "backward", (0.0,), after=(last,), role=DENSE, kernels=0, wait_ms=ms)
    placed: list[Step] = []
    for step in steps.steps:
        placed.append(replace(step, after=tuple(NAME if name == last else name for name in step.after)))
        if step.name == last:
            placed.append(wait)
    return replace(steps, steps=tuple(placed))


def longest_over_mean(workload: Workload, samples: int, ranks: int) -> Load | None:
    """What the rank with most work has, as a multiple of the mean rank's. None where all have as much."""
    if workload.history is None or ranks == 1:
        return None
    mean = workload.history.load(samples, workload.work)
    most = workload.history.longest_rank(samples, ranks, workload.work, workload.dealt_by).over(mean)
    return most if most.work > 1 else None


def _of_longest(workload: Workload, most: Load) -> Workload:
    """The workload of the longest rank. A layer works on every event if it has as many rows."""
    assert workload.history is not None
    of_events = workload.history.mean / 2

    def longer(layer: DenseLayer) -> DenseLayer:
        return replace(layer, rows=layer.rows * most.events) if layer.rows > max(of_events, 1) else layer

    return replace(
        workload,
        forward_flops_per_sample=workload.forward_flops_per_sample * most.work,
        backward_flops_per_sample=workload.backward_flops_per_sample * most.work,
        activation_bytes_per_sample=workload.activation_bytes_per_sample * most.events,
        layers=tuple(map(longer, workload.layers)),
        sequence=workload.sequence and workload.sequence.longer(most.events),
        history=workload.history.moved(most),
    )


def _longer(step: Step, most: Load) -> Step:
    return replace(step, flops=step.flops * most.work)

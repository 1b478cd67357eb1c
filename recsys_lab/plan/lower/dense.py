"""The dense part: forward, backward, the all-reduce of its gradients, the optimizer."""

from __future__ import annotations

from recsys_lab.plan.lower.context import collective
from recsys_lab.plan.steps import Step
from recsys_lab.plan.workload import STATE_PER_WEIGHT, Workload
from recsys_lab.precision import Precision


def dense_forward(precision: Precision, workload: Workload, after: tuple[str, ...]) -> Step:
    """Reads the FP32 weights once and writes the activations."""
    size = 4.0 * workload.dense_parameters + workload.batch_size * workload.activation_bytes_per_sample
    flops = workload.batch_size * workload.forward_flops_per_sample
    return Step("dense.forward", "dense", "forward", (size,), flops=flops, after=after, number_format=precision.compute)


def dense_backward(world_size: int, precision: Precision, workload: Workload) -> list[Step]:
    """Reads weights and activations, writes gradients; then the all-reduce. DDP's buckets are one step with their total bytes."""
    size = 8.0 * workload.dense_parameters + 2 * workload.batch_size * workload.activation_bytes_per_sample
    flops = workload.batch_size * workload.backward_flops_per_sample
    backward = Step("dense.backward", "dense", "backward", (size,), flops=flops, after=("dense.forward",), number_format=precision.compute)
    gradient_bytes = workload.dense_parameters * precision.dense_comm_bytes
    world = [tuple(range(world_size))]
    return [backward, *collective("dense.all_reduce", "all_reduce", "backward", world, gradient_bytes, ("dense.backward",), ())]


def dense_optimizer(world_size: int, workload: Workload) -> Step:
    """Reads weights and gradients, writes weights; reads and writes the optimizer state. All FP32."""
    size = 4.0 * workload.dense_parameters * (3 + 2 * STATE_PER_WEIGHT[workload.dense_optimizer])
    after = ("dense.all_reduce",) if world_size > 1 else ("dense.backward",)
    return Step("dense.optimizer", "update", "optimizer", (size,), after=after)

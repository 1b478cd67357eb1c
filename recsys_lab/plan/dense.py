"""The dense arch: forward, backward, the all-reduce of its gradients, the optimizer."""

from __future__ import annotations

import math

from recsys_lab.plan.context import collective
from recsys_lab.plan.steps import DENSE, DENSE_SYNC, Step
from recsys_lab.plan.workload import STATE_PER_WEIGHT, Workload
from recsys_lab.precision import Precision
from recsys_lab.tables.spec import ELEMENT_BYTES, READ_BYTES, STORED_BYTES

#: How gradients of the dense arch are averaged: by one collective, or by a reduce-scatter, made of an all-to-all, and an all-gather.
DENSE_SYNCS = ALL_REDUCE, SCATTERED = ("all_reduce", "reduce_scatter")


def dense_forward(precision: Precision, workload: Workload, after: tuple[str, ...]) -> Step:
    """Reads the model's weights once and writes the activations."""
    size = READ_BYTES[workload.dense_format] * workload.dense_parameters + _activation_bytes(precision, workload)
    flops = workload.batch_size * workload.forward_flops_per_sample
    return Step("dense.forward", "dense", "forward", (size,), flops=flops, after=after, number_format=precision.compute, role=DENSE)


def dense_backward(world_size: int, precision: Precision, workload: Workload, dense_sync: str = ALL_REDUCE) -> list[Step]:
    """Reads weights and activations, writes gradients; then their average. DDP's buckets are one step with their total bytes."""
    size = 2.0 * READ_BYTES[workload.dense_format] * workload.dense_parameters + 2 * _activation_bytes(precision, workload)
    flops = workload.batch_size * workload.backward_flops_per_sample
    backward = Step(
        "dense.backward", "dense", "backward", (size,), flops=flops, after=("dense.forward",), number_format=precision.compute, role=DENSE
    )
    gradient_bytes = workload.dense_parameters * precision.dense_comm_bytes
    world = [tuple(range(world_size))]

    def sync(kind: str, size: float, after: str) -> list[Step]:
        return collective(f"dense.{kind}", kind, "backward", world, size, (after,), (), role=DENSE_SYNC)

    if dense_sync == ALL_REDUCE:
        return [backward, *sync("all_reduce", gradient_bytes, "dense.backward")]
    own_bytes = math.ceil(workload.dense_parameters / world_size) * precision.dense_comm_bytes
    return [backward, *sync("all_to_all", gradient_bytes, "dense.backward"), *sync("all_gather", own_bytes, "dense.all_to_all")]


def dense_optimizer(world_size: int, workload: Workload, dense_sync: str = ALL_REDUCE) -> Step:
    """Reads weights as they are stored and gradients, writes weights. Reads and writes the FP32 optimizer state."""
    last = "dense.all_reduce" if dense_sync == ALL_REDUCE else "dense.all_gather"
    after = (last,) if world_size > 1 else ("dense.backward",)
    moved = float(workload.dense_parameters * optimizer_bytes(workload))
    return Step("dense.optimizer", "update", "optimizer", (moved,), after=after, role=DENSE)


def optimizer_bytes(workload: Workload) -> int:
    """That the optimizer's step moves for a parameter of the dense arch, or of a tower module."""
    weights, gradients = STORED_BYTES[workload.dense_format], READ_BYTES[workload.dense_format]
    return 2 * weights + gradients + 8 * STATE_PER_WEIGHT[workload.dense_optimizer]


def activation_share(precision: Precision) -> float:
    """Of what activations take in FP32, as a workload counts them, in the format that the dense arch computes in."""
    return ELEMENT_BYTES[precision.compute] / ELEMENT_BYTES["fp32"]


def _activation_bytes(precision: Precision, workload: Workload) -> float:
    """Of a batch."""
    return workload.batch_size * workload.activation_bytes_per_sample * activation_share(precision)

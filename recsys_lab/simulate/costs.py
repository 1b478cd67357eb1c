"""What each step costs each rank.

Look-ups and updates are priced by bytes, dense work by the roofline of its layers, collectives by algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, replace

import numpy as np

from recsys_lab.cluster import Cluster
from recsys_lab.errors import UserError
from recsys_lab.plan.steps import DENSE, HOST_TIER, MOVES, TIER, WAIT, Step
from recsys_lab.plan.workload import DenseLayer, Workload
from recsys_lab.simulate.collectives import Cost, exchange_cost, groups_cost
from recsys_lab.simulate.profile import PAGEABLE, Profile
from recsys_lab.simulate.stores import host_link_gb_s, moved_ms
from recsys_lab.tables.spec import ELEMENT_BYTES
from recsys_lab.units import NS_PER_MS, US_PER_MS, compute_ms, transfer_ms

#: The parts of a dense step that was cut in two: what needs no embedding, the bottom MLP, and the rest.
AHEAD, REST = "ahead", "rest"
#: Matrix products of a layer: its output; the gradients of its input and of its weights.
PRODUCTS = {"forward": 1, "backward": 2}
PHASES = tuple(PRODUCTS)


def of_profile(cluster: Cluster, profile: Profile) -> Cluster:
    """`cluster` with links as the profile's framework uses them, and with what it leaves of the compute."""
    if profile.cores_for_links and cluster.world_size > 1:
        peaks = {name: peak * (1 - profile.cores_for_links) for name, peak in cluster.device.peak_tflops.items()}
        cluster = replace(cluster, device=replace(cluster.device, peak_tflops=peaks))
    if profile.link_efficiency == 1.0:
        return cluster
    links = {}
    for name in ("intra_host", "cross_host"):
        link = getattr(cluster, name)
        speeds = {s: getattr(link, s) for s in ("bandwidth_gb_s", "ring_gb_s", "in_network_gb_s")}
        links[name] = replace(link, **{s: v * profile.link_efficiency for s, v in speeds.items() if v is not None})
    return replace(cluster, **links)


def device_step_ms(step: Step, cluster: Cluster, profile: Profile, workload: Workload | None) -> np.ndarray:
    """Of whatever a rank does alone."""
    if step.kind == WAIT:
        return np.array([step.wait_ms])
    if step.kind in MOVES:
        return moved_ms(step, cluster, profile)
    return copy_ms(step, cluster, profile) if step.kind == "host_to_device" else compute_step_ms(step, cluster, profile, workload)


def compute_step_ms(step: Step, cluster: Cluster, profile: Profile, workload: Workload | None) -> np.ndarray:
    """Of a step that is no collective: [R], or [1] where all ranks are alike. Without launch overhead."""
    if step.kind == "dense":
        if workload is not None and layers_of(step, profile, workload):
            return np.array([sum(part_ms(step, cluster, profile, workload).values())])
        work = compute_ms(step.flops, _rate_tflops(step, cluster, profile))
        return np.maximum(work, _moved_ms(step, cluster, profile.memory_efficiency))
    efficiency = profile.memory_efficiency
    if step.kind == "lookup":
        efficiency = profile.lookup_efficiency_forward
    elif step.phase == "backward":
        efficiency = profile.lookup_efficiency_backward
    figures = (step.rows_of_rank, step.shards_of_rank, step.written_of_rank)
    rows, shards, written = (np.asarray(figure or (0.0,), dtype=float) for figure in figures)
    per_row_ns = profile.lookup_ns if step.phase == "backward" else 0.0
    each_us = profile.table_overhead_us + (profile.tier_overhead_us if step.role in (TIER, HOST_TIER) else 0.0)
    of_rows = rows * per_row_ns / NS_PER_MS + shards * each_us / US_PER_MS
    if profile.output_efficiency is not None:
        of_rows = of_rows + transfer_ms(1.0, cluster.device.memory_bandwidth_gb_s * profile.output_efficiency) * written
    if profile.cache_speed > 1 and step.repeated_of_rank:
        spared = np.asarray(step.repeated_of_rank, dtype=float) * (1 - 1 / profile.cache_speed)
        of_rows = of_rows - transfer_ms(1.0, cluster.device.memory_bandwidth_gb_s * efficiency) * spared
    return _moved_ms(step, cluster, efficiency) + of_rows


def copy_ms(step: Step, cluster: Cluster, profile: Profile) -> np.ndarray:
    """Of input from the host's memory: [R], or [1] where all ranks are alike."""
    pinned = host_link_gb_s(cluster, "input") * profile.host_link_efficiency
    speed = min(pinned, profile.pageable_gb_s) if profile.input == PAGEABLE else pinned
    return transfer_ms(profile.input_volume, speed) * np.asarray(step.bytes_of_rank, dtype=float)


def collective_step_cost(pieces: Sequence[Step], cluster: Cluster, profile: Profile) -> list[Cost]:
    """Of each group of a collective, or of those that are one exchange, with the conversion to and from what travels, or the copies
    around it; `cluster` as `of_profile` gives it.
    """
    costs = groups_cost(pieces[0], cluster) if len(pieces) == 1 else exchange_cost(pieces, cluster)
    element = ELEMENT_BYTES.get(pieces[0].number_format, 4)
    if element >= 4 and not profile.copies_exchanged:
        return costs
    most = sum(np.maximum(np.asarray(s.bytes_of_rank, dtype=float), np.asarray(s.received_of_rank or (0.0,))) for s in pieces)
    read_and_written = float(np.max(most)) * (4 / element + 1)
    there_and_back = 2 * transfer_ms(read_and_written, cluster.device.memory_bandwidth_gb_s * profile.memory_efficiency)
    return [replace(cost, ms=cost.ms + there_and_back) for cost in costs]


def launches(step: Step, profile: Profile, workload: Workload | None) -> int:
    """Kernels, or groups of them, that the host starts for a step: its own, and one more for each product of a dense layer."""
    return step.kernels + sum(products for _, products in layers_of(step, profile, workload))


def layers_of(step: Step, profile: Profile, workload: Workload | None) -> list[tuple[DenseLayer, int]]:
    """The layers that a dense step runs, where they are known, each with its number of matrix products.

    Layers of a step in two parts. What needs embeddings, or is needed for their gradients, is the rest's. The bottom MLP is the other
    part's. So are, where gradients of weights are computed last, those of all layers.
    """
    if workload is None or step.kind != "dense" or step.role != DENSE:
        return []
    products = PRODUCTS[step.phase]
    if not step.part:
        return [(layer, products) for layer in workload.layers]
    last = 1 if products > 1 and "weight_gradients" in profile.overlaps else 0
    if step.part == REST:
        return [(layer, products - last) for layer in workload.layers if not layer.ahead]
    return [(layer, products if layer.ahead else last) for layer in workload.layers if layer.ahead or last]


def _moved_ms(step: Step, cluster: Cluster, efficiency: float) -> np.ndarray:
    return transfer_ms(1.0, cluster.device.memory_bandwidth_gb_s * efficiency) * np.asarray(step.bytes_of_rank, dtype=float)


def _rate_tflops(step: Step, cluster: Cluster, profile: Profile) -> float:
    """Products on FP32 cores are no faster than in TF32, where the device has it."""
    peaks, peak = cluster.device.peak_tflops, _peak_name(step, cluster, profile)
    rate = peaks[peak] * _mfu(peak, profile)
    return min(rate, peaks["tf32"] * profile.dense_mfu) if peak == "fp32" and "tf32" in peaks else rate


def _peak_name(step: Step, cluster: Cluster, profile: Profile) -> str:
    """The entry of the device's `peak_tflops` that products of `step` use."""
    peaks, peak = cluster.device.peak_tflops, profile.peak_of_format.get(step.number_format)
    if peak == "tf32" and peak not in peaks:  # a way to compute FP32 that the device does not have
        peak = "fp32"
    if peak not in peaks:
        raise UserError(
            f"no peak for {step.number_format} (profile {profile.name} wants {peak})",
            where="cluster.device.peak_tflops",
            given=", ".join(peaks),
            remedy="add the figure and its source to the cluster, or map the format in profile.peak_of_format",
        )
    return peak


def _mfu(peak: str, profile: Profile) -> float:
    """The share of a peak that products reach: on FP32 cores one of its own, where the profile has it."""
    return profile.fp32_mfu if peak == "fp32" and profile.fp32_mfu is not None else profile.dense_mfu


def _product_tflops(rate: float, peak: float, flops: float, step: Step, profile: Profile) -> float:
    """Of one product of a layer: `rate`, that of all others, or that of small ones, a share of `peak`."""
    if profile.small_mfu is None or step.number_format != "fp32" or flops >= 2 * profile.small_multiply_adds:
        return rate
    return peak * profile.small_mfu


def part_ms(step: Step, cluster: Cluster, profile: Profile, workload: Workload) -> dict[str, float]:
    """What a dense step takes, of a model whose layers are known.

    `layers`: each product of each layer by its own roofline, and what the backward pass computes again. `other_products`: dots of
    interactions, or within sequences. `moved`: element-wise work.
    """
    rate, element = _layer_tflops(step, cluster, profile, workload), ELEMENT_BYTES[step.number_format]
    peak = cluster.device.peak_tflops[_peak_name(step, cluster, profile)]
    memory_gb_s = cluster.device.memory_bandwidth_gb_s * profile.memory_efficiency
    of_layers = 0.0
    for layer, products in layers_of(step, profile, workload):
        rows = workload.batch_size * layer.rows
        flops = 2 * rows * layer.n_in * layer.n_out
        moved = element * (layer.n_in * layer.n_out + rows * (layer.n_in + layer.n_out))
        of_layers += products * max(compute_ms(flops, _product_tflops(rate, peak, flops, step, profile)), transfer_ms(moved, memory_gb_s))
    if step.part == AHEAD:
        return {"layers": of_layers}
    linear = sum(2 * workload.batch_size * layer.rows * layer.n_in * layer.n_out for layer in workload.layers)
    other = max(step.flops - PRODUCTS[step.phase] * linear, 0.0)
    if workload.sequence is not None and profile.attention_mfu is not None:
        attention, again, moved = _of_sequences(workload, step, other)
        of_layers += compute_ms(again, rate)
        of_other = compute_ms(attention, peak * profile.attention_mfu)
    else:
        moved = PRODUCTS[step.phase] * workload.batch_size * workload.activation_bytes_per_sample * element / 4
        of_other = compute_ms(other, rate if profile.dots_mfu is None else peak * profile.dots_mfu)
    return {"layers": of_layers, "other_products": of_other, "moved": transfer_ms(moved, memory_gb_s)}


def _layer_tflops(step: Step, cluster: Cluster, profile: Profile, workload: Workload) -> float:
    if workload.sequence is None or profile.sequence_mfu is None:
        return _rate_tflops(step, cluster, profile)
    return cluster.device.peak_tflops[_peak_name(step, cluster, profile)] * profile.sequence_mfu


def _of_sequences(workload: Workload, step: Step, other: float) -> tuple[float, float, float]:
    """Of a step with `other` FLOPs beside its layers: those within sequences, those that are computed again, and bytes of the rest."""
    assert workload.sequence is not None
    attention, moved = (workload.batch_size * pair[PHASES.index(step.phase)] for pair in astuple(workload.sequence))
    again, history = max(other - attention, 0.0), workload.history
    if history is not None and history.mean:  # of sequences that are equally long FLOPs were counted
        attention *= history.mean_of_squares / history.mean**2
    return attention, again, moved

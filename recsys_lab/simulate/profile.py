"""A software profile: how well a framework uses the hardware. Read from `conf/profile/*.yaml`. Every record names its profile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from annotated_types import Interval
from pydantic import Strict

from recsys_lab.base.ranges import Factor, Hosts, NotNegative, OneOf, Positive, ShareBelowOne, ShareOfPeak
from recsys_lab.base.schema import check_fields
from recsys_lab.cluster.topology import KINDS, NUMBER_FORMATS

OVERLAPS = ("copy", "input", "dense_sync", "host_tier", "bottom", "weight_gradients", "collectives", "host")
COMPUTE_FORMATS = ("fp32", "fp16", "bf16")
#: What a profile says of how well its figures are known.
EVIDENCE = (
    *("fitted_on", "fitted_systems", "relative_error", "relative_error_outside", "relative_error_hosts"),
    *("tuning_hosts", "assumed", "spread"),
)
#: Where a batch lies in the host's memory before it is copied to a GPU.
PINNED, PAGEABLE = INPUTS = ("pinned", "pageable")
#: How far a figure may be from one that was taken from elsewhere. A share of the memory bandwidth: triad 0.80 to 0.86 on A100 and H200; row
#: gathers 0.65 of it in one production workload, 0.74 to 0.82 on H100; updates 0.27 there, 0.9 as HugeCTR has them.
PLAUSIBLE = {"memory_efficiency": 0.05, "lookup_efficiency_forward": 0.12, "lookup_efficiency_backward": 0.3, "launch_overhead_us": 0.2}


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How well a framework uses the hardware. Shares of a peak are between 0 and 1.

    Attributes:
        name: every record has it.
        overlaps: what runs beside compute, of `OVERLAPS`.
            copy: a later batch's input from the host.
            input: that, and the next batch's input distribution (a sparse pipeline).
            dense_sync: the all-reduce of dense gradients, in buckets of `dense_bucket_mib`, beside the dense backward.
            host_tier: the exchanges of FlexShard's host-sharded tier. They have process groups of their own.
            bottom: the exchanges of embeddings and of their gradients, beside the bottom MLP.
            weight_gradients: with bottom, the exchange of embeddings' gradients also beside the gradients of dense weights, computed last.
            collectives: all that are issued before one is needed, on process groups with threads of their own (gloo's).
                A rank waits only for what its next step needs. Updates are the optimizer's, after the last collective is issued.
            host: a GPU's host does what `iteration_overhead_ms` counts while the device is still at the iteration before.
        peak_of_format: the entry of `device.peak_tflops` that dense work in a compute format uses; fp32: tf32 where that is allowed.
        sources: where each figure is from, by field.
        launch_overhead_us: the host's time to issue a kernel. Each step is one, and each product of a dense layer (`host.py`).
        kernel_us: the device's time for a kernel beside its work.
        fp32_mfu: the share of the peak that products reach on FP32 cores, where a device has no TF32 or the profile does not take it; None:
            `dense_mfu`. What holds products far below the peak of tensor cores does not hold them as far below that of FP32 cores.
        small_mfu: the share of the peak that FP32 products of fewer than `small_multiply_adds` reach, where another library computes
            them, as ours on CPU; None: `dense_mfu`.
        sequence_mfu: the share of the peak that layers reach over all rows of a batch's sequences; None: `dense_mfu`.
        attention_mfu: the share of the peak that products within sequences reach, forward and backward together; None: as other products,
            and activations are moved once forward and twice backward. With it each operation beside the products moves its own bytes.
        input: pinned: a batch is copied at `host_link_efficiency`, beside what `overlaps` names; pageable: at `pageable_gb_s`, and all
            waits.
        input_volume: bytes of a batch over those of its ids, lengths and dense features: copies of it, and what else a loader sends.
        table_overhead_us: of each table or piece of one, forward and again backward, where tables have kernels of their own.
        cached_table_us: of a CPU rank's cores, for each piece of a table whose rows are in files behind a cache.
        cached_lookup_ns: the same for each of its look-ups: its row's slot is found, kept and given back.
        cached_miss_ns: the same for each row that the cache does not hold. It is made, where it was never written, another one leaves for
            it, and is copied into the page cache.
        cache_speed: a processor's caches give rows that a look-up or an update has read before so many times as fast as memory.
        exchanges_ids: False: each rank reads the ids that it serves from its own input.
        copies_exchanged: True: what a collective sends is copied into a buffer before it, and out of one after it.
        link_efficiency: of a link's figures, which already are what collectives reach on it. Below 1 only for a library that is known to
            reach less than they say.
        iteration_overhead_ms: the host's time before an iteration's first step.
        fitted_on: the points that figures were fitted to, published ms.
        fitted_systems: their devices, each with the most hosts.
        relative_error: error on such a point of a profile fitted without it. 1.645 times it makes a 90 % interval; None: nothing was
            fitted, no interval.
        relative_error_outside: the same on devices that a fit had nothing of; None: as `relative_error`.
        relative_error_hosts: the same on more hosts than a fit had; None: as `relative_error_outside`.
        tuning_hosts: standard deviation of the logarithm of times that several submitters published of one system of several hosts.
        spread: the fit's own error. Each entry is a direction: figures that move together, and the standard deviation of their logarithms.
        assumed: figures that nothing was fitted to, and the standard deviation of their logarithms by what is plausible (`PLAUSIBLE`).
        fitted_kind: the kind of device of those points. There is no interval for another kind.
        sequences: what `fitted_on`, `fitted_systems`, the errors, `spread` and `assumed` are for models of sequences, which have points of
            their own; none: the same.
    """

    name: str
    lookup_efficiency_forward: ShareOfPeak  # of the memory bandwidth
    lookup_efficiency_backward: ShareOfPeak  # of the memory bandwidth, for updates
    memory_efficiency: ShareOfPeak  # of the memory bandwidth, for dense layers and optimizers
    dense_mfu: ShareOfPeak  # of the peak
    launch_overhead_us: NotNegative  # of the host, for each step and for each product of a dense one's layers
    dense_bucket_mib: Positive  # of an all-reduce of dense gradients
    overlaps: list[Annotated[str, OneOf(OVERLAPS)]]
    peak_of_format: dict[Annotated[str, OneOf(COMPUTE_FORMATS)], Annotated[str, OneOf(NUMBER_FORMATS)]]
    sources: dict[str, str]
    link_efficiency: ShareOfPeak = 1.0
    host_link_efficiency: ShareOfPeak = 1.0  # of a GPU's link to its host's memory
    lookup_ns: NotNegative = 0.0  # of each look-up of an update beside its bytes: sorting ids, adding up gradients of equal ones
    table_overhead_us: NotNegative = 0.0
    tier_overhead_us: NotNegative = 0.0  # of each table's part in one of FlexShard's tiers: ids and rows are sorted out table by table
    cached_table_us: NotNegative = 0.0
    cached_lookup_ns: NotNegative = 0.0
    cached_miss_ns: NotNegative = 0.0
    output_efficiency: ShareOfPeak | None = None  # of the memory bandwidth, for rows that look-ups make; None: they do not count
    cache_speed: Factor = 1.0
    dots_mfu: ShareOfPeak | None = None  # of the peak, for products without weights: many small ones; None: dense_mfu
    fp32_mfu: ShareOfPeak | None = None
    small_mfu: ShareOfPeak | None = None
    small_multiply_adds: NotNegative = 0.0  # of `small_mfu`
    sequence_mfu: ShareOfPeak | None = None
    attention_mfu: ShareOfPeak | None = None
    input: Annotated[str, OneOf(INPUTS)] = PINNED
    pageable_gb_s: Positive = 2.4  # one measurement, of MI350X with EPYC 9655 (MLPerf's DLRMv4)
    input_volume: Factor = 1.0
    iteration_overhead_ms: NotNegative = 0.0
    kernel_us: Annotated[float, Strict(), Interval(ge=0, le=100)] = 0.0
    exchanges_ids: bool = True
    copies_exchanged: bool = False
    cores_for_links: ShareBelowOne = 0.0  # share of the compute that drives collectives, where there are several ranks
    fitted_on: dict[str, Positive] = field(default_factory=dict)
    fitted_systems: dict[str, Hosts] = field(default_factory=dict)
    relative_error: Annotated[float, Strict(), Interval(ge=0, le=10)] | None = None
    relative_error_outside: Annotated[float, Strict(), Interval(ge=0, le=10)] | None = None
    relative_error_hosts: Annotated[float, Strict(), Interval(ge=0, le=10)] | None = None
    tuning_hosts: Annotated[float, Strict(), Interval(ge=0, le=10)] = 0.0
    assumed: dict[str, Annotated[float, Strict(), Interval(ge=0, le=10)]] = field(default_factory=lambda: dict(PLAUSIBLE))
    spread: list[dict[str, Annotated[float, Strict(), Interval(ge=-10, le=10)]]] = field(default_factory=list)
    fitted_kind: Annotated[str, OneOf(KINDS)] = "cuda"
    sequences: dict[Annotated[str, OneOf(EVIDENCE)], Any] = field(default_factory=dict)
    buffer_factor: Factor = 1.0  # what a step's buffers take, over what the plan counts: temporaries of element-wise work, unused pieces
    process_memory_mb: NotNegative = 0.0  # what libraries take in a process when its first model runs

    def __post_init__(self) -> None:
        check_fields(self, "simulate.profile")

    @property
    def of_sequences(self) -> Profile:
        """The same software for models of sequences, by the evidence for them."""
        return replace(self, **self.sequences, sequences={})

    @property
    def pipelined(self) -> Profile:
        """The same software with the next batch's ids under way while a batch computes."""
        if "input" in self.overlaps:
            return self
        why = f"{self.sources.get('overlaps', '')}; input: the executor's pipeline".removeprefix("; ")
        return replace(self, name=f"{self.name}_pipelined", overlaps=["input", *self.overlaps], sources={**self.sources, "overlaps": why})

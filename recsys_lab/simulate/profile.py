"""A software profile: how well a framework uses the hardware. Read from `conf/profile/*.yaml`; every record names its profile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from recsys_lab.errors import UserError

OVERLAPS = ("copy", "input", "dense_sync", "host_tier", "bottom", "weight_gradients", "collectives")
SHARES = (
    "lookup_efficiency_forward",
    "lookup_efficiency_backward",
    "output_efficiency",
    "memory_efficiency",
    "dense_mfu",
    "dots_mfu",
    "link_efficiency",
    "host_link_efficiency",
)
HOST_FIGURES = ("launch_overhead_us", "iteration_overhead_ms", "table_overhead_us", "tier_overhead_us")
NOT_NEGATIVE = (*HOST_FIGURES, "relative_error", "lookup_ns", "process_memory_mb")


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Shares of a peak are between 0 and 1. `sources` says, field by field, where the figure is from.

    `overlaps`: what runs beside compute. copy: a later batch's input from the host; input: that and the next batch's input distribution
    (a sparse pipeline); dense_sync: the
    all-reduce of the dense gradients, in buckets of `dense_bucket_mib` beside the dense backward; host_tier: the exchanges of
    FlexShard's host-sharded tier, on process groups of their own, beside compute and the global exchange; bottom: the exchanges of
    embeddings and of their gradients, beside the bottom MLP; weight_gradients: with bottom, the exchange of embeddings' gradients
    also beside the gradients of the dense weights, which are computed last; collectives: all that are
    issued before one of them is needed, beside each other, on process groups with threads of their own (gloo's); a rank waits only for
    what its next step needs, and updates are the optimizer's, after the last of them is issued. `peak_of_format`: the entry of
    `device.peak_tflops` that dense work in a compute format reaches for, for instance fp32: tf32 where the framework allows TF32.

    `iteration_overhead_ms`: what an iteration takes beside all of its steps, such as the host's own work. `fitted_on`: the points that
    figures were fitted to, published ms; `relative_error`: the typical (RMS) error of a prediction of such a point by a profile fitted
    without it, of which the interval of every prediction is made; None: nothing was fitted, and no interval is told.
    `fitted_kind`: the kind of device of those points; of another kind nothing is known, and no interval is told either.
    """

    name: str
    lookup_efficiency_forward: float  # of the memory bandwidth
    lookup_efficiency_backward: float
    memory_efficiency: float  # of the memory bandwidth, for dense layers and optimizers
    dense_mfu: float  # of the peak
    launch_overhead_us: float  # before each step, and before each layer of a dense one
    dense_bucket_mib: float
    overlaps: list[str]
    peak_of_format: dict[str, str]
    sources: dict[str, str]
    link_efficiency: float = 1.0  # of a cluster's links, for bytes
    host_link_efficiency: float = 1.0  # of a GPU's link to its host's memory
    lookup_ns: float = 0.0  # of each look-up of an update beside its bytes: sorting ids, adding up gradients of equal ones
    table_overhead_us: float = 0.0  # of each table or piece of one, forward and again backward, where tables have kernels of their own
    tier_overhead_us: float = 0.0  # of each table's part in one of FlexShard's tiers: ids and rows are sorted out table by table
    output_efficiency: float | None = None  # of the memory bandwidth, for rows that look-ups make; None: they do not count
    dots_mfu: float | None = None  # of the peak, for products without weights: many small ones; None: dense_mfu
    iteration_overhead_ms: float = 0.0
    cores_for_links: float = 0.0  # share of the compute that drives collectives, where there are several ranks
    fitted_on: dict[str, float] = field(default_factory=dict)
    relative_error: float | None = None
    fitted_kind: str = "cuda"
    buffer_factor: float = 1.0  # what a step's buffers take, over what the plan counts: temporaries of element-wise work, unused pieces
    process_memory_mb: float = 0.0  # what libraries take in a process when its first model runs

    def __post_init__(self) -> None:
        for name in SHARES:
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise UserError("a share of the peak", where=f"profile.{name}", given=value, allowed="more than 0, at most 1")
        if not 0 <= self.cores_for_links < 1:
            raise UserError("a share", where="profile.cores_for_links", given=self.cores_for_links, allowed="0 or more, less than 1")
        unknown = [name for name in self.overlaps if name not in OVERLAPS]
        if unknown:
            raise UserError("unknown overlap", where="profile.overlaps", given=unknown[0], allowed=", ".join(OVERLAPS))
        if self.buffer_factor < 1:
            raise UserError("a factor", where="profile.buffer_factor", given=self.buffer_factor, allowed="1 or more")
        if self.dense_bucket_mib <= 0:
            raise UserError("a size", where="profile.dense_bucket_mib", given=self.dense_bucket_mib, allowed="more than 0")
        for name in NOT_NEGATIVE:
            if (getattr(self, name) or 0) < 0:
                raise UserError("a negative figure", where=f"profile.{name}", given=getattr(self, name), allowed="0 or more")

    @property
    def pipelined(self) -> Profile:
        """The same software with the next batch's ids under way while a batch computes."""
        if "input" in self.overlaps:
            return self
        why = f"{self.sources.get('overlaps', '')}; input: the executor's pipeline".removeprefix("; ")
        return replace(self, name=f"{self.name}_pipelined", overlaps=["input", *self.overlaps], sources={**self.sources, "overlaps": why})

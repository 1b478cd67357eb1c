"""A software profile: how well a framework uses the hardware. Read from `conf/profile/*.yaml`; every record names its profile."""

from __future__ import annotations

from dataclasses import dataclass

from recsys_lab.errors import UserError

OVERLAPS = ("input", "dense_sync", "host_tier")


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Shares of a peak are between 0 and 1. `sources` says, field by field, where the figure is from.

    `overlaps`: what runs beside compute. input: the next batch's input distribution (a sparse pipeline); dense_sync: the
    all-reduce of the dense gradients, in buckets of `dense_bucket_mib` beside the dense backward; host_tier: the exchanges of
    FlexShard's host-sharded tier, on process groups of their own, beside compute and the global exchange. `peak_of_format`: the entry of
    `device.peak_tflops` that dense work in a compute format reaches for, for instance fp32: tf32 where the framework allows TF32.
    """

    name: str
    lookup_efficiency_forward: float  # of the memory bandwidth
    lookup_efficiency_backward: float
    memory_efficiency: float  # of the memory bandwidth, for dense layers and optimizers
    dense_mfu: float  # of the peak
    launch_overhead_us: float  # before each step
    dense_bucket_mib: float
    overlaps: list[str]
    peak_of_format: dict[str, str]
    sources: dict[str, str]

    def __post_init__(self) -> None:
        for field in ("lookup_efficiency_forward", "lookup_efficiency_backward", "memory_efficiency", "dense_mfu"):
            value = getattr(self, field)
            if not 0 < value <= 1:
                raise UserError("a share of the peak", where=f"profile.{field}", given=value, allowed="more than 0, at most 1")
        unknown = [name for name in self.overlaps if name not in OVERLAPS]
        if unknown:
            raise UserError("unknown overlap", where="profile.overlaps", given=unknown[0], allowed=", ".join(OVERLAPS))
        if self.dense_bucket_mib <= 0:
            raise UserError("a size", where="profile.dense_bucket_mib", given=self.dense_bucket_mib, allowed="more than 0")
        if self.launch_overhead_us < 0:
            raise UserError("a negative time", where="profile.launch_overhead_us", given=self.launch_overhead_us, allowed="0 or more")

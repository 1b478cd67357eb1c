"""Ranks that share the cores of one machine: which figures follow their number, and how."""

from __future__ import annotations

from dataclasses import dataclass, replace

from recsys_lab.cluster import Cluster, Link
from recsys_lab.config.calibrated import core_share
from recsys_lab.simulate import Profile

#: Figures of a profile that are times of a rank's own work.
OF_CACHES = ("cached_table_us", "cached_lookup_ns", "cached_miss_ns")
TIMES = ("launch_overhead_us", "lookup_ns", "tier_overhead_us", "iteration_overhead_ms", *OF_CACHES)
#: And of a link: cores send and receive every message, and within a machine they copy every byte.
OF_MESSAGES = ("latency_us", "message_us", "start_us")
OF_BYTES = ("bandwidth_gb_s", "ring_gb_s")


@dataclass(frozen=True)
class SharedCores:
    """`messages`: the measured links, of `intra_host` and `cross_host`. `copies`: those whose bytes do not wait for a network."""

    messages: tuple[str, ...]
    copies: tuple[str, ...]

    def with_hosts(self, cluster: Cluster, profile: Profile, hosts: int) -> tuple[Cluster, Profile]:
        """Both with another number of hosts on the same cores. What stands beneath tables, memory and disk, stays as it is."""
        more = core_share(hosts * cluster.ranks_per_host) / core_share(cluster.world_size)  # of a core, for a rank
        device = cluster.device
        peaks = {form: peak * more for form, peak in device.peak_tflops.items()}
        device = replace(device, memory_bandwidth_gb_s=device.memory_bandwidth_gb_s * more, peak_tflops=peaks)
        links = {name: self._link(name, getattr(cluster, name), more) for name in self.messages}
        made = replace(cluster.reshaped(hosts, cluster.ranks_per_host), device=device)
        return replace(made, **links), replace(profile, **{key: getattr(profile, key) / more for key in TIMES})  # type: ignore[arg-type]

    def _link(self, name: str, link: Link, more: float) -> Link:
        figures = {key: getattr(link, key) / more for key in OF_MESSAGES}
        figures |= {key: getattr(link, key) * more for key in OF_BYTES if name in self.copies}
        return replace(link, **figures)

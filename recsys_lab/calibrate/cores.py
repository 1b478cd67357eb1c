"""Ranks that share the cores of one machine: which figures follow their number, and how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from recsys_lab.cluster import Cluster
from recsys_lab.config.calibrated import core_share
from recsys_lab.simulate import Profile

Figure = Callable[[float], Any]
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

    def follow(self, cluster: dict[str, Any], profile: dict[str, Any], rate: Figure, time: Figure) -> None:
        """Changes every figure that follows in the fields of a Cluster and a Profile: by `rate` or, where it is a time, by `time`."""
        device = cluster["device"]
        device["memory_bandwidth_gb_s"] = rate(device["memory_bandwidth_gb_s"])
        device["peak_tflops"] = {form: rate(peak) for form, peak in device["peak_tflops"].items()}
        for link in self.messages:
            cluster[link] |= {key: time(cluster[link][key]) for key in OF_MESSAGES}
        for link in self.copies:
            cluster[link] |= {key: rate(cluster[link][key]) for key in OF_BYTES}
        profile |= {key: time(profile[key]) for key in TIMES}

    def with_hosts(self, cluster: Cluster, profile: Profile, hosts: int) -> tuple[Cluster, Profile]:
        """Both with another number of hosts on the same cores. What stands beneath tables, memory and disk, stays as it is."""
        more = core_share(hosts * cluster.ranks_per_host) / core_share(cluster.world_size)  # of a core, for a rank
        of_cluster, of_profile = asdict(cluster) | {"hosts": hosts}, asdict(profile)
        self.follow(of_cluster, of_profile, lambda figure: figure * more, lambda figure: figure / more)
        return Cluster(**of_cluster), Profile(**of_profile)

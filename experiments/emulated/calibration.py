"""The emulated cluster as it really is here: its links and its ranks measured, all at work at once, and told to the simulator.

Links are fitted to collectives alone, tables and layers to tables and layers alone (`recsys_lab.calibrate`). No training that is
compared is used.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from launchers.emulated import launch
from recsys_lab.calibrate import work
from recsys_lab.calibrate.calibration import described
from recsys_lab.cluster import Cluster, Link
from recsys_lab.experiment import of_words
from recsys_lab.simulate import Profile

LINK_FIGURES = ("bandwidth_gb_s", "ring_gb_s", "latency_us", "message_us", "start_us")
PROFILE_FIGURES = ("lookup_efficiency_forward", "output_efficiency", "lookup_efficiency_backward", "lookup_ns", "cache_speed")
PROFILE_FIGURES += ("dense_mfu", "small_mfu", "small_multiply_adds", "launch_overhead_us")
#: A rank that measures waits for others that share its core.
TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Calibrated:
    """`link_gb_s`: the rate that a host's link was set to; the rest was measured behind it."""

    link_gb_s: float
    cluster: Cluster
    profile: Profile

    def words(self) -> tuple[str, ...]:
        """For run.py: the same network, simulated with what it was measured to be."""
        device = self.cluster.device
        peaks = [f"cluster.device.peak_tflops.{name}={peak:.5g}" for name, peak in device.peak_tflops.items() if name in ("fp32", "bf16")]
        return (
            f"launcher.link_gb_s={self.link_gb_s:g}",
            f"cluster.device.memory_bandwidth_gb_s={device.memory_bandwidth_gb_s:.5g}",
            *peaks,
            *_of_link("intra_host", self.cluster.intra_host),
            *_of_link("cross_host", self.cluster.cross_host),
            "profile@simulate.profile=emulated",
            *(f"simulate.profile.{name}={figure:.5g}" for name in PROFILE_FIGURES if (figure := getattr(self.profile, name)) is not None),
        )

    def to_json(self) -> dict[str, Any]:
        links = {name: {key: getattr(getattr(self.cluster, name), key) for key in LINK_FIGURES} for name in ("intra_host", "cross_host")}
        device = asdict(self.cluster.device)
        kept = {key: device[key] for key in ("memory_bandwidth_gb_s", "peak_tflops")}
        return {"set_link_gb_s": self.link_gb_s, **links, **kept, **{key: getattr(self.profile, key) for key in PROFILE_FIGURES}}


def calibrate(hosts: int, ranks_per_host: int, link_gb_s: float) -> Calibrated:
    """Measures `hosts` behind links of `link_gb_s` one way. Raises UserError where this machine has no namespaces."""
    with tempfile.TemporaryDirectory() as logs:
        arguments = {"hosts": hosts, "ranks_per_host": ranks_per_host, "device": "cpu"}
        measured = launch(
            work.measure,
            arguments,
            Path(logs),
            hosts=hosts,
            ranks_per_host=ranks_per_host,
            link_gb_s=link_gb_s,
            timeout_s=TIMEOUT_S,
        )
    experiment = of_words(["launcher=emulated", f"cluster.hosts={hosts}"], where="emulated")
    return Calibrated(link_gb_s, *described(measured, experiment, None))


def _of_link(name: str, link: Link) -> list[str]:
    return [f"cluster.{name}.{key}={getattr(link, key):.5g}" for key in LINK_FIGURES if getattr(link, key) is not None]

"""Clusters and profiles for tests."""

from __future__ import annotations

from recsys_lab.cluster import Cluster, Device, Link
from recsys_lab.config.choices import built
from recsys_lab.simulate import Profile


def of_file(group: str, choice: str) -> Cluster | Profile:
    """`conf/GROUP/CHOICE.yaml` as it is."""
    return built(group, choice)


def cluster(hosts: int, ranks_per_host: int, **changes: float) -> Cluster:
    """`changes`: intra, cross, line (of a cross-host link; GB/s), intra_us, cross_us, memory, host (GB/s), tflops, and kind."""
    figures = {"intra": 100.0, "cross": 10.0, "intra_us": 1.0, "cross_us": 10.0, "memory": 1000.0, "tflops": 50.0, "host": 20.0} | changes
    device = Device(
        "device",
        str(figures.get("kind", "cuda")),
        80.0,
        figures["memory"],
        {"fp32": figures["tflops"]},
        "for the test",
        None,
        figures["host"],
    )
    return Cluster(
        "made_up",
        hosts,
        ranks_per_host,
        device,
        Link("near", figures["intra"], figures["intra_us"], "for the test"),
        Link("far", figures["cross"], figures["cross_us"], "for the test", line_gb_s=figures.get("line")),
    )


def profile(*overlaps: str, **changes: float) -> Profile:
    figures = {
        "lookup_efficiency_forward": 0.5,
        "lookup_efficiency_backward": 0.25,
        "memory_efficiency": 0.8,
        "dense_mfu": 0.4,
        "launch_overhead_us": 10.0,
        "dense_bucket_mib": 1.0,
    }
    return Profile(name="made_up", overlaps=list(overlaps), peak_of_format={"fp32": "fp32"}, sources={}, **figures | changes)

"""Memory and disks of hosts on file: every cluster with GPUs says its host's memory, and a sized name carries both."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from recsys_lab.cluster import Cluster, Disk, Host
from recsys_lab.config.choices import built
from recsys_lab.config.command_line import read
from recsys_lab.config.frozen import fingerprint
from recsys_lab.config.schema import build
from recsys_lab.config.sized import on_file

NAMED = [name for name in on_file() if name != "local"]


@pytest.mark.parametrize("name", NAMED)
def test_every_cluster_on_file_says_its_hosts_memory_and_where_from(name: str) -> None:
    cluster = built("cluster", name)
    assert isinstance(cluster.host, Host) and len(cluster.host.source) > 10
    assert cluster.disk is None or isinstance(cluster.disk, Disk) and len(cluster.disk.source) > 10
    if cluster.device.kind == "cpu" and name != "emulated_4x2":  # whose ranks share a machine's memory
        assert cluster.host.memory_gb == cluster.ranks_per_host * cluster.device.memory_gb
        assert cluster.host.memory_bandwidth_gb_s == pytest.approx(cluster.ranks_per_host * cluster.device.memory_bandwidth_gb_s, rel=0.01)


def of_words(*words: str) -> Cluster:
    built_cluster: Cluster = build(read(["mode=simulate", "data=random", *words]).config.cluster)
    return built_cluster


def test_a_sized_name_carries_memory_and_disk_of_a_host() -> None:
    base, sized = of_words("cluster=a100"), of_words("cluster=a100x128")
    assert base.host is not None and base.disk is not None and sized.hosts == 16
    assert (sized.host, sized.disk) == (base.host, base.disk)
    grace, few = of_words("cluster=gb200").host, of_words("cluster=gb200x8").host
    assert grace is not None and few is not None and grace.memory_gb == 36 * 480 and few.memory_gb == 4 * 480


def test_they_are_part_of_a_runs_identity() -> None:
    words = ["mode=simulate", "data=random", "cluster=h100x8"]
    fingerprints = {fingerprint(read([*words, *more]).config) for more in ([], ["cluster.host.memory_gb=1000"], ["cluster.disk=null"])}
    assert len(fingerprints) == 3


def test_a_record_and_a_line_can_say_them() -> None:
    own = of_words("cluster=l40s", "+cluster/disk@cluster.disk=nvme4_x4")
    assert own.disk is not None and Cluster(**asdict(own)) == own
    assert of_words("cluster=l40s").disk is None

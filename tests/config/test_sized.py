"""A name with a number of devices is a cluster of that size, in run.py, in a sweep and in decide; or one line says why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from recsys_lab.cluster import Cluster
from recsys_lab.config.choices import built
from recsys_lab.config.command_line import read
from recsys_lab.config.sized import sized
from recsys_lab.errors import UserError
from recsys_lab.experiment import resolve


def cluster_of(*words: str) -> Cluster:
    return resolve(read(["logger=none", *words]).config).cluster


@pytest.mark.parametrize(
    ("choice", "hosts", "ranks"),
    [
        ("a100x128", 16, 8),
        ("h100x4", 1, 4),
        ("h100x8x24", 3, 8),
        ("gb200x144", 2, 72),
        ("sprx6", 3, 2),
        ("mi350x16", 2, 8),
        ("mi350xx16", 2, 8),
        ("zionex_x16x64", 8, 8),
    ],
)
def test_the_name_says_the_size(choice: str, hosts: int, ranks: int) -> None:
    cluster = cluster_of(f"cluster={choice}")
    assert (cluster.name, cluster.hosts, cluster.ranks_per_host) == (choice, hosts, ranks)
    found = sized(choice)
    assert found is not None and found[1] == hosts * ranks
    base = built("cluster", found[0])
    assert (cluster.device, cluster.cross_host, cluster.list_price) == (base.device, base.cross_host, base.list_price)
    assert cluster == built("cluster", choice)


def test_what_a_file_says_is_what_the_name_would() -> None:
    from_file = cluster_of("cluster=a100x64")
    assert from_file == cluster_of("cluster=a100", "cluster.name=a100x64", "cluster.hosts=8") and sized("a100x64") is None
    assert from_file.hosts * 2 == cluster_of("cluster=a100x128").hosts


def test_keys_beside_the_name_win_and_the_record_has_the_name() -> None:
    config = read(["cluster=h100x16", "cluster.hosts=3", "cluster.price_per_device_hour=2"]).config
    assert config is not None and config.choices.cluster == "h100x16" and config.cluster.hosts == 3


def test_a_sweep_takes_such_names(tmp_path: Path) -> None:
    invocation = read(["-m", "cluster=h100x16,a100x24,h100x64", f"hydra.sweep.dir={tmp_path}"])
    assert [job[0] for job in invocation.jobs] == ["cluster=h100x16", "cluster=a100x24", "cluster=h100x64"]
    assert invocation.config is not None and invocation.config.cluster.hosts == 2


def test_a_file_of_the_users_own_is_what_is_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster_of("cluster=h100x24").hosts == 3
    folder = tmp_path / "conf" / "cluster"
    folder.mkdir(parents=True)
    for name in ("h100x24", "h100x63"):
        (folder / f"{name}.yaml").write_text(f"defaults:\n  - h100\n  - _self_\nname: my_{name}\nhosts: 7\n")
    for words in ([f"--config-dir={tmp_path / 'conf'}"], [f"hydra.searchpath=[file://{tmp_path / 'conf'}]"]):
        assert [cluster_of(*words, f"cluster={name}").name for name in ("h100x24", "h100x63")] == ["my_h100x24", "my_h100x63"]
    monkeypatch.chdir(tmp_path)
    assert cluster_of("cluster=h100x24").name == "my_h100x24"


@pytest.mark.parametrize(
    ("word", "parts"),
    [
        ("cluster=h100x63", ["no whole number of hosts", "given h100x63", "h100x56 or h100x64"]),
        ("cluster=gb200x100", ["whole hosts of 72", "gb200x72 or gb200x144"]),
        ("cluster=h100x0", ["no such cluster", "given h100x0", "such as a100x128"]),
        ("cluster=localx4", ["no such cluster", "did you mean 'local'"]),
        ("cluster=x128", ["no such cluster"]),
        ("cluster=l4", ["no such cluster", "cluster=h100 cluster/device=l4 "]),
        ("cluster=a30x8", ["no such cluster", "cluster/device=a30 "]),
        ("cluster=tpu_v5p", ["no such cluster", "docs/add_a_cluster.md"]),
    ],
)
def test_what_cannot_be_is_one_line(word: str, parts: list[str]) -> None:
    for words in ([word], ["-m", f"{word},h100x8"]):
        with pytest.raises(UserError) as caught:
            read(words)
        assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_a_device_without_a_cluster_stands_in_another_one_as_the_mistake_says() -> None:
    cluster = cluster_of("cluster=h100", "cluster/device=l4", "cluster/link@cluster.intra_host=pcie4", "cluster.hosts=2")
    assert cluster.device.name == "L4 24 GB" and cluster.intra_host.name == "PCIe 4 x16" and cluster.world_size == 16
    assert cluster.price is None  # H100's list price is not its
    assert cluster_of("cluster=h100x16", "cluster/link@cluster.cross_host=roce100").cross_host.name == "100 Gb/s, one NIC a GPU"
    with pytest.raises(UserError, match=r"cluster/device: no such choice; given l5; allowed: a10.*did you mean 'l4'"):
        read(["cluster=h100", "cluster/device=l5"])


@pytest.mark.parametrize(
    ("choice", "ranks", "memory_gb", "host_gb"),
    [("gh200x32", (32, 1), 96, 480), ("h20x16", (2, 8), 96, 1024), ("mi300x", (1, 8), 192, 1024), ("mi300xx16", (2, 8), 192, 1024)]
    + [
        ("b300x16", (2, 8), 288, 1024),
        ("mi350x32", (4, 8), 288, 1536),
        ("mi355x8", (1, 8), 288, 1536),
        ("gb300", (1, 72), 279, 72 * 240),
        ("gb300x8", (1, 8), 279, 8 * 240),
    ],
)
def test_systems_that_nothing_was_fitted_to(choice: str, ranks: tuple[int, int], memory_gb: float, host_gb: float) -> None:
    cluster = built("cluster", choice)
    assert (cluster.hosts, cluster.ranks_per_host) == ranks
    assert (cluster.device.memory_gb, cluster.host.memory_gb) == (memory_gb, host_gb)

"""A cluster with a figure that no machine has is refused, in one line that names the key, before anything is written."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recsys_lab.cluster import Cluster, Device, Disk, Failures, Host, Link, ListPrice
from recsys_lab.config.choices import built
from recsys_lab.config.command_line import read
from recsys_lab.config.schema import build
from recsys_lab.errors import UserError
from tests.end_to_end.lines import line
from tests.simulate.clusters import cluster

NUMBERS = (int, float)
#: No figure of a cluster is one of these.
NEVER = (float("nan"), float("inf"), float("-inf"), 1e30, -1, -0.5, -1e30)
#: Where zero means something: no leaves, no cost, no reserve.
MAY_BE_ZERO = {
    "hosts_per_leaf",
    "latency_us",
    "message_us",
    "start_us",
    "exchange_us",
    "fall_per_doubling",
    "peers",
    "reserved_memory_share",
}


def figures(part: type, where: str = "cluster") -> Iterator[tuple[str, type | Any]]:
    """Every declared field that holds numbers, with its type, such as `cluster.device.memory_gb` and float."""
    for name, kind in typing.get_type_hints(part).items():
        if inner := [one for one in (kind, *typing.get_args(kind)) if dataclasses.is_dataclass(one)]:
            yield from figures(typing.cast(type, inner[0]), f"{where}.{name}")
        elif set(typing.get_args(kind) or (kind,)) & {*NUMBERS}:
            yield f"{where}.{name}", kind


FIGURES = dict(figures(Cluster))
BAD = [(key, value) for key in FIGURES for value in NEVER] + [(key, 0) for key in FIGURES if key.rsplit(".", 1)[-1] not in MAY_BE_ZERO]


def whole() -> Cluster:
    """With every part that there can be."""
    memory, disk = Host("memory", 512.0, 400.0, "for the test"), Disk("disk", 4000.0, 7.0, 3.0, 1e6, "for the test")
    listed, failures = ListPrice(2.0, "2026-09-20", "a list", "device", 8), Failures(5e4, "2026-09-20", "a count", "device")
    return dataclasses.replace(cluster(2, 2), list_price=listed, host=memory, disk=disk, failures=failures)


def changed(part: Any, path: str, value: Any) -> Any:
    """`part` with another value at `path`, such as `cross_host.latency_us`; of figures by format, the first one's."""
    name, _, rest = path.partition(".")
    old = getattr(part, name)
    if rest:
        value = changed(old, rest, value)
    elif isinstance(old, dict) and not isinstance(value, dict):
        value = old | {next(iter(old)): value}
    return dataclasses.replace(part, **{name: value})


def test_every_part_is_walked() -> None:
    parts = {key.rsplit(".", 1)[0] for key in FIGURES}
    names = ("device", "intra_host", "cross_host", "list_price", "host", "disk", "failures")
    assert parts == {"cluster", *(f"cluster.{name}" for name in names)}
    numbers = sum(len(dataclasses.fields(part)) for part in (Cluster, Device, Link, Link, ListPrice, Host, Disk, Failures))
    not_numbers = 9 + 3 + 2 * 3 + 3 + 2 * 2 + 3  # names, kinds, sources, notes, parts and `shared`; day, source and device of a price
    assert len(FIGURES) == numbers - not_numbers


@pytest.mark.parametrize(("key", "value"), BAD, ids=[f"{key}={value}" for key, value in BAD])
def test_no_figure_is_out_of_range(key: str, value: float) -> None:
    with pytest.raises(UserError) as caught:
        changed(whole(), key.removeprefix("cluster."), value)
    parts = caught.value.parts
    assert str(parts["where"]).removesuffix(".fp32") == key and parts["given"] == value or value != value
    assert parts["allowed"] and "\n" not in str(caught.value)


@pytest.mark.parametrize("key", FIGURES)
def test_null_is_taken_where_it_is_declared(key: str) -> None:
    if type(None) in typing.get_args(FIGURES[key]):
        changed(whole(), key.removeprefix("cluster."), None)
    else:
        with pytest.raises(UserError, match=key):
            changed(whole(), key.removeprefix("cluster."), None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("reserved_memory_share", 0.0),
        ("reserved_memory_share", 0.99),
        ("leaf_oversubscription", 1.0),
        ("hosts_per_leaf", 0),
        ("hosts", 1),
        ("cross_host.latency_us", 0.0),
        ("cross_host.start_us", 0.0),
        ("device.memory_gb", 1e-6),
        ("device.host_link_gb_s", 1e9),
        ("device.kind", "cpu"),
        ("device.peak_tflops", {"fp32": 1.0, "tf32": 2.0, "bf16": 3.0, "fp16": 4.0}),
    ],
)
def test_the_ends_of_a_range_are_taken(key: str, value: Any) -> None:
    changed(whole(), key, value)


@pytest.mark.parametrize(
    ("key", "value", "parts"),
    [
        ("device.kind", "rocm", ["cluster.device.kind", "rocm", "cuda, cpu"]),
        ("device.kind", "cdua", ["did you mean 'cuda'"]),
        ("reserved_memory_share", 1, ["cluster.reserved_memory_share", "0 or more, less than 1"]),
        ("reserved_memory_share", 1.7, ["1.7"]),
        ("leaf_oversubscription", 0.5, ["cluster.leaf_oversubscription", "1 or more"]),
        ("cross_host.ring_gb_s", -1.0, ["cluster.cross_host.ring_gb_s", "1e-09 or more"]),
        ("intra_host.message_us", "soon", ["cluster.intra_host.message_us", "soon"]),
        ("hosts_per_leaf", 1.5, ["cluster.hosts_per_leaf", "whole"]),
        ("hosts", 1.5, ["cluster.hosts", "1 or more", "whole"]),
    ],
)
def test_the_line_says_what_is_allowed(key: str, value: Any, parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        changed(whole(), key, value)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(("hosts", "ranks"), [(2**16, 2), (65, 1024)])
def test_more_ranks_than_can_be_priced_are_refused(hosts: int, ranks: int) -> None:
    with pytest.raises(UserError, match=r"cluster\.hosts"):
        cluster(hosts, ranks)
    assert cluster(2**16, 1).world_size == cluster(64, 1024).world_size == 2**16


def test_a_peak_is_of_a_known_number_format() -> None:
    a100 = built("cluster", "a100")
    peaks = {**a100.device.peak_tflops, "bf61": 312.0}
    with pytest.raises(UserError, match=r"cluster\.device\.peak_tflops.*bf61.*fp32, tf32, bf16, fp16.*did you mean 'bf16'"):
        dataclasses.replace(a100, device=dataclasses.replace(a100.device, peak_tflops=peaks))


def test_a_cluster_from_a_record_is_checked_too() -> None:
    record = dataclasses.asdict(cluster(2, 2))
    assert Cluster(**record) == cluster(2, 2)
    record["device"]["kind"] = "rocm"
    with pytest.raises(UserError, match=r"cluster\.device\.kind"):
        Cluster(**record)


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["cluster.cross_host.latency_us=-500"], ["cluster.cross_host.latency_us", "-500", "0 or more"]),
        (["cluster=h100", "cluster.device.kind=rocm"], ["cluster.device.kind", "rocm", "cuda, cpu"]),
        (["cluster=h100", "cluster.reserved_memory_share=1.7"], ["cluster.reserved_memory_share", "1.7", "less than 1"]),
        (["cluster=h100", "cluster.device.peak_tflops.bf16=nan"], ["cluster.device.peak_tflops.bf16", "nan", "1e-09 or more"]),
    ],
)
def test_an_override_is_refused(words: list[str], parts: list[str]) -> None:
    with pytest.raises(UserError) as caught:
        build(read(["mode=simulate", "data=random", *words]).config.cluster)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("word", ["cluster.cross_host.latency_us=-500", "cluster.reserved_memory_share=1.7"])
def test_a_command_line_is_refused_before_anything_is_written(word: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = line("mode=simulate", "data=random", "cluster=h100", word, f"hydra.run.dir={folder}", cache=tmp_path)
    assert process.code == 2 and process.err.count("\n") == 1 and process.err.startswith(f"error: {word.split('=')[0]}: ")
    assert not folder.exists()

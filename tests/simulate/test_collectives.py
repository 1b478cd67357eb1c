"""Collectives priced by hand on small clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.cluster import Cluster
from recsys_lab.plan import Step
from recsys_lab.plan.steps import COLLECTIVES
from recsys_lab.simulate.collectives import collective_ms, groups_cost
from tests.simulate.clusters import cluster

MB = 1e6
NEAR, FAR = 1e-3, 1e-2  # ms a message


def step(kind: str, size: float, *groups: tuple[int, ...], received: tuple[float, ...] = ()) -> Step:
    return Step("s", kind, "forward", (size,), groups, received_of_rank=received)


@pytest.mark.parametrize(
    ("kind", "size_mb", "hosts", "ranks", "expected_ms"),
    [
        # 4 ranks of one host: 3 of 4 parts leave, 100 GB/s is 100 MB a ms
        ("all_to_all", 400, 1, 4, 3 * NEAR + 300 / 100),
        # 2 x 2: one part near, two far, side by side; far is slower
        ("all_to_all", 400, 2, 2, NEAR + 2 * FAR + 200 / 10),
        # gloo makes an all-reduce of a copy of it: 1000 GB/s of memory, read and written
        ("reduce_scatter", 400, 1, 4, 6 * NEAR + 600 / 100 + 800 / 1000),
        ("all_gather", 100, 1, 4, 3 * NEAR + 300 / 100 + 800 / 1000),
        ("all_reduce", 400, 1, 4, 6 * NEAR + 600 / 100),
        # over 2 x 2 the ring's two far hops are shared by the two links of a host
        ("all_reduce", 400, 2, 2, 2 * NEAR + 4 * FAR + 600 / 2 / 10),
        ("all_gather", 100, 4, 1, 3 * FAR + 300 / 10 + 800 / 1000),
    ],
)
def test_priced_by_hand(kind: str, size_mb: float, hosts: int, ranks: int, expected_ms: float) -> None:
    made = collective_ms(step(kind, size_mb * MB, tuple(range(hosts * ranks))), cluster(hosts, ranks, kind="cpu"))
    assert made == pytest.approx(expected_ms)


@pytest.mark.parametrize("kind", ["all_to_all", "all_reduce", "scatter"])
def test_a_link_to_each_peer_is_used_by_the_ranks_of_a_group_alone(kind: str) -> None:
    """Eight ranks use all seven links of each, as a switch. Two use one, and what they send takes seven times as long."""
    switched = cluster(1, 8, intra=7.0, intra_us=0.0, kind="cpu")
    meshed = replace(switched, intra_host=replace(switched.intra_host, peers=7))

    def ms(on: Cluster, ranks: int) -> float:
        return collective_ms(step(kind, 100 * MB, tuple(range(ranks))), on)

    assert ms(meshed, 8) == pytest.approx(ms(switched, 8)) and ms(meshed, 2) == pytest.approx(7 * ms(switched, 2))
    assert meshed.near.bandwidth_gb_s == 7.0 and meshed.reshaped(1, 2).near.bandwidth_gb_s == pytest.approx(1.0)


def test_a_small_all_reduce_of_gloo_goes_round_a_ring() -> None:
    """Eight bytes over 64 ranks: 126 steps, of which 16 are far. NCCL's goes up and down a tree."""
    group = tuple(range(64))
    made = collective_ms(step("all_reduce", 8, group), cluster(8, 8, kind="cpu"))
    assert made == pytest.approx(110 * NEAR + 16 * FAR, rel=1e-3)
    assert collective_ms(step("all_reduce", 8, group), cluster(8, 8)) < made / 2


def test_every_link_of_a_tree_carries_the_buffer_both_ways() -> None:
    """A megabyte over 64 ranks, an eighth of it over each link across hosts, up and down at 0.55 of 10 GB/s: NCCL's LL128."""
    made = collective_ms(step("all_reduce", MB, tuple(range(64))), cluster(8, 8))
    latency_us = 14 + 2 * (3 * (1 + 1.3) + 3 * (10 + 5.8))
    assert made == pytest.approx(latency_us / 1000 + 2 / 8 / (10 * 0.55))


def test_gloo_makes_an_all_reduce_of_a_reduce_scatter() -> None:
    group = tuple(range(4))
    on_cpu = cluster(2, 2, kind="cpu")
    all_reduce = collective_ms(step("all_reduce", 400 * MB, group), on_cpu)
    assert collective_ms(step("reduce_scatter", 400 * MB, group), on_cpu) == pytest.approx(all_reduce + 800 / 1000)
    assert collective_ms(step("reduce_scatter", 400 * MB, group), cluster(2, 2)) < collective_ms(
        step("reduce_scatter", 400 * MB, group), on_cpu
    )


def test_the_rank_that_sends_or_receives_most_sets_the_pace() -> None:
    group, on = tuple(range(4)), cluster(1, 4)
    even = collective_ms(step("all_to_all", 400 * MB, group), on)
    assert collective_ms(step("all_to_all", 100 * MB, group, received=(400 * MB, 0.0, 0.0, 0.0)), on) == even


def test_peers_use_the_far_link_and_hosts_the_near_one() -> None:
    on = cluster(2, 2, kind="cpu")
    near = collective_ms(step("all_to_all", 400 * MB, (0, 1), (2, 3)), on)
    far = collective_ms(step("all_to_all", 400 * MB, (0, 2), (1, 3)), on)
    assert (near, far) == (pytest.approx(NEAR + 200 / 100), pytest.approx(FAR + 200 / 10))


@pytest.mark.parametrize(
    ("hosts", "across", "expected_ms"),
    [
        # twice 7/8 of 800 MB and 24 MB to fill: a quarter of 1424 MB over each far link; up and down one near and one far step
        (2, None, 356 / 10 + 0.0084 + 2 * (0.0038 + 0.0213)),
        (2, 20.0, 356 / 20 + 0.0084 + 2 * (0.0038 + 0.0213)),
        # one host: twice 3/4 of 800 MB and 24 MB, over 400 GB/s of the switch
        (1, None, 1224 / 400 + 0.0084 + 2 * 0.0038),
        (1, 20.0, 1224 / 400 + 0.0084 + 2 * 0.0038),
    ],
)
def test_switches_add_up_within_hosts_and_each_link_across_carries_its_part(hosts: int, across: float | None, expected_ms: float) -> None:
    on = cluster(hosts, 4)
    near, far = (replace(link, in_network_gb_s=gb_s) for link, gb_s in ((on.intra_host, 400.0), (on.cross_host, across)))
    on = replace(on, intra_host=near, cross_host=far)
    assert collective_ms(step("all_reduce", 800 * MB, on.ranks), on) == pytest.approx(expected_ms)


sizes = st.floats(0, 1e10)
speeds = st.floats(0.1, 1e4)


@settings(max_examples=200)
@given(st.sampled_from(COLLECTIVES), sizes, st.integers(1, 8), st.integers(1, 8), speeds, speeds, st.floats(1, 100), st.floats(1, 100))
def test_more_bandwidth_is_never_slower_and_more_bytes_never_faster(
    kind: str, size: float, hosts: int, ranks: int, intra: float, cross: float, more: float, further: float
) -> None:
    group = tuple(range(hosts * ranks))
    base = collective_ms(step(kind, size, group), cluster(hosts, ranks, intra=intra, cross=cross))
    assert base >= 0 and (base == 0) == (len(group) == 1)
    assert collective_ms(step(kind, size, group), cluster(hosts, ranks, intra=intra * more, cross=cross)) <= base
    assert collective_ms(step(kind, size, group), cluster(hosts, ranks, intra=intra, cross=cross * further)) <= base
    assert collective_ms(step(kind, size * more, group), cluster(hosts, ranks, intra=intra, cross=cross)) >= base
    assert collective_ms(step(kind, size, group), cluster(hosts, ranks, intra=intra, cross=cross, cross_us=10 * more)) >= base


def test_each_group_has_its_own_pace() -> None:
    """Two hosts of two ranks: half of 100 and of 400 MB goes to the other rank of the host, at 100 MB a ms."""
    uneven = Step("s", "all_to_all", "forward", (100 * MB, 100 * MB, 200 * MB, 400 * MB), ((0, 1), (2, 3)))
    assert [cost.ms for cost in groups_cost(uneven, cluster(2, 2, kind="cpu"))] == pytest.approx([NEAR + 0.5, NEAR + 2.0])

"""Neo's costs of a message on links that differ, and its choice of cuts, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recsys_lab.cluster import Cluster
from recsys_lab.sharders.neo.choose import cheapest_cuts, smallest
from recsys_lab.sharders.neo.costs import Cost, Setting, Weights, all_to_all_ms, cost_of_shard, in_host_ms, latency_ms, peers_ms, ring_ms
from recsys_lab.sharders.neo.cuts import Cut, Piece, Size
from recsys_lab.tables import Table
from tests.plan.plans import FP32, access
from tests.simulate.clusters import cluster

MB = 1e6


def links(hosts: int, ranks_per_host: int, near: float, far: float, near_ring: float, far_ring: float) -> Cluster:
    """Bandwidths in GB/s: MB a ms."""
    bare = cluster(hosts, ranks_per_host, intra=near, cross=far)
    return replace(bare, intra_host=replace(bare.intra_host, ring_gb_s=near_ring), cross_host=replace(bare.cross_host, ring_gb_s=far_ring))


@pytest.mark.parametrize(
    ("hosts", "ranks", "ring", "all_to_all", "in_host", "peers", "latency"),
    [
        # 800 MB; 7/8 pass the near ring at 200, and a quarter of them each of a host's four far ones at 20
        (2, 4, 700 / 4 / 20, 400 / 10, 600 / 200, 400 / 10, 2 * 0.01),
        # nothing near: one rank a host
        (4, 1, 600 / 20, 600 / 10, 0.0, 600 / 10, 2 * 0.01),
        # nothing far: one host
        (1, 4, 600 / 200, 600 / 100, 600 / 200, 0.0, 2 * 0.001),
        (1, 1, 0.0, 0.0, 0.0, 0.0, 0.0),
    ],
)
def test_messages_by_hand(hosts: int, ranks: int, ring: float, all_to_all: float, in_host: float, peers: float, latency: float) -> None:
    on = links(hosts, ranks, near=100.0, far=10.0, near_ring=200.0, far_ring=20.0)
    times = [ms(800 * MB, on) for ms in (ring_ms, all_to_all_ms, in_host_ms, peers_ms)]
    assert [*times, latency_ms(on)] == pytest.approx([ring, all_to_all, in_host, peers, latency])


def test_a_ring_waits_for_the_slower_of_its_links() -> None:
    assert ring_ms(800 * MB, links(4, 1, near=1.0, far=10.0, near_ring=1.0, far_ring=20.0)) == pytest.approx(600 / 20)  # nothing is near
    slow_near = links(2, 4, near=1.0, far=10.0, near_ring=5.0, far_ring=500.0)
    assert ring_ms(800 * MB, slow_near) == pytest.approx(700 / 5)
    assert all_to_all_ms(800 * MB, slow_near) == pytest.approx(300 / 1)


@pytest.mark.parametrize(("pooling", "vectors_ms"), [("sum", 0.5 * 2 * 60 * 8 * 8 / 200e6), ("none", 0.5 * 2 * 60 * 3 * 8 * 8 / 2 / 100e6)])
def test_rows_in_a_host_and_copies_across_hosts_by_hand(pooling: str, vectors_ms: float) -> None:
    """10 rows of 8, three look-ups a sample, 60 samples a rank of 2 x 2. A rank of the host has five rows, and half of all look-ups."""
    table, on = Table("t", 10, 8, ("a",), pooling), links(2, 2, near=100.0, far=10.0, near_ring=200.0, far_ring=20.0)
    cost = cost_of_shard(table, "flexshard", 0.5, 8, Setting(access((table,), {"a": 3}), on, FP32, 60, Weights()))
    looked_up = 2 * 60 * 3 / 2
    ids_ms, averaged_ms = 0.5 * (8 * looked_up + 4 * 2 * 60) / 100e6, 2 * 5 * 8 * 4 / 2 / 20e6
    assert cost.communication == pytest.approx(ids_ms + vectors_ms + averaged_ms + latency_ms(on))
    assert cost.load == pytest.approx((looked_up + 5) * 8 * 4 / (on.device.memory_bandwidth_gb_s * 1e6))


def cut(*pieces: tuple[float, int], scheme: str = "table_wise", passing: int = 0) -> Cut:
    """Of pieces (ms, bytes)."""
    return Cut(scheme, 1, tuple(Piece(0, 4, Cost(ms), Size(size, passing)) for ms, size in pieces))


def test_the_finest_cut_takes_at_most_a_tenth_more_in_all() -> None:
    whole, halves, thirds = cut((1.0, 100)), cut((3.0, 55), (3.0, 55)), cut((1.0, 40), (1.0, 40), (1.0, 40))
    cheaper = cut((2.0, 55), (2.0, 55))
    assert smallest([[whole, halves, thirds], [halves, cheaper], [thirds]]) == [halves, cheaper, thirds]


def test_of_cuts_that_fit_the_cheapest_below_the_limit_is_chosen() -> None:
    room = Size(60, 70)
    whole, halves, quarters = cut((4.0, 100)), cut((3.0, 50), (3.0, 50)), cut(*[(2.0, 25)] * 4)
    options = [[whole, halves, quarters]]
    assert cheapest_cuts(options, 9.0, Size(100, 100)) == [whole]
    assert cheapest_cuts(options, 4.0, Size(100, 100)) == [whole]  # at the limit, not above it
    assert cheapest_cuts(options, 3.5, Size(100, 100)) == [halves] and cheapest_cuts(options, 9.0, room) == [halves]
    assert cheapest_cuts(options, 2.5, room) == [quarters]
    assert cheapest_cuts(options, 0.1, room) == [quarters]  # none is below: the smallest largest piece
    assert cheapest_cuts(options, 9.0, Size(10, 10)) == [quarters]  # none fits: the fewest bytes
    assert cheapest_cuts([[cut((6.0, 50)), halves]], 9.0, room) == [cut((6.0, 50))]  # as cheap in all, in fewer pieces


def test_what_passes_needs_room_as_well() -> None:
    room = Size(60, 70)
    assert cheapest_cuts([[cut((1.0, 50), passing=21), cut((2.0, 50), passing=20)]], 9.0, room) == [cut((2.0, 50), passing=20)]


def test_where_costs_are_equal_the_next_figure_decides() -> None:
    cheap, dear = cut((3.0, 50), (1.0, 50)), cut((3.0, 50), (2.0, 50))
    for room in (Size(60, 70), Size(10, 10)):
        assert cheapest_cuts([[dear, cheap]], 1.0, room) == [cheap]

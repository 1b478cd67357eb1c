"""Ranks on their hosts, and what their links and devices give, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recsys_lab.cluster import Link, ranks_text, ranks_words
from tests.simulate.clusters import cluster


def test_ranks_are_numbered_host_by_host() -> None:
    on = cluster(3, 4)
    assert on.world_size == 12 and on.ranks == tuple(range(12))
    assert [on.host_of(rank) for rank in (0, 3, 4, 11)] == [0, 0, 1, 2]
    assert [on.local_rank(rank) for rank in (0, 3, 4, 11)] == [0, 3, 0, 3]
    assert on.ranks_of_host(0) == (0, 1, 2, 3) and on.ranks_of_host(2) == (8, 9, 10, 11)
    assert on.peers(0) == (0, 4, 8) and on.peers(6) == (2, 6, 10) and on.peers(11) == (3, 7, 11)


def test_another_number_of_ranks_changes_nothing_else() -> None:
    on = replace(cluster(3, 4), price_per_device_hour=2.0)
    assert on.reshaped(5, 2) == replace(cluster(5, 2), price_per_device_hour=2.0)


@pytest.mark.parametrize(("share", "usable"), [(0.15, 68_000_000_000), (0.0, 80_000_000_000), (0.5, 40_000_000_000)])
def test_a_plan_may_fill_what_is_not_reserved(share: float, usable: int) -> None:
    assert replace(cluster(1, 1), reserved_memory_share=share).usable_memory_bytes == usable
    assert cluster(1, 1).reserved_memory_share == 0.15


@pytest.mark.parametrize(
    ("of_leaf", "hosts", "share"), [(0, 8, 0.0), (2, 1, 0.0), (2, 2, 0.0), (2, 3, 1 / 2), (2, 4, 2 / 3), (4, 8, 4 / 7), (1, 2, 1.0)]
)
def test_of_what_goes_to_other_hosts_that_to_other_leaves_goes_above(of_leaf: int, hosts: int, share: float) -> None:
    assert replace(cluster(8, 2), hosts_per_leaf=of_leaf).share_across_leaves(hosts) == pytest.approx(share)


def test_a_link_has_an_all_to_alls_figures_where_it_has_no_own() -> None:
    bare = Link("l", 10.0, 3.0, "for the test")
    assert (bare.around_gb_s, bare.each_message_us, bare.taken_by(1.0), bare.start_us, bare.shared) == (10.0, 3.0, 1.0, 0.0, False)
    own = replace(bare, ring_gb_s=20.0, message_us=0.0, line_gb_s=40.0)
    assert (own.around_gb_s, own.each_message_us) == (20.0, 0.0)
    assert [own.taken_by(gb_s) for gb_s in (10.0, 40.0, 50.0)] == [0.25, 1.0, 1.0]


def test_a_cluster_has_no_leaves_and_no_price_unless_it_says_so() -> None:
    on = cluster(1, 1)
    assert (on.hosts_per_leaf, on.leaf_oversubscription, on.price_per_device_hour, on.notes) == (0, 1.0, None, [])


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((3,), "3"),
        (range(64), "0-63"),
        ((2, 3), "2-3"),
        ((0, 8, 16), "0-16:8"),
        ((1, 3), "1-3:2"),
        ((0, 3, 5), "0,3,5"),
        ((3, 2, 1), "3,2,1"),
        ((1, 1), "1,1"),
    ],
)
def test_ranks_as_people_read_them(ranks: Any, text: str) -> None:
    assert ranks_text(ranks) == text
    assert ranks_words(ranks) == f"{'rank' if len(ranks) == 1 else 'ranks'} {text}"

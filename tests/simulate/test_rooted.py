"""Scatters and gathers of several roots: what gloo's two threads a rank take up together, and what that costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.cluster import Cluster
from recsys_lab.plan import Step, Steps
from recsys_lab.plan.lower import lower
from recsys_lab.plan.scheme import EXCHANGES
from recsys_lab.simulate.collectives import collective_ms, exchange_cost
from recsys_lab.simulate.placed import Placed
from recsys_lab.simulate.rooted import ROOTED, exchanges, parts_in_rounds
from recsys_lab.simulate.timeline import _in_pieces, place
from tests.plan.plans import FP32, LENGTHS, TABLES, UNLIKE, access, plan, workload
from tests.simulate.clusters import cluster, profile

MB = 1e6
HOSTS = (0, 0, 1, 1, 2, 2, 3, 3)
EACH = tuple(range(8))
factors = st.sampled_from([1.0, 1.5, 10.0, 1000.0])


def shared(hosts: int, ranks: int, **changes: float) -> Cluster:
    made = cluster(hosts, ranks, kind="cpu", **changes)
    return replace(made, cross_host=replace(made.cross_host, shared=True))


def pieces(kind: str, roots: tuple[int, ...], size: float, ranks: int = 8) -> list[Step]:
    """The root has `size` bytes, the others an even part."""
    found = []
    for number, root in enumerate(roots):
        has, part = ([size if rank == root else other for rank in range(ranks)] for other in (0.0, size / ranks))
        given_, taken = (has, part) if kind == "scatter" else (part, has)
        found.append(Step(f"s{number}", kind, "forward", tuple(given_), (tuple(range(ranks)),), received_of_rank=tuple(taken)))
    return found


@pytest.mark.parametrize(
    ("kind", "roots", "links"),
    [
        # how long, in times that a host's link takes for what one root has for other hosts; beside each, what it was with real gloo
        ("scatter", (0,), 1),  # 1.0
        ("scatter", (0, 1), 2),  # 2.1: one host's link
        ("scatter", (0, 2), 1),  # 1.2
        ("scatter", (0, 2, 4), 2),  # 2.0: the third waits for a thread
        ("scatter", EACH, 8),  # 6.9 to 7.6
        ("scatter", (0, 2, 4, 6, 1, 3, 5, 7), 4),  # 3.9
        ("scatter", tuple(rank for rank in EACH for _ in range(3)), 24),  # 22.2
        ("gather", (0, 1), 2),  # 2.0
        ("gather", EACH, 2),  # 2.1: all at once
        ("gather", tuple(rank for rank in EACH for _ in range(3)), 17),  # 16.3
    ],
)
def test_roots_of_other_hosts_use_their_links_meanwhile(kind: str, roots: tuple[int, ...], links: float) -> None:
    on = shared(4, 2, intra_us=0.0, cross_us=0.0, intra=1e6)
    (cost,) = exchange_cost(pieces(kind, roots, 80 * MB), on)
    assert cost.ms == pytest.approx(links * 60 / 20)  # 60 of 80 MB to other hosts, two ranks' 10 GB/s


def test_on_nccl_they_follow_one_another() -> None:
    on = cluster(4, 2)
    for kind in ROOTED:
        (cost,) = exchange_cost(pieces(kind, EACH, 80 * MB), on)
        assert cost.ms == pytest.approx(8 * collective_ms(pieces(kind, (0,), 80 * MB)[0], on))
        assert cost.spans[3] == (pytest.approx(3 / 8), pytest.approx(4 / 8))


@pytest.mark.parametrize("own_links", [True, False])
def test_gathers_of_all_ranks_carry_what_an_all_to_all_does(own_links: bool) -> None:
    on = shared(4, 2, cross_us=0.0, intra_us=0.0)
    on = replace(on, cross_host=replace(on.cross_host, shared=not own_links))
    (cost,) = exchange_cost(pieces("gather", EACH, 80 * MB), on)
    assert cost.wire_ms == pytest.approx(collective_ms(Step("a", "all_to_all", "forward", (80 * MB,), (EACH,)), on))


@settings(max_examples=200)
@given(st.sampled_from(ROOTED), st.lists(st.integers(0, 5), min_size=1, max_size=12), st.integers(1, 4), st.integers(1, 3))
def test_every_part_moves_once(kind: str, roots: list[int], threads: int, per_host: int) -> None:
    hosts = tuple(rank // per_host for rank in range(6))
    moved = [part for one in parts_in_rounds(kind, tuple(roots), hosts, threads) for part in one]
    expected = {(k, *((root, other) if kind == "scatter" else (other, root))) for k, root in enumerate(roots) for other in range(6)}
    assert len(moved) == len(set(moved)) and set(moved) == {part for part in expected if part[1] != part[2]}


def test_pieces_of_one_exchange_are_those_in_a_row_that_wait_for_the_same() -> None:
    a, b, c = pieces("scatter", (0, 1, 2), 1.0)
    later = replace(c, after=("s0",))
    other = Step("x", "all_to_all", "forward", (1.0,), (EACH,))
    assert exchanges([a, b, later, other, other, a]) == [(a, b), (later,), (other,), (other,), (a,)]


def lowered(exchange: str, hosts: int, ranks: int, precision=FP32) -> tuple[Steps, tuple]:
    made, work = plan(("table_wise",), hosts, ranks), workload(512, dense_parameters=1_000_000)
    return lower(made, access(TABLES, LENGTHS), precision, work, exchange=exchange, overlap=False), (made, work)


@settings(max_examples=100)
@given(st.sampled_from(EXCHANGES), st.integers(1, 4), st.integers(1, 4), st.sampled_from(["cpu", "cuda"]), st.booleans(), factors, factors)
def test_faster_links_are_never_slower_and_pieces_lie_in_their_exchange(
    exchange: str, hosts: int, ranks: int, kind: str, one_link: bool, intra: float, cross: float
) -> None:
    steps, (_, work) = lowered(exchange, hosts, ranks, UNLIKE)

    def placed(**speeds: float):
        on = cluster(hosts, ranks, kind=kind, **speeds)
        on = replace(on, cross_host=replace(on.cross_host, shared=one_link))
        return place(steps, on, profile("dense_sync"), work)

    slow, fast = placed(), placed(intra=100 * intra, cross=10 * cross)
    assert fast.ends.max() <= slow.ends.max() * (1 + 1e-12)
    at = {p.step.name: p for p in slow.placed}
    for p in slow.placed:
        assert (p.start <= p.end).all()
        for name in p.step.after:
            assert (at[name].end <= p.start + 1e-9).all()


def test_an_exchange_in_pieces_takes_what_its_rounds_do() -> None:
    """From the first piece's begin to the last one's end."""
    steps, (_, work) = lowered("scatter_list", 2, 2)
    on = shared(2, 2)
    scatters = [s for s in steps.steps if s.kind == "scatter"]
    whole = place(steps, on, profile(launch_overhead_us=0.0), work)
    events = [e for e in whole.events(0) if e.step.kind == "scatter"]
    assert len(events) == len(scatters) == len(TABLES)
    took = max(e.end_ms for e in events) - min(e.start_ms for e in events)
    assert took == pytest.approx(exchange_cost(scatters, on)[0].ms)
    assert took < sum(collective_ms(s, on) for s in scatters)


def test_a_piece_ends_with_its_last_round() -> None:
    """Eight scatters from eight ranks in rounds: the whole exchange ends with some piece, none begins before the first or ends later."""
    (cost,) = exchange_cost(pieces("scatter", EACH, 80 * MB), shared(4, 2, intra_us=0.0, cross_us=0.0, intra=1e6))
    assert max(end for _, end in cost.spans) == pytest.approx(1.0) and min(start for start, _ in cost.spans) == 0.0
    assert all(start < end for start, end in cost.spans)


def test_each_piece_on_nccl_starts_as_an_all_to_all_does() -> None:
    on = cluster(1, 2, intra_us=0.0)
    (one,), (none,) = (exchange_cost(pieces("scatter", (0,), size, 2), on) for size in (80 * MB, 0.0))
    assert (none.ms, one.ms) == (pytest.approx(0.025), pytest.approx(0.025 + 40 / 100))  # 25 us


def test_two_pieces_are_placed_as_two() -> None:
    steps, (_, work) = lowered("scatter_list", 2, 2)
    first, second = [s for s in steps.steps if s.kind == "scatter"][:2]
    rest = tuple(s for s in steps.steps if s.kind != "scatter" or s in (first, second))
    whole = place(replace(steps, steps=rest), shared(2, 2), profile(launch_overhead_us=0.0), work)
    placed = {p.step.name: p for p in whole.placed}
    assert {first.name, second.name} <= set(placed)
    assert sum(p.wire_ms.max() for p in (placed[first.name], placed[second.name])) == pytest.approx(
        exchange_cost([first, second], shared(2, 2))[0].wire_ms
    )


def test_the_link_carries_an_exchange_before_its_last_piece_ends() -> None:
    """Of 10 ms the first piece has the first half. What the link carried is counted once, with the piece that ends last."""
    first, second = pieces("scatter", (0, 1), 1.0, ranks=2)
    zeros = np.zeros(2)
    whole = Placed(first, "intra_host", zeros, zeros + 10.0, np.full(2, True), zeros + 4.0, "intra_host")
    spans = np.array([[[0.0, 0.0], [0.5, 0.5]], [[0.5, 0.5], [1.0, 1.0]]])
    found = _in_pieces(whole, (first, second), spans)
    assert [(p.start.tolist(), p.end.tolist(), p.wire_ms.tolist()) for p in found.values()] == [
        ([0.0, 0.0], [5.0, 5.0], [0.0, 0.0]),
        ([5.0, 5.0], [10.0, 10.0], [4.0, 4.0]),
    ]


@pytest.mark.parametrize(("group", "times"), [((0, 1, 2, 3), 1), ((0, 1, 4, 5), 8)])
def test_only_what_leaves_a_leaf_goes_over_its_oversubscribed_links(group: tuple[int, ...], times: float) -> None:
    """Two hosts a leaf, of whose links eight times fewer lead on: two hosts of one leaf do not notice."""
    on = shared(4, 2, intra_us=0.0, cross_us=0.0, intra=1e6)
    leaves = replace(on, hosts_per_leaf=2, leaf_oversubscription=16.0)
    (piece,) = pieces("scatter", (0,), 80 * MB)
    piece = replace(piece, groups=(group,))
    flat, over = (exchange_cost([piece], each)[0].ms for each in (on, leaves))
    assert over == pytest.approx(times * flat)

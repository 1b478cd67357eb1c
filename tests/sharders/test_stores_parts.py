"""The choice of stores, part by part and by hand: times and sizes of each, the price of a byte, and the memory that is left."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from recsys_lab.base.store_names import DISK_CACHED, HOST, HOST_CACHED, LFU, LRU
from recsys_lab.cluster import Disk, Host
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.plan.sharding_plan import Placement, Shard
from recsys_lab.plan.store import Store
from recsys_lab.plan.store_facts import least_share
from recsys_lab.schemes.replicated.placement import on_every_rank
from recsys_lab.schemes.row_blocks.placement import in_row_blocks
from recsys_lab.schemes.tiers.placement import in_tiers
from recsys_lab.schemes.whole.placement import on_rank
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.stores import choice
from recsys_lab.sharders.stores.choice import MOST_CACHED, SIZES, Menu, _Shards
from recsys_lab.tables import AccessStatistics, Table, power_law_access
from recsys_lab.tables.cache_hits import cache_hits
from tests.executor.sharded import FP32, small_cluster
from tests.plan.plans import workload

#: Rows of 16 bytes, without optimizer state: 1,600 and 800 bytes.
A, B = Table("a", 100, 4, ("fa",)), Table("b", 50, 4, ("fb",))
ACCESS = AccessStatistics({t.name: power_law_access(t.name, t.rows, 2.0, 0.5) for t in (A, B)})
WORK = workload(1, 0, sparse_optimizer="sgd", activation_bytes_per_sample=0.0)
HOST_OF, DISK = Host("host", 1.0, 100.0, "test"), Disk("disk", 1000.0, 2.0, 1.0, 5e5, "test")


def inputs_of(kind: str = "cuda", hosts: int = 1, ranks: int = 2, memory_gb: float = 1.0, work: Workload = WORK) -> PlanInputs:
    on = small_cluster(hosts, ranks, kind, memory_gb)
    return PlanInputs((A, B), ACCESS, replace(on, device=replace(on.device, host_link_gb_s=25.0)), FP32, work)


def with_parts(inputs: PlanInputs, host: Host | None, disk: Disk | None) -> PlanInputs:
    return replace(inputs, cluster=replace(inputs.cluster, host=host, disk=disk))


def shards_of(ms: list[list[float]], sizes: list[list[float]], ranks: list[int], hosts: int = 1, ranks_per_host: int = 2) -> _Shards:
    """One shard a table."""
    return _Shards(np.array(ms), np.array(sizes), np.arange(len(ms)), np.array(ranks), hosts, ranks_per_host)


def test_link_and_disk_by_hand() -> None:
    """1,000 records of 100 bytes: 2 ms of requests, or 0.05 of reading, and 0.1 of writing; of 100 kB: 50 and 100. Two ranks share it."""
    cluster = inputs_of().cluster
    assert choice._link(cluster) == 25e6
    assert choice._link(replace(cluster, device=replace(cluster.device, host_link_gb_s=None))) == 100e6
    on_disk = replace(cluster, disk=replace(DISK, cached_reads_per_s=1e6))
    assert choice._disk_ms(1000, 100, on_disk, 0.0) == pytest.approx((2 + 0.1) * 2)
    assert choice._disk_ms(1000, 100_000, on_disk, 0.0) == pytest.approx((50 + 100) * 2)
    assert choice._disk_ms(1000, 100, on_disk, 0.25) == pytest.approx((0.75 * 2 + 0.25 * 1 + 0.1) * 2)
    assert choice._disk_ms(1000, 100, cluster, 0.25) == pytest.approx(2 * 1000 * 4096 / 1e6 * 2)  # of 4 KiB at 1 GB/s, both ways


@pytest.mark.parametrize(
    ("kind", "hosts", "host_gb", "share"),
    [
        ("cpu", 1, 2.6e-6, 0.25),  # 600 bytes beside two ranks with 1,000 each, of 2,400
        ("cpu", 2, 2.6e-6, 0.5),
        ("cpu", 1, 1.9e-6, 0.0),
        ("cuda", 1, 1.2e-6, 0.5),  # devices have memory of their own
        ("cuda", 1, 2.6e-6, 1.0),
    ],
)
def test_what_the_page_cache_serves_by_hand(kind: str, hosts: int, host_gb: float, share: float) -> None:
    inputs, host = inputs_of(kind, hosts, memory_gb=1e-6), replace(HOST_OF, memory_gb=host_gb)
    known = replace(DISK, cached_reads_per_s=1e6)
    assert choice.bytes_of_tables(inputs) == 2400
    assert choice._page_cache_share(with_parts(inputs, host, known)) == pytest.approx(share)
    assert [choice._page_cache_share(with_parts(inputs, *parts)) for parts in ((None, known), (host, None), (host, DISK))] == [0.0] * 3


def test_tables_are_counted_with_their_state() -> None:
    assert choice.bytes_of_tables(inputs_of(work=replace(WORK, sparse_optimizer="row_wise_adagrad"))) == 2400 + 4 * 150


def test_a_store_on_a_disk_waits_for_its_misses() -> None:
    inputs = with_parts(inputs_of("cpu", memory_gb=1e-6), replace(HOST_OF, memory_gb=2.6e-6), replace(DISK, cached_reads_per_s=1e6))
    misses = cache_hits(ACCESS["a"], LRU, 2, 40.0, 1).misses
    ms = choice._ms(A, Store(DISK_CACHED, 0.4, LRU), inputs, 2, 16, 3, 1)
    assert ms == pytest.approx(3 * 0.05 + choice._disk_ms(misses, 16, inputs.cluster, 0.25))


def test_what_a_table_may_have() -> None:
    """It stays, or all of it is on the host, or a cache of the batch's rows to 95 % of all is beside that."""
    inputs, rows = inputs_of(), Table("a", 10_000, 4, ("fa",))
    access = power_law_access("a", 10_000, 2.0, 0.5)
    inputs = replace(inputs, tables=(rows, B), access=AccessStatistics({"a": access, "b": ACCESS["b"]}))
    placement = in_row_blocks(rows, range(2))
    menu = choice._menu(rows, placement, inputs, (HOST, HOST_CACHED), LRU, 2, 0.0)
    least = least_share(rows, placement, access, 2, 2)  # one sample a rank
    shares = [store.cached_share for store in menu.stores[2:] if store is not None]
    assert menu.stores[:2] == (None, Store(HOST, 0.0, LRU)) and len(shares) == SIZES
    assert {(store.kind, store.policy) for store in menu.stores[2:] if store is not None} == {(HOST_CACHED, LRU)}
    assert least < shares[0] <= least + 2.1e-6 and shares[-1] == MOST_CACHED
    assert np.diff(np.log(shares)) == pytest.approx(np.full(SIZES - 1, math.log(MOST_CACHED / shares[0]) / (SIZES - 1)))
    assert menu.ms.tolist() == [choice._ms(rows, store, inputs, 2, 16, 2, 2) for store in menu.stores]
    blocks = tuple(Shard((1,), start, stop, 0, 4) for start, stop in ((0, 9_999), (9_999, 10_000), (10_000, 10_000)))
    two = choice._menu(rows, Placement("a", "row_wise", blocks), inputs, (HOST,), LFU, 1, 0.0)
    assert two.ms.tolist() == [0.0, choice._ms(rows, Store(HOST), inputs, 2, 16, 2, 1)]  # an empty shard waits for nothing


def test_what_ranks_hold_together_stays_and_a_cache_of_nearly_all_rows_is_none() -> None:
    inputs = inputs_of()
    for placement in (on_every_rank(A, range(2)), in_tiers(A, 10, 20, 1, 2)):
        menu = choice._menu(A, placement, inputs, (HOST, HOST_CACHED), LFU, 1, 0.0)
        assert menu.stores == (None,) and menu.ms.tolist() == [0.0]
    few = Table("b", 4, 4, ("fb",))
    inputs = replace(inputs, tables=(A, few), access=AccessStatistics({"a": ACCESS["a"], "b": power_law_access("b", 4, 2.0, 0.0)}))
    assert choice._menu(few, on_rank(few, 1), inputs, (HOST, HOST_CACHED), LFU, 1, 0.0).stores == (None, Store(HOST, 0.0, LFU))


def test_sizes_of_shards_by_hand() -> None:
    """Of `a` rank 0 has three columns and rank 1 the other; `b` is on rank 1. A cache of half of them: their slots, and counts for LFU."""
    stores = (None, Store(HOST), Store(HOST_CACHED, 0.5, LRU), Store(HOST_CACHED, 0.5, LFU))
    menus = [Menu(stores, np.array([0.0, 4.0, 2.0, 1.0])), Menu((None, Store(HOST)), np.array([0.0, 3.0]))]
    columns = Placement("a", "column_wise", (Shard((0,), 0, 100, 0, 3), Shard((1,), 0, 100, 3, 4)))
    plan = ShardingPlan("by_hand", 1, 2, (A, B), (columns, on_rank(B, 1)))
    shards = _Shards.of(plan, menus, inputs_of())
    assert shards.sizes.tolist() == [[1200, 0, 600 + 400, 600 + 800], [400, 0, 200 + 400, 200 + 800], [800, 0, 0, 0]]
    assert (shards.table.tolist(), shards.rank.tolist(), shards.hosts, shards.ranks_per_host) == ([0, 0, 1], [0, 1, 1], 1, 2)
    assert shards.ms.tolist() == [[0, 4, 2, 1], [0, 3, math.inf, math.inf]]
    assert shards.of_tables().tolist() == [[1600, 0, 1600, 2400], [800, 0, 0, 0]]
    assert shards.at_price(math.inf).tolist() == [1, 1] and shards.at_price(0.0).tolist() == [0, 0]
    prices = [price / 1600 for price in (3.9, 4.1, 5.9, 6.1)]
    assert [shards.at_price(price).tolist() for price in prices] == [[0, 0], [1, 0], [1, 0], [1, 1]]
    assert shards.bytes_of_ranks(np.array([2, 0])).tolist() == [1000, 600 + 800]
    assert shards.bytes_beneath(np.array([2, 0])).tolist() == [1600] and shards.bytes_beneath(np.array([0, 1])).tolist() == [800]
    apart = replace(shards, hosts=2, ranks_per_host=1)
    assert apart.bytes_beneath(np.array([1, 1])).tolist() == [1200, 1200]
    everywhere = _Shards.of(ShardingPlan("by_hand", 1, 2, (B,), (on_every_rank(B, range(2)),)), menus[1:], inputs_of())
    assert everywhere.rank.tolist() == [0, 1] and everywhere.bytes_of_ranks(np.array([0])).tolist() == [800, 800]


#: A table of 100 bytes waits 8 ms, one of 60 waits 2, one of 300 on the other rank 9: 0.08, 0.033 and 0.03 ms a byte.
WAITING = [[0.0, 8.0], [0.0, 2.0], [0.0, 9.0]], [[100.0, 10.0], [60.0, 5.0], [300.0, 20.0]], [0, 0, 1]


@pytest.mark.parametrize(
    ("beneath", "free", "stay"),
    [
        (460, (0, 0), ()),
        (459, (105, 20), (0,)),
        (459, (104, 20), (1,)),
        (459, (69, 20), ()),
        (360, (160, 300), (0,)),
        (359, (160, 300), (0, 1)),
        (359, (159, 300), (0, 2)),
        (299, (160, 300), (0, 1, 2)),
    ],
)
def test_which_tables_stay_where_the_host_is_too_small(beneath: float, free: tuple[int, int], stay: tuple[int, ...]) -> None:
    found = shards_of(*WAITING).within(beneath, np.array(free, dtype=float))
    assert tuple(np.flatnonzero(np.isinf(found.ms[:, 1]))) == stay and (found.ms[:, 0] == 0).all()


def test_only_tables_of_a_host_that_is_too_small_have_to_stay() -> None:
    """With a rank a host: the second host's 300 bytes are too many for 200, the first's 160 are not. A table without stores is left."""
    found = shards_of(*WAITING, hosts=2, ranks_per_host=1).within(200, np.full(2, 1e3))
    assert np.isinf(found.ms[:, 1]).tolist() == [False, False, True]
    ms, sizes, ranks = WAITING
    more = shards_of([*ms, [0.0, math.inf]], [*sizes, [50.0, 0.0]], [*ranks, 1], hosts=2, ranks_per_host=1)
    assert np.isinf(more.within(200, np.full(2, 1e3)).ms[:, 1]).tolist() == [False, False, True, True]
    assert np.isinf(more.within(200, np.array([1e3, 349.0])).ms[:, 1]).tolist() == [False, False, False, True]


def test_free_memory_goes_to_the_table_that_gains_most() -> None:
    """Choices wait 0, 3, 6 and 9 ms for 90, 60, 30 and 0 bytes; those of the second table 0, 2, 4 and 6. Both are on one rank."""
    sizes = [[90.0, 60.0, 30.0, 0.0]] * 2
    shards = shards_of([[0.0, 3.0, 6.0, 9.0], [0.0, 2.0, 4.0, 6.0]], sizes, [1, 1])
    for free, chosen in ((29, [3, 3]), (30, [2, 3]), (89, [1, 3]), (90, [0, 3]), (120, [0, 2]), (179, [0, 1]), (180, [0, 0])):
        assert shards.filled_up(np.array([3, 3]), np.array([0.0, free])).tolist() == chosen, free
    assert shards.filled_up(np.array([2, 1]), np.array([0.0, 119.0])).tolist() == [2, 1]  # 29 are left: a step takes 30
    assert shards.filled_up(np.array([2, 1]), np.array([0.0, 120.0])).tolist() == [1, 1]
    beside = shards_of([[0.0, 3.0], [0.0, 2.0]], [[90.0, 0.0], [500.0, 0.0]], [0, 1])
    assert beside.filled_up(np.array([1, 1]), np.array([90.0, 499.0])).tolist() == [0, 1]
    assert beside.filled_up(np.array([1, 1]), np.array([89.0, 500.0])).tolist() == [1, 0]


def test_the_price_of_a_byte_is_the_lowest_that_fits() -> None:
    """Nine tables with ten choices each: as good as the best of a fine scale of prices, with the rest of the memory spent."""
    draw = np.random.default_rng(1)
    for scale in (1.0, 1e9):  # ms a byte: 1e-6 or so, or 1e3
        share = np.linspace(1, 0, 10)
        ms = draw.uniform(1, 9, (9, 1)) * (1 - share ** draw.uniform(0.2, 2, (9, 1))) * scale
        sizes, ranks = np.round(draw.uniform(1e6, 9e6, (9, 1)) * share), np.arange(9) % 2
        shards, free = shards_of(ms.tolist(), sizes.tolist(), ranks.tolist()), np.array([9e6, 7e6])
        fitting = (shards.at_price(price) for price in np.geomspace(1e-8, 1e-4, 3000) * scale)
        priced = next(chosen for chosen in fitting if (shards.bytes_of_ranks(chosen) <= free).all())
        expected = shards.filled_up(priced, free)
        assert choice._chosen(shards, free).tolist() == expected.tolist()
    assert choice._chosen(shards, np.full(2, 1e9)).tolist() == [0] * 9


def test_what_is_free_by_hand() -> None:
    """1e-5 GB a rank, 85 % of it for what lasts. Rank 1 has a table and the dense arch; the batch's buffers take from all of it."""
    plan = ShardingPlan("by_hand", 1, 2, (A, B), (on_rank(A, 0), on_rank(B, 1)))
    for batch in (1, 60):
        inputs = inputs_of(memory_gb=1e-5, work=replace(WORK, batch_size=batch, dense_parameters=100))
        memory = bytes_of_ranks(plan, inputs.workload)
        buffers, dense = memory.buffers, memory.dense
        assert dense == (1600,) * 2 and memory.kept == (0, 0)
        expected = [min(8500 - d, 10_000 - d - b) for d, b in zip(dense, buffers)]
        assert choice._free_bytes(plan, inputs).tolist() == expected
        assert (expected[0] == 8500 - 1600) == (batch == 1)


def test_the_memory_with_which_a_plan_fits_by_hand() -> None:
    """All of it where tables stay, and what the fewest rows take. With a large batch buffers decide, else what lasts beside the reserve."""
    tables = (Table("a", 10_000, 4, ("fa",)), B)
    access = AccessStatistics({"a": power_law_access("a", 10_000, 2.0, 0.5), "b": ACCESS["b"]})
    plan = ShardingPlan("by_hand", 1, 2, tables, (in_row_blocks(tables[0], range(2)), on_rank(B, 1)))
    for batch in (1, 1000):
        work = replace(WORK, batch_size=batch, sparse_optimizer="row_wise_adagrad")
        inputs = replace(inputs_of(work=work), tables=tables, access=access)
        menus = [choice._menu(t, p, inputs, (HOST_CACHED,), LFU, 1, 0.0) for t, p in zip(tables, plan.placements)]
        fewest = [min(menu.stores, key=lambda store: choice._sizes([store], t.rows, 20)[0]) for menu, t in zip(menus, tables)]
        least = replace(plan, placements=tuple(replace(p, store=store) for p, store in zip(plan.placements, fewest)))
        whole, small = bytes_of_ranks(plan, inputs.workload), bytes_of_ranks(least, inputs.workload)
        of = [max(max(held / 0.85, total) for held, total in zip(m.lasting, m.totals)) / 1e9 for m in (small, whole)]
        span = choice.memory_span_gb(plan, inputs, (HOST_CACHED,), LFU, 1)
        assert span == pytest.approx(tuple(of), rel=1e-9)


def test_what_is_too_small_names_the_rank_that_lacks_most_and_what_would_do() -> None:
    """Rank 1 lacks 3 GB of 8, rank 0 one of 4: 1 + 3 / 0.85 GB in all."""
    shards = shards_of([[0.0], [0.0]], [[4e9], [8e9]], [0, 1])
    error = choice._too_small(inputs_of(), shards, np.array([0, 0]), np.array([3e9, 5e9]), has_budget=True)
    unset = choice._too_small(inputs_of(), shards, np.array([0, 0]), np.array([3e9, 5e9]), has_budget=False)
    assert "memory_budget_gb" in str(error.parts["remedy"]) and "memory_budget_gb" not in str(unset)
    assert "lack 3.0 GB on rank 1" in str(error) and "given 1 GB a rank; allowed: 4.53 GB or more" in str(error)
    for figure, rounded in itertools.chain([(4.521, 4.53), (123.4, 124), (99.91, 100), (1000.5, 1010), (0.01001, 0.0101), (5.0, 5.0)]):
        assert choice._rounded_up(figure) == pytest.approx(rounded)

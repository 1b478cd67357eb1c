"""A plan that does not fit is refused before anything is allocated, with a change that does fit."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import replace

import numpy as np
import pytest

from recsys_lab.cluster import Cluster, Device, Link
from recsys_lab.errors import PlanDoesNotFit
from recsys_lab.plan import ShardingPlan, Workload, memory
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import RankMemory, bytes_of_ranks, check_fits, missing_bytes
from recsys_lab.tables import AccessStatistics, Table, TableAccess
from recsys_lab.tables.hot_rows import served_shares
from tests.plan.plans import FP32, flexshard, plan, workload

GB = 1_000_000_000
BIG = (Table("big", 10_000_000, 100, ("a",)), Table("small", 1000, 100, ("b",)))  # 4 GB and 0.4 MB


def cluster(hosts: int, ranks_per_host: int, memory_gb: float) -> Cluster:
    link = Link("link", 1.0, 1.0, "for the test")
    device = Device("device", "cuda", memory_gb, 100.0, {"fp32": 1.0}, "for the test")
    return Cluster("small", hosts, ranks_per_host, device, link, link, reserved_memory_share=0.2)


def remedy_of(sharding: ShardingPlan, work: Workload, on: Cluster) -> str:
    with pytest.raises(PlanDoesNotFit) as failed:
        check_fits(sharding, work, on)
    assert failed.value.exit_code == 3 and "\n" not in str(failed.value)
    return str(failed.value)


def test_bytes_are_counted_by_hand() -> None:
    table = Table("t", 10, 4, ("a", "b"))
    work = workload(
        batch_size=3, dense_parameters=5, sparse_optimizer="row_wise_adagrad", dense_optimizer="sgd", activation_bytes_per_sample=7
    )
    memory = bytes_of_ranks(plan(("table_wise",), 1, 2, (table,)), work)
    assert memory.weights == (0, 160) and memory.optimizer_state == (0, 40) and memory.dense == (40, 40)
    received = 2 * 4 * 2 * 4 * 3 + 7 * 3  # value and gradient, FP32, two features of four columns, three samples; activations
    assert memory.buffers == (received, received + 2 * 4 * 2 * 4 * 6)
    replicated = bytes_of_ranks(plan(("data_parallel",), 1, 2, (table,)), work)
    assert replicated.weights == (160, 160) and replicated.buffers == (received + 160,) * 2


@pytest.mark.parametrize(
    ("replicated", "in_host", "served_of", "replicas"),
    [(0, 12, 2, 6), (0, 0, 4, 0), (12, 0, 0, 12)],  # rows once a host, once in all, on every rank
)
def test_a_tier_serves_those_that_its_rows_are_exchanged_with(replicated: int, in_host: int, served_of: int, replicas: int) -> None:
    """12 rows of 4 columns, one look-up a sample, 2 hosts of 2 ranks with 3 samples each: value and gradient, FP32."""
    table = Table("t", 12, 4, ("a",))
    sharding = ShardingPlan("by_hand", 2, 2, (table,), (flexshard(table, replicated, in_host, 2, 2),))
    received, served = 2 * 4 * 3 * 4, 2 * 4 * 3 * served_of * 4
    memory = bytes_of_ranks(sharding, workload(3, activation_bytes_per_sample=0.0))
    assert memory.buffers == (received + served + 4 * replicas * 4,) * 4
    assert memory.weights == ((replicas or 3) * 4 * 4,) * 4


def test_ids_of_tiers_are_kept_for_their_statistics() -> None:
    """65,536 of 4 bytes a tiered table, on every rank; 8 bytes where a table has 2**31 rows."""
    first, second, huge = Table("t", 12, 4, ("a",)), Table("u", 12, 4, ("b",)), Table("h", 2**31, 4, ("c",))
    both = ShardingPlan("by_hand", 2, 2, (first, second), (flexshard(first, 0, 0, 2, 2), flexshard(second, 0, 12, 2, 2)))
    assert bytes_of_ranks(both, workload(3)).kept == (2 * 65_536 * 4,) * 4
    one = ShardingPlan("by_hand", 2, 2, (huge,), (flexshard(huge, 0, 0, 2, 2),))
    assert bytes_of_ranks(one, workload(3)).kept == (65_536 * 8,) * 4


@pytest.mark.parametrize(("stored", "weight", "gradient"), [("fp32", 4, 4), ("split_bf16", 4, 2), ("bf16_master", 6, 2), ("bf16", 2, 2)])
def test_weights_count_as_they_are_stored_and_gradients_as_the_model_has_them(stored: str, weight: int, gradient: int) -> None:
    work = workload(dense_parameters=5, dense_optimizer="adam", dense_format=stored)
    memory = bytes_of_ranks(plan(("table_wise",), 1, 2, (Table("t", 10, 4, ("a",), dtype=stored),)), work)
    assert memory.dense == (5 * (weight + gradient + 2 * 4),) * 2 and sum(memory.weights) == 40 * weight


@pytest.mark.parametrize(("sent", "size"), [("fp32", 4), ("fp16", 2), ("bf16", 2)])
def test_gradients_of_replicas_are_kept_as_they_are_sent(sent: str, size: int) -> None:
    sharding = plan(("data_parallel",), 1, 2, (Table("t", 10, 4, ("a",)),))
    assert bytes_of_ranks(sharding, workload(replica_format=sent, batch_size=0)).buffers == (10 * 4 * size,) * 2


def test_weights_are_the_plans_own() -> None:
    sharding = plan(("table_wise", "row_wise", "grid_shard", "data_parallel"), 2, 2)
    assert list(bytes_of_ranks(sharding, workload()).weights) == sharding.weight_bytes_of_ranks()


def test_a_plan_that_fits_is_let_through() -> None:
    sharding = plan(("table_wise",), 1, 2, BIG)
    assert check_fits(sharding, workload(sparse_optimizer="sgd"), cluster(1, 2, 6.0)) == bytes_of_ranks(
        sharding, workload(sparse_optimizer="sgd")
    )


def test_what_is_missing_is_said_to_the_byte() -> None:
    sharding, work = (
        plan(("table_wise",), 1, 2, (Table("big", 10_000_000, 100, ("a",)),)),
        workload(sparse_optimizer="sgd", dense_parameters=0),
    )
    text = remedy_of(sharding, work, cluster(1, 2, 4.0))
    assert "lacks 800.0 MB on rank 1" in text  # 4 GB of weights, 3.2 GB of room


@pytest.mark.parametrize(
    ("scheme", "optimizer", "batch", "ranks", "memory_gb", "expected"),
    [
        ("table_wise", "sgd", 6, 4, 3.0, "sharder=torchrec_row_wise"),
        ("row_wise", "sgd", 6, 2, 2.0, "tables in FP16"),
        ("row_wise", "adam", 6, 2, 3.0, "row_wise_adagrad"),
        ("row_wise", "sgd", 2_000_000, 2, 4.0, "samples a rank instead of 2000000"),
    ],
)
def test_the_nearest_change_does_fit(scheme: str, optimizer: str, batch: int, ranks: int, memory_gb: float, expected: str) -> None:
    sharding, work = plan((scheme,), 1, ranks, BIG), workload(batch, sparse_optimizer=optimizer, activation_bytes_per_sample=0)
    on = cluster(1, ranks, memory_gb)
    text = remedy_of(sharding, work, on)
    assert expected in text
    if match := re.search(r"(\d+) samples a rank instead", text):
        check_fits(sharding, dataclasses.replace(work, batch_size=int(match[1])), on)
    if "FP16" in expected:
        check_fits(dataclasses.replace(sharding, tables=tuple(dataclasses.replace(t, dtype="fp16") for t in BIG)), work, on)
    if expected == "row_wise_adagrad":
        check_fits(sharding, dataclasses.replace(work, sparse_optimizer="row_wise_adagrad"), on)


def test_more_hosts_are_as_few_as_fit() -> None:
    work = workload(sparse_optimizer="sgd")
    text = remedy_of(plan(("row_wise",), 1, 2, BIG), work, cluster(1, 2, 0.3))
    hosts = int(re.search(r"cluster.hosts=(\d+)", text)[1])  # type: ignore[index]
    check_fits(plan(("row_wise",), hosts, 2, BIG), work, cluster(hosts, 2, 0.3))
    with pytest.raises(PlanDoesNotFit):
        check_fits(plan(("row_wise",), hosts - 1, 2, BIG), work, cluster(hosts - 1, 2, 0.3))


def test_where_one_change_is_too_little_two_are_named() -> None:
    """Rows too many for two ranks, and a batch whose pooled rows alone fill a rank, the more so the more ranks there are."""
    work, on = workload(1_000_000, sparse_optimizer="sgd", activation_bytes_per_sample=0), cluster(1, 2, 1.0)
    text = remedy_of(plan(("row_wise",), 1, 2, BIG), work, on)
    match = re.search(r"cluster.hosts=(\d+) with sharder=torchrec_row_wise and (\d+) samples a rank", text)
    assert match
    hosts, batch = int(match[1]), int(match[2])
    check_fits(plan(("row_wise",), hosts, 2, BIG), dataclasses.replace(work, batch_size=batch), on.reshaped(hosts, 2))
    for changed in (dataclasses.replace(work, batch_size=2 * batch), work):
        with pytest.raises(PlanDoesNotFit):
            check_fits(plan(("row_wise",), hosts, 2, BIG), changed, on.reshaped(hosts, 2))


def test_a_search_for_hosts_ends_at_four_thousand() -> None:
    """4 GB of single columns: 8,192 hosts of two ranks would hold them beside their buffers, 4,096 do not."""
    sharding, work = (
        plan(("row_wise",), 1, 2, (Table("t", 1_000_000_000, 1, ("a",)),)),
        workload(1, 0, sparse_optimizer="sgd", activation_bytes_per_sample=0.0),
    )
    assert "none found; fewer rows, fewer columns or more memory a rank" in remedy_of(sharding, work, cluster(1, 2, 4.5e-4))


def test_a_lighter_optimizer_is_named_only_where_it_helps() -> None:
    text = remedy_of(plan(("row_wise",), 1, 2, BIG), workload(sparse_optimizer="adagrad"), cluster(1, 2, 0.3))
    assert "row_wise_adagrad" not in text and "cluster.hosts=" in text


def test_buffers_may_use_the_reserve_but_not_more() -> None:
    sharding, work = plan(("row_wise",), 2, 2), workload(dense_parameters=0, sparse_optimizer="sgd")
    memory = bytes_of_ranks(sharding, work)
    assert max(memory.totals) > max(memory.lasting)
    check_fits(sharding, work, cluster(2, 2, max(memory.totals) / 1e9))
    with pytest.raises(PlanDoesNotFit):
        check_fits(sharding, work, cluster(2, 2, (max(memory.totals) - 1) / 1e9))


def test_what_is_missing_is_of_the_whole_memory_or_of_what_lasts() -> None:
    """Of 80 GB 8 are reserved. Rank 0 lacks a byte of the 80, rank 1 two of the 72 for what lasts."""
    on = dataclasses.replace(cluster(1, 2, 80.0), reserved_memory_share=0.1)
    lasts = [70_000_000_000, on.usable_memory_bytes + 2]
    nothing = (0, 0)
    bytes_of_parts = RankMemory(tuple(lasts), nothing, nothing, (10_000_000_001, 0), nothing)
    assert on.usable_memory_bytes == 72_000_000_000
    assert missing_bytes(bytes_of_parts, on) == (2, 1)
    assert missing_bytes(dataclasses.replace(bytes_of_parts, weights=(lasts[0], lasts[1] - 2)), on) == (1, 0)


@pytest.mark.parametrize(("enough", "hosts"), [(1, 1), (2, 2), (3, 3), (7, 7), (4096, 4096), (4097, None)])
def test_the_fewest_hosts_that_hold_it(monkeypatch: pytest.MonkeyPatch, enough: int, hosts: int | None) -> None:
    monkeypatch.setattr(memory, "_fits", lambda sharding, work, on: sharding.hosts >= enough)
    assert memory._fewest_hosts(plan(("row_wise",), 1, 2), workload(), cluster(1, 2, 1.0)) == hosts


def test_the_rank_with_hot_rows_of_a_sequence_needs_more_and_a_plan_that_fits_on_average_is_refused() -> None:
    """One of 64 rows has half of all look-ups. Its rank serves half and its part of the rest, the others a quarter of the rest each."""
    table = Table("t", 64, 4, ("a",), "none")
    hot = TableAccess("t", 100.0, (1, 63), (50.0, 50 / 63), "formula", "one hot row")
    work = workload(3, 0, lengths={"t": 100.0}, access={"t": hot}, activation_bytes_per_sample=0.0)
    sharding = plan(("row_wise",), 2, 2, (table,))
    received, served = 2 * 4 * 300 * 4, 2 * 4 * 1200 * 4
    buffers = np.array(bytes_of_ranks(sharding, work).buffers) - received
    shares = served_shares(hot, [(start, 16) for start in (0, 16, 32, 48)])
    assert buffers == pytest.approx(served * np.array(list(shares.values())), abs=1)
    assert buffers.max() > 0.55 * served and buffers.sum() == pytest.approx(served, abs=4)
    alike = bytes_of_ranks(sharding, replace(work, access={})).buffers
    assert set(alike) == {received + served // 4}
    lowered = lower(sharding, AccessStatistics({"t": hot}), FP32, work, hot_rows=True)
    look_ups = next(step for step in lowered.steps if step.kind == "lookup").rows_of_rank
    assert np.array(look_ups) * 2 * 4 * 4 == pytest.approx(buffers, abs=1), "memory and time count the same look-ups"
    room = cluster(2, 2, memory_gb=(max(alike) + 2 * 16 * 4 * 4) / 1e9)
    with pytest.raises(PlanDoesNotFit, match=rf"on rank {buffers.argmax()},.*it serves 2\.\d times the mean rank's rows \(t 2\.\d times\)"):
        check_fits(sharding, work, room)
    check_fits(sharding, replace(work, access={}), room)


def test_a_codec_copies_the_rows_of_a_sequence() -> None:
    """FP16 on the wire: rows, a clamped copy and what travels; of FP32: rows and their gradient."""
    table = Table("t", 64, 4, ("a",), "none")
    work = workload(3, 0, lengths={"t": 100.0}, activation_bytes_per_sample=0.0)
    sharding, received = plan(("row_wise",), 2, 2, (table,)), 2 * 4 * 300 * 4
    sizes = [bytes_of_ranks(sharding, replace(work, rows_format=name)).buffers[0] - received for name in ("fp32", "fp16")]
    assert sizes == [300 * 4 * 8, 300 * 4 * 10]

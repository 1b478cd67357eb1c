"""Tables 2 and 3 of FlexShard as written, and what follows from them: rows add up, and two tiers cost the same at a break-point."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recsys_lab.cluster import Cluster, Device, Link
from recsys_lab.errors import UserError
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.precision import Precision
from recsys_lab.schemes.row_blocks.placement import in_row_blocks
from recsys_lab.schemes.whole.placement import in_columns
from recsys_lab.sharders.flexshard.bandwidths import Bandwidths
from recsys_lab.sharders.flexshard.costs import (
    Costs,
    Setting,
    break_point,
    column_sharding,
    flex,
    replication,
    row_sharding,
    setting_of,
)
from recsys_lab.tables import Table
from tests.plan.plans import FP32, access, workload
from tests.sharders.flexshard_cases import PAPER, settings_of

STRATEGIES = (row_sharding, column_sharding, replication, flex)
E, D, L, B, U, W = 30_000_000, 256, 960.0, 4096, 32, 8


def seconds(size_bytes: float, bandwidth_gb_s: float) -> float:
    return size_bytes / (bandwidth_gb_s * 1e9)


@pytest.mark.parametrize(
    ("strategy", "static", "ids", "rows", "dynamic", "dynamic_s", "static_s"),
    [
        (row_sharding, E / U * D * 4, B * L, B * L, 2 * B * L * D * 4, 2 * seconds(B * L * D * 4, 25), 0),
        (column_sharding, E * D / U * 4, U * B * L, B * L, 2 * B * L * D * 4, 2 * seconds(B * L * D * 4, 25), 0),
        (replication, 6 * E * D * 4, 0, B * L, B * L * D * 4, 0, seconds(E * D * 4, 75)),
        (flex, 6 * E / W * D * 4, B * L, B * L, 2 * B * L * D * 4, 2 * seconds(B * L * D * 4, 300), seconds(E * D * 4, 200)),
    ],
)
def test_tables_2_and_3(strategy, static, ids, rows, dynamic, dynamic_s, static_s) -> None:
    """Rows accessed without the factor D (elements); dynamic communication forward and backward."""
    cost = strategy(E, D, L, PAPER)
    assert cost.static_memory_bytes == pytest.approx(static)
    assert cost.input_ids == pytest.approx(ids)
    assert cost.rows_accessed == pytest.approx(rows)
    assert cost.dynamic_memory_bytes == pytest.approx(dynamic)
    assert cost.dynamic_communication_ms == pytest.approx(1e3 * dynamic_s)
    assert cost.static_communication_ms == pytest.approx(1e3 * static_s)


@pytest.mark.parametrize(("strategy", "scheme"), [(row_sharding, "row_wise"), (column_sharding, "column_wise")])
def test_steps_of_sequences_are_the_tables(strategy, scheme: str) -> None:
    """Of a table over all ranks, in blocks of rows or 2 columns each. What arrives at a rank, sends for it and fills it: tables 2 and 3."""
    table, ranks, work = Table("t", 40, 8, ("a",), "none"), range(4), workload(6, 0, lengths={"t": 5.0}, activation_bytes_per_sample=0.0)
    columns = in_columns(table, scheme, [(rank, 2 * rank, 2 * rank + 2) for rank in ranks])
    plan = ShardingPlan("by_hand", 2, 2, (table,), (columns if scheme == "column_wise" else in_row_blocks(table, ranks),))
    setting = replace(PAPER, hosts=2, ranks_per_host=2, batch_size=6, bandwidths=Bandwidths(1.0, 1.0, 1.0, 1.0))
    cost = strategy(40, 8, 5.0, setting)
    steps = {step.name.removeprefix(f"{scheme}."): step for step in lower(plan, access((table,), {"a": 5}), FP32, work).steps}
    travels = [steps[name].bytes_of_rank for name in ("output.all_to_all", "gradient.all_to_all")]
    assert steps["input.ids"].bytes_of_rank == (8 * cost.input_ids,)
    assert steps["lookup"].bytes_of_rank == (4 * 8 * cost.rows_accessed,)
    assert 1e3 * sum(size for (size,) in travels) / 1e9 == pytest.approx(cost.dynamic_communication_ms)
    memory = bytes_of_ranks(plan, work)
    assert set(memory.weights) == {cost.static_memory_bytes}
    assert set(memory.buffers) == {2 * cost.dynamic_memory_bytes}, "ours has the gradients beside what the paper counts"


@given(settings_of(), st.lists(st.floats(0, 2), min_size=1, max_size=20))
def test_a_table_costs_what_its_rows_cost(setting: Setting, p: list[float]) -> None:
    """Section 4.2: L of the rows is the sum of their p."""
    for strategy in STRATEGIES:
        rows = sum((strategy(1, 16, x, setting) for x in p), Costs())
        table = strategy(len(p), 16, sum(p), setting)
        assert rows.memory_bytes == pytest.approx(table.memory_bytes)
        assert rows.communication_ms == pytest.approx(table.communication_ms)


@given(settings_of())
def test_break_points_are_where_costs_cross(setting: Setting) -> None:
    for one, other in ((replication, row_sharding), (flex, row_sharding), (replication, flex)):
        for metric in ("memory_bytes", "communication_ms"):
            p = break_point(one, other, metric, setting)
            if not 0 < p < 1e6:  # no row is looked up more often; nearly equal links cross far behind what a float can tell
                continue
            at, above, below, twice = (
                [getattr(s(1, 16, x, setting), metric) for s in (one, other)] for x in (p, 1.001 * p, 0.999 * p, 2 * p)
            )
            if twice[0] == pytest.approx(twice[1], rel=1e-9):  # links that differ in a float's last bit: one line, within rounding
                continue
            assert at[0] == pytest.approx(at[1])
            assert above[0] < above[1] and below[0] > below[1]


def test_break_points_of_the_paper_in_closed_form() -> None:
    m = 6
    assert break_point(replication, row_sharding, "memory_bytes", PAPER) == pytest.approx((m - 1 / U) / B)
    assert break_point(replication, flex, "memory_bytes", PAPER) == pytest.approx(m * (1 - 1 / W) / B)
    assert break_point(flex, row_sharding, "memory_bytes", PAPER) == np.inf
    assert break_point(replication, row_sharding, "communication_ms", PAPER) == pytest.approx(25 / (2 * B * 75))
    assert break_point(flex, row_sharding, "communication_ms", PAPER) == pytest.approx(1 / (2 * B * 200 * (1 / 25 - 1 / 300)))
    free = replace(PAPER, bandwidths=Bandwidths(25.0, 300.0, np.inf, np.inf))
    assert break_point(replication, row_sharding, "communication_ms", free) == 0
    assert break_point(replication, row_sharding, "communication_ms", replace(PAPER, bandwidths=Bandwidths(*[np.inf] * 4))) == np.inf


def cluster(hosts: int, ranks_per_host: int) -> Cluster:
    links = Link("intra", 77.0, 1.0, "test"), Link("cross", 18.0, 1.0, "test")
    return Cluster("test", hosts, ranks_per_host, Device("test", "cuda", 40.0, 1000.0, {"fp32": 1.0}, "test"), *links)


def test_bandwidths_follow_from_the_links() -> None:
    bandwidths = Bandwidths.of(cluster(4, 8))
    assert bandwidths.a2a_global_gb_s == pytest.approx(18 / (24 / 32))  # three quarters of the bytes leave the host
    assert bandwidths.a2a_intra_gb_s == pytest.approx(77 / (7 / 8))
    assert bandwidths.ar_global_gb_s == pytest.approx(77 / (2 * 31 / 32))
    assert bandwidths.ar_cross_gb_s == pytest.approx(8 * 18 / (2 * 3 / 4))
    assert Bandwidths.of(cluster(4, 8), {"ar_cross_gb_s": 1.0}) == replace(bandwidths, ar_cross_gb_s=1.0)
    one_host = Bandwidths.of(cluster(1, 8))
    assert one_host.a2a_global_gb_s == one_host.a2a_intra_gb_s == pytest.approx(77 / (7 / 8))
    assert one_host.ar_cross_gb_s == np.inf
    assert Bandwidths.of(cluster(1, 1)) == Bandwidths(*[np.inf] * 4)
    assert Bandwidths.of(cluster(4, 1)).a2a_intra_gb_s == np.inf


@pytest.mark.parametrize(
    ("given_gb_s", "message"), [({"a2a_globl_gb_s": 1}, "did you mean 'a2a_global_gb_s'"), ({"ar_cross_gb_s": 0}, "or more")]
)
def test_impossible_bandwidths_are_refused(given_gb_s: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Bandwidths.of(cluster(2, 2), given_gb_s)


def test_a_run_pays_for_its_optimizer_and_its_formats() -> None:
    half = Precision("half", forward_comm="fp16", backward_comm="bf16")
    sgd, adam = (setting_of(cluster(2, 2), half, Workload(64, 0, 0, 0, 0, name, "sgd"), "fp32") for name in ("sgd", "adam"))
    assert (sgd.replica_multiplier, sgd.shard_multiplier) == (2.12, 1)  # weights and a gradient of all rows
    assert (adam.replica_multiplier, adam.shard_multiplier) == (4.12, 3)
    assert (sgd.forward_bytes, sgd.backward_bytes, sgd.gradient_bytes, sgd.dtype_bytes) == (2, 2, 4, 4)
    given_by_hand = setting_of(cluster(2, 2), half, Workload(64, 0, 0, 0, 0, "adam", "sgd"), "fp32", replica_multiplier=6.0)
    assert (given_by_hand.replica_multiplier, given_by_hand.shard_multiplier) == (6, 1)


@pytest.mark.parametrize(
    ("table", "gradient", "stored", "sent", "replica"),
    [
        ("fp32", "fp16", 4, 2, 1 + 1.12 / 2),
        ("fp16", "fp32", 2, 4, 1 + 1.12 * 2),
        ("fp16", "fp16", 2, 2, 2.12),
        ("split_bf16_8", "fp32", 3, 4, 1 + 1.12 * 4 / 3),
    ],
)
def test_formats_of_tables_and_of_replicas_gradients_move_the_break_points(
    table: str, gradient: str, stored: int, sent: int, replica: float
) -> None:
    """Memory: B p = (m - 1/U) stored / 4, since looked-up rows are FP32. Communication: an all-reduce half as wide pays at half the p."""
    s = setting_of(cluster(2, 2), FP32, Workload(64, 0, 0, 0, 0, "sgd", "sgd", replica_format=gradient), table)
    fp32 = setting_of(cluster(2, 2), FP32, Workload(64, 0, 0, 0, 0, "sgd", "sgd"), "fp32")
    assert (s.dtype_bytes, s.gradient_bytes, s.replica_multiplier) == (stored, sent, pytest.approx(replica))
    assert break_point(replication, row_sharding, "memory_bytes", s) == pytest.approx((replica - 1 / 4) * stored / 4 / 64)
    ratio = break_point(replication, row_sharding, "communication_ms", s) / break_point(replication, row_sharding, "communication_ms", fp32)
    assert ratio == pytest.approx(sent / 4)

"""What a plan says of itself is true: planning again at a flip's value flips it, and alternatives cost what planning them costs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from recsys_lab.cluster import Cluster, Device, Link
from recsys_lab.plan import Workload
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.precision import Precision
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.flexshard import FlexShard, Reasons, alternative_rows, sentences
from recsys_lab.sharders.flexshard.allocate import Split, Trade, three_tier, two_tier
from recsys_lab.sharders.flexshard.flips import flips_of
from recsys_lab.sharders.flexshard.rows import Rows
from recsys_lab.sharders.flexshard.table_costs import table_costs
from recsys_lab.tables import AccessStatistics, Table, zipf_mandelbrot
from tests.sharders.flexshard_cases import PAPER

FP32 = Precision("fp32")
TABLE = Table("history", 1_000_000, 64, ("history",), "none")
POOLED = Table("words", 50_000, 64, ("left", "right"))
ACCESS = AccessStatistics({t.name: zipf_mandelbrot(t.rows, 1.05, 20.0).access(t.name, t.rows, 100.0, 2000) for t in (TABLE, POOLED)})
WORKLOAD = Workload(
    1024, 0, 0.0, 0.0, 0.0, "sgd", "sgd", {"history": 100.0, "words": 100.0}, access={t.name: ACCESS[t.name] for t in (TABLE, POOLED)}
)
CLUSTER = Cluster(
    "test",
    4,
    8,
    Device("test", "cuda", 40.0, 1000.0, {"fp32": 1.0}, "test"),
    Link("intra", 200.0, 2.0, "test"),
    Link("cross", 18.0, 5.0, "test"),
)


def why(tables: tuple[Table, ...] = (TABLE,), where: Cluster = CLUSTER, **options) -> Reasons:
    sharder, inputs = FlexShard(**options), PlanInputs(tables, ACCESS, where, FP32, WORKLOAD)
    reasons = sharder.reasons(sharder.plan(inputs), inputs)
    assert reasons is not None
    return reasons


@pytest.mark.parametrize(
    "options",
    [
        {"tiers": 3},
        {"tiers": 2},
        {"tiers": 3, "rule": "optimal"},
        {"tiers": 3, "extra_memory_gb": 0.5, "align": True},
        {"tiers": 3, "goal": "max_communication_savings"},
        {"tiers": 2, "goal": "max_memory_savings"},
        {"tiers": 3, "goal": "all_replicated"},
        {"tiers": 3, "force": {"words": "row_wise"}},
    ],
    ids=str,
)
def test_reasons_are_data_and_read_well(options: dict) -> None:
    tables = (TABLE, POOLED)
    reasons = why(tables, **options)
    assert Reasons.from_json(json.loads(json.dumps(reasons.to_json()))) == reasons
    lines = sentences(reasons)
    assert all(line.endswith(".") and "  " not in line for line in lines)
    rows = alternative_rows(reasons)
    assert [row[0] for row in rows][:2] == ["this plan", "row-wise only"]
    assert reasons.pooled == (() if "force" in options else ("words",))
    assert reasons.chosen.replicated + reasons.chosen.host_sharded + reasons.chosen.row_sharded == sum(
        t.rows for t in tables if t.name not in options.get("force", {})
    )


def test_alternatives_begin_with_row_wise_and_leave_out_what_is_chosen() -> None:
    by_rule = {rule: why(tiers=3, rule=rule).alternatives for rule in ("paper", "optimal")}
    for alternatives in by_rule.values():
        assert (alternatives[0].name, alternatives[0].replicated, alternatives[0].host_sharded) == ("row-wise only", 0, 0)
        assert alternatives[0].row_sharded == TABLE.rows and alternatives[0].global_share == 1.0
    assert [{a.name for a in by_rule[rule]} & {"rule=optimal"} for rule in ("paper", "optimal")] == [{"rule=optimal"}, set()]


def test_a_replica_may_cost_its_weights_alone() -> None:
    assert why(tiers=2, replica_multiplier=1.0).setting["replica_multiplier"] == 1.0


def test_what_decided_is_named() -> None:
    three = why(tiers=3)
    assert [b.tier for b in three.boundaries] == ["host_sharded", "row_sharded"]
    assert three.boundaries[0].row == three.chosen.replicated
    assert three.boundaries[0].break_point == pytest.approx(three.boundaries[0].p, rel=0.02)
    assert "more memory than it saves" in three.boundaries[0].decided_by
    rich = why(tiers=3, extra_memory_gb=10.0)
    assert "host-sharding takes longer" in rich.boundaries[1].decided_by
    assert rich.boundaries[1].break_point == pytest.approx(rich.boundaries[1].p, rel=0.02)
    assert why(tiers=2, extra_memory_gb=10.0).boundaries[0].decided_by.startswith("from here a replica takes longer")
    assert why(tiers=3, goal="all_replicated").boundaries[0].decided_by == "there are no more rows"


def test_alternatives_are_the_plans_that_they_name() -> None:
    choices = {choice.name: choice for choice in why(tiers=3).alternatives}
    assert set(choices) == {"row-wise only", "two tiers", "rule=optimal", "10% more memory"}
    for name, options in (("two tiers", {"tiers": 2}), ("rule=optimal", {"tiers": 3, "rule": "optimal"})):
        assert replace(choices[name], name="this plan") == why(**options).chosen
    base, more = choices["row-wise only"], choices["10% more memory"]
    assert base.global_share == 1 and base.row_sharded == TABLE.rows
    assert more.memory_bytes <= 1.1 * base.memory_bytes + 1
    one_host = {choice.name for choice in why(where=CLUSTER.reshaped(1, 8), tiers=3).alternatives}
    assert one_host == {"row-wise only", "10% more memory"}


def test_memory_is_what_our_executor_s_model_puts_on_the_fullest_rank() -> None:
    """By the paper's table 2 the plan takes as much as row-wise sharding; here it takes less."""
    sharder, inputs = FlexShard(tiers=3), PlanInputs((TABLE,), ACCESS, CLUSTER, FP32, WORKLOAD)
    plan = sharder.plan(inputs)
    reasons = why(tiers=3)
    assert reasons.chosen.memory_bytes == max(bytes_of_ranks(plan, WORKLOAD).totals) < reasons.alternatives[0].memory_bytes
    assert any("less memory a rank" in line for line in sentences(reasons))


def test_flips_are_where_planning_again_gives_something_else() -> None:
    access = ACCESS["history"]
    trade = Trade(Rows.of_tables([TABLE], [access]), PAPER)
    split = three_tier(trade)
    assert split is not None
    flips = flips_of(trade, split)
    assert [f.side for f in flips] == ["above", "below", "below", "below", "below"]

    def again(**changes) -> Trade:
        return Trade(trade.rows, replace(PAPER, **changes))

    def linked(**gb_s) -> Trade:
        return again(bandwidths=replace(PAPER.bandwidths, **gb_s))

    multiplier, batch, ar_global, ar_cross_last, ar_cross_first = (f.at for f in flips)
    assert again(replica_multiplier=1.01 * multiplier).least_memory() == 0 < again(replica_multiplier=0.99 * multiplier).least_memory()
    assert again(batch_size=0.99 * batch).least_memory() == 0 < again(batch_size=1.01 * batch).least_memory()
    assert linked(ar_global_gb_s=0.99 * ar_global).least_communication() < split.replicated
    assert linked(ar_global_gb_s=1.01 * ar_global).least_communication() >= split.replicated
    end = split.replicated + split.in_host
    assert (
        linked(ar_cross_gb_s=0.95 * ar_cross_last).worth_host_sharding()
        < end
        <= linked(ar_cross_gb_s=1.05 * ar_cross_last).worth_host_sharding()
    )
    assert linked(ar_cross_gb_s=0.95 * ar_cross_first).worth_host_sharding() <= split.replicated
    assert linked(ar_cross_gb_s=1.05 * ar_cross_first).worth_host_sharding() > split.replicated


def test_sequences_cost_the_sum_of_their_tiers_and_two_tiers_keep_to_the_memory() -> None:
    trade = Trade(Rows.of_tables([TABLE], [ACCESS["history"]]), PAPER)
    split = two_tier(trade)
    assert split is not None
    parts = table_costs(TABLE, ACCESS["history"], split, PAPER)
    whole = table_costs(TABLE, ACCESS["history"], Split(0, 0), PAPER)["row_sharded"]
    memory = sum(part.memory_bytes for part in parts.values()) - whole.memory_bytes
    assert memory == pytest.approx(float(trade.memory_bytes(split.replicated)), abs=1e-3 * whole.memory_bytes)
    assert memory <= 1.0


def test_pooled_tables_cost_the_same_exchange_however_many_rows_are_hot() -> None:
    """Figure 1, right column: by samples and features, whatever the length; gone only with the tier's last row."""
    access = ACCESS["words"]
    few, many = (table_costs(POOLED, access, Split(n, 0), PAPER) for n in (10, 40_000))
    assert few["row_sharded"].dynamic_communication_ms == many["row_sharded"].dynamic_communication_ms > 0
    assert few["row_sharded"].input_ids > many["row_sharded"].input_ids
    none = table_costs(POOLED, access, Split(50_000, 0), PAPER)
    assert none["row_sharded"].communication_ms == 0
    assert none["replicated"].dynamic_communication_ms == 0 < none["replicated"].static_communication_ms

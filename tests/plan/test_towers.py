"""Plans with towers: where sites are, what is refused, what they cost and how they are told."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.errors import UserError
from recsys_lab.plan import Shard, ShardingPlan
from recsys_lab.plan.explain import explain, table_facts
from recsys_lab.plan.lower import lower
from recsys_lab.plan.memory import bytes_of_ranks
from recsys_lab.plan.serialise import load_plan, save_plan
from recsys_lab.plan.steps import Step
from recsys_lab.plan.validate import validate
from recsys_lab.plan.workload import TowerWork
from recsys_lab.schemes.towers.sites import sites_of
from recsys_lab.tables import Table
from tests.executor.tower_cases import tower_plan
from tests.plan.plans import FP32, LENGTHS, access, workload
from tests.plan.test_lower import spread
from tests.plan.test_volume_towers import DIM, FOUR, MIX, ONE, TABLES, THREE, TWO

FEATURES = sum(len(t.features) for t in TABLES)


def test_towers_are_on_consecutive_hosts_and_peer_order_sorts_by_place() -> None:
    assert sites_of(2, 2, 2).peer_order == (0, 2, 1, 3)  # the paper's example, section 3.1.1
    wide = sites_of(2, 4, 2)  # K = 2 hosts a tower
    assert (wide.hosts, wide.towers) == ((2, 2), (1, 1)) and wide.ranks_of(1) == (4, 5, 6, 7) and wide.peers_at(1, 1) == (1, 5)
    many = sites_of(8, 2, 2)  # four towers a host
    assert (many.towers, [many.site_of_tower(t) for t in (3, 4)]) == ((4, 4), [0, 1]) and list(many.towers_of(1)) == [4, 5, 6, 7]
    for towers, hosts in ((2, 3), (2, 5), (0, 2)):
        with pytest.raises(UserError, match="so many towers cannot share the hosts"):
            sites_of(towers, hosts, 1)


@pytest.mark.parametrize(
    ("towers", "hosts", "each"),
    [
        (26, 32, (2,) * 6 + (1,) * 20),  # the paper's 256 and 512 GPUs
        (26, 64, (4,) * 6 + (2,) * 20),
        (3, 4, (2, 1, 1)),
        (4, 6, (2, 2, 1, 1)),
        (26, 8, (1,) * 8),
    ],
)
def test_towers_need_not_divide_the_hosts(towers: int, hosts: int, each: tuple[int, ...]) -> None:
    sites = sites_of(towers, hosts, 2)
    assert sites.hosts == each and sum(sites.towers) == towers and max(sites.towers) - min(sites.towers) <= 1
    for site in range(sites.count):
        assert sorted(sites.order_of(site)) == list(sites.world)  # every rank's samples are looked up once in every site
        assert {len(sites.peers_at(site, place)) for place in range(len(sites.ranks_of(site)))} == {sites.peers_of(site)}
    assert all(
        set(sites.peers_at(s, p)) <= set(sites.exchange_of(r))
        for r in sites.world
        if (s := sites.site_of_rank(r), p := sites.place_of_rank(r))
    )


def changed(plan: ShardingPlan, table: int, **changes) -> ShardingPlan:
    placements = list(plan.placements)
    placements[table] = dataclasses.replace(placements[table], **changes)
    return dataclasses.replace(plan, placements=tuple(placements))


def test_what_is_no_plan_of_towers_is_refused() -> None:
    sharding = tower_plan(TABLES, TWO, 2, 2, ("table_wise",), "rows")
    blocks = tower_plan(TABLES, TWO, 2, 2, ("row_wise",), "rows").placements[0]
    first, second = blocks.shards
    swapped = (dataclasses.replace(first, ranks=(1,)), dataclasses.replace(second, ranks=(0,)))
    cases = [
        (
            changed(sharding, 0, shards=(Shard((2,), 0, 40, 0, DIM),)),
            "all shards must lie on the ranks of tower 0; given rank 2; allowed: 0 to 1",
        ),
        (changed(sharding, 0, scheme="table_wise"), "a plan with towers has all tables in them"),
        (dataclasses.replace(sharding, permute="sideways"), "unknown peer permute; given sideways"),
        (dataclasses.replace(sharding, permute=""), "unknown peer permute; given none given"),
        (dataclasses.replace(sharding, towers=(("c", "a"), ("b", "d", "f", "e"))), "all features of a table must be in one tower"),
        (dataclasses.replace(sharding, towers=(("c", "a", "b", "d"), ("d", "f", "e"))), "a feature is in two towers; given d"),
        (dataclasses.replace(sharding, towers=()), "so many towers cannot share the hosts"),
        (changed(sharding, 0, scheme="tower_row_wise", shards=swapped), "rank 0 must hold rows 0 to 20"),
        (changed(sharding, 0, shards=sharding.placements[0].shards * 2), "two shards hold the same cells"),
    ]
    for plan, message in cases:
        with pytest.raises(UserError) as error:
            validate(plan)
        assert message in str(error.value)


def test_unlike_sites_have_no_common_peer_order() -> None:
    for permute in ("rows", "none"):
        with pytest.raises(UserError, match=f"no common peer order; given {permute}; allowed: ids"):
            tower_plan(TABLES, THREE, 4, 2, MIX, permute)
    text = "\n".join(explain(tower_plan(TABLES, THREE, 4, 2, MIX, "ids")))
    assert "3 towers on 3 sites: 1 on each, which is 1 to 2 hosts" in text and "in 2 exchanges of 4 peers side by side" in text


def test_a_plan_of_towers_loads_as_it_was_saved(tmp_path) -> None:
    plan = tower_plan(TABLES, FOUR, 2, 2, MIX, "ids")
    loaded = load_plan(save_plan(plan, tmp_path / "plan.json"))
    assert loaded == plan and loaded.fingerprint == plan.fingerprint
    assert dataclasses.replace(plan, permute="rows").fingerprint != plan.fingerprint


def test_it_is_told_where_towers_are_and_what_is_permuted() -> None:
    text = "\n".join(explain(tower_plan(TABLES, TWO, 4, 2, MIX, "rows")))
    assert "2 towers on 2 sites: 1 on each, which is 2 hosts" in text and "in 4 exchanges of 2 peers side by side" in text
    assert "Looked-up rows are permuted into peer order" in text and "Tower 1 has 3 features: d, f, e." in text
    facts = {f.table.name: f for f in table_facts(tower_plan(TABLES, TWO, 4, 2, MIX, "rows"))}
    assert facts["t0"].where == "rows in equal blocks on ranks 0-3" and facts["t1"].where == "whole on rank 1"


def works(towers: int, columns: int = 5) -> tuple[TowerWork, ...]:
    return tuple(TowerWork(100 * (t + 1), columns, 1e3, 2e3, 40.0) for t in range(towers))


@settings(max_examples=60)
@given(st.data())
def test_steps_are_whole(data: st.DataObject) -> None:
    """Any towers: what is sent is received, the order is serial, and look-ups read each row once for each id."""
    towers, hosts = data.draw(
        st.sampled_from([(TWO, 2), (TWO, 4), (TWO, 1), (FOUR, 2), (FOUR, 4), (ONE, 1), (ONE, 2), (THREE, 4), (THREE, 2)])
    )
    ranks, batch = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    schemes = tuple(data.draw(st.lists(st.sampled_from(MIX), min_size=1, max_size=3)))
    permutes = ["rows", "ids", "none"] if sites_of(len(towers), hosts, ranks).even else ["ids"]
    plan = tower_plan(TABLES, towers, hosts, ranks, schemes, data.draw(st.sampled_from(permutes)))
    load = workload(batch, towers=data.draw(st.sampled_from([(), works(len(towers))])))
    steps, world, earlier = lower(plan, access(TABLES, LENGTHS), FP32, load), hosts * ranks, set()
    for step in steps.steps:
        assert set(step.after) <= earlier and step.name not in earlier, step.name
        earlier.add(step.name)
        assert len(step.bytes_of_rank) in (1, world)
        for group in step.groups:
            assert len(group) > 1
            if step.kind == "all_to_all":
                sent, received = (spread(v, world) for v in (step.bytes_of_rank, step.received_of_rank or step.bytes_of_rank))
                assert math.isclose(sum(sent[r] for r in group), sum(received[r] for r in group)), step.name
    read = sum(sum(spread(s.bytes_of_rank, world)) for s in steps.steps if s.kind == "lookup")
    assert math.isclose(read, sum(sum(LENGTHS[f] for f in t.features) * t.row_bytes for t in TABLES) * batch * world)


def step_of(plan: ShardingPlan, name: str, towers: tuple[TowerWork, ...] = ()) -> Step:
    return next(s for s in lower(plan, access(TABLES, LENGTHS), FP32, workload(6, towers=towers)).steps if s.name == name)


def test_sptt_sends_as_many_bytes_of_rows_as_the_flat_exchange_but_to_fewer() -> None:
    """Section 3.1.2: the world of step f is smaller by the ranks of a site, its bytes are not."""
    step = step_of(tower_plan(TABLES, TWO, 2, 4, ("column_wise",), "none"), "towers.output.all_to_all")
    assert [len(group) for group in step.groups] == [2] * 4
    assert sum(spread(step.bytes_of_rank, 8)) == 8 * 6 * FEATURES * DIM * 4 == sum(spread(step.received_of_rank or step.bytes_of_rank, 8))


def test_tower_modules_compress_what_peers_exchange_and_nothing_else() -> None:
    """Section 4: CR is the sum of the towers' outputs over the features' columns."""
    plan = tower_plan(TABLES, TWO, 2, 4, MIX, "rows")
    for name in ("towers.output.all_to_all", "towers.gradient.output.all_to_all"):
        plain, compressed = (sum(spread(step_of(plan, name, work).bytes_of_rank, 8)) for work in ((), works(2)))
        assert compressed / plain == 2 * 5 / (FEATURES * DIM)
    for name in ("towers.exchange.all_to_all", "towers.gradient.exchange.all_gather", "towers.permute"):
        assert step_of(plan, name).bytes_of_rank == step_of(plan, name, works(2)).bytes_of_rank
    assert step_of(plan, "towers.module.all_reduce", works(2)).bytes_of_rank == (400.0,) * 4 + (800.0,) * 4


def test_only_a_permute_of_rows_moves_memory_and_only_none_travels_in_peer_order() -> None:
    for permute, group, moves in (("rows", (0, 1, 2, 3), True), ("ids", (0, 1, 2, 3), False), ("none", (0, 2, 1, 3), False)):
        steps = lower(tower_plan(TABLES, TWO, 2, 2, MIX, permute), access(TABLES, LENGTHS), FP32, workload())
        assert {s.groups for s in steps.steps if s.name.startswith("towers.input")} == {(group,)}
        assert any(s.name == "towers.permute" for s in steps.steps) == moves


def test_memory_has_each_sites_own_modules() -> None:
    plan = tower_plan(TABLES, TWO, 2, 2, ("table_wise",), "none")
    plain, with_modules = (bytes_of_ranks(plan, workload(6, towers=work)) for work in ((), works(2)))
    each = 4 * (2 + 2)  # weights, gradients, Adam's two
    assert [b - a for a, b in zip(plain.dense, with_modules.dense)] == [100 * each] * 2 + [200 * each] * 2
    # Of each sample of 6: 5 outputs a tower in place of the features' rows at home. Of each of 12: outputs and activations in the site.
    assert {b - a for a, b in zip(plain.buffers, with_modules.buffers)} == {8 * 6 * (2 * 5 - FEATURES * DIM) + 12 * (8 * 5 + 40)}
    flat = dataclasses.replace(plan, towers=(), permute="", placements=tuple(_table_wise(plan)))
    assert bytes_of_ranks(flat, workload(6, towers=works(2))).dense == (workload().dense_bytes + 300 * each,) * 4


def _table_wise(plan: ShardingPlan):
    return (dataclasses.replace(p, scheme="table_wise") for p in plan.placements)


def test_a_sequence_is_refused() -> None:
    clicks = (Table("clicks", 10, 4, ("a",), "none"),)
    with pytest.raises(UserError, match="a sequence has no pooled row"):
        tower_plan(clicks, (("a",),), 1, 2, ("table_wise",), "none")


@pytest.mark.parametrize(("stored", "activation_bytes", "read"), [("fp32", 4, 4), ("split_bf16", 4, 2), ("bf16_master", 6, 2)])
def test_tower_modules_move_weights_as_they_are_stored_and_activations_as_they_compute(
    stored: str, activation_bytes: int, read: int
) -> None:
    plan = tower_plan(TABLES, TWO, 2, 2, ("table_wise",), "rows")
    work = workload(4, towers=(TowerWork(100, 3, 1.0, 2.0, 8.0),) * 2, dense_format=stored, dense_optimizer="adagrad")
    compute = "fp32" if stored == "fp32" else "bf16"
    steps = {s.name: s for s in lower(plan, access(TABLES, LENGTHS), dataclasses.replace(FP32, compute=compute), work).steps}
    activations = 2 * 4 * 8.0 * (1.0 if compute == "fp32" else 0.5)  # of four samples of each of two peers
    assert steps["towers.module"].bytes_of_rank == (100 * read + activations,)
    assert steps["towers.gradient.module"].bytes_of_rank == (2 * (100 * read + activations),)
    assert steps["towers.module.update"].bytes_of_rank == (100 * (2 * activation_bytes + read + 8),)


def test_on_one_site_nothing_travels_between_sites() -> None:
    assert "Nothing travels between sites" in " ".join(explain(tower_plan(TABLES, ONE, 1, 2, ("table_wise",), "rows")))
    assert "Nothing travels between sites" not in " ".join(explain(tower_plan(TABLES, TWO, 2, 2, ("table_wise",), "rows")))


def test_a_permute_reads_and_writes_each_looked_up_row_once() -> None:
    plan = tower_plan(TABLES, TWO, 2, 2, ("table_wise",), "rows")
    steps = {step.name: step for step in lower(plan, access(TABLES, LENGTHS), FP32, workload()).steps}
    assert steps["towers.permute"].max_bytes == 2 * steps["towers.exchange.all_to_all"].max_bytes

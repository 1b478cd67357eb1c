"""Recorded collectives equal the steps for tables in towers: same kinds, same groups, same bytes, on every rank.

And of all that is recorded, only the distribution of ids, the exchange between peers and the dense part's all-reduce leave a site.
"""

from __future__ import annotations

import pytest
import torch

from recsys_lab.executor.groups import close_groups
from recsys_lab.executor.recorded import register, start_recording, stop_recording
from recsys_lab.executor.shard import shard
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.plan.workload import TowerWork, Workload
from recsys_lab.precision import Precision
from recsys_lab.schemes.towers.sites import sites_of_plan
from recsys_lab.tables import Table
from tests.executor.tower_cases import Towers, model_of, tower_plan
from tests.plan.plans import COMMS, FP32, LENGTHS, UNLIKE, access, workload
from tests.plan.test_volume import BATCH, in_order_of_kind, random_batch
from tests.ranks import run_ranks

DENSE = 2
DIM = 8
TABLES = (
    Table("t0", 40, DIM, ("a",)),
    Table("t1", 33, DIM, ("b", "c"), "mean"),
    Table("t2", 3, DIM, ("d",), "mean"),
    Table("t3", 50, DIM, ("e",)),
    Table("t4", 21, DIM, ("f",)),
)
TWO: Towers = (("c", "a", "b"), ("d", "f", "e"))
FOUR: Towers = (("a",), ("c", "b"), ("e", "f"), ("d",))
THREE: Towers = (("c", "b", "a"), ("f", "e"), ("d",))  # on four hosts: one tower has two, on two hosts: one has two towers
ONE: Towers = (("a", "b", "c", "d", "e", "f"),)
MIX = ("row_wise", "table_wise", "column_wise")
#: (towers, schemes, permute, with tower modules)
CASES: list[tuple[Towers, tuple[str, ...], str, bool]] = [
    (TWO, ("table_wise",), "rows", False),
    (TWO, ("column_wise",), "none", False),
    (TWO, ("row_wise",), "ids", False),
    (TWO, MIX, "none", True),
    (FOUR, MIX, "rows", True),
    (FOUR, MIX, "none", False),
    (ONE, MIX, "none", True),
    (THREE, MIX, "ids", True),
]
SHAPES = [(2, 2), (4, 1), (2, 1), (1, 2), (4, 2)]
#: In other formats only what differs in what travels: with and without tower modules, parts of rows and whole ones.
IN_FORMATS = (3, 5)
Seen = list[tuple[str, tuple[int, ...], float]]
register()


def plans(hosts: int, ranks_per_host: int) -> list[ShardingPlan]:
    return [tower_plan(TABLES, towers, hosts, ranks_per_host, schemes, permute) for towers, schemes, permute, _ in CASES]


def work(plan: ShardingPlan, with_modules: bool) -> Workload:
    model = model_of(plan, DENSE, with_modules)
    sizes = {name: p.numel() for name, p in model.named_parameters()}
    dense = sum(size for name, size in sizes.items() if not name.startswith(("embeddings.", "tower_modules.")))
    if not with_modules:
        return workload(BATCH, dense)
    per_tower = [sum(size for name, size in sizes.items() if name.startswith(f"tower_modules.{t}.")) for t in range(len(plan.towers))]
    towers = tuple(TowerWork(size, 3 + number, 1e3, 2e3, 1e2) for number, size in enumerate(per_tower))  # widths of TowerConcat
    return workload(BATCH, dense, towers=towers)


def record_each(cases: list[ShardingPlan], runs: list[tuple[int, Precision]]) -> list[Seen]:
    return [record_one_step(cases[number], CASES[number][3], precision) for number, precision in runs]


def record_one_step(plan: ShardingPlan, with_modules: bool, precision: Precision) -> Seen:
    model = model_of(plan, DENSE, with_modules)
    sharded = shard(model, plan, torch.device("cpu"), ("adagrad", 0.1, 1e-8, 0.0), precision, seed=1)  # type: ignore[arg-type]
    dense = torch.optim.SGD((p for _, p in sharded.dense_parameters()), lr=0.1)
    for step in range(6):
        if step == 5:
            start_recording()
        sharded.sparse_optimizer.zero_grad()
        dense.zero_grad()
        sharded.module(torch.rand(BATCH, DENSE), random_batch(plan.tables)).sum().backward()
        sharded.sparse_optimizer.step()
        dense.step()
    collectives = [(one.kind, one.group, float(one.bytes)) for one in stop_recording()]
    close_groups()
    return collectives


@pytest.mark.timeout(180)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[0]}x{s[1]}")
def test_recorded_collectives_equal_the_steps(shape: tuple[int, int]) -> None:
    shardings = plans(*shape)
    runs = [(number, FP32) for number in range(len(CASES))]
    if shape == (2, 2):
        runs += [(number, other) for number in IN_FORMATS for other in (COMMS, UNLIKE)]
    recorded = run_ranks(record_each, *shape, shardings, runs, backend="recorded", timeout_s=150)
    for run, (number, precision) in enumerate(runs):
        plan, load = shardings[number], work(shardings[number], CASES[number][3])
        steps = lower(plan, access(plan.tables, LENGTHS), precision, load)
        for rank, collectives in enumerate(recorded):
            expected = in_order_of_kind(steps.collectives_of(rank))
            assert in_order_of_kind(collectives[run]) == expected, f"{precision.name}: {CASES[number]}, rank {rank}"
            leave_the_site(plan, rank, collectives[run], load.dense_parameters * precision.dense_comm_bytes)


def leave_the_site(plan: ShardingPlan, rank: int, collectives: Seen, dense_bytes: int) -> None:
    """Between sites: three exchanges of ids over all ranks, one of rows each way between peers, and the dense part's all-reduce."""
    sites = sites_of_plan(plan)
    if sites.count == 1:
        return
    world, peers = set(range(plan.world_size)), sites.exchange_of(rank)
    crossing = [(kind, group, size) for kind, group, size in collectives if len({sites.site_of_rank(r) for r in group}) > 1]
    ids = [one for one in crossing if one[0] == "all_to_all" and set(one[1]) == world and one[1] != peers]
    between = [one for one in crossing if one[0] == "all_to_all" and one[1] == peers]
    reduced = [one for one in crossing if one[0] == "all_reduce"]
    assert len(ids) + len(between) == 5
    assert sum(size for _, _, size in reduced) == dense_bytes and {g for _, g, _ in reduced} == {tuple(sorted(world))}
    assert len(crossing) == len(ids) + len(between) + len(reduced)

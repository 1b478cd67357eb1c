"""26 features in unequal towers on emulated hosts: the 32 and 64 of the paper, one rank each, and six in the short tests."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

from recsys_lab.plan import ShardingPlan
from recsys_lab.schemes.towers.sites import sites_of_plan
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.dmt import DMT, TowerOptions
from recsys_lab.tables import Table
from tests.executor.reference import Outcome, samples
from tests.executor.sharded import FP32, small_cluster, statistics, workload
from tests.executor.test_sharded_equals_unsharded import DENSE, close
from tests.executor.tower_cases import train, train_unsharded
from tests.ranks import run_ranks

STEPS = 2
TABLES = tuple(Table(f"t{n}", 3 + n * n % 17, 8, (f"f{n}",), "mean" if n % 3 else "sum") for n in range(26))


def planned(count: int, hosts: int, ranks_per_host: int) -> ShardingPlan:
    cluster = small_cluster(hosts, ranks_per_host)
    towers = TowerOptions(count=count).towers(TABLES, cluster)
    return DMT().plan(PlanInputs(TABLES, statistics(TABLES), cluster, FP32, workload(), towers))


def train_here(counts: list[int], rows: int) -> list[Outcome]:
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    plans = [planned(count, dist.get_world_size() // local, local) for count in counts]
    return [train(plan, samples(TABLES, STEPS, rows, DENSE), "adagrad", DENSE, with_modules=True) for plan in plans]


#: By hosts: how many towers, and the hosts and towers of each site.
UNEQUAL = {
    6: [(26, (1,) * 6, (5, 5, 4, 4, 4, 4)), (4, (2, 2, 1, 1), (1,) * 4)],
    32: [(26, (2,) * 6 + (1,) * 20, (1,) * 26)],
    64: [(26, (4,) * 6 + (2,) * 20, (1,) * 26)],
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("hosts", [6, pytest.param(32, marks=pytest.mark.long), pytest.param(64, marks=pytest.mark.long)])
def test_unequal_towers_train_as_in_one_process(hosts: int) -> None:
    counts = [count for count, *_ in UNEQUAL[hosts]]
    ranks = run_ranks(train_here, hosts, 1, counts, 2 * hosts, timeout_s=280)
    for number, (count, hosts_of_sites, towers_of_sites) in enumerate(UNEQUAL[hosts]):
        plan = planned(count, hosts, 1)
        assert (sites_of_plan(plan).hosts, sites_of_plan(plan).towers) == (hosts_of_sites, towers_of_sites)
        whole = train_unsharded(TABLES, plan.towers, samples(TABLES, STEPS, 2 * hosts, DENSE), "adagrad", DENSE)
        here = [outcomes[number] for outcomes in ranks]
        torch.testing.assert_close(torch.cat([outcome.logits for outcome in here]), whole.logits, rtol=1e-5, atol=1e-6)
        for rank, outcome in enumerate(here):
            close(outcome.dense, {name: whole.dense[name] for name in outcome.dense}, f"{count} towers, rank {rank}, dense part")
            close(outcome.tables, whole.tables, f"{count} towers, rank {rank}, tables")
        assert set().union(*(outcome.dense for outcome in here)) == whole.dense.keys(), "each tower module trains on its site"

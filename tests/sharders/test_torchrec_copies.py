"""Cheap copies change no plan of TorchRec's, and what is still copied deeply does not grow with tables times ranks."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
from torchrec.distributed.planner.partitioners import GreedyPerfPartitioner

from recsys_lab.plan import ShardingPlan
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.torchrec import TorchRec, estimates, planner, search
from recsys_lab.tables import Table
from tests.sharders.test_torchrec_planner import FP32, MLPERF, MLPERF_HOT, cluster, statistics, workload

SMALL = tuple(Table(f"t{i}", 2000 << i % 5, 32 << i % 3, (f"f{i}",)) for i in range(12))
IN_HOSTS = ["table_row_wise", "table_column_wise"]


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    planner._placements.cache_clear()
    yield
    planner._placements.cache_clear()


def plan(tables: tuple[Table, ...], hosts: int, ranks_per_host: int, types: list[str] | None, memory_gb: float = 80.0) -> ShardingPlan:
    where, access = cluster(hosts, ranks_per_host, "cuda", memory_gb=memory_gb), statistics(tables, MLPERF_HOT[: len(tables)])
    return TorchRec(sharding_types=types).plan(PlanInputs(tables, access, where, FP32, workload(batch_size=256)))


@pytest.mark.parametrize(
    ("tables", "hosts", "ranks_per_host", "types", "memory_gb"),
    [
        (MLPERF, 8, 8, None, 80.0),
        (SMALL, 1, 16, None, 80.0),
        (SMALL, 2, 4, IN_HOSTS, 80.0),
        (SMALL, 4, 2, ["grid_shard"], 80.0),
        (SMALL, 4, 4, ["table_row_wise"], 0.05),
    ],
)
def test_plans_are_those_of_deep_copies(
    tables: tuple[Table, ...], hosts: int, ranks_per_host: int, types: list[str] | None, memory_gb: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharding = plan(tables, hosts, ranks_per_host, types, memory_gb)
    planner._placements.cache_clear()
    monkeypatch.setattr(search, "Greedy", GreedyPerfPartitioner)
    monkeypatch.setattr(search, "with_idle_ranks", lambda topology: topology)
    monkeypatch.setattr(estimates, "Shards", list)
    assert plan(tables, hosts, ranks_per_host, types, memory_gb) == sharding


def test_a_rank_more_is_copied_a_few_times_whatever_the_tables_are(monkeypatch: pytest.MonkeyPatch) -> None:
    copied, reconstruct = [0], copy._reconstruct  # type: ignore[attr-defined]

    def counted(*given: object, **more: object) -> object:
        copied[0] += 1
        return reconstruct(*given, **more)

    monkeypatch.setattr(copy, "_reconstruct", counted)
    of_ranks = {}
    for ranks in (8, 40):
        copied[0] = 0
        plan(SMALL, 1, ranks, IN_HOSTS)
        of_ranks[ranks] = copied[0]
    assert of_ranks[40] - of_ranks[8] <= 4 * (40 - 8), of_ranks

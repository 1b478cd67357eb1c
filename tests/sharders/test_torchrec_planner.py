"""TorchRec's planner behind our function: what it is told to do it does, and what cannot be is refused in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from recsys_lab.cluster import Cluster, Device, Link
from recsys_lab.errors import PlanDoesNotFit, UserError
from recsys_lab.plan import ShardingPlan, Workload
from recsys_lab.precision import Precision
from recsys_lab.sharders.base import PlanInputs
from recsys_lab.sharders.torchrec import TorchRec, search
from recsys_lab.sharders.torchrec import planner as torchrec
from recsys_lab.sharders.torchrec.memory import uncounted_bytes
from recsys_lab.sharders.torchrec_row_wise import RowWise
from recsys_lab.tables import AccessStatistics, Table, power_law_access
from tests.plan.plans import TORCHREC_SCHEMES as SCHEMES

ROOT = Path(__file__).resolve().parents[2]
FP32 = Precision("fp32")
LINK = Link("test", bandwidth_gb_s=10.0, latency_us=5.0, source="test")
TABLES = (Table("odd", 11, 16, ("f_odd",)), Table("tiny", 3, 8, ("f_tiny",)), Table("shared", 3000, 16, ("f_left", "f_right")))
#: MLPerf DLRM-DCNv2: rows, and look-ups per sample.
MLPERF_ROWS = [40000000, 39060, 17295, 7424, 20265, 3, 7122, 1543, 63, 40000000, 3067956, 405282, 10, 2209, 11938, 155, 4, 976, 14]
MLPERF_ROWS += [40000000, 40000000, 40000000, 590152, 12973, 108, 36]
MLPERF_HOT = [3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3, 1, 1]
MLPERF = tuple(Table(f"t{i}", rows, 128, (f"f{i}",)) for i, rows in enumerate(MLPERF_ROWS))


def cluster(hosts: int, ranks_per_host: int, kind: str = "cpu", memory_gb: float = 16.0) -> Cluster:
    return Cluster("test", hosts, ranks_per_host, Device("test", kind, memory_gb, 100.0, {"fp32": 1.0}, "test"), LINK, LINK)


def statistics(tables: tuple[Table, ...], lengths: list[int] | None = None) -> AccessStatistics:
    lengths = lengths or [1] * len(tables)
    return AccessStatistics({t.name: power_law_access(t.name, t.rows, float(n), 1.05) for t, n in zip(tables, lengths)})


def workload(optimizer: str = "sgd", batch_size: int = 64) -> Workload:
    return Workload(batch_size, 1000, 1e3, 2e3, 1e3, optimizer, "sgd")


def plan(tables: tuple[Table, ...], where: Cluster, work: Workload | None = None, **choices) -> ShardingPlan:
    return TorchRec(**choices).plan(PlanInputs(tables, statistics(tables), where, FP32, work or workload()))


def searched() -> torchrec.Search:
    types, widths = dict.fromkeys(t.name for t in TABLES), dict.fromkeys((t.name for t in TABLES), 8)
    return torchrec._search_of(PlanInputs(TABLES, statistics(TABLES), cluster(2, 2), FP32, workload()), types, widths)


def assert_covers(sharding: ShardingPlan) -> None:
    """Every element of every table is in exactly one shard, and replicas are on every rank."""
    for table, placement in sharding.by_table.values():
        times = torch.zeros(table.rows, table.dim)
        for shard in placement.shards:
            times[shard.row_start : shard.row_stop, shard.col_start : shard.col_stop] += 1
            assert len(set(shard.ranks)) == len(shard.ranks)
            assert len(shard.ranks) == (sharding.world_size if placement.scheme == "data_parallel" else 1)
        assert times.eq(1).all(), table.name


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
@pytest.mark.parametrize(("hosts", "ranks_per_host"), [(1, 1), (1, 4), (2, 2), (4, 1)])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_any_type_is_forced_on_any_table(scheme: str, hosts: int, ranks_per_host: int, kind: str) -> None:
    sharding = plan(TABLES, cluster(hosts, ranks_per_host, kind), force={"*": scheme})
    assert [p.scheme for p in sharding.placements] == [scheme] * len(TABLES)
    assert_covers(sharding)
    if scheme == "row_wise":
        inputs = PlanInputs(TABLES, statistics(TABLES), cluster(hosts, ranks_per_host), FP32, workload())
        assert sharding.placements == RowWise().plan(inputs).placements
    if scheme in ("table_row_wise", "table_column_wise"):
        assert all(len({rank // ranks_per_host for rank in p.ranks}) == 1 for p in sharding.placements)


def test_a_later_pattern_wins_and_the_rest_is_free() -> None:
    sharding = plan(TABLES, cluster(2, 2), force={"*": "row_wise", "t*": "data_parallel"}, sharding_types=["table_wise"])
    assert [p.scheme for p in sharding.placements] == ["row_wise", "data_parallel", "row_wise"]
    sharding = plan(TABLES, cluster(2, 2), force={"odd": "row_wise"}, sharding_types=["table_wise"])
    assert [p.scheme for p in sharding.placements] == ["row_wise", "table_wise", "table_wise"]


def test_column_shards_have_the_width_asked_for() -> None:
    sharding = plan(TABLES, cluster(1, 2), force={"odd": "column_wise"}, column_shard_width=4)
    assert [s.cols for s in sharding.by_table["odd"][1].shards] == [4, 4, 4, 4]
    sharding = plan(TABLES, cluster(1, 2), force={"odd": "column_wise"})
    assert [s.cols for s in sharding.by_table["odd"][1].shards] == [8, 8]


def test_column_shards_are_as_many_as_asked_for() -> None:
    for shards, widths in (("2", [8, 8]), ("4", [4] * 4), ("100", [4] * 4), ("3", [8, 8])):  # 3 do not divide 16: no more than 3
        sharding = plan(TABLES, cluster(1, 2), force={"odd": "column_wise"}, column_shards=shards)
        assert [s.cols for s in sharding.by_table["odd"][1].shards] == widths


@pytest.mark.parametrize(("count", "hosts", "ranks_per_host"), [(1, 1, 2), (3, 2, 4), (5, 4, 8), (2, 4, 8), (1, 4, 8)])
def test_every_rank_holds_a_column_shard_where_there_are_more_ranks_than_tables(count: int, hosts: int, ranks_per_host: int) -> None:
    """Down to widths of 4; then all of the shards that there can be are spread."""
    tables = tuple(Table(f"t{i}", 5000, 64, (f"f{i}",)) for i in range(count))
    sharding = plan(tables, cluster(hosts, ranks_per_host, "cuda"), sharding_types=["table_wise", "column_wise"], column_shards="auto")
    busy = {rank for placement in sharding.placements for rank in placement.ranks}
    assert len(busy) == min(sharding.world_size, count * 64 // 4)
    assert_covers(sharding)


def test_all_of_64_gpus_hold_shards_of_criteos_26_tables() -> None:
    """Small tables may be replicated: they keep no GPU busy."""
    where, work = cluster(8, 8, "cuda", memory_gb=80.0), workload(batch_size=2048)
    sharding = TorchRec(column_shards="auto").plan(PlanInputs(MLPERF, statistics(MLPERF, MLPERF_HOT), where, FP32, work))
    spread = [p for p in sharding.placements if p.scheme != "data_parallel"]
    assert {rank for placement in spread for rank in placement.ranks} == set(range(64))


def test_replicas_alone_are_left_as_they_are() -> None:
    options = {"force": {"*": "data_parallel"}}
    assert plan(TABLES, cluster(2, 2), column_shards="auto", **options) == plan(TABLES, cluster(2, 2), **options)


def test_26_tables_are_planned_for_64_gpus_without_any() -> None:
    where = cluster(8, 8, "cuda", memory_gb=80.0)
    work = workload("row_wise_adagrad", batch_size=1024)
    sharding = TorchRec().plan(PlanInputs(MLPERF, statistics(MLPERF, MLPERF_HOT), where, FP32, work))
    assert sharding.world_size == 64 and len(sharding.placements) == 26
    assert max(sharding.weight_bytes_of_ranks()) < 80e9
    assert sharding == ShardingPlan.from_json(sharding.to_json())


def test_same_input_same_plan() -> None:
    assert plan(TABLES, cluster(2, 2)).fingerprint == plan(TABLES, cluster(2, 2)).fingerprint


#: The options that TorchRec's planner is offered.
OPTIONS = """
from recsys_lab.sharders.torchrec import search
from tests.sharders.test_torchrec_planner import TABLES, cluster, searched
topology = search._topology(searched())
constraints = {t.name: search.ParameterConstraints(sharding_types=list(search.SCHEMES)) for t in TABLES}
space = search.AsStored(topology, constraints, TABLES, 64, "sgd")
options = space.enumerate(search._Model(TABLES, "sgd"), [search._AnyTypeSharder()])
print([(option.name, option.sharding_type) for option in options])
"""


def test_options_come_in_the_same_order_in_every_process() -> None:
    """TorchRec's come out of a set of words, whose order changes from process to process."""
    outputs = set()
    for seed in ("0", "1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        process = subprocess.run([sys.executable, "-c", OPTIONS], cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        outputs.add(process.stdout)
    assert len(outputs) == 1 and "row_wise" in outputs.pop()


def test_memory_bounds_the_plan_and_optimizer_state_counts() -> None:
    tables = (Table("big", 1_000_000, 64, ("f",)),)  # 256 MB
    roomy = plan(tables, cluster(1, 4, "cuda", memory_gb=1.0), sharding_types=["table_wise", "row_wise"])
    assert roomy.placements[0].scheme in ("table_wise", "row_wise")
    tight = plan(tables, cluster(1, 4, "cuda", memory_gb=0.2), sharding_types=["table_wise", "row_wise"])
    assert tight.placements[0].scheme == "row_wise"
    with pytest.raises(PlanDoesNotFit):
        plan(tables, cluster(1, 4, "cuda", memory_gb=0.2), workload("adam"), sharding_types=["table_wise", "row_wise"])


@pytest.mark.parametrize(("stored", "fits_whole"), [("fp32", False), ("split_bf16", False), ("bf16_master", False), ("bf16", True)])
def test_memory_counts_what_is_stored_not_what_a_look_up_reads(stored: str, fits_whole: bool) -> None:
    tables = (Table("big", 1_000_000, 64, ("f",), dtype=stored),)  # 128 MB to read, with the lower halves 256
    sharding = plan(tables, cluster(1, 4, "cuda", memory_gb=0.22), sharding_types=["table_wise", "row_wise"])
    whole = plan(tables, cluster(1, 4, "cuda", memory_gb=0.22), sharding_types=["table_wise"]) if fits_whole else sharding
    assert sharding.placements[0].scheme in (("table_wise", "row_wise") if fits_whole else ("row_wise",))
    assert whole.placements[0].scheme == ("table_wise" if fits_whole else "row_wise")
    state = {dtype: uncounted_bytes(replace(tables[0], dtype=dtype), "adam") for dtype in ("fp32", "split_bf16", "bf16")}
    assert state == {"fp32": 0, "split_bf16": 2 + 2 * 2, "bf16": 2 * 2}  # TorchRec counts 2 bytes a weight, and a state as the weight


def test_what_does_not_fit_says_how_much_is_missing_and_what_would() -> None:
    tables = (Table("big", 1_000_000, 64, ("f",)),)
    with pytest.raises(PlanDoesNotFit, match=r"lacks \d.* MB.*nearest change that would fit: .*row_wise") as forced:
        plan(tables, cluster(1, 4, "cuda", memory_gb=0.2), force={"big": "table_wise"})
    assert forced.value.exit_code == 3
    with pytest.raises(PlanDoesNotFit, match=r"lacks \d.*nearest change that would fit: .*cluster\.hosts=\d+"):
        plan(tables, cluster(1, 4, "cuda", memory_gb=0.01), workload(batch_size=1))


def test_tables_that_all_ranks_together_cannot_hold_are_refused_before_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """TorchRec tries all its proposals before it gives up: more than three minutes for 96 tables on 64 ranks."""

    def searches(*_: object) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr(search.EmbeddingShardingPlanner, "plan", searches)
    with pytest.raises(PlanDoesNotFit, match="lacks"):
        plan((Table("vast", 10**9, 64, ("f",)),), cluster(2, 2, memory_gb=1.0))


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"force": {"od": "row_wise"}}, "no such table; given od; .*did you mean 'odd'"),
        ({"force": {"odd": "rowwise"}}, "no such sharding type; given rowwise; .*did you mean 'row_wise'"),
        ({"sharding_types": ["flex"]}, "no such choice; given flex"),
        ({"force": {"odd": "column_wise"}, "column_shard_width": 2}, "given 2; allowed: 4, 8, 16"),
        ({"force": {"odd": "column_wise"}, "column_shard_width": 12}, "given 12; allowed: 4, 8, 16"),
        ({"column_shards": "0"}, "column_shards.*given 0; allowed: auto, factor, 1 or more"),
        ({"column_shards": "many"}, "column_shards.*given many; allowed: auto, factor, 1 or more"),
        ({"column_shards": "2", "column_shard_width": 4}, "column_shards.*how wide.*how many.*given 2 and 4"),
    ],
)
def test_impossible_choices_are_refused(choices: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        plan(TABLES, cluster(2, 2), **choices)


def test_mean_pooling_is_refused_under_grid_and_never_chosen() -> None:
    tables = (Table("m", 50, 16, ("f",), "mean"),)
    with pytest.raises(UserError, match="mean pooling wrongly"):
        plan(tables, cluster(2, 2), force={"m": "grid_shard"})
    assert plan(tables, cluster(2, 2), sharding_types=["grid_shard", "row_wise"]).placements[0].scheme == "row_wise"


def test_row_blocks_are_torchrecs() -> None:
    sharding = RowWise().plan(PlanInputs((Table("five", 5, 4, ("f",)),), statistics(TABLES), cluster(2, 2), FP32, workload()))
    assert [(s.row_start, s.row_stop) for s in sharding.placements[0].shards] == [(0, 2), (2, 4), (4, 5), (5, 5)]

"""Every way to exchange whole tables trains as TorchRec's all-to-all does, bit for bit, and sends what the steps say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from recsys_lab.errors import UserError
from recsys_lab.executor.cpu.threads import ANY, COMMUNICATION, OWN, keep_apart, threads
from recsys_lab.executor.groups import close_groups
from recsys_lab.executor.recorded import register, start_recording, stop_recording
from recsys_lab.executor.shard import shard
from recsys_lab.executor.times import take_times
from recsys_lab.plan import ShardingPlan
from recsys_lab.plan.lower import lower
from recsys_lab.plan.scheme import EXCHANGES
from recsys_lab.precision import Precision
from recsys_lab.simulate.collectives import collective_ms
from recsys_lab.tables import Table
from tests.executor.reference import EPS, LR, SEED, Concat, Sample, samples
from tests.executor.sharded import dense_optimizer_of, gathered, placed, small_cluster, step
from tests.plan.plans import FP32, LENGTHS, access, plan, workload
from tests.plan.plans import TABLES as TABLES_OF_PLAN
from tests.plan.test_volume import in_order_of_kind
from tests.ranks import run_ranks

#: Two widths, two features on one table, a mean, a table that all ranks hold; and fewer tables than four ranks.
TABLES = (
    Table("odd", 11, 16, ("f_odd",)),
    Table("tiny", 3, 8, ("f_tiny",), "mean"),
    Table("shared", 30, 16, ("f_left", "f_right")),
    Table("alike", 7, 8, ("f_alike",)),
)
HOW = {"*": "table_wise", "alike": "data_parallel"}
WAYS = [(exchange, overlap) for exchange in EXCHANGES for overlap in (True, False)]
HALF = Precision("half", forward_comm="fp16", backward_comm="bf16", dense_comm="bf16")
STEPS, ROWS, DENSE = 3, 12, 3
register()  # before a rank joins its process group


def train(batches: list[Sample], exchange: str, overlap: bool, precision: Precision) -> tuple[dict, dict, list]:
    """Tables and dense arch after the last step, and what was recorded in it."""
    made = placed(TABLES, HOW)
    model = Concat(TABLES, DENSE, torch.device("meta"))
    adagrad = ("adagrad", LR, EPS, 0.0)
    sharded = shard(model, made, torch.device("cpu"), adagrad, precision, SEED, exchange=exchange, overlap=overlap)
    dense = dense_optimizer_of(sharded)
    for batch in batches[:-1]:
        step(sharded, dense, batch)
    start_recording()
    step(sharded, dense, batches[-1])
    seen = stop_recording()
    tables, trained = gathered(sharded, TABLES)[0], {name: p.detach().clone() for name, p in sharded.dense_parameters()}
    close_groups()
    return tables, trained, [(one.kind, one.group, one.bytes) for one in seen]


def train_each(batches: list[Sample], formats: list[Precision]) -> list[tuple[dict, dict, list]]:
    return [train(batches, *way, precision) for precision in formats for way in WAYS]


@pytest.mark.parametrize(("ranks", "formats"), [(2, [FP32, HALF]), (4, [FP32])])
def test_every_exchange_gives_the_same_bits_and_sends_what_the_steps_say(ranks: int, formats: list[Precision]) -> None:
    batches = samples(TABLES, STEPS, ROWS, DENSE)
    found = run_ranks(train_each, 1, ranks, batches, formats, backend="recorded")
    made = plan_of(ranks)
    lengths = {f: float(len(batches[-1].sparse[f].values())) / ROWS for t in TABLES for f in t.features}
    for rank, of_rank in enumerate(found):
        for first, precision in zip(range(0, len(of_rank), len(WAYS)), formats):
            tables, dense, _ = of_rank[first]
            for (exchange, overlap), (own_tables, own_dense, seen) in zip(WAYS, of_rank[first : first + len(WAYS)]):
                what = f"{exchange}, overlap {overlap}, {precision.name}"
                assert all(torch.equal(own_tables[name], tables[name]) for name in tables), what
                assert all(torch.equal(own_dense[name], dense[name]) for name in dense), what
                parameters = sum(p.numel() for p in dense.values())
                steps = lower(made, access(TABLES, lengths), precision, workload(ROWS // ranks, parameters), exchange=exchange)
                kinds = ("scatter", "gather", "all_reduce") if exchange != "all_to_all" else ("all_reduce",)
                assert of_kinds(seen, kinds) == of_kinds(steps.collectives_of(rank), kinds), what
                if exchange != "all_to_all":  # ids, lengths and splits alone; their number differs from sample to sample
                    assert sum(kind == "all_to_all" for kind, _, _ in seen) == 3


def plan_of(ranks: int) -> ShardingPlan:
    """`placed` without a process group."""
    made = plan(("table_wise",), 1, ranks, TABLES)
    alike = plan(("data_parallel",), 1, ranks, TABLES).placements[-1]
    return ShardingPlan("by_hand", 1, ranks, TABLES, (*made.placements[:-1], alike))


def of_kinds(collectives: list, kinds: tuple[str, ...]) -> list:
    return [one for one in in_order_of_kind(collectives) if one[0] in kinds]


def test_the_three_times_are_recorded() -> None:
    for times in run_ranks(times_of_one_step, 1, 2, samples(TABLES, 3, ROWS, DENSE), backend="recorded"):
        assert times.keys() == {"embedding", "dense"}
        assert min(times["embedding"].values()) > 0 and times["dense"]["transfer"] > 0
        assert times["embedding"]["waiting"] <= times["embedding"]["preparation"] + 10 * times["embedding"]["transfer"]


def times_of_one_step(batches: list[Sample]) -> dict:
    sharded = shard(
        Concat(TABLES, DENSE, torch.device("meta")),
        placed(TABLES, HOW),
        torch.device("cpu"),
        ("sgd", LR, EPS, 0.0),
        FP32,
        SEED,
        exchange="scatter_list",
    )
    dense = dense_optimizer_of(sharded)
    for batch in batches:
        start_recording()
        step(sharded, dense, batch)
        times = take_times(stop_recording(), 0.0)
    return times


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a core each for compute and communication")
def test_compute_and_communication_have_cores_of_their_own() -> None:
    cores = sorted(os.sched_getaffinity(0))
    for found in run_ranks(cores_of_threads, 1, 2, samples(TABLES, 2, ROWS, DENSE)):
        by_kind = {kind: {core for is_gloo, own in found for core in own if is_gloo == kind} for kind in (True, False)}
        assert by_kind == {True: {cores[-1]}, False: set(cores[:-1])}


def cores_of_threads(batches: list[Sample]) -> list[tuple[bool, list[int]]]:
    """Of each thread, whether it is gloo's, and on which cores it may run; after training, on torch's threads too."""
    model = Concat(TABLES, DENSE, torch.device("meta"))
    adagrad = ("adagrad", LR, EPS, 0.0)
    sharded = shard(model, placed(TABLES, HOW), torch.device("cpu"), adagrad, FP32, SEED, communication_cores=1)
    dense = dense_optimizer_of(sharded)
    for batch in batches:
        step(sharded, dense, batch)
    torch.set_num_threads(2)  # not before: two threads of both ranks on one core wait for one another in loops
    torch.mm(torch.ones(300, 300), torch.ones(300, 300))
    return [(name.startswith(COMMUNICATION), sorted(os.sched_getaffinity(thread))) for thread, name in threads().items()]


def cores_of(own: str) -> list[tuple[list[int], int]]:
    """Of each thread, where the launcher says `own`; and how it is scheduled."""
    os.environ[OWN] = own
    keep_apart(0)
    return [(sorted(os.sched_getaffinity(thread)), os.sched_getscheduler(thread)) for thread in threads()]


def test_a_rank_keeps_to_the_cores_that_its_launcher_gives_it() -> None:
    """And takes long turns on one that it shares."""
    usable = sorted(os.sched_getaffinity(0))
    for own, expected in ((ANY, (usable, os.SCHED_OTHER)), (str(usable[-1]), (usable[-1:], os.SCHED_BATCH))):
        (found,) = run_ranks(cores_of, 1, 1, own)
        assert found and all(thread == expected for thread in found)


@pytest.mark.parametrize("own", ["abc", "-3", "99999", "", "0,", "0,x", "Any"])
def test_cores_that_no_rank_may_use_are_refused(own: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OWN, own)
    before = {thread: os.sched_getaffinity(thread) for thread in threads()}
    with pytest.raises(UserError, match=f"{OWN}: .*allowed: any, or some of "):
        keep_apart(0)
    assert {thread: os.sched_getaffinity(thread) for thread in before} == before


def test_a_thread_that_ends_meanwhile_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise ProcessLookupError

    monkeypatch.setenv(OWN, ",".join(map(str, sorted(os.sched_getaffinity(0)))))
    monkeypatch.setattr(os, "sched_setaffinity", gone)
    keep_apart(0)
    if len(os.sched_getaffinity(0)) > 1:
        keep_apart(1)
    monkeypatch.setattr(Path, "read_text", gone)
    assert threads() == {}


def test_cores_that_are_not_there_are_refused() -> None:
    with pytest.raises(UserError, match=r"communication_cores.*10000"):
        keep_apart(10000)


@pytest.mark.parametrize(("options", "where"), [({"exchange": "fused_scatter"}, "exchange"), ({"overlap": False}, "overlap")])
def test_tables_that_are_not_whole_are_refused(options: dict, where: str) -> None:
    made = plan(("row_wise",), 1, 2)
    with pytest.raises(UserError, match=rf"sharder\.executor\.{where}.*t0 is row_wise.*sharding_types"):
        lower(made, access(made.tables, LENGTHS), FP32, workload(), **options)


def test_an_exchange_that_does_not_exist_is_refused() -> None:
    made = plan(("table_wise",), 1, 2)
    with pytest.raises(UserError, match=r"scatter_lists.*allowed.*fused_scatter"):
        lower(made, access(made.tables, LENGTHS), FP32, workload(), exchange="scatter_lists")


def test_scatters_move_as_much_as_an_all_to_all_in_more_calls() -> None:
    """And a simulated one takes longer: the roots follow one another."""
    made = plan(("table_wise",), 2, 2)
    steps = {way: lower(made, access(made.tables, LENGTHS), FP32, workload(), exchange=way) for way in EXCHANGES}
    outputs = {way: [s for s in made.collectives if ".output." in s.name] for way, made in steps.items()}
    roots = len({p.shards[0].ranks for p in made.placements})
    assert {way: len(own) for way, own in outputs.items()} == {"all_to_all": 1, "scatter_list": len(TABLES_OF_PLAN), "fused_scatter": roots}
    moved = {way: sum(sum(step.bytes_of_rank) for step in own) for way, own in outputs.items()}
    assert len(set(moved.values())) == 1
    times = {way: sum(collective_ms(step, small_cluster(2, 2)) for step in own) for way, own in outputs.items()}
    assert times["all_to_all"] < times["fused_scatter"] < times["scatter_list"]


def test_without_overlap_the_simulated_all_reduce_is_exposed() -> None:
    made = plan(("table_wise",), 2, 2)
    blocking = lower(made, access(made.tables, LENGTHS), FP32, workload(), overlap=False)
    assert {s.name for s in blocking.steps if s.blocks} == {s.name for s in blocking.collectives if s.phase != "input"}

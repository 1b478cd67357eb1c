"""Dense gradients averaged by a reduce-scatter and an all-gather: as unsharded, as many bytes as the steps say, and simulated."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist

from recsys_lab.errors import UserError
from recsys_lab.executor.cpu.scattered_mean import ScatteredMean
from recsys_lab.executor.cpu.threads import COMMUNICATION, keep_apart, threads
from recsys_lab.executor.formats import gradient_codec
from recsys_lab.executor.groups import close_groups
from recsys_lab.executor.recorded import register, start_recording, stop_recording
from recsys_lab.executor.shard import shard
from recsys_lab.plan.dense import DENSE_SYNCS, SCATTERED
from recsys_lab.plan.lower import lower
from recsys_lab.plan.steps import DENSE_SYNC
from recsys_lab.precision import Precision
from recsys_lab.simulate.timeline import schedule
from recsys_lab.tables import Table
from tests.executor.reference import EPS, LR, SEED, Concat, Sample, samples, train_unsharded
from tests.executor.sharded import dense_optimizer_of, placed, step
from tests.plan.plans import FP32, LENGTHS, access, plan, workload
from tests.ranks import run_ranks
from tests.simulate.clusters import cluster, profile

TABLES = (Table("a", 11, 16, ("f_a",)), Table("b", 30, 8, ("f_b",)))
DENSE, ROWS, STEPS = 3, 12, 3
HALF = Precision("half", dense_comm="fp16")
register()


def train(batches: list[Sample], precision: Precision, overlap: bool, cores: int) -> tuple[dict, list, list]:
    """The dense arch after the last step, what was recorded in it of the average, and on which cores its threads may run."""
    model = Concat(TABLES, DENSE, torch.device("meta"))
    options = {"dense_sync": SCATTERED, "overlap": overlap, "communication_cores": cores}
    sharded = shard(model, placed(TABLES, {"*": "table_wise"}), torch.device("cpu"), ("adagrad", LR, EPS, 0.0), precision, SEED, **options)
    dense = dense_optimizer_of(sharded)
    for batch in batches[:-1]:
        step(sharded, dense, batch)
    start_recording()
    step(sharded, dense, batches[-1])
    seen = [(one.kind, one.group, one.bytes) for one in stop_recording() if one.name == "dense"]
    own = [sorted(os.sched_getaffinity(thread)) for thread, name in threads().items() if name == f"{COMMUNICATION[0]}mean"]
    trained = {name: p.detach().clone() for name, p in sharded.dense_parameters()}
    keep_apart(0)
    close_groups()
    return trained, seen, own


@pytest.mark.parametrize(("precision", "overlap", "ranks", "off"), [(FP32, True, 3, 1e-6), (HALF, False, 2, 1e-3)])
def test_training_is_as_unsharded_and_sends_what_the_steps_say(precision: Precision, overlap: bool, ranks: int, off: float) -> None:
    batches = samples(TABLES, STEPS, ROWS, DENSE)
    cores = int(len(os.sched_getaffinity(0)) > 1)
    expected = train_unsharded(TABLES, batches, "adagrad", DENSE).dense
    for rank, (dense, seen, own) in enumerate(run_ranks(train, 1, ranks, batches, precision, overlap, cores, backend="recorded")):
        assert dense.keys() == expected.keys()
        assert all(torch.allclose(dense[name], expected[name], rtol=0, atol=off) for name in dense)
        made = plan(("table_wise",), 1, ranks, TABLES)
        lengths = dict.fromkeys(LENGTHS, 1.0) | {"f_a": 1.0, "f_b": 1.0}
        count = sum(p.numel() for p in dense.values())
        steps = lower(made, access(TABLES, lengths), precision, workload(ROWS // ranks, count), dense_sync=SCATTERED)
        syncs = replace(steps, steps=tuple(one for one in steps.steps if one.role == DENSE_SYNC))
        assert seen == syncs.collectives_of(rank) and [kind for kind, _, _ in seen] == ["all_to_all", "all_gather"]
        assert steps.steps[-1].after == ("dense.all_gather",)
        assert len(own) == 1 and (not cores or own[0] == sorted(os.sched_getaffinity(0))[-1:])


def several(sizes: list[int]) -> list[torch.Tensor]:
    """Many buckets in flight, averaged."""
    mean, rank = ScatteredMean(gradient_codec("fp32")), dist.get_rank()
    buckets = [torch.arange(size, dtype=torch.float32) * (rank + 1) for size in sizes]
    found = [future.wait() for future in [mean.start(bucket) for bucket in buckets]]
    assert all(one is bucket for one, bucket in zip(found, buckets))
    return buckets


def test_buckets_of_any_size_have_their_mean() -> None:
    """Fewer numbers than ranks too."""
    sizes = [1, 7, 1000, 2, 3, 5]
    for found in run_ranks(several, 1, 3, sizes):
        assert all(torch.allclose(one, torch.arange(size) * 2.0) for one, size in zip(found, sizes))


def lost() -> None:
    """What a collective raises reaches whoever waits for the mean."""
    mean = ScatteredMean(gradient_codec("fp32"))

    def fail(gradients: torch.Tensor) -> None:
        raise RuntimeError("Connection closed by peer")

    mean._average = fail  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="closed by peer"):
        mean.start(torch.ones(5)).wait()


def test_a_lost_peer_is_an_error() -> None:
    run_ranks(lost, 1, 2)


def on_a_gpu() -> None:
    model, made = Concat(TABLES, DENSE, torch.device("meta")), placed(TABLES, {"*": "table_wise"})
    with pytest.raises(UserError, match=r"dense_sync.*given reduce_scatter; allowed: all_reduce"):
        shard(model, made, torch.device("cuda"), ("sgd", LR, EPS, 0.0), FP32, SEED, dense_sync=SCATTERED)


def test_gpus_have_none() -> None:
    run_ranks(on_a_gpu, 1, 1)


@pytest.mark.parametrize("overlaps", [(), ("dense_sync",), ("dense_sync", "collectives")])
def test_its_simulation_is_one_after_the_other_and_ends_after_the_backward(overlaps: tuple[str, ...]) -> None:
    """Together they take about what the all-reduce takes: both send each number about twice."""
    on = cluster(2, 4, kind="cpu")
    software, made = profile(*overlaps), plan(("table_wise",), 2, 4)
    work = workload(64, 50_000_000)
    took = {}
    for sync in DENSE_SYNCS:
        steps = lower(made, access(made.tables, LENGTHS), FP32, work, dense_sync=sync)
        events = schedule(steps, on, software, work)
        own = [event for event in events if event.step.role == DENSE_SYNC]
        backward = next(event for event in events if event.step.name == "dense.backward")
        assert all(first.end_ms <= second.start_ms + 1e-9 for first, second in zip(own, own[1:]))
        assert own[-1].end_ms > backward.end_ms
        if overlaps == ("dense_sync",):  # then no message of another collective keeps it
            assert own[0].start_ms < backward.end_ms
        took[sync] = sum(event.end_ms - event.start_ms for event in own)
    assert 0.5 < took[SCATTERED] / took["all_reduce"] < 2

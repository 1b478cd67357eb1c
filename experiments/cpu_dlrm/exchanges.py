"""The exchanges of whole tables, in turns on local ranks: what a rank of figures 10 and 11 does."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from recsys_lab.data.batch import Batch
from recsys_lab.data.loader import RankLoader
from recsys_lab.data.protocol import DataSet
from recsys_lab.executor.groups import close_groups
from recsys_lab.executor.recorded import start_recording, stop_recording
from recsys_lab.executor.sharded_model import ShardedModel
from recsys_lab.executor.times import Times, mean_times, take_times
from recsys_lab.experiment import Experiment, of_words
from recsys_lab.plan.scheme import EXCHANGES
from recsys_lab.planning import plan_for, this_machine
from recsys_lab.train.objective import click_loss
from recsys_lab.train.optimizer import DenseAndTables, dense_optimizer
from recsys_lab.train.process_group import start_process_group

WARM_UP, COUNTED = 2, 6
BATCHES = 4  # different ones, made beforehand and used in turn
#: (exchange, whether it overlaps), blocking first, as the paper shows them.
CASES = tuple((exchange, overlap) for overlap in (False, True) for exchange in EXCHANGES)


@dataclass
class Contender:
    """One way to exchange, with a model of its own."""

    sharded: ShardedModel
    both: DenseAndTables

    def step(self, batch: Batch) -> float:
        """One iteration; when its backward pass ended."""
        self.both.zero_grad()
        click_loss(self.sharded.module(batch.dense, batch.sparse), batch, dist.get_world_size()).backward()
        ended = time.perf_counter()
        self.both.step()
        return ended


def experiment_of(ranks: int, overrides: tuple[str, ...]) -> Experiment:
    fixed = ("mode=train", "data=random", "launcher.hosts=1", f"launcher.ranks_per_host={ranks}", "logger=none")
    rates = [f"optimizer.{part}.{key}" for part in ("dense", "sparse") for key in ("name=sgd", "lr=0.01")]
    return of_words([*fixed, *rates, "sharder.planner.sharding_types=[table_wise]", *overrides], where="exchanges")


def measure(ranks: int, models: dict[str, tuple[str, ...]], rounds: int) -> dict[str, list[dict[str, float]]]:
    """On every rank, for each model and each of `CASES`: the means over ranks of medians over `rounds` turns, in ms."""
    start_process_group()
    return {name: _measure(experiment_of(ranks, overrides), rounds) for name, overrides in models.items()}


def _measure(experiment: Experiment, rounds: int) -> list[dict[str, float]]:
    data = experiment.open_data()
    contenders = [_contender(experiment, data, exchange, overlap) for exchange, overlap in CASES]
    batches = _batches(experiment, data)
    turns: list[list[tuple[float, Times]]] = [[] for _ in CASES]
    for number in range(rounds + 1):  # the first does not count
        for case, contender in enumerate(contenders):
            taken = _turn(contender, batches)
            turns[case] += [taken] if number else []
    mine = [_median(found) for found in turns]
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    close_groups()
    return [{what: statistics.mean(rank[case][what] for rank in everyone) for what in mine[case]} for case in range(len(CASES))]


def _contender(experiment: Experiment, data: DataSet, exchange: str, overlap: bool) -> Contender:
    options, sharder = experiment.optimizer, experiment.sharder
    plan = plan_for(experiment, data, this_machine(experiment), experiment.batch_size_here).plan
    execute = partial(sharder.execute, exchange=exchange, overlap=overlap)
    contender = replace(experiment, sharder=replace(sharder, execute=execute))
    device = torch.device("cpu")
    sharded = contender.shard(contender.build_model(data, torch.device("meta")), plan, device)
    return Contender(sharded, DenseAndTables(dense_optimizer(sharded, options.dense), sharded.sparse_optimizer, options.sparse.rate))


def _batches(experiment: Experiment, data: DataSet) -> list[Batch]:
    loader = RankLoader(
        data.splits["train"],
        data,
        batch_size=experiment.data.batch_size,
        rank=dist.get_rank(),
        world_size=dist.get_world_size(),
        seed=experiment.seed,
        shuffle=False,  # all rows are random
        prefetch_batches=0,
        pin_memory=False,
    )
    return [batch for batch, _ in zip(loader, range(BATCHES))]


def _turn(contender: Contender, batches: list[Batch]) -> tuple[float, Times]:
    """Mean milliseconds of the counted iterations, and of what their communication took."""
    times, took = [], []
    for number in range(WARM_UP + COUNTED):
        dist.barrier()
        start_recording()
        began = time.perf_counter()
        backward_ended = contender.step(batches[number % len(batches)])
        ended = time.perf_counter()
        found = take_times(stop_recording(), backward_ended)
        if number >= WARM_UP:
            times.append((ended - began) * 1e3)
            took.append(found)
    mean = mean_times(took)
    assert mean is not None
    return statistics.mean(times), mean


def _median(turns: list[tuple[float, Times]]) -> dict[str, float]:
    found = {f"{of}.{what}": statistics.median(times[of][what] for _, times in turns) for of in turns[0][1] for what in turns[0][1][of]}
    return {"iteration": statistics.median(ms for ms, _ in turns), **found}

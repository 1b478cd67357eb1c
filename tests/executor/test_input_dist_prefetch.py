"""Ids that travel ahead of their batch: the same bits, and the same collectives, an iteration's ids in the one before."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
import torch
import torch.distributed as dist
from torch.nn.functional import binary_cross_entropy_with_logits

from recsys_lab.executor.groups import close_groups
from recsys_lab.executor.input_dist_prefetch import AHEAD
from recsys_lab.executor.recorded import register, start_recording, stop_recording
from recsys_lab.executor.sharded_model import ShardedModel
from tests.executor.reference import Sample, samples
from tests.executor.sharded import build, dense_optimizer_of, gathered, placed
from tests.executor.test_flexshard import POOLED
from tests.executor.test_sptt_modules import MIX, TOWERS
from tests.executor.test_sptt_modules import TABLES as OF_TOWERS
from tests.executor.test_wire_formats import FLAT
from tests.executor.tower_cases import build as build_towers
from tests.executor.tower_cases import plan_here
from tests.plan.plans import COMMS
from tests.ranks import run_ranks

STEPS, ROWS, DENSE = 6, 16, 3
KINDS = [*FLAT, (POOLED, {"odd": (2, 5), "tiny": "data_parallel", "shared": "row_wise"})]
Seen = tuple[str, tuple[int, ...], int]
register()


@dataclass
class Run:
    """Weights at the end, and by step the collectives of that batch and those of the next one."""

    weights: dict[str, torch.Tensor]
    own: list[Counter[Seen]]
    ahead: list[Counter[Seen]]


def trained(sharded: ShardedModel, batches: list[Sample], ahead: bool) -> Run:
    """Between two steps another batch passes through, as in an evaluation."""
    dense, other = dense_optimizer_of(sharded), batches[0].part(0, 2)
    parts = [batch.part(dist.get_rank(), dist.get_world_size()) for batch in batches]
    given = [part.sparse for part in parts]
    found = Run({}, [], [])
    assert sharded.input_dist_prefetch is not None
    for number, part in enumerate(parts):
        start_recording()
        upcoming = given[number + 1] if ahead and number + 1 < len(parts) else None
        if upcoming is not None:
            sharded.input_dist_prefetch.start(upcoming)
        dense.zero_grad()
        sharded.sparse_optimizer.zero_grad()
        loss = binary_cross_entropy_with_logits(sharded.module(part.dense, given[number].to(torch.device("cpu"))), part.labels)
        if upcoming is not None:
            sharded.input_dist_prefetch.send()
        loss.backward()
        dense.step()
        sharded.sparse_optimizer.step()
        seen = stop_recording()
        found.own.append(Counter((one.kind, one.group, one.bytes) for one in seen if one.name != AHEAD))
        found.ahead.append(Counter((one.kind, one.group, one.bytes) for one in seen if one.name == AHEAD))
        if number == 2:
            with torch.no_grad():
                sharded.module(other.dense, other.sparse)
    found.weights = gathered(sharded, tuple(sharded.plan.tables))[0] | {name: p.detach() for name, p in sharded.dense_parameters()}
    close_groups()
    return found


def both_ways(flat: list[list[Sample]], towers: list[Sample]) -> list[list[Run]]:
    made = []
    for (tables, how), batches in zip(KINDS, flat):
        plan = placed(tables, how)
        made.append([trained(build(tables, plan, "adagrad", DENSE, None, COMMS, True), batches, ahead) for ahead in (False, True)])
    for permute in ("rows", "none"):
        plan = plan_here(OF_TOWERS, TOWERS["two"], MIX, permute)
        made.append([trained(build_towers(plan, "adagrad", DENSE, True, COMMS, True), towers, ahead) for ahead in (False, True)])
    return made


@pytest.mark.timeout(180)
def test_ids_that_travel_ahead_change_no_bit_and_no_collective() -> None:
    flat = [samples(tables, STEPS, ROWS, DENSE) for tables, _ in KINDS]
    for rank in run_ranks(both_ways, 2, 2, flat, samples(OF_TOWERS, STEPS, ROWS, DENSE), backend="recorded", timeout_s=150):
        for plain, ahead in rank:
            assert all(torch.equal(value, ahead.weights[name]) for name, value in plain.weights.items())
            assert ahead.ahead[0] and not any(plain.ahead) and not ahead.ahead[-1]
            assert ahead.own[0] == plain.own[0]
            for step in range(1, STEPS):
                assert ahead.ahead[step - 1] + ahead.own[step] == plain.own[step]

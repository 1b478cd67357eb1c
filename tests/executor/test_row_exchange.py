"""Pooled rows travel as TorchRec's do: the same collectives and bits, there and back."""

from __future__ import annotations

import os
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from torchrec.distributed.types import ShardingEnv

from recsys_lab.base.environment import POOLED_EXCHANGE, TORCHREC
from recsys_lab.executor.collection import shard_collection
from recsys_lab.executor.column_order import ColumnOrder
from recsys_lab.executor.formats import wire_formats
from recsys_lab.executor.groups import close_groups
from recsys_lab.executor.recorded import register, start_recording, stop_recording
from recsys_lab.executor.torchrec_plan import to_torchrec
from recsys_lab.precision import Precision
from tests.executor.reference import bags
from tests.executor.test_id_exchange import PLANS, SAMPLES, batch
from tests.plan.plans import FP32, TABLES, plan
from tests.ranks import run_ranks

register()  # before a rank joins its process group
HALF = Precision("half", forward_comm="fp16", backward_comm="bf16", dense_comm="bf16")


def drawn(table: str, row_start: int, row_stop: int, col_start: int, col_stop: int) -> torch.Tensor:
    """A table's values, wherever they lie."""
    rows, columns = torch.arange(row_start, row_stop).unsqueeze(1), torch.arange(col_start, col_stop)
    return torch.sin(rows * 37.0 + columns * 0.7 + sum(table.encode()))


def moved(hosts: int, ranks_per_host: int, precisions: list[Precision]) -> list[tuple]:
    """For each plan and precision, by whether TorchRec's exchange carried them: rows, gradients that arrived, and what was recorded."""
    found = []
    env, cpu = ShardingEnv.from_process_group(dist.group.WORLD), torch.device("cpu")
    configs = bags(TABLES, torch.device("meta")).embedding_bag_configs()
    for schemes in PLANS:
        parameters = to_torchrec(plan(schemes, hosts, ranks_per_host).placements, ranks_per_host, "cpu")
        for precision in precisions:
            ways = []
            for exchange in ("own", TORCHREC):
                with patch.dict(os.environ, {POOLED_EXCHANGE: exchange}):
                    part = shard_collection(configs, parameters, env, cpu, {}, wire_formats(precision))
                for one in part.batches:
                    one.fill(drawn)
                start_recording()
                pooled = part(batch(TABLES, dist.get_rank(), turned=False))
                keys, values = pooled.keys(), pooled.values()
                values.backward(drawn("gradient", 0, SAMPLES, 0, values.shape[1]) / (1 + dist.get_rank()))
                seen = [(one.kind, one.group, one.bytes) for one in stop_recording()]
                gradients = [touched.grad for one in part.batches for touched in one.touched]
                ways.append((keys, values.detach(), gradients, seen))
            found.append((schemes, precision.name, *ways))
    close_groups()
    return found


@pytest.mark.parametrize(("hosts", "ranks_per_host", "precisions"), [(1, 2, [FP32]), (2, 2, [FP32, HALF]), (3, 1, [FP32])])
def test_rows_and_gradients_travel_as_torchrecs(hosts: int, ranks_per_host: int, precisions: list[Precision]) -> None:
    for of_rank in run_ranks(moved, hosts, ranks_per_host, hosts, ranks_per_host, precisions, backend="recorded"):
        assert len(of_rank) == len(PLANS) * len(precisions)
        for schemes, precision, ours, theirs in of_rank:
            what = f"{schemes}, {precision}"
            assert ours[0] == theirs[0] == [feature for table in TABLES for feature in table.features], what
            assert torch.equal(ours[1], theirs[1]), what
            assert len(ours[2]) == len(theirs[2]) and all(torch.equal(one, other) for one, other in zip(ours[2], theirs[2])), what
            assert ours[3] == theirs[3], what


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_columns_come_in_the_order_that_is_wanted(dtype: torch.dtype) -> None:
    order = ColumnOrder([["c", "a"], [], ["b"]], {"a": 3, "b": 1, "c": 2})
    parts = [torch.randn(4, width, dtype=dtype, requires_grad=True) for width in (5, 0, 1)]
    together = order.together(parts)
    assert together.keys() == ["a", "b", "c"] and together.length_per_key() == [3, 1, 2]
    expected = torch.cat([parts[0][:, 2:], parts[2], parts[0][:, :2]], dim=1)
    assert torch.equal(together.values(), expected)
    gradient = torch.randn(4, 6, dtype=dtype)
    ours = torch.autograd.grad(together.values(), parts, gradient, allow_unused=True)
    theirs = torch.autograd.grad(expected, parts, gradient, allow_unused=True)
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs) if one is not None and other is not None)

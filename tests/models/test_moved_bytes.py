"""Bytes that a model moves beside its products, counted operation by operation."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from recsys_lab.models.click_model import ModelInputs
from recsys_lab.models.dlrm_v4 import DLRMV4
from recsys_lab.models.moved_bytes import MovedBytes, one_kernel
from recsys_lab.models.workload import describe
from tests.models.test_dlrm_v4 import FULL, ROWS, tables


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


@pytest.mark.parametrize("dtype, size", [(torch.float32, 4), (torch.bfloat16, 2)])
def test_an_operation_reads_its_inputs_and_writes_its_outputs_once(dtype: torch.dtype, size: int) -> None:
    a, b = meta(30, 7, dtype=dtype), meta(30, 7, dtype=dtype)
    with MovedBytes() as moved:
        (a + b).relu_()
    assert moved.total == size * 30 * 7 * (3 + 2)


def test_products_views_and_what_is_one_kernel_are_left_out() -> None:
    a = meta(30, 8)
    with MovedBytes() as moved:
        a.view(5, 48).t()
        a @ meta(8, 4)
        with one_kernel():
            a + a
        meta(2, 4, 5, 5) + 1  # rows by head: within attention
    assert moved.total == 0


def test_a_gather_reads_no_more_than_it_gives() -> None:
    table, at = meta(1_000_000, 8), torch.empty(10, dtype=torch.int64, device="meta")
    with MovedBytes() as moved:
        table.index_select(0, at)
    assert moved.total == 10 * (8 + 2 * 8 * 4)


def test_a_norm_by_hand() -> None:
    """Forward: the input, weight and bias read, the output, mean and rstd written."""
    norm = nn.LayerNorm(8, device="meta")
    with MovedBytes() as moved:
        norm(meta(30, 8))
    assert moved.total == 4 * (30 * 8 + 8 + 8 + 30 * 8 + 30 + 30)


def test_half_the_format_moves_and_keeps_less_and_a_layer_that_is_computed_again_is_one() -> None:
    def cost(format_name: str, **other: object):
        return describe(
            DLRMV4(**FULL | other).build(ModelInputs(tables(512, ROWS), 0, torch.device("meta"))), 0, {"item_id": 200}, format_name
        )

    full, half, kept = cost("fp32"), cost("bf16"), cost("fp32", recompute=False)
    assert full.sequence is not None and half.sequence is not None
    assert sum(half.sequence.moved_bytes) < 0.62 * sum(full.sequence.moved_bytes)
    assert half.activation_bytes_per_sample / 2 < 0.6 * full.activation_bytes_per_sample  # as if all were FP32
    assert full.layers == kept.layers == half.layers and full.activation_bytes_per_sample < kept.activation_bytes_per_sample
    assert full.sequence.attention_flops == half.sequence.attention_flops
    doubled = replace(full.sequence).longer(2.0)
    assert doubled.attention_flops[0] == 4 * full.sequence.attention_flops[0] and doubled.moved_bytes[1] == 2 * full.sequence.moved_bytes[1]

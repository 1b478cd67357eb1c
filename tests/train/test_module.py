"""The loss: padding counts nothing, and the mean over processes is the exact mean over the global batch."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.data.batch import Batch
from recsys_lab.train.module import click_loss


def batch(labels: torch.Tensor, padded: int, global_valid: int) -> Batch:
    full = torch.cat([labels, torch.zeros(padded - len(labels))])
    empty = KeyedJaggedTensor(
        keys=["f"], values=torch.zeros(0, dtype=torch.int64), lengths=torch.zeros(padded, dtype=torch.int32), stride=padded
    )
    return Batch(None, empty, full, len(labels), global_valid)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4).filter(lambda sizes: sum(sizes) > 0), st.integers(0, 2**31))
def test_mean_over_processes_is_the_global_mean(sizes, seed):
    torch.manual_seed(seed)
    labels = [torch.randint(0, 2, (n,)).float() for n in sizes]
    logits = [torch.randn(6, requires_grad=True) for _ in sizes]
    losses = [click_loss(z, batch(y, 6, sum(sizes)), len(sizes)) for z, y in zip(logits, labels)]
    mean = sum(losses) / len(sizes)
    every_logit = torch.cat([z[:n] for z, n in zip(logits, sizes)])
    expected = torch.nn.functional.binary_cross_entropy_with_logits(every_logit, torch.cat(labels))
    torch.testing.assert_close(mean, expected)
    mean.backward()
    for z, n in zip(logits, sizes):
        assert z.grad is not None and not z.grad[n:].any()

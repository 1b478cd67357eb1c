"""The loss: padding counts nothing, and the mean over processes is the exact mean over the global batch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from recsys_lab.config import command_line
from recsys_lab.data.batch import Batch
from recsys_lab.errors import UserError
from recsys_lab.train.objective import click_loss, next_item_loss


def of_labels(labels: torch.Tensor, padded: int, global_valid: int) -> Batch:
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
    losses = [click_loss(z, of_labels(y, 6, sum(sizes)), len(sizes)) for z, y in zip(logits, labels)]
    mean = sum(losses) / len(sizes)
    every_logit = torch.cat([z[:n] for z, n in zip(logits, sizes)])
    expected = torch.nn.functional.binary_cross_entropy_with_logits(every_logit, torch.cat(labels))
    torch.testing.assert_close(mean, expected)
    mean.backward()
    for z, n in zip(logits, sizes):
        assert z.grad is not None and not z.grad[n:].any()


@given(st.lists(st.lists(st.integers(0, 6), max_size=4), min_size=1, max_size=4).filter(lambda parts: any(parts)), st.integers(0, 2**31))
def test_next_item_losses_add_up_to_that_of_one_process(parts, seed):
    """`parts`: for each process the places of its rows. A process without any place takes part with a whole graph and no gradient."""
    torch.manual_seed(seed)
    rows = sum(len(lengths) for lengths in parts)
    logits = [torch.randn(sum(lengths), 2, requires_grad=True) for lengths in parts]
    losses = [
        next_item_loss(z, of_labels(torch.ones(len(lengths)), 4, rows), len(parts), loss="binary", mean_length=2.5)
        for z, lengths in zip(logits, parts)
    ]
    alone = next_item_loss(torch.cat(logits), of_labels(torch.ones(rows), rows, rows), 1, loss="binary", mean_length=2.5)
    torch.testing.assert_close(sum(losses) / len(parts), alone)
    (sum(losses) / len(parts)).backward()
    assert all(z.grad is not None for z in logits)


def test_next_item_loss_is_the_papers():
    """Kang and McAuley 2018, equation 6: -log(sigmoid(r of the item that came)) - log(1 - sigmoid(r of another)), here a place's mean."""
    logits = torch.randn(12, 2, dtype=torch.float64)
    came, other = torch.sigmoid(logits).T
    expected = -(torch.log(came) + torch.log(1 - other)).mean()
    torch.testing.assert_close(next_item_loss(logits, of_labels(torch.ones(4), 4, 4), 1, loss="binary", mean_length=3.0), expected)


@pytest.mark.parametrize(
    ("objective", "metric", "allowed"), [("next_item", "auc", "ndcg_10, hit_rate_10"), ("click", "ndcg_10", "auc, ne, log_loss")]
)
def test_a_metric_that_the_objective_has_not_is_refused(objective, metric, allowed):
    line = ["model=sequence", f"model.objective={objective}", "trainer.restore_best=true", "data=interactions"]
    with pytest.raises(UserError, match=f"trainer.early_stopping.metric: .*{metric}.*{allowed}"):
        command_line.read([*line, f"trainer.early_stopping.metric={metric}"])
    command_line.read([*line, f"trainer.early_stopping.metric={allowed.split(',')[0]}"])

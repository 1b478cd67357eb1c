"""Attention over jagged batches on a CPU against torch's definition, in values, gradients and what dropout leaves out."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from recsys_lab.kernels import available
from recsys_lab.kernels.jagged_attention import causal_softmax

if not available():
    pytest.skip("no C++ kernels here", allow_module_level=True)

LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=6)
WIDTHS = st.sampled_from([1, 3, 8, 16, 20, 32, 50])


def softmax_of(q: Tensor, k: Tensor, v: Tensor, kept: Tensor | None = None) -> Tensor:
    """One sequence, [h, L, d] each. `kept` [h, L, L]: what weights are multiplied with."""
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[2])
    weights = scores.masked_fill(torch.ones(scores.shape[1:], dtype=torch.bool).triu(1), -torch.inf).softmax(2)
    return (weights if kept is None else weights * kept) @ v


def by_sequence(
    attend: Callable[[Tensor, Tensor, Tensor], Tensor], q: Tensor, k: Tensor, v: Tensor, lengths: list[int], heads: int
) -> Tensor:
    found = []
    for own in zip(*(part.split(lengths) for part in (q, k, v)), strict=True):
        found.append(attend(*(part.unflatten(1, (heads, -1)).transpose(0, 1) for part in own)).transpose(0, 1).flatten(1))
    return torch.cat(found)


def drawn(lengths: list[int], heads: int, dim: int, value_dim: int) -> tuple[Tensor, list[int]]:
    """Queries, keys and values as columns of one matrix, and how many each has."""
    sizes = [heads * dim, heads * dim, heads * value_dim]
    return torch.randn(sum(lengths), sum(sizes), generator=torch.Generator().manual_seed(sum(lengths) + dim)), sizes


def check(found: Tensor, expected: Tensor, share: float = 2e-6) -> None:
    most = float(expected.detach().abs().max()) if expected.numel() else 0.0
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=share * max(most, 1e-3))


def check_softmax(lengths: list[int], heads: int, dim: int, value_dim: int) -> None:
    rows, sizes = drawn(lengths, heads, dim, value_dim)
    ours, theirs = rows.clone().requires_grad_(), rows.double().requires_grad_()
    grad = torch.randn(sum(lengths), sizes[2])
    found = causal_softmax(*ours.split(sizes, 1), torch.tensor(lengths), heads)
    expected = by_sequence(softmax_of, *theirs.split(sizes, 1), lengths, heads)
    found.backward(grad)
    expected.backward(grad.double())
    check(found, expected)
    check(ours.grad, theirs.grad, 4e-6)


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.integers(1, 3), WIDTHS, WIDTHS)
def test_softmax_is_its_definition_forward_and_backward(lengths: list[int], heads: int, dim: int, value_dim: int) -> None:
    check_softmax(lengths, heads, dim, value_dim)


@pytest.mark.parametrize("lengths", [[0], [0, 0, 1, 0], [95, 96, 97], [192, 193, 1, 288], [1301]], ids=str)
@pytest.mark.parametrize("dim", [12, 32])
def test_softmax_at_the_ends_of_blocks_and_of_long_sequences(lengths: list[int], dim: int) -> None:
    check_softmax(lengths, 2, dim, dim)


def test_large_scores_do_not_overflow() -> None:
    rows = 60 * torch.randn(70, 96, generator=torch.Generator().manual_seed(0))
    found = causal_softmax(*rows.split(32, 1), torch.tensor([70]), 2)
    check(found, by_sequence(softmax_of, *rows.double().split(32, 1), [70], 2), 1e-4)  # of scores in the thousands


def dropped(lengths: list[int], heads: int, longest: int, share: float) -> Tensor:
    """[N, h, longest]: what dropout multiplies the weights with. Queries of zero weigh all alike, and values tell columns apart."""
    zeros = torch.zeros(sum(lengths), heads * 4)
    places = torch.cat([torch.arange(length) for length in lengths])
    values = torch.eye(longest)[places].repeat(1, heads)
    found = causal_softmax(zeros, zeros, values, torch.tensor(lengths), heads, share).unflatten(1, (heads, -1))
    return found * (places + 1)[:, None, None]


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_dropout_leaves_out_its_share_of_every_row_column_and_head(share: float) -> None:
    torch.manual_seed(0)
    lengths, heads, longest = [200] * 20, 2, 200
    found = torch.stack(dropped(lengths, heads, longest, share).split(lengths))  # [B, L, h, L]
    seen = torch.ones(longest, longest).tril()[:, None].expand(longest, heads, longest)
    factor = 1 / (1 - share)
    kept = found > 0
    torch.testing.assert_close(found[kept], torch.full_like(found[kept], factor), rtol=1e-5, atol=0)
    assert not kept[:, seen == 0].any()
    kept, cells = kept.double(), seen.double() * len(lengths)
    for over in ((1, 2), (0, 1), (0, 2), (0, 1, 2)):  # of each row, head and column; of all
        counts, of_them = cells.sum(over), kept.sum(0).sum(over)
        far = (of_them / counts - (1 - share)).abs() / (share * (1 - share) / counts).sqrt()
        assert float(far.max()) < 5, far.max()
    seen_rows = kept[:, 100:, :, :100]  # every row sees these columns
    for over in range(4):  # sequences, rows, heads and columns beside one another know nothing of each other
        beside = seen_rows.narrow(over, 0, seen_rows.shape[over] - 1), seen_rows.narrow(over, 1, seen_rows.shape[over] - 1)
        together = torch.corrcoef(torch.stack([part.flatten() for part in beside]))[0, 1]
        assert abs(float(together)) < 5 / beside[0].numel() ** 0.5


def test_dropout_follows_torchs_seed() -> None:
    found = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append([dropped([40], 1, 40, 0.5), dropped([40], 1, 40, 0.5)])
    assert torch.equal(found[0][0], found[1][0]) and torch.equal(found[0][1], found[1][1])
    assert not torch.equal(found[0][0], found[0][1]) and not torch.equal(found[0][0], found[2][0])


@pytest.mark.parametrize("lengths", [[7, 0, 33, 1], [200]], ids=str)
def test_the_backward_pass_leaves_out_the_same_weights(lengths: list[int]) -> None:
    heads, dim, share = 2, 16, 0.4
    rows, sizes = drawn(lengths, heads, dim, dim)
    torch.manual_seed(5)
    mask = dropped(lengths, heads, max(lengths), share).transpose(0, 1).split(lengths, 1)
    kept = iter([own[:, :, :length].double() for own, length in zip(mask, lengths, strict=True)])
    ours, theirs, grad = rows.clone().requires_grad_(), rows.double().requires_grad_(), torch.randn(sum(lengths), sizes[2])
    torch.manual_seed(5)
    found = causal_softmax(*ours.split(sizes, 1), torch.tensor(lengths), heads, share)
    expected = by_sequence(lambda q, k, v: softmax_of(q, k, v, next(kept)), *theirs.split(sizes, 1), lengths, heads)
    found.backward(grad)
    expected.backward(grad.double())
    check(found, expected)
    check(ours.grad, theirs.grad, 4e-6)


def bits(lengths: list[int], threads: int, dropout: float = 0.0) -> tuple[Tensor, Tensor]:
    rows, sizes = drawn(lengths, 2, 20, 32)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(0)
        leaf = rows.requires_grad_()
        found = causal_softmax(*leaf.split(sizes, 1), torch.tensor(lengths), 2, dropout)
        found.square().sum().backward()
    finally:
        torch.set_num_threads(before)
    return found.detach(), leaf.grad


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_no_bit_depends_on_threads(dropout: float) -> None:
    lengths = [3, 150, 0, 41, 7, 1, 260, 12] * 3
    first = bits(lengths, 1, dropout)
    for threads in (2, 3):
        assert all(torch.equal(*pair) for pair in zip(first, bits(lengths, threads, dropout), strict=True))


def test_no_bit_depends_on_company() -> None:
    lengths = [3, 150, 0, 41]
    rows, sizes = drawn(lengths, 2, 20, 32)
    whole = rows.clone().requires_grad_()
    found = causal_softmax(*whole.split(sizes, 1), torch.tensor(lengths), 2)
    found.square().sum().backward()
    for at, (own, out, grad) in enumerate(zip(*(part.split(lengths) for part in (rows, found.detach(), whole.grad)), strict=True)):
        alone = own.clone().requires_grad_()
        result = causal_softmax(*alone.split(sizes, 1), torch.tensor([lengths[at]]), 2)
        result.square().sum().backward()
        assert torch.equal(result, out) and torch.equal(alone.grad, grad)


def test_lengths_that_do_not_add_up_are_refused() -> None:
    rows = torch.randn(5, 8)
    with pytest.raises(IndexError, match="add up to 4, and there are 5 rows"):
        causal_softmax(rows, rows, rows, torch.tensor([4]), 2)

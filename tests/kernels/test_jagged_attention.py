"""Attention over jagged batches on a CPU against torch's definition, in values, gradients and what dropout leaves out."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import silu

from recsys_lab.kernels.jagged_attention import ByTime, attends_on_cpu, causal_silu, causal_softmax, last_silu, last_softmax

if not attends_on_cpu(torch.zeros(1)):
    pytest.skip("no C++ kernels here", allow_module_level=True)

DIVISOR = 50
FORMATS = (torch.float32, torch.float64)
LENGTHS = st.lists(st.integers(0, 40), min_size=1, max_size=6)
WIDTHS = st.sampled_from([1, 3, 8, 16, 20, 32, 50])


def softmax_of(q: Tensor, k: Tensor, v: Tensor, kept: Tensor | None = None) -> Tensor:
    """One sequence, [h, L, d] each. `kept` [h, L, L]: what weights are multiplied with."""
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[2])
    weights = scores.masked_fill(torch.ones(scores.shape[1:], dtype=torch.bool).triu(1), -torch.inf).softmax(2)
    return (weights if kept is None else weights * kept) @ v


def silu_of(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """One sequence, [h, L, d] each, over `DIVISOR`."""
    places = torch.arange(q.shape[1])
    scores = q @ k.transpose(1, 2) + bias[(places[:, None] - places).clamp(0, len(bias) - 1)]
    return (silu(scores) / DIVISOR).tril() @ v


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


def check_silu(lengths: list[int], heads: int, dim: int, value_dim: int, distances: int) -> None:
    rows, sizes = drawn(lengths, heads, dim, value_dim)
    rows, bias, grad = rows / dim**0.25, torch.randn(distances), torch.randn(sum(lengths), sizes[2])
    ours, theirs = ((rows.to(dtype, copy=True).requires_grad_(), bias.to(dtype, copy=True).requires_grad_()) for dtype in FORMATS)
    found = causal_silu(*ours[0].split(sizes, 1), ours[1], torch.tensor(lengths), heads, DIVISOR)
    expected = by_sequence(lambda q, k, v: silu_of(q, k, v, theirs[1]), *theirs[0].split(sizes, 1), lengths, heads)
    found.backward(grad)
    expected.backward(grad.double())
    check(found, expected)
    for mine, true in zip(ours, theirs, strict=True):
        check(mine.grad, true.grad, 4e-6)


@settings(max_examples=40, deadline=None)
@given(LENGTHS, st.integers(1, 3), WIDTHS, WIDTHS, st.integers(1, 50))
def test_silu_is_its_definition_forward_and_backward(lengths: list[int], heads: int, dim: int, value_dim: int, distances: int) -> None:
    check_silu(lengths, heads, dim, value_dim, distances)


@pytest.mark.parametrize("lengths", [[0], [0, 0, 1, 0], [95, 96, 97], [192, 193, 1, 288], [1301]], ids=str)
@pytest.mark.parametrize(("dim", "distances"), [(12, 2000), (32, 100)])
def test_silu_at_the_ends_of_blocks_and_of_long_sequences(lengths: list[int], dim: int, distances: int) -> None:
    check_silu(lengths, 2, dim, dim, distances)


def test_exponentials_are_within_a_few_units_in_the_last_place() -> None:
    """Of sequences of one row SiLU itself comes out: far below zero it is the score times its exponential."""
    scores = torch.linspace(-85, 85, 100_001)[:, None]
    ones, none = torch.ones_like(scores), torch.zeros(1)
    found = causal_silu(scores, ones, ones, none, torch.ones(len(scores), dtype=torch.int64), 1, 1)
    torch.testing.assert_close(found.double(), silu(scores.double()), rtol=4 * 2**-24, atol=0)


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


def threefry(key: tuple[int, int], x: int, y: int) -> tuple[int, int]:
    """Threefry-2x32 with 13 rounds, after Salmon et al. 2011."""
    words, mask = (*key, 0x1BD11BDA ^ key[0] ^ key[1]), 2**32 - 1
    x, y = (x + words[0]) & mask, (y + words[1]) & mask
    for count in range(13):
        left = (13, 15, 26, 6, 17, 29, 16, 24)[count % 8]
        x = (x + y) & mask
        y = ((y << left | y >> (32 - left)) & mask) ^ x
        if count % 4 == 3:
            at = count // 4 + 1
            x, y = (x + words[at % 3]) & mask, (y + words[(at + 1) % 3] + at) & mask
    return x, y


def test_dropout_reads_threefrys_bits() -> None:
    """Two rows have a counter in common: its column, and the first of them with the head. The published answer comes first."""
    assert threefry((0, 0), 0, 0) == (0x9D1C5EC6, 0x8BD50731)
    torch.manual_seed(3)
    key = int(torch.empty((), dtype=torch.int64).random_())
    torch.manual_seed(3)
    found = dropped([3, 9], 2, 9, 0.3) > 0
    for first, length in ((0, 3), (3, 9)):
        for row in range(length):
            for head in range(2):
                for column in range(row + 1):
                    bits = threefry((key & 2**32 - 1, key >> 32), column, (first + row - row % 2) * 2 + head)[row % 2]
                    assert bool(found[first + row, head, column]) == (bits >= 0.3 * 2**32), (row, head, column)


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


#: What each kernel makes of queries, keys, values, a bias, and lengths.
KERNELS: dict[str, Callable[..., Tensor]] = {
    "softmax": lambda q, k, v, bias, lengths: causal_softmax(q, k, v, lengths, 2) + 0.0 * bias.sum(),
    "dropped": lambda q, k, v, bias, lengths: causal_softmax(q, k, v, lengths, 2, 0.3) + 0.0 * bias.sum(),
    "silu": lambda q, k, v, bias, lengths: causal_silu(q, k, v, bias, lengths, 2, DIVISOR),
    "silu by time": lambda q, k, v, bias, lengths: causal_silu(q, k, v, bias[:3], lengths, 2, DIVISOR, by_time(len(q), bias)),
}


def by_time(rows: int, weights: Tensor) -> ByTime:
    """Of times that rise and fall."""
    times = torch.randint(0, 10**9, (rows,), generator=torch.Generator().manual_seed(1))
    return ByTime(times, torch.logspace(0, 9, len(weights) - 1), weights)


def bits(kernel: str, rows: Tensor, sizes: list[int], lengths: list[int]) -> list[Tensor]:
    """Result, and gradients of rows and bias."""
    torch.manual_seed(0)
    leaves = rows.clone().requires_grad_(), torch.linspace(-1, 1, 30).requires_grad_()
    found = KERNELS[kernel](*leaves[0].split(sizes, 1), leaves[1], torch.tensor(lengths))
    found.square().sum().backward()
    return [found.detach(), *(leaf.grad for leaf in leaves)]


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_bit_depends_on_threads(kernel: str) -> None:
    lengths, found = [3, 150, 0, 41, 7, 1, 260, 12] * 3, []
    rows, sizes = drawn(lengths, 2, 20, 32)
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(bits(kernel, rows, sizes, lengths))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(found[0], other, strict=True))


@pytest.mark.parametrize("kernel", ["softmax", "silu"])
def test_no_bit_depends_on_company(kernel: str) -> None:
    lengths = [3, 150, 0, 41]
    rows, sizes = drawn(lengths, 2, 20, 32)
    out, grad, _ = bits(kernel, rows, sizes, lengths)
    for at, own in enumerate(zip(*(part.split(lengths) for part in (rows, out, grad)), strict=True)):
        assert all(torch.equal(*pair) for pair in zip(bits(kernel, own[0], sizes, lengths[at : at + 1]), own[1:], strict=False))


def test_the_last_rows_alone_are_those_of_all_rows() -> None:
    lengths = [3, 0, 150, 1, 41, 0]
    rows, sizes = drawn(lengths, 2, 20, 32)
    (q, k, v), bias, of = rows.split(sizes, 1), torch.linspace(-1, 1, 30), torch.tensor(lengths)
    at, times = of.cumsum(0) - 1, by_time(len(rows), bias)
    for alone, whole in (
        (last_softmax(q[at], k, v, of, 2), causal_softmax(q, k, v, of, 2)),
        (last_silu(q[at], k, v, bias, of, 2, DIVISOR), causal_silu(q, k, v, bias, of, 2, DIVISOR)),
        (last_silu(q[at], k, v, bias, of, 2, DIVISOR, times), causal_silu(q, k, v, bias, of, 2, DIVISOR, times)),
    ):
        assert torch.equal(alone, whole[at] * (of > 0)[:, None])


def test_lengths_that_do_not_add_up_are_refused() -> None:
    rows = torch.randn(5, 8)
    with pytest.raises(IndexError, match="add up to 4, and there are 5 rows"):
        causal_softmax(rows, rows, rows, torch.tensor([4]), 2)

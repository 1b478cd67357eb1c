"""HSTU's attention (Zhai et al. 2024, equation 2): SiLU of each score, and no softmax, over sequences of any length.

Shapes: N rows of B sequences, T the longest of a group, h heads of d columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding, silu

from recsys_lab.kernels.attention import causal_silu
from recsys_lab.kernels.jagged_attention import ByTime, last_silu
from recsys_lab.models.attention import Groups, by_heads, reads_last
from recsys_lab.models.jagged import Places
from recsys_lab.models.linear import matmul
from recsys_lab.models.moved_bytes import one_kernel

#: Of a sequence, so many rows look back together. Longer ones so never make the half of the square that causality cuts off.
ROWS_AT_ONCE = 256
#: Times between two rows that a bias tells apart.
TIME_BUCKETS = 128


@dataclass(frozen=True)
class TimeBias:
    """A bias by the time between two rows: `weights` [TIME_BUCKETS], and `times` int64, seconds, [N] or of a group [b, T]."""

    times: Tensor
    weights: Tensor

    def of_group(self, own: Tensor, group: Places) -> TimeBias:
        """Of some rows, padded [b, T]."""
        return TimeBias(group.padded(self.times[own, None]).squeeze(2), self.weights)

    def of_kernel(self) -> ByTime:
        """Of [N] rows, FP32, on a CPU."""
        return ByTime(self.times.contiguous(), bucket_starts(), self.weights.contiguous())

    def to_last(self, places: Places) -> Tensor:
        """[N]: of each sequence's last row towards each of its rows. `times` are [N]."""
        between = (places.last(self.times[:, None]).squeeze(1)[places.sample] - self.times).abs()
        return self.weights[time_buckets(between)]

    def of_rows(self, start: int, stop: int) -> Tensor:
        """[b, 1, stop - start, stop]: of rows from `start` to `stop` towards those up to `stop`."""
        between = (self.times[:, start:stop, None] - self.times[:, None, :stop]).abs()
        return embedding(time_buckets(between), self.weights[:, None]).squeeze(3)[:, None]


def time_buckets(seconds: Tensor) -> Tensor:
    """int64, of the same shape: floor(log(seconds) / 0.301), as the public code of Zhai et al. has it; the last takes all longer times."""
    return (seconds.clamp(min=1).float().log() / 0.301).long().clamp(max=TIME_BUCKETS - 1)


@cache
def bucket_starts() -> Tensor:
    """FP32 [TIME_BUCKETS - 1]: the least number of each bucket but the first. Found by halving, as logarithms are rounded."""
    below, reached = (torch.full((TIME_BUCKETS - 1,), one).view(torch.int32) for one in (1.0, 3e38))
    while bool((reached - below > 1).any()):
        middle = below + (reached - below) // 2
        reaches = time_buckets(middle.view(torch.float32)) >= torch.arange(1, TIME_BUCKETS)
        below, reached = torch.where(reaches, below, middle), torch.where(reaches, middle, reached)
    return reached.view(torch.float32)


def attend(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    places: Places,
    groups: Groups | None,
    heads: int,
    divisor: int,
    bias: Tensor,
    by_time: TimeBias | None = None,
) -> Tensor:
    """Row i of a sequence -> the sum over its rows j up to i of SiLU(q_i k_j + bias[i - j]) / divisor times v_j, for each head.

    Args:
        queries, keys, values: [N, h * d] each; the width of values may differ.
        places: of the N rows.
        groups: from `Places.groups`; None: a kernel reads sequences of any length.
        heads: h.
        divisor: of the weights.
        bias: [L] by distance, farther rows share the last.
        by_time: a second bias; without `groups` on a CPU alone.

    Returns:
        [N, h * d], as wide as `values`.
    """
    if groups is None:
        kernel = None if by_time is None else by_time.of_kernel()
        return causal_silu(queries, keys, values, bias.float(), places.lengths, places.longest, heads, divisor, kernel)
    attended = torch.zeros_like(values)
    for own, group in groups:
        q, k, v = (by_heads(part[own], group, heads) for part in (queries, keys, values))
        part = attend_in_blocks(q, k, v, group.longest, divisor, bias, by_time and by_time.of_group(own, group))
        attended = attended.index_copy(0, own, group.packed(part.transpose(1, 2).flatten(2)))
    return attended


def attend_last(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    places: Places,
    groups: Groups | None,
    heads: int,
    divisor: int,
    bias: Tensor,
    by_time: TimeBias | None = None,
) -> Tensor:
    """`attend` of the last row of each sequence alone: queries [B, h * d] -> [B, h * d], zeros where it is empty."""
    if reads_last(keys, groups):
        kernel = None if by_time is None else by_time.of_kernel()
        return last_silu(queries, keys, values, bias.float(), places.lengths, heads, divisor, kernel)
    added = bias[places.to_end.clamp(max=len(bias) - 1)]  # [N]
    if by_time is not None:
        added = added + by_time.to_last(places)
    k, v = (by_heads(part, places, heads) for part in (keys, values))
    scores = matmul(queries.unflatten(1, (heads, 1, -1)), k.transpose(2, 3)) + places.padded(added[:, None])[:, None].transpose(2, 3)
    weights = silu(scores) / divisor * places.is_row()[:, None, None]
    return matmul(weights, v).flatten(1)


class Attention:
    """`attend` without a bias, for one layer. For its backward pass it keeps queries, keys and values alone, and scores are computed again.

    A second call, by which a checkpoint restores what it did not keep, gives the result of the first.
    """

    def __init__(self, places: Places, groups: Groups | None, heads: int, divisor: int):
        self.places, self.groups, self.heads, self.divisor = places, groups, heads, divisor
        self.seen: Tensor | None = None  # the first result

    def of_all(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """[N, h * d] each -> [N, h * d]."""
        if self.groups is None:
            none = values.new_zeros(1, dtype=torch.float32)
            return causal_silu(queries, keys, values, none, self.places.lengths, self.places.longest, self.heads, self.divisor)
        return _Attend.apply(queries, keys, values, self)

    def of_last(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """The last row of each sequence alone: queries [B, h * d] -> [B, h * d]. Linear in the length.

        No sequence is empty. SiLU is 0 at 0, so padding adds nothing.
        """
        attended = values.new_zeros(self.places.samples, values.shape[1])
        for own, group in self._groups():
            samples = self.places.sample[own[group.lengths.cumsum(0) - 1]]
            q = queries[samples].unflatten(1, (self.heads, 1, -1))
            k, v = (by_heads(part[own], group, self.heads) for part in (keys, values))
            weights = silu(matmul(q, k.transpose(2, 3))) / self.divisor
            attended = attended.index_copy(0, samples, matmul(weights, v).flatten(1))
        return attended

    def _groups(self) -> Groups:
        """On a GPU one for all, as to tell lengths apart waits for it."""
        if self.groups is None:
            lengths = self.places.lengths
            return self.places.groups(lengths) if lengths.device.type == "cpu" else [(self.places.rows(), self.places)]
        return self.groups


class _Attend(torch.autograd.Function):
    """Of queries, keys and values [N, h * d], group by group and block by block."""

    @staticmethod
    @one_kernel()
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, of: Attention) -> Tensor:
        ctx.of = of
        ctx.save_for_backward(queries, keys, values)
        if of.seen is not None:
            return of.seen.view_as(of.seen)
        attended = torch.zeros_like(values)
        assert of.groups is not None
        for own, group in of.groups:
            q, k, v = (by_heads(part[own], group, of.heads) for part in (queries, keys, values))
            part = torch.empty_like(v)
            for start in range(0, group.longest, ROWS_AT_ONCE):
                stop = min(start + ROWS_AT_ONCE, group.longest)
                weights = silu(matmul(q[:, :, start:stop], k[:, :, :stop].transpose(2, 3))).div_(of.divisor).tril_(start)
                part[:, :, start:stop] = matmul(weights, v[:, :, :stop])
            attended.index_copy_(0, own, group.packed(part.transpose(1, 2).flatten(2)))
        of.seen = attended.detach()
        return attended

    @staticmethod
    @once_differentiable
    @one_kernel()
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        of, inputs = ctx.of, ctx.saved_tensors
        found = [torch.zeros_like(one) for one in inputs]
        for own, group in of.groups:
            q, k, v, g = (by_heads(part[own], group, of.heads) for part in (*inputs, grad))
            of_q, of_k, of_v = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
            for start in range(0, group.longest, ROWS_AT_ONCE):
                stop = min(start + ROWS_AT_ONCE, group.longest)
                rows = slice(start, stop)
                scores = matmul(q[:, :, rows], k[:, :, :stop].transpose(2, 3))
                of_v[:, :, :stop] += matmul((silu(scores) / of.divisor).tril_(start).transpose(2, 3), g[:, :, rows])
                share = torch.sigmoid(scores)
                slope = share * (1 + scores * (1 - share))
                of_scores = (matmul(g[:, :, rows], v[:, :, :stop].transpose(2, 3)) * slope).div_(of.divisor).tril_(start)
                of_q[:, :, rows] = matmul(of_scores, k[:, :, :stop])
                of_k[:, :, :stop] += matmul(of_scores.transpose(2, 3), q[:, :, rows])
            for whole, part in zip(found, (of_q, of_k, of_v)):
                whole.index_copy_(0, own, group.packed(part.transpose(1, 2).flatten(2)))
        return *found, None


def attend_in_blocks(q: Tensor, k: Tensor, v: Tensor, longest: int, divisor: int, bias: Tensor, by_time: TimeBias | None = None) -> Tensor:
    """[b, h, T, d] each -> the same shape: `attend`, padded to T. An exported program has one block, as T is not known there."""
    if torch.compiler.is_exporting():
        return _attend(q, k, v, 0, longest, divisor, bias, by_time)
    blocks = range(0, longest, ROWS_AT_ONCE)
    return torch.cat([_attend(q, k, v, start, min(start + ROWS_AT_ONCE, longest), divisor, bias, by_time) for start in blocks], dim=2)


def _attend(q: Tensor, k: Tensor, v: Tensor, start: int, stop: int, divisor: int, bias: Tensor, by_time: TimeBias | None = None) -> Tensor:
    """[b, h, T, d] each -> [b, h, stop - start, d]: what the rows from `start` to `stop` see of those up to themselves."""
    scores = matmul(q[:, :, start:stop], k[:, :, :stop].transpose(2, 3)) + _relative(bias, start, stop)
    if by_time is not None:
        scores = scores + by_time.of_rows(start, stop)
    return matmul((silu(scores) / divisor).tril(start), v[:, :, :stop])


def _relative(bias: Tensor, start: int, stop: int) -> Tensor:
    """[stop - start, stop]: the bias of row i from `start` on towards row j, by i - j. What is later is cut off behind it."""
    places = torch.arange(stop, device=bias.device)
    return embedding((places[start:, None] - places[None]).clamp(0, len(bias) - 1), bias[:, None]).squeeze(2)

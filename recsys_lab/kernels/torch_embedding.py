"""The embedding kernels in plain PyTorch, on any device. This is what they mean; C++ gives the same bits (recsys_lab/kernels/embedding.py).

Every sum is in FP32, from zero and in the order of the ids. Of a row with more than PIECE occurrences, the gradient is summed in pieces of
PIECE. Then the pieces are summed in order. So several threads can share it, and the result does not depend on their number.

Shapes: E rows, D dimension, B samples, F features, N ids, U distinct rows.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from recsys_lab.kernels.halves import join, split
from recsys_lab.kernels.lookups import Lookups
from recsys_lab.kernels.rule import WITH_SQUARES, Rule

#: Occurrences of a row whose gradients are summed in one go.
PIECE = 4096
#: Of FP16: of its least normal number, and how many bits follow the first.
FP16_LEAST_EXPONENT, FP16_MANTISSA_BITS = -14, 10
#: Rows that are held in FP32 at a time where a table is not FP32.
ROWS_AT_A_TIME = 1 << 17


def bags(weight: torch.Tensor, lookups: Lookups) -> torch.Tensor:
    """Pooled rows [B, F * D] in FP32."""
    assert lookups.offsets is not None
    ids, offsets = lookups.rows(), lookups.offsets
    if weight.dtype == torch.float32 and lookups.weights is None:
        pooled = F.embedding_bag(ids, weight, offsets[:-1].to(ids.dtype), mode="sum")
    else:
        pooled = torch.cat([_gathered(weight, ids, offsets, lookups.weights, first, stop) for first, stop in _groups(offsets)])
    if lookups.mode == "mean":
        pooled = pooled / lookups.lengths().clamp(min=1).unsqueeze(1)
    samples, dim = lookups.samples, weight.shape[1]
    return pooled.view(lookups.features, samples, dim).transpose(0, 1).reshape(samples, lookups.features * dim)


def _groups(offsets: torch.Tensor) -> list[tuple[int, int]]:
    """Neighbouring bags that together have about ROWS_AT_A_TIME ids: (first, stop), at least one group."""
    bags = len(offsets) - 1
    if bags == 0 or int(offsets[-1]) <= ROWS_AT_A_TIME:
        return [(0, bags)]
    starts = torch.arange(0, int(offsets[-1]), ROWS_AT_A_TIME, device=offsets.device)
    cuts = sorted({0, *torch.searchsorted(offsets, starts).clamp(max=bags).tolist(), bags})
    return list(zip(cuts, cuts[1:]))


def _gathered(
    weight: torch.Tensor, ids: torch.Tensor, offsets: torch.Tensor, factors: torch.Tensor | None, first: int, stop: int
) -> torch.Tensor:
    begin, end = int(offsets[first]), int(offsets[stop])
    rows = weight.index_select(0, ids[begin:end]).float()
    if factors is not None:
        rows = rows * factors[begin:end].unsqueeze(1)
    if not stop > first:
        return rows.new_zeros(0, weight.shape[1])
    return F.embedding_bag(torch.arange(end - begin, device=ids.device), rows, offsets[first:stop] - begin, mode="sum")


def rows(weight: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Rows one by one, [N, D] in FP32."""
    return weight.index_select(0, ids).float()


def summed(lookups: Lookups, grad: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Distinct rows [U] in rising order and their summed gradients [U, D] in FP32."""
    grad = per_bag(lookups, grad, dim)
    source = lookups.gradient_rows()
    ids, order = lookups.rows().sort(stable=True)
    if not len(ids):
        return ids.long(), grad.new_zeros(0, dim)
    source = order if source is None else source.index_select(0, order).long()
    if lookups.weights is not None:
        grad = grad.index_select(0, source) * lookups.weights.index_select(0, order).unsqueeze(1)
        source = torch.arange(len(ids), device=ids.device)
    fresh = torch.ones_like(ids, dtype=torch.bool)
    torch.ne(ids[1:], ids[:-1], out=fresh[1:])
    begins = fresh.nonzero().squeeze(1)
    distinct = ids[begins].long()
    many = torch.diff(begins, append=begins.new_full((1,), len(ids)))
    pieces = (many + PIECE - 1) // PIECE
    if int(pieces.max()) == 1:
        return distinct, F.embedding_bag(source, grad, begins, mode="sum")
    first = pieces.cumsum(0) - pieces
    number = torch.arange(int(pieces.sum()), device=ids.device) - torch.repeat_interleave(first, pieces)
    parts = F.embedding_bag(source, grad, torch.repeat_interleave(begins, pieces) + number * PIECE, mode="sum")
    return distinct, F.embedding_bag(torch.arange(len(parts), device=ids.device), parts, first, mode="sum")


def per_bag(lookups: Lookups, grad: torch.Tensor, dim: int) -> torch.Tensor:
    """The gradient that each id of a bag gets, in FP32, as [B * F, D] (or [*, D] of single rows)."""
    grad = grad.float()
    if lookups.mode == "mean":
        lengths = lookups.lengths().view(lookups.features, lookups.samples).t().clamp(min=1)
        grad = grad.reshape(lookups.samples, lookups.features, dim) / lengths.unsqueeze(2)
    return grad.reshape(-1, dim)


def update(
    weight: torch.Tensor,
    low: torch.Tensor | None,
    state: torch.Tensor | None,
    lookups: Lookups,
    grad: torch.Tensor,
    rule: Rule,
    squares: torch.Tensor | None = None,
) -> None:
    """One step of the rows in the batch, in FP32 and stored once."""
    touched, grads = summed(lookups, grad, weight.shape[1])
    values = _read(weight, low, touched)
    if rule.weight_decay or rule.name in WITH_SQUARES:
        moved = grads.ne(0).any(dim=1)
        touched, values, grads = touched[moved], values[moved], grads[moved]
    if rule.weight_decay and rule.name != "lamb":
        grads = grads + values * rule.weight_decay
    moved_to = values - _change(state, squares, touched, values, grads, rule)
    _write(weight, low, touched, rounded_at_random(moved_to, touched, rule.step) if rule.stochastic else moved_to)


def rounded_at_random(values: torch.Tensor, rows: torch.Tensor, step: int) -> torch.Tensor:
    """FP32 [U, D] -> numbers of FP16, each one of its two neighbours there, with the exact value as the mean.

    What decides is a hash of row, column and step. So replicas of a row stay alike, and a resumed run has the same numbers.
    """
    exponent = torch.frexp(values).exponent.double() - 1
    spacing = torch.exp2(exponent.clamp(min=FP16_LEAST_EXPONENT) - FP16_MANTISSA_BITS)
    rounded = ((values.double() / spacing + _uniform(rows, values.shape[1], step)).floor() * spacing).float()
    return torch.where(values.isfinite(), rounded, values)


def _uniform(rows: torch.Tensor, columns: int, step: int) -> torch.Tensor:
    """[U] -> [U, columns] in [0, 1): splitmix64 of row, column and step."""
    of_step = (step * 0x1F123BB5159A55E5 + (1 << 63)) % (1 << 64) - (1 << 63)  # in 64 bits, as torch's own products wrap
    seeds = rows.long().unsqueeze(1) * 0x632BE59BD9B4E019 + torch.arange(columns, device=rows.device) + of_step
    mixed = (seeds + 1) * -0x61C8864680B583EB
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        mixed = (mixed ^ ((mixed >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return ((mixed >> 11) & ((1 << 53) - 1)).double() * 2.0**-53


def _read(weight: torch.Tensor, low: torch.Tensor | None, where: torch.Tensor) -> torch.Tensor:
    """Rows in FP32. Of BF16 beside FP32 master weights, the master."""
    if low is None:
        return weight.index_select(0, where).float()
    rest = low.index_select(0, where)
    return rest if low.dtype == torch.float32 else join(weight.index_select(0, where), rest)


def _write(weight: torch.Tensor, low: torch.Tensor | None, where: torch.Tensor, values: torch.Tensor) -> None:
    """FP32 rows, each stored once."""
    if low is None or low.dtype == torch.float32:
        weight.index_copy_(0, where, values.to(weight.dtype))
    if low is not None:
        high, rest = (None, values) if low.dtype == torch.float32 else split(values, low.dtype)
        low.index_copy_(0, where, rest)
        if high is not None:
            weight.index_copy_(0, where, high)


def _change(
    state: torch.Tensor | None, squares: torch.Tensor | None, touched: torch.Tensor, values: torch.Tensor, grads: torch.Tensor, rule: Rule
) -> torch.Tensor:
    """What is subtracted from the rows' `values`, [U, D]. Moves the states."""
    if rule.name == "sgd":
        return grads * rule.lr
    assert state is not None, f"{rule.name} has a state"
    if rule.name in WITH_SQUARES:
        assert squares is not None, f"{rule.name} has two states"
        mean, square = state.index_select(0, touched), squares.index_select(0, touched)
        mean = mean + (grads - mean) * (1 - rule.beta1)
        square = square * rule.beta2 + grads * grads * (1 - rule.beta2)
        state.index_copy_(0, touched, mean)
        squares.index_copy_(0, touched, square)
        return _trusted(values, mean, square, rule) if rule.name == "lamb" else mean * rule.rate / (_root(square) + rule.eps)
    more = grads * grads if rule.name == "adagrad" else mean_of_squares(grads)
    total = state.index_select(0, touched) + more
    state.index_copy_(0, touched, total)
    if rule.name == "adagrad":
        return grads * rule.lr / (_root(total) + rule.eps)
    rate = torch.full_like(total, rule.lr) / (_root(total) + rule.eps)
    return grads * rate.unsqueeze(1)


def _trusted(values: torch.Tensor, mean: torch.Tensor, square: torch.Tensor, rule: Rule) -> torch.Tensor:
    """LAMB (You et al. 2020, algorithm 2), a layer being a row as in FBGEMM: the step is as long as the row, times the rate.

    A row of zeros takes the step as it is, so that it can begin. FBGEMM's would stay.
    """
    mean, square = mean / (1 - rule.beta1**rule.step), square / (1 - rule.beta2**rule.step)
    direction = mean / (_root(square) + rule.eps) + rule.weight_decay * values
    length, of_row = (x.double().square().sum(dim=1, keepdim=True).sqrt() for x in (direction, values))
    ratio = torch.where((of_row > 0) & (length > 0), of_row / length, 1.0)
    return direction * (rule.lr * ratio).float()


def _root(values: torch.Tensor) -> torch.Tensor:
    """Square roots rounded to nearest. torch's FP32 root can be off by the last bit, depending on the number's place in memory."""
    return values.double().sqrt().float()


def mean_of_squares(grads: torch.Tensor) -> torch.Tensor:
    """[U, D] -> [U]. Sixteen sums side by side over the columns, then added as a tree: an order that sixteen lanes can keep."""
    dim = grads.shape[1]
    squares = F.pad(grads * grads, (0, -dim % 16)).view(len(grads), -(-dim // 16), 16)
    total = torch.zeros_like(squares[:, 0])
    for column in range(squares.shape[1]):
        total = total + squares[:, column]
    while total.shape[1] > 1:
        half = total.shape[1] // 2
        total = total[:, :half] + total[:, half:]
    return total.squeeze(1) / dim

"""DMT's coordinates against autograd, its K-means and groupings by hand, and the pieces of a site's tables by what ranks hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from recsys_lab.errors import UserError
from recsys_lab.sharders.dmt import affinity as plane
from recsys_lab.sharders.dmt.partition import size_bounds
from recsys_lab.sharders.dmt.place import Loads, Site, _assigned, _columns, _cut_more, _first_cut, _work_for_all
from tests.sharders.test_dmt_parts import inputs, table


def drawn(starts: int, features: int, dims: int) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(4)
    targets = torch.rand(features, features, generator=draw, dtype=torch.float64)
    return torch.randn(starts, features, dims, generator=draw, dtype=torch.float64), (targets + targets.T) * (1 - torch.eye(features))


def stress(at: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of each start, pair by pair."""
    pairs = [(i, j) for i in range(len(targets)) for j in range(i)]
    return torch.stack([((one[i] - one[j]).norm() - targets[i, j]) ** 2 for one in at for i, j in pairs]).reshape(len(at), -1).sum(1)


def test_stress_and_its_gradient() -> None:
    at, targets = drawn(3, 5, 4)
    at.requires_grad_()
    found, gradient = plane._stress(at.detach(), targets)
    expected = stress(at, targets)
    expected.sum().backward()
    assert at.grad is not None
    np.testing.assert_allclose(found, expected.detach(), rtol=1e-12)
    np.testing.assert_allclose(gradient, at.grad, rtol=1e-9, atol=1e-12)
    met = torch.zeros(1, 2, 3, dtype=torch.float64)  # two points in one place have no direction to leave it
    assert [each.abs().max().item() for each in plane._stress(met, torch.ones(2, 2).double())] == [pytest.approx(1.0), 0.0]


def test_spare_dimensions_are_pressed_flat_and_then_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam on the stress with a spring on the spare dimensions, harder in each step; from 80 % of the steps on these are 0."""
    monkeypatch.setattr(plane, "STEPS", 10)
    at, targets = drawn(2, 4, 2 + plane.SPARE_DIMS)
    own = at.clone().requires_grad_()
    optimizer = torch.optim.Adam([own], lr=0.05)
    for step in range(10):
        optimizer.param_groups[0]["lr"] = 0.05 * (1 - 0.99 * step / 10)
        spring = 40 * (step / 8) ** 2 if step < 8 else 0.0
        optimizer.zero_grad()
        (stress(own, targets).sum() + spring / 2 * own[:, :, 2:].square().sum()).backward()
        assert own.grad is not None
        if step >= 8:
            own.data[:, :, 2:] = 0
            own.grad[:, :, 2:] = 0
        optimizer.step()
    found, remaining = plane._solved(at, targets, 2)
    np.testing.assert_allclose(found, own.detach()[:, :, :2], rtol=1e-6)
    np.testing.assert_allclose(remaining, stress(own.detach()[:, :, :2], targets), rtol=1e-6)


def test_the_start_with_the_least_stress_counts_around_its_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    _, targets = drawn(1, 4, 2)
    seen: list[tuple[torch.Tensor, int, int]] = []

    def solved(at: torch.Tensor, apart: torch.Tensor, dims: int) -> tuple[torch.Tensor, torch.Tensor]:
        seen.append((at, dims, torch.get_num_threads()))
        return at[:, :, :dims], torch.tensor([3.0, 1.0, 2.0])

    monkeypatch.setattr(plane, "_solved", solved)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    points, remaining = plane.coordinates(targets.numpy(), dims=3, seed=5, starts=3)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)
    start = torch.randn(3, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(5)) * targets.mean()
    assert torch.equal(seen[0][0], start) and seen[0][1:] == (3, 1)
    np.testing.assert_allclose(points, start[1, :, :3] - start[1, :, :3].mean(dim=0))
    assert remaining == 1.0
    plane.coordinates(targets.numpy(), starts=3)
    assert seen[1][0].shape == (3, 4, 5) and seen[1][1] == 2


def test_affinities_of_batches_are_added_sample_by_sample() -> None:
    """Along one axis, at 45 degrees, opposite: cos is 1, 1/2 ** 0.5 and -1; a feature without look-ups counts in no pair."""
    one = torch.tensor([[[2.0, 0.0], [3.0, 0.0]], [[1.0, 0.0], [1.0, 1.0]]])
    other = torch.tensor([[[0.0, 1.0], [0.0, -4.0]], [[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]])
    one, other = one / 4, other / 8  # their lengths count for nothing
    for absolute, expected in (("of_mean", math.sqrt(0.5) / 3), ("of_samples", (2 + math.sqrt(0.5)) / 3)):
        np.testing.assert_allclose(plane.affinity([one, other], absolute), [[1, expected], [expected, 1]], rtol=1e-6)
    np.testing.assert_allclose(plane.affinity([other[1:]]), np.eye(2))
    with pytest.raises(UserError, match="no samples"):
        plane.affinity([])


@pytest.mark.parametrize(
    ("items", "groups", "ratio", "bounds"),
    [
        (8, 2, 1.0, [(4, 4)]),
        (8, 2, 3.0, [(2, 6), (3, 8), (4, 8), (4, 4)]),
        (10, 3, 4 / 3, [(3, 4)]),  # 4 = 3 x 4 / 3, rounded errors aside
        (10, 3, 1.3, [(3, 4)]),
        (10, 3, 2.0, [(2, 4), (3, 6), (3, 4)]),
        (9, 3, 1.0, [(3, 3)]),
        (3, 3, 9.0, [(1, 3), (1, 1)]),
    ],
)
def test_bounds_on_sizes_by_hand(items: int, groups: int, ratio: float, bounds: list[tuple[int, int]]) -> None:
    """From the widest: every least size up to the even one, with as many more as the ratio allows and no more than there are."""
    assert size_bounds(items, groups, ratio) == bounds


def test_of_many_bounds_seven_are_tried_evenly_beside_the_even_one() -> None:
    found = size_bounds(1000, 10, 2.0)  # (50, 100) to (100, 200)
    assert found == [(least, 2 * least) for least in (50, 58, 67, 75, 83, 92, 100)] + [(100, 100)]


def test_columns_of_shards() -> None:
    """Equal widths in multiples of four, the last with the rest."""
    widths = {count: [stop - start for start, stop in _columns(table(dim=30), count)] for count in (1, 2, 3, 4, 5)}
    assert widths == {1: [30], 2: [16, 14], 3: [12, 12, 6], 4: [8, 8, 8, 6], 5: [8, 8, 8, 6]}
    assert _columns(table(dim=30), 3) == [(0, 12), (12, 24), (24, 30)]


def site(lengths: list[float], ranks: int = 4, scheme: str = "auto", rows: tuple[int, ...] = (100, 90)) -> tuple[Site, Loads]:
    tables = [table(name, n) for name, n in zip("abc", rows)]
    return Site(tables, tuple(range(10, 10 + ranks))), Loads(inputs(tables, lengths), scheme)


def test_the_table_with_most_work_in_a_shard_is_cut_until_all_ranks_have_some() -> None:
    """1 + 1 and 2 + 1 rows of 16 numbers for a sample: b is cut first; then a shard of a has 2, of b 1.5."""
    assert _work_for_all(*site([1.0, 2.0], 2)) == {"a": 1, "b": 1}
    assert _work_for_all(*site([1.0, 2.0], 3)) == {"a": 1, "b": 2}
    assert _work_for_all(*site([1.0, 2.0], 4)) == {"a": 2, "b": 2}
    assert _work_for_all(*site([1.0, 9.0], 4)) == {"a": 1, "b": 4}  # 10 are 5 and then 2.5 of the other's 2


def test_long_bags_by_rows_give_every_rank_work() -> None:
    """Then no other table need be cut by columns."""
    assert _first_cut(*site([1.0, 100.0], 4)) == {"a": 1, "b": 0}
    assert _first_cut(*site([1.0, 2.0], 4)) == {"a": 2, "b": 2}
    assert _first_cut(*site([1.0, 100.0], 1)) == {"a": 1, "b": 1}
    for scheme, shards in (("table_wise", 1), ("column_wise", 4), ("row_wise", 0)):
        assert _first_cut(*site([1.0, 100.0], 4, scheme)) == {"a": shards, "b": shards}


def test_of_some_tables_the_one_with_the_largest_shard_is_cut_further() -> None:
    own, loads = site([1.0, 1.0, 1.0], 4, rows=(100, 90, 10))
    shards = {"a": 2, "b": 1, "c": 1}
    assert _cut_more(own, loads, shards, ["a", "b", "c"]) and shards == {"a": 2, "b": 2, "c": 1}
    assert _cut_more(own, loads, shards, ["a", "c"]) and shards == {"a": 4, "b": 2, "c": 1}
    assert _cut_more(own, loads, shards, ["a", "c"]) and shards == {"a": 4, "b": 2, "c": 2}  # a has no columns left
    assert _cut_more(own, loads, shards, ["a"]) and shards == {"a": 0, "b": 2, "c": 2}
    assert not _cut_more(own, loads, shards, ["a"]) and shards == {"a": 0, "b": 2, "c": 2}


def test_bytes_of_ranks_with_row_blocks_and_columns() -> None:
    """a by rows: 34, 34 and 32 rows of 64 bytes. The last rank has least; b's halves of 200 x 32 bytes are on different ranks."""
    own, loads = site([1.0, 1.0], 3, rows=(100, 200))
    placements, sizes = _assigned(own, loads, {"a": 0, "b": 2})
    assert [(s.ranks, s.rows) for s in placements["a"].shards] == [((10,), 34), ((11,), 34), ((12,), 32)]
    assert [(s.ranks, s.col_start, s.col_stop) for s in placements["b"].shards] == [((12,), 0, 8), ((10,), 8, 16)]
    assert sizes == {10: 34 * 64 + 200 * 32, 11: 34 * 64, 12: 32 * 64 + 200 * 32}
    assert _assigned(own, loads, {"a": 0, "b": 1})[1] == {10: 34 * 64, 11: 34 * 64, 12: 32 * 64 + 200 * 64}
